"""The official client against a server: python3 openai_client.py URL MODEL [KEY]"""

import concurrent.futures
import json
import sys
import time
import typing
import urllib.request

import openai
import pydantic

url, model, *key = sys.argv[1:]
asked = set()  # requests that differ in method, path or body


def count(request):
    asked.add((request.method, request.url.path, request.read()))


client = openai.OpenAI(base_url=url, api_key=key[0] if key else "none", max_retries=0, timeout=60,
                       http_client=openai.DefaultHttpxClient(event_hooks={"request": [count]}))
hello = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello hello"}]
ours = {"ignore_eos": True}


def chat(**more):
    options = {"model": model, "messages": hello, "max_tokens": 30, "extra_body": ours, **more}
    return client.chat.completions.create(**options)


def ours_at(path, body=None):
    """What is not of OpenAI's API."""
    headers = {"Authorization": f"Bearer {key[0]}"} if key else {}
    request = urllib.request.Request(url.removesuffix("/v1") + path, json.dumps(body).encode() if body else None, headers)
    return json.load(urllib.request.urlopen(request))


def idle_soon():
    until = time.monotonic() + 20
    while ours_at("/health")["running"] > 0:
        assert time.monotonic() < until, "whoever has gone is still computed for"
        time.sleep(0.05)


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
assert sum(p.sluice["tokens"] for p in pieces if "sluice" in p.model_extra) == 30

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

by_ids = client.completions.create(model=model, prompt=[1, 2, 3], max_tokens=9, extra_body=ours)
assert by_ids.choices[0].finish_reason == "length" and by_ids.usage.prompt_tokens == 3

# Several answers, each that of its own seed.
several = chat(**warm, n=3)
assert [one.index for one in several.choices] == [0, 1, 2] and several.usage.completion_tokens == 90
assert several.choices[0].message.content == drawn
assert several.choices[2].message.content == chat(temperature=1.0, seed=7).choices[0].message.content
texts = {}
for piece in chat(**warm, n=3, stream=True):
    for one in piece.choices:
        texts[one.index] = texts.get(one.index, "") + (one.delta.content or "")
assert [texts[i] for i in range(3)] == [one.message.content for one in several.choices]
two = client.completions.create(model=model, prompt="one two", max_tokens=5, n=2, temperature=1, seed=1, extra_body=ours)
assert len(two.choices) == 2

# Penalties and biases.
penalised = chat(presence_penalty=1.0, frequency_penalty=0.5).choices[0].message.content
assert chat(presence_penalty=1.0, frequency_penalty=0.5,
            extra_body={**ours, "method": "ar"}).choices[0].message.content == penalised
assert chat(presence_penalty=0, frequency_penalty=0).choices[0].message.content == text
assert len(set(chat(logit_bias={"70": 100}, max_tokens=6).choices[0].message.content)) <= 1
assert chat(extra_body={**ours, "repeat_penalty": 1.3}).usage.completion_tokens == 30
assert chat(temperature=1.0, seed=5, top_p=0.5).usage.completion_tokens == 30

# Log-probabilities: the same whoever guesses, whole and in pieces.
likely = chat(logprobs=True, top_logprobs=3).choices[0].logprobs.content
assert len(likely) == 30 and all(len(one.top_logprobs) == 3 for one in likely)
assert all(one.top_logprobs[0].logprob == one.logprob for one in likely)
plain = chat(logprobs=True, top_logprobs=3, extra_body={**ours, "method": "ar"}).choices[0].logprobs.content
assert plain == likely
pieces = chat(logprobs=True, top_logprobs=3, stream=True)
assert [one for p in pieces for c in p.choices if c.logprobs for one in c.logprobs.content] == likely
assert chat(logprobs=True).choices[0].logprobs.content[0].top_logprobs == []
lists = client.completions.create(model=model, prompt="one", max_tokens=4, logprobs=2, extra_body=ours).choices[0].logprobs
assert len(lists.tokens) == len(lists.token_logprobs) == len(lists.top_logprobs) == len(lists.text_offset) == 4

# Forms: JSON of a schema, the same by every method, and a regular expression.
weather = {"type": "object", "required": ["sky", "degrees"], "properties": {
    "sky": {"enum": ["blue", "grey"]}, "degrees": {"type": "integer", "minimum": 0, "maximum": 99}}}
formed = {"response_format": {"type": "json_schema", "json_schema": {"name": "weather", "schema": weather}},
          "max_tokens": 300, **warm}
said = chat(**formed, extra_body={}).choices[0]
assert said.finish_reason == "stop" and json.loads(said.message.content)["sky"] in ("blue", "grey")
assert chat(**formed, extra_body={"method": "ar"}).choices[0].message.content == said.message.content
assert set(chat(**warm, extra_body={"regex": "[ab]{5}"}).choices[0].message.content) <= {"a", "b"}

# Tools: what the model says is no call of one, so it stays content.
weather = {"type": "function", "function": {"name": "get_weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
told = chat(tools=[weather], tool_choice="auto")
assert told.choices[0].message.content and not told.choices[0].message.tool_calls
pieces = list(chat(tools=[weather], stream=True))
assert "".join(p.choices[0].delta.content or "" for p in pieces) == told.choices[0].message.content
assert pieces[-1].choices[0].finish_reason == "length"
assert chat(tools=[weather], tool_choice="none", parallel_tool_calls=False).usage.completion_tokens == 30
call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
turns = [{"role": "user", "content": "Weather?"}, {"role": "assistant", "content": None, "tool_calls": [call]},
         {"role": "tool", "tool_call_id": "call_1", "content": "It rains."}]
assert chat(messages=turns, tools=[weather]).usage.completion_tokens == 30
parts = [{"role": "user", "content": [{"type": "text", "text": "hello"}, {"type": "text", "text": " hello"}]}]
assert chat(messages=hello[:1] + parts).choices[0].message.content == text

# What is refused.
refused(openai.BadRequestError, "n", lambda: chat(n=17))
refused(openai.BadRequestError, "tool_choice", lambda: chat(tools=[weather], tool_choice="required"))
refused(openai.BadRequestError, "top_logprobs", lambda: chat(top_logprobs=3))
refused(openai.BadRequestError, "presence_penalty", lambda: chat(presence_penalty=3))
refused(openai.BadRequestError, "messages[0].role", lambda: chat(messages=[{"role": "nobody", "content": "x"}]))
refused(openai.BadRequestError, "temperature", lambda: chat(temperature=-1))
thing = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "thing"}}}
refused(openai.BadRequestError, "response_format.json_schema.schema", lambda: chat(response_format=thing, extra_body={}))
refused(openai.NotFoundError, "model", lambda: chat(model="another"))
if key:
    refused(openai.AuthenticationError, None, client.with_options(api_key="another").models.list)

# The same answers by the Responses API.
def respond(**more):
    options = {"model": model, "input": "hello hello", "instructions": "Be brief.", "max_output_tokens": 30,
               "extra_body": ours, **more}
    return client.responses.create(**options)


said = respond()
assert said.output_text == text and said.status == "incomplete" and said.model == model
assert said.incomplete_details.reason == "max_output_tokens" and said.store is False and said.instructions == "Be brief."
assert said.usage.output_tokens == 30 and said.usage.input_tokens == whole.usage.prompt_tokens
assert said.usage.total_tokens == 30 + said.usage.input_tokens and said.usage.input_tokens_details.cached_tokens >= 0
items = [{"role": "user", "content": [{"type": "input_text", "text": "hello"}, {"type": "input_text", "text": " hello"}]}]
assert respond(input=items).output_text == text
assert respond(input=hello, instructions=None).output_text == text
assert respond(temperature=1.0, extra_body={**ours, "seed": 5}).output_text == drawn
assert respond(temperature=1.0, top_p=0.5, extra_body={**ours, "seed": 5}).usage.output_tokens == 30
assert respond(extra_body={**ours, "method": "ar"}).output_text == text
events = list(respond(stream=True))
assert [e.sequence_number for e in events] == list(range(len(events)))
assert [e.type for e in events[:4]] == ["response.created", "response.in_progress", "response.output_item.added",
                                        "response.content_part.added"]
assert [e.type for e in events[-4:]] == ["response.output_text.done", "response.content_part.done",
                                         "response.output_item.done", "response.incomplete"]
assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == text == events[-4].text
assert events[-1].response.output_text == text and events[-1].response.usage.output_tokens == 30
with client.responses.stream(model=model, input="hello", max_output_tokens=9, extra_body=ours) as stream:
    snapshots = [e.snapshot for e in stream if e.type == "response.output_text.delta"]
assert snapshots and all(later.startswith(earlier) for earlier, later in zip(snapshots, snapshots[1:]))
ends = ours_at("/tokenize", {"content": ours_at("/props")["eos_token"]})["tokens"][0]
with client.responses.stream(model=model, input="hello", extra_body={"logit_bias": {ends: 100}}) as stream:
    over = stream.get_final_response()
assert over.status == "completed" and over.output == [] and over.incomplete_details is None

flat = {"type": "function", "strict": False, **weather["function"]}
told = respond(tools=[flat], tool_choice="auto", parallel_tool_calls=False)
assert told.output_text == chat(tools=[weather], parallel_tool_calls=False).choices[0].message.content
assert told.tools[0].name == "get_weather" and told.parallel_tool_calls is False
turns = [{"role": "user", "content": "Weather?"},
         {"type": "function_call", "call_id": "call_1", "name": "get_weather", "arguments": '{"city": "Paris"}'},
         {"type": "function_call_output", "call_id": "call_1", "output": "It rains."}]
assert respond(input=turns, tools=[flat], tool_choice="none").usage.output_tokens == 30
assert respond(input=[*items, *said.output, {"role": "user", "content": "and more"}]).usage.input_tokens > \
    said.usage.input_tokens
assert respond(store=False, text={"format": {"type": "text"}}, truncation="disabled", metadata={"a": "b"}).output_text == text

# Forms by the Responses API: that of chats, as a class, and in pieces.
class Weather(pydantic.BaseModel):
    sky: typing.Literal["blue", "grey"]
    degrees: typing.Annotated[int, pydantic.Field(ge=0, le=99)]


seeded = {"temperature": 1.0, "max_output_tokens": 300, "extra_body": {"seed": 5}}
form = {"type": "json_schema", "name": "weather", "schema": Weather.model_json_schema(), "strict": True}
told = respond(text={"format": form}, **seeded)
assert told.status == "completed" and told.text.format.name == "weather"
Weather.model_validate_json(told.output_text)
chats = {"type": "json_schema", "json_schema": {"name": "weather", "schema": Weather.model_json_schema()}}
assert chat(response_format=chats, max_tokens=300, temperature=1.0, seed=5,
            extra_body={}).choices[0].message.content == told.output_text
events = list(respond(text={"format": form}, stream=True, **seeded))
assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == told.output_text
asked_for = {"model": model, "input": "hello hello", **seeded}
assert isinstance(client.responses.parse(**asked_for, text_format=Weather).output_parsed, Weather)
with client.responses.stream(**asked_for, text_format=Weather) as stream:
    assert isinstance(stream.get_final_response().output_parsed, Weather)
assert respond(text={"format": {"type": "json_object"}}, **seeded).output_text.lstrip().startswith("{")
thing = {"type": "json_schema", "name": "x", "schema": {"type": "thing"}}
refused(openai.BadRequestError, "text.format.schema", lambda: respond(text={"format": thing}, extra_body={}))
refused(openai.BadRequestError, "store", lambda: respond(store=True))
refused(openai.BadRequestError, "previous_response_id", lambda: respond(previous_response_id=said.id))
refused(openai.BadRequestError, "text.format", lambda: respond(text={"format": {"type": "magic"}}))
refused(openai.BadRequestError, "reasoning.effort", lambda: respond(reasoning={"effort": "high"}))
refused(openai.BadRequestError, "tools[0]", lambda: respond(tools=[{"type": "web_search"}]))
refused(openai.BadRequestError, "tool_choice", lambda: respond(tool_choice="required"))
refused(openai.BadRequestError, "input[0].type", lambda: respond(input=[{"type": "item_reference", "id": "msg_1"}]))
refused(openai.NotFoundError, "model", lambda: respond(model="another"))

# Who breaks off, and many at a time.
for broken in (lambda: chat(stream=True, max_tokens=400), lambda: respond(stream=True, max_output_tokens=401)):
    with broken() as stream:
        next(iter(stream))
    idle_soon()
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    answers = list(pool.map(lambda seed: chat(temperature=1.0, seed=seed).choices[0].message.content, [5, 6, 7, 8] * 2))
assert answers[:4] == answers[4:] and answers[0] == drawn
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    answers = list(pool.map(lambda seed: respond(temperature=1.0, extra_body={**ours, "seed": seed}).output_text, [5, 6] * 4))
assert answers[0] == drawn and len(set(answers)) == 2
print(f"all is well: {len(asked)} calls that differ")
assert len(asked) >= 40
