#!/usr/bin/env python3
"""Tasks of lm-eval by its own model `hf` and through `tapml serve`: the results must be the same.

    python tools/lm_eval_tasks.py documents TEXT            # cuts the documents of the tasks from a text
    python tools/lm_eval_tasks.py hf MODEL...               # what `hf` makes of them: the expected results
    python tools/lm_eval_tasks.py completions MODEL URL ... # through servers, against the expected results

A task has several choices, one the log likelihood of whole texts in windows, one generates and compares with a text. `hf`
needs lm-eval[hf], `completions` needs lm-eval[api] and transformers. Documents and results are in tools/lm_eval.
"""

import datetime
import importlib.metadata
import json
import os
import pathlib
import re
import sys
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parent / "lm_eval"
EXPECTED = FOLDER / "expected.json"
# Names of the documents' files.
TASKS = ["choices", "rolling", "generate"]
# Windows are so long in both: the client keeps one of its tokens for an answer, and one for the context.
WINDOW = 510
# Between `hf` in float32 and a server in float32: a log likelihood is a sum over up to 1,000 tokens.
TOLERANCE = 1e-3
# Nothing is fetched: datasets are files, and the tokenizer is that of the model's folder.
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


def documents(text):
    """Paragraphs of the text as documents of all tasks."""
    paragraphs = [re.sub(r"\s+", " ", part).strip() for part in text.split("\n\n")]
    long = [part for part in paragraphs if 300 < len(part) < 700]
    step = len(long) // 24
    chosen = [long[at * step] for at in range(24)]
    halves = [cut(part) for part in chosen[:12]]
    choices = []
    for at, (context, rest) in enumerate(halves):
        others = [halves[(at + other) % 12][1] for other in (1, 5, 7)]
        if at % 2 == 1:
            # Single words, of which some are the greedy choice.
            rest, others = first_word(rest), [first_word(other) for other in others]
        answer = at % 4
        choices.append({"context": context, "choices": others[:answer] + [rest] + others[answer:], "answer": answer})
    # The last one takes several windows.
    texts = chosen[12:17] + [" ".join(chosen[12:24])]
    rolling = [{"text": part} for part in texts]
    generate = [{"context": context, "answer": first_word(rest).strip()} for context, rest in map(cut, chosen[12:24])]
    return {"choices": choices, "rolling": rolling, "generate": generate}


def cut(text):
    """The text in two, before a word near its middle; the second part begins with the space."""
    at = text.index(" ", len(text) // 2)
    return text[:at], text[at:]


def first_word(text):
    """The first word with the space before it."""
    return " " + text.split()[0]


def tasks(folder):
    """Configurations of the tasks over the documents, which are written to the folder line by line."""
    common = {"dataset_path": "json", "test_split": "test", "num_fewshot": 0}
    configs = []
    for name in TASKS:
        file = folder / f"{name}.jsonl"
        lines = json.loads((FOLDER / "documents.json").read_text())[name]
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        configs.append({**common, "task": f"tapml_{name}", "dataset_kwargs": {"data_files": {"test": str(file)}}})
    configs[0] |= {
        "output_type": "multiple_choice",
        "doc_to_text": "{{context}}",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "answer",
        # The choices begin with their spaces.
        "target_delimiter": "",
        "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
    }
    configs[1] |= {
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "{{text}}",
        "metric_list": [{"metric": "word_perplexity"}, {"metric": "byte_perplexity"}, {"metric": "bits_per_byte"}],
    }
    configs[2] |= {
        "output_type": "generate_until",
        "doc_to_text": "{{context}}",
        "doc_to_target": "{{answer}}",
        "generation_kwargs": {"until": [".", ";", "\n"], "max_gen_toks": 24, "do_sample": False, "temperature": 0},
        # The first word of what was generated.
        "filter_list": [
            {"name": "word", "filter": [{"function": "regex", "regex_pattern": r"(\S+)"}, {"function": "take_first"}]}
        ],
        "metric_list": [{"metric": "exact_match"}],
    }
    return configs


def evaluate(model, arguments):
    """Metrics of each task, and the answers to each of its requests."""
    os.environ.update(OFFLINE)
    import lm_eval

    with tempfile.TemporaryDirectory() as folder:
        os.environ["HF_DATASETS_CACHE"] = folder
        configs = tasks(pathlib.Path(folder))
        found = lm_eval.simple_evaluate(model=model, model_args=arguments, tasks=configs, bootstrap_iters=0, log_samples=True)
    results = {}
    for name in TASKS:
        metrics = found["results"][f"tapml_{name}"].items()
        samples = sorted(found["samples"][f"tapml_{name}"], key=lambda sample: sample["doc_id"])
        results[name] = {
            "metrics": {key.split(",")[0]: value for key, value in metrics if isinstance(value, float) and "stderr" not in key},
            "answers": [[plain(response) for response in sample["resps"]] for sample in samples],
        }
    return results


def plain(response):
    """The only answer to a request: a text, a log likelihood, or one with whether it is the greedy choice."""
    (answer,) = response
    if isinstance(answer, (list, tuple)):
        return [float(answer[0]), str(answer[1]) == "True"]
    return answer if isinstance(answer, str) else float(answer)


def by_hf(folder):
    options = {"pretrained": str(folder), "dtype": "float32", "device": "cpu", "max_length": WINDOW, "add_bos_token": True}
    # Transformers computes Gemma-2 right with eager attention alone.
    return evaluate("hf", options | {"attn_implementation": "eager"})


def by_server(folder, url):
    options = {
        "base_url": f"{url.rstrip('/')}/completions",
        "tokenizer": str(folder),
        "tokenizer_backend": "huggingface",
        "model": json_of(f"{url.rstrip('/')}/models")["data"][0]["id"],
        "max_length": WINDOW + 2,
        "add_bos_token": True,
        "num_concurrent": 4,
    }
    return evaluate("local-completions", options)


def json_of(url):
    import requests

    return requests.get(url, timeout=60).json()


def differences(expected, found, path=""):
    """Where two results differ: numbers by more than the tolerance, anything else at all."""
    if isinstance(expected, dict) and isinstance(found, dict) and expected.keys() == found.keys():
        return [line for key in expected for line in differences(expected[key], found[key], f"{path}/{key}")]
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = enumerate(zip(expected, found))
        return [line for at, (a, b) in pairs for line in differences(a, b, f"{path}/{at}")]
    both = isinstance(expected, float) and isinstance(found, float)
    if both and abs(expected - found) <= TOLERANCE * max(1.0, abs(expected) / 100):
        return []
    return [] if expected == found else [f"{path}: expected {expected!r}, found {found!r}"]


def is_served_right(folder, url):
    """Whether a server gives the expected results; says so, and where it does not."""
    name = pathlib.Path(folder).name
    expected, found = json.loads(EXPECTED.read_text())["models"][name], by_server(folder, url)
    for task in TASKS:
        for metric, value in expected[task]["metrics"].items():
            print(f"{name} {task} {metric}: hf {value:.6f}, served {found[task]['metrics'][metric]:.6f}")
    wrong = differences(expected, found)
    print("\n".join(wrong) if wrong else f"ok {name}: {len(TASKS)} tasks as by `hf`")
    return not wrong


def write(path, value):
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def main():
    match sys.argv[1:]:
        case ["documents", text]:
            write(FOLDER / "documents.json", documents(pathlib.Path(text).read_text()))
        case ["hf", *folders] if folders:
            packages = {name: importlib.metadata.version(name) for name in ("lm-eval", "transformers", "torch")}
            known = json.loads(EXPECTED.read_text())["models"] if EXPECTED.is_file() else {}
            for folder in folders:
                known[pathlib.Path(folder).name] = by_hf(folder)
                write(EXPECTED, {"made": datetime.date.today().isoformat(), "packages": packages, "models": known})
        case ["completions", *served] if served and len(served) % 2 == 0:
            # One process for all: most of the time is that of loading lm-eval.
            right = [is_served_right(folder, url) for folder, url in zip(served[::2], served[1::2])]
            sys.exit(not all(right))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
