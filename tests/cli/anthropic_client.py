"""The official client of Anthropic's API against a server: python3 anthropic_client.py URL MODEL [KEY]"""

import concurrent.futures
import sys

import anthropic

url, model, *key = sys.argv[1:]
asked = set()  # requests that differ in method, path or body


def count(request):
    asked.add((request.method, request.url.path, request.read()))


def open_client(**credentials):
    return anthropic.Anthropic(base_url=url.removesuffix("/v1"), max_retries=0, timeout=60,
                               http_client=anthropic.DefaultHttpxClient(event_hooks={"request": [count]}), **credentials)


client = open_client(api_key=key[0] if key else "none")
hello = [{"role": "user", "content": "hello hello"}]
ours = {"ignore_eos": True}
system = "Be brief."


def ask(**more):
    options = {"model": model, "messages": hello, "system": system, "max_tokens": 30, "extra_body": ours, **more}
    return client.messages.create(**options)


def refused(kind, what, call):
    try:
        call()
    except kind as error:
        assert error.body["type"] == "error" and error.body["error"]["type"], error.body
        assert error.body["error"]["message"].startswith(what), error.body
        return
    raise AssertionError(f"not refused: {what}")


# Which model there is.
assert [one.id for one in client.models.list().data] == [model]

# Whole and in pieces.
whole = ask()
text = whole.content[0].text
assert whole.type == "message" and whole.role == "assistant" and whole.model == model and len(whole.content) == 1
assert whole.stop_reason == "max_tokens" and whole.stop_sequence is None and whole.usage.output_tokens == 30
n_input = whole.usage.input_tokens + whole.usage.cache_read_input_tokens
pieces = list(ask(stream=True))
assert [e.type for e in pieces[:2]] == ["message_start", "content_block_start"]
assert [e.type for e in pieces[-3:]] == ["content_block_stop", "message_delta", "message_stop"]
assert "".join(e.delta.text for e in pieces if e.type == "content_block_delta") == text
assert pieces[0].message.usage.input_tokens == n_input and pieces[-2].usage.output_tokens == 30
with client.messages.stream(model=model, messages=hello, system=system, max_tokens=30, metadata={"user_id": "me"},
                            extra_body=ours) as stream:
    said = "".join(stream.text_stream)
    final = stream.get_final_message()
assert said == text == final.content[0].text and final.stop_reason == "max_tokens" and final.usage.output_tokens == 30

# What a prompt takes, and that it is found again.
assert client.messages.count_tokens(model=model, messages=hello, system=system).input_tokens == n_input
assert client.messages.count_tokens(model=model, messages=hello).input_tokens != n_input
assert ask(max_tokens=2).usage.cache_read_input_tokens > 0

# Seeds and methods.
warm = {**ours, "temperature": 1.0, "seed": 5, "top_k": 40, "top_p": 0.95}
drawn = ask(extra_body=warm).content[0].text
assert ask(extra_body=warm).content[0].text == drawn
assert ask(extra_body={**warm, "method": "ar"}).content[0].text == drawn

# Stop sequences.
at = next(i for i in range(len(text) // 2, len(text)) if text[i] != "\ufffd")
stop = text[at:at + 3]
stopped = ask(stop_sequences=[stop, "nowhere"])
assert stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == stop
assert "".join(block.text for block in stopped.content) == text[:text.index(stop)]

# Blocks of a conversation, and tools: what the model says is no call of one, so it stays text.
blocks = [{"type": "text", "text": "hello"}, {"type": "text", "text": " hello", "cache_control": {"type": "ephemeral"}}]
assert ask(messages=[{"role": "user", "content": blocks}], system=[{"type": "text", "text": system}]).content[0].text == text
weather = {"name": "get_weather", "description": "The weather of a place",
           "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}
told = ask(tools=[weather])
assert told.content[0].type == "text" and told.stop_reason == "max_tokens" and told.usage.output_tokens == 30
assert ask(tools=[weather], tool_choice={"type": "none"}).usage.output_tokens == 30
turns = [{"role": "user", "content": "Weather?"},
         {"role": "assistant", "content": [{"type": "text", "text": "I look."}, {
             "type": "tool_use", "id": "call_1", "name": "get_weather", "input": {"city": "Paris"}}]},
         {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": "It rains."}]}]
assert ask(messages=turns, tools=[weather]).usage.output_tokens == 30
more = [*hello, {"role": "assistant", "content": whole.content}, {"role": "user", "content": "and more"}]
assert ask(messages=more).usage.cache_read_input_tokens > 0
assert ask(thinking={"type": "disabled"}, metadata={"user_id": "me"}).content[0].text == text

# What is refused.
refused(anthropic.BadRequestError, "thinking.budget_tokens", lambda: ask(thinking={"type": "enabled", "budget_tokens": 1024}))
refused(anthropic.BadRequestError, "tool_choice", lambda: ask(tools=[weather], tool_choice={"type": "any"}))
refused(anthropic.BadRequestError, "messages", lambda: ask(messages=[*hello, {"role": "assistant", "content": "It is"}]))
refused(anthropic.BadRequestError, "messages[0].content[0].type", lambda: ask(messages=[{"role": "user", "content": [
    {"type": "image", "source": {"type": "url", "url": "http://x"}}]}]))
refused(anthropic.BadRequestError, "max_tokens", lambda: ask(max_tokens=0))
refused(anthropic.NotFoundError, "model", lambda: ask(model="another"))
if key:
    assert open_client(auth_token=key[0]).messages.count_tokens(model=model, messages=hello).input_tokens != n_input
    client, right = open_client(api_key="another"), client
    refused(anthropic.AuthenticationError, "this server wants its key", ask)
    client = right

# Who breaks off, and many at a time.
with ask(stream=True, max_tokens=400) as stream:
    next(iter(stream))
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    answers = list(pool.map(lambda seed: ask(extra_body={**warm, "seed": seed}).content[0].text, [5, 6] * 4))
assert answers[0] == drawn and len(set(answers)) == 2
print(f"all is well: {len(asked)} calls that differ")
assert len(asked) >= 12
