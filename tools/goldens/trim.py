#!/usr/bin/env python3
"""Leaves fewer rows in golden files: those that the same run would have kept. Needs no implementation of a model.

    python3 tools/goldens/trim.py tests/goldens/*/golden.safetensors
    python3 tools/goldens/trim.py --rows 1 --first 2 tests/goldens/llama/golden.safetensors

`kept.py` says which prompts keep logits and hidden states, and at which last positions what the final norm gives. `--rows N`
keeps N positions of every prompt that has more, `--first N` of the first prompt. Every kept number stays as it is.
"""
import argparse
import pathlib

from safetensors import safe_open
from safetensors.numpy import save_file

from kept import LAST, ROWS, WITH_LOGITS, spread, states

# What has a row for each position of the whole text.
WHOLE = ("input_ids", "final_norm", "embeddings")
# What has rows of its own.
OWN = ("greedy_ids", "greedy_gap", "pooled")


def read(path):
    with safe_open(path, "np") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()


def leave_positions(path, tensors, prompt, wanted):
    """Leaves the rows of these positions of a prompt."""
    have = [int(position) for position in tensors[f"{prompt}.positions"]]
    lacking = sorted(set(wanted) - set(have))
    if lacking:
        raise SystemExit(f"{path}: {prompt} has no rows of the positions {lacking}, only of {have}; "
                         "make the file again with goldens.py")
    rows = [have.index(position) for position in wanted]
    for name in tensors:
        kind = name.removeprefix(f"{prompt}.")
        if kind != name and kind not in WHOLE + OWN:
            tensors[name] = tensors[name][rows]


def prompts(tensors):
    """The names of the prompts with rows at positions."""
    return sorted(name.removesuffix(".positions") for name in tensors if name.endswith(".positions"))


def trim(path, rows, first):
    tensors, metadata = read(path)
    names = prompts(tensors)
    for index, prompt in enumerate(names):
        most = first if index == 0 and first is not None else rows
        if len(tensors[f"{prompt}.positions"]) > most:
            leave_positions(path, tensors, prompt, spread(len(tensors[f"{prompt}.input_ids"]), most))
        norm = f"{prompt}.final_norm"
        if norm in tensors:
            tensors[norm] = tensors[norm][-LAST:]
            if index >= WITH_LOGITS:
                tensors.pop(f"{prompt}.logits", None)
            if not states(index, len(names)):
                for name in [name for name in tensors if name.startswith(f"{prompt}.hidden.")]:
                    del tensors[name]
    before = path.stat().st_size
    whole = path.with_suffix(".part")
    save_file(tensors, whole, metadata=metadata)
    whole.replace(path)
    print(f"{path}: {before} bytes, now {path.stat().st_size}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    parser.add_argument("--rows", type=int, default=ROWS, help="most positions of a prompt")
    parser.add_argument("--first", type=int, help="the same for the first prompt")
    arguments = parser.parse_args()
    for path in arguments.files:
        trim(path, arguments.rows, arguments.first)


if __name__ == "__main__":
    main()
