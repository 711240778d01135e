#!/usr/bin/env python3
"""llama-server's own pytest suite against `tapml serve`.

    python tools/llama_server_suite.py target/debug/tapml models/llama [PYTEST ARGUMENTS]

fetches the suite into `target/llama-server-suite` and runs each case of a feature that is served, with a server that starts
`tapml serve` in place of llama-server. Needs pytest, requests, openai, aiohttp, numpy and filelock. Which cases ask for features
that are not served, and why, is listed in `llama_server_suite.json`: an entry is a file, a test, or the beginning of a
case or, with a star, of a test.
The suite expects what its own small models write; these asserts are taken out by the rules below. Fails if fewer than 95 of 100
cases of served features pass.
"""

import ast
import json
import os
import subprocess
import sys
import xml.etree.ElementTree
from collections import Counter
from pathlib import Path

import llama_cpp_source

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "target/llama-server-suite"
TESTS = OUT / "tools/server/tests"
LEAST = 0.95

# Names of what the suite's models write, how many tokens that is, and how many a text has in their vocabularies.
MODEL_NAMES = {"re_content", "n_prompt", "n_predicted", "n_cache", "n_token_output", "bosId"}


def called(node):
    return {call.func.id for call in ast.walk(node) if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)}


def strings(node):
    return [n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)]


def is_constrained(function):
    """Whether a form of the answer is given, so that what it must be is known of every model."""
    return any(word in function.name for word in ("response_format", "json_schema", "grammar"))


def text_of_model(function, test):
    if is_constrained(function):
        return False
    names = {n.id for n in ast.walk(test) if isinstance(n, ast.Name)}
    expected = "match_regex" in called(test) and any(strings(test))
    return bool(names & MODEL_NAMES) or expected or any(text.startswith("<s>") for text in strings(test))


def name_of_server(_function, test):
    attributes = {n.attr for n in ast.walk(test) if isinstance(n, ast.Attribute)}
    return "system_fingerprint" in attributes or "system_fingerprint" in strings(test) or ".gguf" in strings(test)


def own_type_of_error(_function, test):
    return "exceed_context_size_error" in strings(test)


def first_delta(_function, test):
    written = ast.unparse(test)
    return written.endswith("is None") and ("['delta']['content']" in written or ".delta.content" in written)


def preflight(function, test):
    return "OPTIONS" in strings(function) and ast.unparse(test) == "res.status_code == 200"


# Which asserts are taken out, or replaced by another one.
RULES = {
    "what a model writes, in tokens and words": (text_of_model, None),
    "the name and the files of the server itself": (name_of_server, None),
    "a type of errors that OpenAI does not have; `code` tells the same": (own_type_of_error, None),
    "the first delta's content is null, which is empty as OpenAI's": (first_delta, lambda t: ast.UnaryOp(ast.Not(), t.left)),
    "a preflight is answered with 204 as well as with 200": (preflight, lambda t: ast.parse("res.status_code in (200, 204)", mode="eval").body),
}


class Asserts(ast.NodeTransformer):
    """Takes asserts out of tests by the rules, and counts."""

    def __init__(self):
        self.function, self.counts = None, Counter()

    def visit_FunctionDef(self, node):
        self.function = self.function or node
        self.generic_visit(node)
        self.function = None if self.function is node else self.function
        return node

    def visit_Assert(self, node):
        if self.function is None:
            return node
        for name, (applies, instead) in RULES.items():
            if applies(self.function, node.test):
                self.counts[name] += 1
                return ast.Pass() if instead is None else ast.Assert(instead(node.test), None)
        self.counts["kept"] += 1
        return node


def write_suite():
    """The suite with its asserts mended; gives how many each rule took."""
    counts = Counter()
    for path, data in llama_cpp_source.read_files("tools/server/tests", "models/templates").items():
        file = OUT / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.parent.name == "unit" and file.suffix == ".py":
            mended = Asserts()
            tree = ast.fix_missing_locations(mended.visit(ast.parse(data)))
            counts += mended.counts
            data = ast.unparse(tree).encode()
        if path == "tools/server/tests/utils.py":
            file = file.with_name("utils_of_llama.py")
        file.write_bytes(data)
    (TESTS / "utils.py").write_text(SHIM)
    (TESTS / "unit/conftest.py").write_text(SKIP)
    return counts


# In place of the suite's module: the same names, and a server that is another program.
SHIM = '''
import sys, types
sys.modules.setdefault("wget", types.ModuleType("wget"))
import utils_of_llama
from utils_of_llama import *
import os, subprocess, time

TAPML, MODEL = os.environ["TAPML"], os.environ["TAPML_MODEL"]
# Any name is right for llama-server.
NAMES = ["tinyllama-2", "test", "gpt-3.5-turbo", "gpt-3.5-turbo-instruct", "gpt-4.1", "davinci-002", "codellama70b"]
PLAIN = """{% if tools %}{{ tools | tojson }}
{% endif %}{% for m in messages %}{{ m.role }}: {{ m.content }}
{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"""
NAMED = {"chatml": """{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""}
PATHS = ("/completion", "/completions", "/chat/completions", "/responses")


def start(self, timeout_seconds=60):
    slots = 1 if self.kv_unified else self.n_slots or 1
    # As long as the model's, which is shorter than some tests ask for.
    context = min((self.n_ctx or 512) // slots, 512)
    names = [name for name in dict.fromkeys([*(self.model_alias or "model").split(","), *NAMES])]
    arguments = [TAPML, "serve", MODEL, "--target", "cpu", "--check", "off", "--prefill-assistant", "--cors", "*"]
    arguments += ["--host", self.server_host, "--port", self.server_port, "--context", context]
    arguments += ["--max-sequences", self.n_slots or 1, "--max-rows", self.n_batch or 256]
    arguments += [word for name in names for word in ("--name", name)]
    template = self.chat_template_file
    if template is None:
        template = "template.jinja"
        with open(template, "w") as file:
            file.write(NAMED.get(self.chat_template, self.chat_template or PLAIN))
    arguments += ["--chat-template", template]
    if self.api_key:
        arguments += ["--api-key", self.api_key]
    if self.model_draft:
        arguments += ["--draft", self.model_draft, "--draft-tokens", self.spec_draft_n_max or 4]
    log = open("server.log", "w")
    self.process = subprocess.Popen([str(a) for a in arguments], stdout=log, stderr=log)
    server_instances.add(self)
    begun = time.time()
    while time.time() - begun < 60:
        if self.process.poll() is not None:
            raise RuntimeError("the server ended: " + open("server.log").read())
        try:
            if self.make_request("GET", "/health").status_code == 200:
                return
        except requests.exceptions.ConnectionError:
            time.sleep(0.02)
    raise TimeoutError("the server did not start")


def with_defaults(self, method, path, data):
    """Options that llama-server has for all requests, in each request that does not say otherwise."""
    if method != "POST" or not path.removeprefix("/v1").startswith(PATHS) or not isinstance(data, dict):
        return data
    most = next((name for name in ("n_predict", "max_tokens", "max_output_tokens") if name in data), None)
    data = {"seed": self.seed, "temperature": self.temperature, **data}
    if self.n_predict and self.n_predict > 0 and most is None:
        data["n_predict" if path in ("/completion", "/completions") else "max_tokens"] = self.n_predict
    return data


ask, ask_stream = ServerProcess.make_request, ServerProcess.make_stream_request


def make_request(self, method, path, data=None, headers=None, **options):
    answer = ask(self, method, path, with_defaults(self, method, path, data), headers, **options)
    answer.headers = requests.structures.CaseInsensitiveDict(answer.headers)
    chat = path.endswith("/chat/completions") and answer.status_code == 200
    if chat and (self.debug or data.get("verbose")):
        # The prompt of a chat is told at a path of its own.
        answer.body["__verbose"] = ask(self, "POST", "/apply-template", data, headers).body
    return answer


def make_stream_request(self, method, path, data=None, headers=None, **options):
    return ask_stream(self, method, path, with_defaults(self, method, path, data), headers, **options)


ServerProcess.start = start
ServerProcess.make_request, ServerProcess.make_stream_request = make_request, make_stream_request
ServerPreset.load_all = staticmethod(lambda: None)


def download_file(url, output_file_path=None):
    return os.environ["TAPML_DRAFT"]
'''

# Cases of features that are not served are not run.
SKIP = '''
import json, os, pytest

UNSERVED = json.load(open(os.environ["TAPML_UNSERVED"]))["unserved"]


def reason(case):
    # A name of a test does not stand for those that it is the beginning of, unless it ends with a star.
    test = case.split("[")[0]
    entries = [e for e in UNSERVED if e in (case, test, test.split("::")[0]) or ("[" in e and case.startswith(e)) or (e[-1] == "*" and case.startswith(e[:-1]))]
    return UNSERVED[max(entries, key=len)] if entries else None


def pytest_collection_modifyitems(items):
    for item in items:
        case = item.nodeid.removeprefix("unit/")
        why = "needs a large model" if item.get_closest_marker("slow") else reason(case)
        if why:
            item.add_marker(pytest.mark.skip(reason=why))
'''


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    tapml, model = (str(Path(path).resolve()) for path in sys.argv[1:3])
    rules = write_suite()
    unserved = ROOT / "tools/llama_server_suite.json"
    # The draft model of the repository stands beside its model.
    draft = ROOT / "models/llama_draft"
    paths = {"TAPML": tapml, "TAPML_MODEL": model, "TAPML_UNSERVED": str(unserved), "TAPML_DRAFT": str(draft)}
    options = ["-q", "--tb=short", "-p", "no:cacheprovider", "--junitxml=result.xml", *sys.argv[3:]]
    run = subprocess.run([sys.executable, "-m", "pytest", *options], cwd=TESTS, env={**os.environ, **paths}, check=False)
    if run.returncode not in (0, 1):
        sys.exit(f"pytest could not run, exit code {run.returncode}")
    reasons, passed, failed = Counter(), 0, []
    for case in xml.etree.ElementTree.parse(TESTS / "result.xml").iter("testcase"):
        skipped = case.find("skipped")
        if skipped is not None:
            reasons[skipped.get("message")] += 1
        elif case.find("failure") is None and case.find("error") is None:
            passed += 1
        else:
            failed.append(f"{case.get('classname').removeprefix('unit.')}::{case.get('name')}")
    report = {
        "suite": f"{llama_cpp_source.PACKAGE} {llama_cpp_source.VERSION}",
        "asserts": dict(rules),
        "passed": passed,
        "failed": sorted(failed),
        "skipped": dict(reasons.most_common()),
    }
    (OUT / "report.json").write_text(json.dumps(report, indent=1))
    print(json.dumps(report, indent=1))
    return 0 if passed >= LEAST * (passed + len(failed)) else 1


if __name__ == "__main__":
    sys.exit(main())
