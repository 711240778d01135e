#!/usr/bin/env python3
"""Leaves fewer rows in golden files: those that the same run would have kept. Needs no implementation of a model.

    python3 tools/goldens/trim.py tests/goldens/*/golden.safetensors
    python3 tools/goldens/trim.py --first 2 tests/goldens/llama/golden.safetensors

What the final norm gives is kept at the last positions that `kept.py` says; `--first N` keeps N positions of the first
prompt. Every kept number stays as it is.
"""
import argparse
import pathlib

from safetensors import safe_open
from safetensors.numpy import save_file

from kept import LAST, spread

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


def trim(path, first):
    tensors, metadata = read(path)
    for name in tensors:
        if name.endswith(".final_norm"):
            tensors[name] = tensors[name][-LAST:]
    if first is not None:
        leave_positions(path, tensors, "p0", spread(len(tensors["p0.input_ids"]), first))
    before = path.stat().st_size
    whole = path.with_suffix(".part")
    save_file(tensors, whole, metadata=metadata)
    whole.replace(path)
    print(f"{path}: {before} bytes, now {path.stat().st_size}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    parser.add_argument("--first", type=int, help="positions of the first prompt; as many as the file has by default")
    arguments = parser.parse_args()
    for path in arguments.files:
        trim(path, arguments.first)


if __name__ == "__main__":
    main()
