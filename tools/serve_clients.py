#!/usr/bin/env python3
"""OpenAI's own client against a running `tapml serve`: what it reads of answers, streams, calls and errors.

    python tools/serve_clients.py http://127.0.0.1:8080/v1

Needs openai. The model may say anything: what is checked are the forms that the client relies on, and that parts join to the whole.
"""

import json
import sys

import openai

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Tell me a story."}]
TOOL = {
    "type": "function",
    "function": {
        "name": "get_time",
        "parameters": {"type": "object", "properties": {"zone": {"enum": ["UTC", "CET"]}}, "additionalProperties": False},
    },
}


def expect(condition, *found):
    if not condition:
        raise AssertionError(found)


def refused(kind, **body):
    """The error that the client raises for a chat."""
    try:
        chat(**body)
    except kind as error:
        return error
    raise AssertionError(f"{body} was not refused with {kind.__name__}")


def whole_and_streamed():
    options = {"max_tokens": 24, "temperature": 0, "logprobs": True, "top_logprobs": 2}
    answer = chat(messages=MESSAGES, **options)
    choice = answer.choices[0]
    expect(choice.message.role == "assistant" and choice.finish_reason in ("stop", "length"), answer)
    expect(answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens, answer.usage)
    expect("".join(token.token for token in choice.logprobs.content) == choice.message.content, choice)
    chunks = list(chat(messages=MESSAGES, stream=True, stream_options={"include_usage": True}, **options))
    expect(chunks[0].choices[0].delta.role == "assistant", chunks[0])
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    expect(text == choice.message.content, text, choice.message.content)
    expect(not chunks[-1].choices and chunks[-1].usage.total_tokens == answer.usage.total_tokens, chunks[-1])


def streamed_with_helper():
    """The client's own accumulation of chunks."""
    options = {"messages": MESSAGES, "max_tokens": 8, "temperature": 0}
    with client.chat.completions.stream(model=model, **options) as stream:
        for _ in stream:
            pass
        final = stream.current_completion_snapshot
    expect(final.choices[0].message.content == chat(**options).choices[0].message.content, final)


def completions():
    answer = client.completions.create(model=model, prompt=["Once", "Tom had"], max_tokens=5, n=2, echo=True, logprobs=1, seed=1)
    expect([choice.index for choice in answer.choices] == [0, 1, 2, 3], answer)
    expect(answer.choices[3].text.startswith("Tom had"), answer.choices[3])
    expect(answer.choices[0].logprobs.token_logprobs[0] is None, answer.choices[0])


def tools():
    try:
        answer = chat(messages=MESSAGES, tools=[TOOL], max_tokens=8)
    except openai.BadRequestError as error:
        # A template without functions is told, and nothing is left out in silence.
        expect(error.param == "tools", error.body)
        return
    expect(answer.choices[0].finish_reason in ("stop", "length", "tool_calls"), answer)
    answer = chat(messages=MESSAGES, tools=[TOOL], tool_choice="required", parallel_tool_calls=False, max_tokens=200)
    call = answer.choices[0].message.tool_calls[0]
    expect(call.function.name == TOOL["function"]["name"], answer)
    expect(isinstance(json.loads(call.function.arguments), dict), answer)


def structured():
    schema = {
        "type": "object",
        "properties": {"hero": {"enum": ["Tom", "Lily"]}, "age": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["hero", "age"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "story", "strict": True, "schema": schema}}
    answer = chat(messages=MESSAGES, response_format=form, max_tokens=100)
    story = json.loads(answer.choices[0].message.content)
    expect(story["hero"] in ("Tom", "Lily") and 1 <= story["age"] <= 9, answer)


def errors():
    schema = {"type": "json_schema", "json_schema": {"name": "story", "schema": {"not": {}}}}
    error = refused(openai.BadRequestError, messages=MESSAGES, response_format=schema)
    expect(error.param == "response_format", error.body)
    error = refused(openai.BadRequestError, messages=[{"role": "user", "content": "a " * 200_000}])
    expect(error.code == "context_length_exceeded", error.body)
    image = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}]
    refused(openai.BadRequestError, messages=[{"role": "user", "content": image}])
    refused(openai.NotFoundError, messages=MESSAGES, model="another")


client = openai.OpenAI(base_url=sys.argv[1], api_key=sys.argv[2] if len(sys.argv) > 2 else "none", max_retries=0)
model = client.models.list().data[0].id
expect(client.models.retrieve(model).id == model)


def chat(**body):
    return client.chat.completions.create(**{"model": model, **body})


for scenario in (whole_and_streamed, streamed_with_helper, completions, tools, structured, errors):
    scenario()
    print(f"ok {scenario.__name__}")
