"""The official client against a server: python3 openai_client.py URL MODEL [KEY]"""

import concurrent.futures
import sys

import openai

url, model, *key = sys.argv[1:]
client = openai.OpenAI(base_url=url, api_key=key[0] if key else "none", max_retries=0, timeout=60)
hello = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello hello"}]
ours = {"ignore_eos": True}


def chat(**more):
    options = {"model": model, "messages": hello, "max_tokens": 30, "extra_body": ours, **more}
    return client.chat.completions.create(**options)


def refused(kind, param, call):
    try:
        call()
    except kind as error:
        assert error.body["param"] == param, error.body
        return
    raise AssertionError(f"not refused: {param}")


# Which model there is.
assert [one.id for one in client.models.list()] == [model]
assert client.models.retrieve(model).id == model

# Whole and in pieces.
whole = chat()
text = whole.choices[0].message.content
assert whole.choices[0].finish_reason == "length" and whole.usage.completion_tokens == 30 and whole.model == model
assert whole.usage.sluice["accepted"] >= 0 and whole.usage.prompt_tokens_details.cached_tokens >= 0
pieces = list(chat(stream=True, stream_options={"include_usage": True}))
assert "".join(p.choices[0].delta.content or "" for p in pieces if p.choices) == text
assert pieces[0].choices[0].delta.role == "assistant" and pieces[-1].usage.completion_tokens == 30

# Seeds and methods.
warm = {"temperature": 1.0, "seed": 5}
drawn = chat(**warm).choices[0].message.content
assert chat(**warm).choices[0].message.content == drawn
assert chat(**warm, extra_body={**ours, "method": "ar"}).choices[0].message.content == drawn

# Stop strings, and an answer that is the longest it may be.
at = next(i for i in range(len(text) // 2, len(text)) if text[i] != "\ufffd")
stop = text[at:at + 3]
stopped = chat(stop=[stop, "nowhere"])
assert stopped.choices[0].message.content == text[:text.index(stop)] and stopped.choices[0].finish_reason == "stop"
assert chat(max_tokens=openai.NOT_GIVEN, max_completion_tokens=7).usage.completion_tokens == 7

# Texts.
done = client.completions.create(model=model, prompt="one two", max_tokens=9, extra_body=ours)
pieces = client.completions.create(model=model, prompt="one two", max_tokens=9, extra_body=ours, stream=True)
assert "".join(p.choices[0].text for p in pieces) == done.choices[0].text

# What is refused.
refused(openai.BadRequestError, "n", lambda: chat(n=2))
refused(openai.BadRequestError, "temperature", lambda: chat(temperature=-1))
refused(openai.BadRequestError, "response_format", lambda: chat(response_format={"type": "json_object"}))
refused(openai.NotFoundError, "model", lambda: chat(model="another"))
if key:
    refused(openai.AuthenticationError, None, client.with_options(api_key="another").models.list)

# Who breaks off, and many at a time.
with chat(stream=True, max_tokens=400) as stream:
    next(iter(stream))
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    answers = list(pool.map(lambda seed: chat(temperature=1.0, seed=seed).choices[0].message.content, [5, 6, 7, 8] * 2))
assert answers[:4] == answers[4:] and answers[0] == drawn
print("all is well")
