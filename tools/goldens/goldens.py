#!/usr/bin/env python3
"""Makes the golden files that the importer's tests compare with, by public implementations on the CPU in float32.

    python3 tools/goldens/goldens.py golden --model models/llama --rows 1 --first 2 \\
        --out tests/goldens/llama/golden.safetensors
    python3 tools/goldens/goldens.py golden --model models/llama_draft --rows 1 --first 1 \\
        --out tests/goldens/llama_draft/golden.safetensors
    python3 tools/goldens/goldens.py tiny --out tests/goldens [--only NAME ...]

`golden` runs one trained model; `tiny` first makes small random checkpoints that together use every feature of the
architectures, then their goldens beside them (`--only NAME ...` makes these); `packed` those whose weights are
quantised. README.md says what the files hold.
"""
import argparse
import json
import pathlib

import torch
import transformers
from transformers import AutoTokenizer

import packed
import record
from kept import ROWS
import tiny
from models import Transformers
from table import TINY

PROMPTS = [
    "It was late in the evening when the",
    "\"You are quite right,\" said the doctor; \"and yet",
    "In the garden behind the house there stood",
    # Bytes beyond ASCII, digits, punctuation, line breaks.
    "Chère Élise -- the 14:05 train (No. 388) cost £2 10s.; \"à demain!\"\n\nShe folded it, and",
    # More than 128 tokens.
    "The coach had left the village behind it, and was climbing slowly between bare hedges toward the moor, when the "
    "elder of the two travellers, who had not spoken since they changed horses, laid down his newspaper and looked for "
    "some time out of the window. There was little enough to be seen: a grey sky, a few sheep under a wall, and far "
    "off, where the road crossed the hill, a single light that might have been a farm. \"We shall be late,\" said he. "
    "\"My brother dines at six, and he does not wait for anybody, not even for the doctor.\" The younger man "
    "smiled, and",
]


def trained(arguments):
    """The golden of a trained model: the prompts above by its own tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    ids = [tokenizer(prompt)["input_ids"] for prompt in PROMPTS]
    tensors, metadata = record.decoder(
        Transformers, arguments.model, ids, arguments.rows, arguments.steps, arguments.first)
    record.write(pathlib.Path(arguments.out), tensors, metadata | dict(prompts=json.dumps(PROMPTS)))


def random(arguments):
    """Random checkpoints and their goldens: prompts of random tokens."""
    for name in arguments.only or TINY:
        folder = pathlib.Path(arguments.out) / name
        record.write(folder / "golden.safetensors", *tiny.make(name, folder))


def quantised(arguments):
    """Random checkpoints with packed weights and their goldens."""
    for name in arguments.only or packed.PACKED:
        folder = pathlib.Path(arguments.out) / name
        record.write(folder / "golden.safetensors", *packed.make(name, folder))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("golden")
    one.set_defaults(run=trained)
    one.add_argument("--model", required=True)
    one.add_argument("--out", required=True)
    one.add_argument("--rows", type=int, default=ROWS, help="positions per prompt whose hidden states are kept")
    one.add_argument("--first", type=int, help="the same for the first prompt")
    one.add_argument("--steps", type=int, default=48)
    many = commands.add_parser("tiny")
    many.set_defaults(run=random)
    many.add_argument("--out", required=True)
    many.add_argument("--only", nargs="+", choices=list(TINY))
    stored = commands.add_parser("packed")
    stored.set_defaults(run=quantised)
    stored.add_argument("--out", required=True)
    stored.add_argument("--only", nargs="+", choices=list(packed.PACKED))
    arguments = parser.parse_args()

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.use_deterministic_algorithms(True)
    arguments.run(arguments)


if __name__ == "__main__":
    main()
