#!/usr/bin/env python3
"""Libraries over OpenAI's client against a running `tapml serve`: a tool loop, a structured object, and a stream with its usage.

    python tools/serve_frameworks.py http://127.0.0.1:8080/v1

Runs each of instructor and langchain_openai that is there, and says which are not. The model may say anything: calls and
objects are right because their forms are enforced.
"""

import importlib.util
import sys
from typing import Literal

import openai
from pydantic import BaseModel, ConfigDict, Field

PROMPT = "Tell me a story."


class Story(BaseModel):
    """A story."""

    # Else the model may add fields of its own until it is cut.
    model_config = ConfigDict(extra="forbid")
    hero: Literal["Tom", "Lily"]
    age: int = Field(ge=1, le=9)


def get_time(zone: Literal["UTC", "CET"]) -> str:
    """The time of a zone."""
    return f"noon in {zone}"


def expect(condition, *found):
    if not condition:
        raise AssertionError(found)


def instructor():
    import instructor

    messages = [{"role": "user", "content": PROMPT}]
    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
        made = instructor.from_openai(client, mode=mode)
        options = {"model": model, "messages": messages, "max_tokens": 100, "max_retries": 0}
        if mode is instructor.Mode.TOOLS:
            options["parallel_tool_calls"] = False
        story, answer = made.chat.completions.create_with_completion(response_model=Story, **options)
        expect(isinstance(story, Story) and answer.usage.completion_tokens > 0, story, answer)


def langchain_openai():
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI

    chat = ChatOpenAI(model=model, base_url=url, api_key=key, max_tokens=100, max_retries=0, stream_usage=True)
    clock = tool(get_time)
    messages = [HumanMessage(PROMPT)]
    answer = chat.bind_tools([clock], tool_choice="get_time", parallel_tool_calls=False, strict=True).invoke(messages)
    call = answer.tool_calls[0]
    expect(call["name"] == "get_time" and call["args"].keys() == {"zone"}, answer)
    messages += [answer, ToolMessage(clock.invoke(call["args"]), tool_call_id=call["id"])]
    final = chat.bind_tools([clock]).invoke(messages)
    expect(final.usage_metadata["output_tokens"] > 0, final)
    for method in ("json_schema", "function_calling"):
        story = chat.with_structured_output(Story, method=method, strict=True).invoke(PROMPT)
        expect(isinstance(story, Story), story)
    chunks = list(chat.stream(PROMPT))
    usage = [chunk.usage_metadata for chunk in chunks if chunk.usage_metadata]
    expect(len(chunks) > 1 and len(usage) == 1 and usage[0]["total_tokens"] > 0, chunks)


url, key = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "none"
client = openai.OpenAI(base_url=url, api_key=key, max_retries=0)
model = client.models.list().data[0].id
for scenario in (instructor, langchain_openai):
    name = scenario.__name__
    if importlib.util.find_spec(name) is None:
        print(f"skipped {name}: it is not installed")
        continue
    scenario()
    print(f"ok {name}")
