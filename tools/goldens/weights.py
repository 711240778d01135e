#!/usr/bin/env python3
"""Random weights that are described instead of stored.

    python3 tools/goldens/weights.py tests/goldens/NAME --out DIR

`weights.json.zst` of a golden, packed by the program `zstd`, lists the tensors of its weight files in their order: name, dtype and shape as safetensors has
them, then what they hold:

    0.0,0.19            random numbers with this mean and deviation
    0.02,0.004,"BF16"   the same, rounded to another dtype first
    "bits"              random bits; "bits",MASK those that the mask leaves
    [[1,3],[0,77]]      stored values: a value and how often it stands in a row

`crates/testing/src/golden.rs` makes the same files, to the bit, from it; `fnv1a` is the hash (FNV-1a, 64 bits) of a file's
bytes.

Number `i` of a tensor is mean + deviation * (u / 37837), in float64 in this order, rounded to float32 and then to the
tensor's dtype, for `U8` to whole numbers (ties to even); `F8_E4M3` is held within 448. u is the sum of the four 16-bit parts
of output `i` of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014) less 131070, which
has mean 0 and deviation 37837.2. The generator starts at its output function of the hash of the tensor's name, whose bits
are flipped where the seed has ones. Random bits are the lowest ones of these outputs.
"""
import argparse
import json
import math
import pathlib
import shutil
import subprocess
import tempfile

import numpy
import torch
from safetensors import safe_open

import record

DESCRIPTION = "weights.json"
PACKED = "weights.json.zst"
GAMMA = 0x9E3779B97F4A7C15
WORD = (1 << 64) - 1
# A tensor of fewer elements is stored as it is: its few values may be chosen ones.
FEW = 8
DTYPES = dict(F32=torch.float32, F16=torch.float16, BF16=torch.bfloat16, F8_E4M3=torch.float8_e4m3fn,
              I64=torch.int64, I32=torch.int32, U8=torch.uint8)
LARGEST_F8 = 448.0
# So many seeds are tried, from the first one on.
SEEDS = 20


class Refused(Exception):
    """Weights that do not make a good golden."""


def fnv1a(data):
    hashed = 0xCBF29CE484222325
    for byte in data:
        hashed = (hashed ^ byte) * 0x100000001B3 & WORD
    return hashed


def mixed(z):
    """The output function of SplitMix64, of an array of states."""
    z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return z ^ (z >> numpy.uint64(31))


def outputs(name, seed, count):
    """The first outputs of the generator of a tensor, u64 [count]."""
    start = mixed(numpy.array([fnv1a(name.encode()) ^ seed], dtype=numpy.uint64))
    return mixed(start + numpy.arange(1, count + 1, dtype=numpy.uint64) * numpy.uint64(GAMMA))


def random_values(name, seed, count, mean, deviation):
    """Random numbers, f32 [count]."""
    words = outputs(name, seed, count)
    parts = (words >> numpy.uint64(shift) & numpy.uint64(0xFFFF) for shift in (0, 16, 32, 48))
    u = sum(part.astype(numpy.int64) for part in parts) - 131070
    return torch.from_numpy((mean + deviation * (u.astype(numpy.float64) / 37837.0)).astype(numpy.float32))


def random_bits(name, seed, count, dtype, mask=0xFFFFFFFF):
    """Random whole numbers."""
    unsigned, kind = dict(I32=(numpy.uint32, numpy.int32), U8=(numpy.uint8, numpy.uint8))[dtype]
    words = outputs(name, seed, count) & numpy.uint64(mask)
    return torch.from_numpy(words.astype(unsigned).view(kind))


def filled(name, seed, dtype, shape, *content):
    """A tensor of the description."""
    count = math.prod(shape)
    if content[0] == "bits":
        return random_bits(name, seed, count, dtype, *content[1:]).reshape(shape)
    if isinstance(content[0], list):
        values = torch.cat([torch.full((times,), value, dtype=torch.float64) for value, times in content[0]])
    else:
        values = random_values(name, seed, count, *content[:2])
        values = values.to(DTYPES[content[2]]) if len(content) == 3 else values
        values = values.round().clamp(0, 255) if dtype == "U8" else values
    values = values.clamp(-LARGEST_F8, LARGEST_F8) if dtype == "F8_E4M3" else values
    return values.to(DTYPES[dtype]).reshape(shape)


def raw(tensor):
    return tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()


def file_bytes(tensors, seed):
    """A file of safetensors with these tensors of the description."""
    header, parts, end = {"__metadata__": dict(format="pt")}, [], 0
    for name, (dtype, shape, *content) in tensors.items():
        parts.append(raw(filled(name, seed, dtype, shape, *content)))
        header[name] = dict(dtype=dtype, shape=shape, data_offsets=[end, end + len(parts[-1])])
        end += len(parts[-1])
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + b"".join(parts)


def rounded(value):
    """Two significant digits."""
    return float(f"{value:.1e}")


def described(name, dtype, tensor):
    """What a tensor holds: see above."""
    if tensor.is_floating_point() and tensor.numel() >= FEW:
        values = tensor.double()
        mean, deviation = float(values.mean()), float(values.std())
        return [dtype, list(tensor.shape), 0.0 if abs(mean) < deviation / 2 else rounded(mean), rounded(deviation)]
    runs = []
    for value in tensor.flatten().tolist():
        if runs and runs[-1][0] == value:
            runs[-1][1] += 1
        else:
            runs.append([value, 1])
    return [dtype, list(tensor.shape), runs]


def describe(folder):
    """The tensors of a folder's weight files, by file and name."""
    files = {}
    for path in record.weight_files(folder):
        with safe_open(path, "pt") as file:
            dtypes = {name: file.get_slice(name).get_dtype() for name in file.offset_keys()}
            files[path.name] = {
                name: described(name, dtype, file.get_tensor(name)) for name, dtype in dtypes.items()}
    return files


def write_files(files, seed, folder):
    """Writes the weight files; gives their hashes."""
    hashes = {}
    for name, tensors in files.items():
        data = file_bytes(tensors, seed)
        (folder / name).write_bytes(data)
        hashes[name] = f"{fnv1a(data):016x}"
    return hashes


def write_description(files, seed, hashes, path):
    """One tensor a line."""
    def of(name, tensors):
        lines = (f"{json.dumps(tensor)}:{json.dumps(what, separators=(',', ':'))}" for tensor, what in tensors.items())
        return f'{json.dumps(name)}:{{"fnv1a":"{hashes[name]}","tensors":{{\n' + ",\n".join(lines) + "}}"

    files = ",\n".join(of(name, tensors) for name, tensors in files.items())
    path.write_text(f'{{"seed":{seed},"files":{{\n{files}}}}}\n')


def keep(scratch, folder, files, seed, hashes):
    """Moves what a golden consists of to its folder, with the description in place of the weights."""
    folder.mkdir(parents=True, exist_ok=True)
    for stale in record.weight_files(folder):
        stale.unlink()
    for path in scratch.iterdir():
        if path.name not in files:
            shutil.copyfile(path, folder / path.name)
    write_description(files, seed, hashes, folder / DESCRIPTION)
    subprocess.run(["zstd", "-19", "-q", "-f", "--rm", str(folder / DESCRIPTION)], check=True)


def make(folder, seed, write, run):
    """A golden's folder with all but the golden: `write` makes it in a scratch folder and gives the description of the
    weights; without one, it writes weights, whose shapes, means and deviations count. `run` gives the tensors and
    metadata of the golden, or refuses the weights of a seed."""
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch) / folder.name
        scratch.mkdir()
        files = write(scratch) or describe(scratch)
        for tried in range(seed, seed + SEEDS):
            hashes = write_files(files, tried, scratch)
            try:
                golden = run(scratch)
            except Refused as reason:
                print(f"{folder.name}: seed {tried}: {reason}")
                continue
            keep(scratch, folder, files, tried, hashes)
            return golden
    raise SystemExit(f"{folder.name}: no seed from {seed} to {tried} makes a good golden")


def materialise(golden, out):
    """Writes a golden's folder with its weights."""
    description = json.loads(subprocess.run(["zstd", "-dcq", str(golden / PACKED)], check=True, capture_output=True).stdout)
    out.mkdir(parents=True, exist_ok=True)
    files = {name: file["tensors"] for name, file in description["files"].items()}
    hashes = write_files(files, description["seed"], out)
    for name, file in description["files"].items():
        if hashes[name] != file["fnv1a"]:
            raise SystemExit(f"{out / name} has the hash {hashes[name]}, but {golden / PACKED} says {file['fnv1a']}")
    for path in golden.iterdir():
        if path.suffix == ".zst" and path.name != PACKED:
            subprocess.run(["zstd", "-dqf", str(path), "-o", str(out / path.stem)], check=True)
        elif path.name != PACKED:
            shutil.copyfile(path, out / path.name)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("golden", type=pathlib.Path)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    arguments = parser.parse_args()
    materialise(arguments.golden, arguments.out)


if __name__ == "__main__":
    main()
