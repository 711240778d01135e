#!/usr/bin/env python3
"""The clients of OpenAI and Anthropic against a running `tapml serve`: what they read of answers, streams, calls and errors.

    python tools/serve_clients.py http://127.0.0.1:8080/v1

Needs openai and anthropic. The model may say anything: what is checked are the forms that the clients rely on, and that parts join
to the whole.
"""

import json
import sys

import anthropic
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
    result = {"role": "tool", "tool_call_id": call.id, "content": "noon"}
    turns = [*MESSAGES, answer.choices[0].message.to_dict(), result]
    expect(list(chat(messages=turns, tools=[TOOL], max_tokens=8, stream=True)))


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


def messages():
    """Anthropic's client."""
    options = {"model": model, "max_tokens": 24, "system": "Be brief.", "messages": MESSAGES[1:], "extra_body": {"temperature": 0}}
    answer = claude.messages.create(**options)
    expect(answer.role == "assistant" and answer.stop_reason in ("end_turn", "max_tokens"), answer)
    text = "".join(block.text for block in answer.content)
    with claude.messages.stream(**options) as stream:
        expect("".join(stream.text_stream) == text, text)
        final = stream.get_final_message()
    expect(final.content[0].text == text and final.stop_reason == answer.stop_reason, final, answer)
    usage = final.usage
    count = claude.messages.count_tokens(model=model, system=options["system"], messages=options["messages"])
    expect(usage.input_tokens + usage.cache_read_input_tokens == count.input_tokens, usage, count)
    expect(usage.output_tokens == answer.usage.output_tokens > 0, usage)
    whole = claude.messages.create(**options, stop_sequences=[text[3:6]])
    expect(whole.stop_reason == "stop_sequence" and whole.stop_sequence == text[3:6], whole)


def messages_with_tools():
    tool = {"name": "get_time", "input_schema": TOOL["function"]["parameters"]}
    options = {"model": model, "max_tokens": 200, "tools": [tool]}
    choice = {"type": "any", "disable_parallel_tool_use": True}
    with claude.messages.stream(**options, messages=MESSAGES[1:], tool_choice=choice) as stream:
        answer = stream.get_final_message()
    call = answer.content[-1]
    expect(answer.stop_reason == call.type == "tool_use" and call.input.keys() <= {"zone"}, answer)
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "noon"}
    turns = [*MESSAGES[1:], {"role": "assistant", "content": answer.content}, {"role": "user", "content": [result]}]
    expect(claude.messages.create(**{**options, "max_tokens": 8}, messages=turns).role == "assistant")
    try:
        claude.messages.create(**options, messages=[{"role": "user", "content": [{"type": "image", "source": {}}]}])
    except anthropic.BadRequestError as error:
        expect(error.body["error"]["type"] == "invalid_request_error", error.body)
    else:
        raise AssertionError("an image was not refused")


def responses():
    options = {"model": model, "max_output_tokens": 24, "temperature": 0, "instructions": "Be brief."}
    answer = client.responses.create(**options, input="Tell me a story.")
    expect(answer.status in ("completed", "incomplete") and answer.output[0].role == "assistant", answer)
    expect(answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens, answer.usage)
    with client.responses.stream(**options, input=MESSAGES[1:]) as stream:
        events = list(stream)
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    # The client's own way to the last response knows complete ones alone.
    final = events[-1].response
    expect("".join(deltas) == final.output_text == answer.output_text, final, answer)
    function = {"type": "function", "strict": True, **TOOL["function"]}
    options = {"model": model, "max_output_tokens": 200, "tools": [function], "parallel_tool_calls": False}
    with client.responses.stream(**options, input=MESSAGES[1:], tool_choice="required") as stream:
        answer = stream.get_final_response()
    call = answer.output[-1]
    expect(call.type == "function_call" and json.loads(call.arguments).keys() <= {"zone"}, answer)
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "noon"}
    turns = [*MESSAGES[1:], *[item.to_dict() for item in answer.output], result]
    expect(client.responses.create(**options, input=turns).output)
    try:
        client.responses.create(**options, input="And then?", previous_response_id=answer.id)
    except openai.BadRequestError as error:
        expect(error.param == "previous_response_id", error.body)
    else:
        raise AssertionError("a former response was not refused")


def errors():
    schema = {"type": "json_schema", "json_schema": {"name": "story", "schema": {"not": {}}}}
    error = refused(openai.BadRequestError, messages=MESSAGES, response_format=schema)
    expect(error.param == "response_format", error.body)
    error = refused(openai.BadRequestError, messages=[{"role": "user", "content": "a " * 200_000}])
    expect(error.code == "context_length_exceeded", error.body)
    image = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}]
    refused(openai.BadRequestError, messages=[{"role": "user", "content": image}])
    refused(openai.NotFoundError, messages=MESSAGES, model="another")


url, key = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "none"
client = openai.OpenAI(base_url=url, api_key=key, max_retries=0)
claude = anthropic.Anthropic(base_url=url.removesuffix("/v1"), api_key=key, max_retries=0)
model = client.models.list().data[0].id
expect(client.models.retrieve(model).id == model)


def chat(**body):
    return client.chat.completions.create(**{"model": model, **body})


for scenario in (
    whole_and_streamed,
    streamed_with_helper,
    completions,
    tools,
    structured,
    responses,
    messages,
    messages_with_tools,
    errors,
):
    scenario()
    print(f"ok {scenario.__name__}")
