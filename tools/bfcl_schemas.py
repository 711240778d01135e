#!/usr/bin/env python3
"""Calls of BFCL's functions that a running `tapml serve` is made to write: each must be JSON that fulfils the function's schema.

    python tools/bfcl_schemas.py http://127.0.0.1:8080/v1 [COUNT]

Needs jsonschema. The data of the Berkeley Function Calling Leaderboard (Apache-2.0) comes with the wheel of `bfcl-eval`, which pip
fetches into `target/bfcl`. The model may be any: what is asked is whether the form is enforced. Schemas that are refused with status
400 before a token is made, and calls that `max_tokens` cuts, are counted apart. Fails if a call is wrong.
"""

import concurrent.futures
import json
import random
import subprocess
import sys
import urllib.error
import urllib.request
import zipfile
from collections import Counter
from pathlib import Path

import jsonschema

VERSION = "2026.3.23"
OUT = Path(__file__).resolve().parent.parent / "target/bfcl"
# What the data says in place of JSON Schema's names of types.
TYPES = {"dict": "object", "float": "number", "double": "number", "tuple": "array", "string": "string", "list": "array"}
TYPES |= {"integer": "integer", "int": "integer", "long": "integer", "boolean": "boolean", "array": "array", "object": "object"}
TYPES |= {"number": "number", "hashmap": "object", "arraylist": "array", "char": "string", "hashtable": "object", "null": "null"}
MOST_TOKENS = 400


def read_functions():
    """The functions of all tasks, each once."""
    OUT.mkdir(parents=True, exist_ok=True)
    name = f"bfcl-eval=={VERSION}"
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--dest", OUT, name], check=True)
    functions = {}
    with zipfile.ZipFile(next(OUT.glob("bfcl_eval-*.whl"))) as wheel:
        for path in sorted(wheel.namelist()):
            if "bfcl_eval/data/BFCL_v4_" in path and "format_sensitivity" not in path:
                for line in wheel.read(path).decode().splitlines():
                    for function in json.loads(line).get("function", []):
                        functions[json.dumps(function, sort_keys=True)] = function
    return [functions[key] for key in sorted(functions)]


def schema_of(value):
    """The schema, in the names of JSON Schema. An unknown type is any."""
    if isinstance(value, list):
        return [schema_of(item) for item in value]
    if not isinstance(value, dict):
        return value
    schema = {}
    for name, inner in value.items():
        if name == "properties" and isinstance(inner, dict):
            schema[name] = {field: schema_of(of) for field, of in inner.items()}
        elif name == "type" and isinstance(inner, str):
            if inner.lower() in TYPES:
                schema[name] = TYPES[inner.lower()]
        # Others are prose.
        elif name in ("items", "required", "enum", "minimum", "maximum", "minItems", "maxItems", "additionalProperties", "pattern"):
            schema[name] = schema_of(inner)
    if schema.get("type") == "object" and "properties" in schema:
        schema.setdefault("additionalProperties", False)
    return schema


def ask(url, body):
    request = urllib.request.Request(url + "/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=600) as answer:
            return 200, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def call(url, seed, function):
    """What came of a call: a word, and what is told of it."""
    # Models read names of these characters alone.
    name = "".join(c if c.isalnum() or c in "_-" else "_" for c in function["name"])[:64]
    schema = schema_of(function["parameters"])
    tool = {"type": "function", "function": {"name": name, "strict": True, "parameters": schema}}
    body = {
        "messages": [{"role": "user", "content": "Call it."}],
        "tools": [tool],
        "tool_choice": {"type": "function", "function": {"name": name}},
        "parallel_tool_calls": False,
        "max_tokens": MOST_TOKENS,
        "seed": seed,
    }
    status, answer = ask(url, body)
    if status == 400:
        return "refused", answer["error"]["message"]
    if status != 200:
        return "wrong", answer
    choice = answer["choices"][0]
    if choice["finish_reason"] == "length":
        return "cut", None
    try:
        (made,) = choice["message"]["tool_calls"]
        if made["function"]["name"] != name:
            return "wrong", choice
        jsonschema.Draft202012Validator(schema).validate(json.loads(made["function"]["arguments"]))
    except (KeyError, ValueError, jsonschema.ValidationError) as error:
        return "wrong", f"{name}: {error}: {choice}"
    return "right", None


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    url, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 300
    functions = read_functions()
    sample = random.Random(1).sample(functions, min(count, len(functions)))
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda at: call(url, *at), enumerate(sample)))
    told = {kind: Counter(text for word, text in found if word == kind and text) for kind in ("refused", "wrong")}
    counts = Counter(word for word, _ in found)
    report = {"functions": len(functions), "sample": len(sample), **dict(counts)}
    report |= {f"{kind} because": dict(texts.most_common(5)) for kind, texts in told.items() if texts}
    print(json.dumps(report, indent=1))
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
