#!/usr/bin/env python3
"""Writes a checkpoint whose weights hold what ggml's block formats make of them, for `tapml eval` to compare with:

    tapml quantize models/llama --scheme q4 --out llama-q4
    python3 tools/quantization/ggml.py --model models/llama --like llama-q4 --out llama-ggml
    tapml eval llama-ggml --reference models/llama --text held-out.txt

The same weights as in `--like` are quantised and dequantised by the package `gguf`, which is ggml's own: `int4` as `Q4_0`,
`int8` as `Q8_0`, `mxfp4` as `MXFP4`. The result is stored in f32. Needs torch, safetensors, gguf."""
import argparse
import json
import pathlib
import shutil

import numpy
import torch
from gguf import GGMLQuantizationType, quants
from safetensors.torch import load_file, save_file


def through(tensor, kind):
    """What is left of a matrix, or of each of a stack, in this format."""
    flat = tensor.float().reshape(-1, tensor.shape[-1]).numpy()
    back = quants.dequantize(quants.quantize(flat, kind), kind)
    return torch.from_numpy(numpy.ascontiguousarray(back)).reshape(tensor.shape)


def formats(folder):
    """The quantised weights of a folder, and ggml's format of as many bits: their dtypes are such as `int4g32`."""
    kinds = {"int4": GGMLQuantizationType.Q4_0, "int8": GGMLQuantizationType.Q8_0, "mxfp4": GGMLQuantizationType.MXFP4}
    config = json.loads((folder / "config.json").read_text())["quantization_config"]
    for name, dtype in config["weights"].items():
        yield name, kinds[dtype.split("g")[0]]


def parts(name, tensors):
    """The tensors of the checkpoint that a weight is made from, and whether they lie transposed."""
    if name in tensors:
        return [name], False
    if name.endswith(".transposed") and name.removesuffix(".transposed") in tensors:
        return [name.removesuffix(".transposed")], True
    stack, _, matrix = name.removesuffix(".weight").rpartition(".")
    experts = [key for key in tensors if key.startswith(f"{stack}.") and key.endswith(f".{matrix}.weight")]
    if not experts:
        raise SystemExit(f"{name}: there are no tensors that it is made from")
    return experts, False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "like", "out"):
        parser.add_argument(f"--{name}", required=True, type=pathlib.Path)
    arguments = parser.parse_args()
    tensors = {}
    for path in sorted(arguments.model.glob("*.safetensors")):
        tensors |= load_file(path)
    tensors = {name: tensor.float() for name, tensor in tensors.items()}
    for name, kind in formats(arguments.like):
        names, turned = parts(name, tensors)
        for part in names:
            tensor = tensors[part].t().contiguous() if turned else tensors[part]
            back = through(tensor, kind)
            tensors[part] = back.t().contiguous() if turned else back
    arguments.out.mkdir(parents=True, exist_ok=True)
    save_file(tensors, arguments.out / "model.safetensors", metadata=dict(format="pt"))
    for path in arguments.model.iterdir():
        if path.suffix in (".json", ".model", ".txt") and not path.name.endswith(".index.json"):
            shutil.copy(path, arguments.out)


if __name__ == "__main__":
    main()
