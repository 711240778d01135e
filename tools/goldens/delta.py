#!/usr/bin/env python3
"""Packs GGUF files of random checkpoints, whose weights `tests/goldens/NAME` describes already.

    python3 tools/goldens/delta.py FOLDER_OF_GGUF_FILES --out tests/goldens/gguf/converted.tar.zst

The archive holds `NAME.delta` for each `NAME.gguf`. The base is the weight files of `cargo xtask goldens NAME`, in the order of
their names, one after the other. A delta is a row of parts, with numbers of 32 bits, little-endian:

    length of new bytes, the new bytes, start in the base, length of the bytes that are copied from there

`crates/testing/src/delta.rs` reads it. Needs the standard library and the programs `cargo`, `tar` and `zstd`.
"""
import argparse
import pathlib
import struct
import subprocess
import tempfile

# Shorter runs are stored: a row of the smallest matrices has more bytes. Weights begin at multiples of STEP.
SHORTEST, STEP = 32, 4


def parts(base, content):
    places = {}
    for start in range(0, len(base) - SHORTEST + 1, STEP):
        places.setdefault(base[start:start + SHORTEST], start)
    at, new = 0, 0
    while at + SHORTEST <= len(content):
        start = places.get(content[at:at + SHORTEST])
        if start is None:
            at += 1
            continue
        length = SHORTEST
        while content[at + length:at + length + 1] == base[start + length:start + length + 1] != b"":
            length += 1
        yield content[new:at], start, length
        at = new = at + length
    yield content[new:], 0, 0


def delta(base, content):
    return b"".join(
        struct.pack("<I", len(new)) + new + struct.pack("<II", start, length) for new, start, length in parts(base, content))


def weights(name, scratch):
    folder = scratch / name
    subprocess.run(["cargo", "xtask", "goldens", name, "--out", folder], check=True)
    files = sorted(path for path in folder.glob("*.safetensors") if path.name != "golden.safetensors")
    return b"".join(path.read_bytes() for path in files)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        names = []
        for path in sorted(arguments.folder.glob("*.gguf")):
            names.append(f"{path.stem}.delta")
            (scratch / names[-1]).write_bytes(delta(weights(path.stem, scratch), path.read_bytes()))
        tar = ["tar", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner", "-C", scratch, "-c", *names]
        archive = subprocess.run(tar, check=True, stdout=subprocess.PIPE).stdout
        packed = subprocess.run(["zstd", "--ultra", "-22"], input=archive, check=True, stdout=subprocess.PIPE).stdout
    arguments.out.write_bytes(packed)


if __name__ == "__main__":
    main()
