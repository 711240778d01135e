#!/usr/bin/env python3
"""Compares the machine code of two sets of CUDA kernels, as the example `cuda_kernels` of tapml-kernels writes them.

    compare_cuda.py BEFORE AFTER [--work FOLDER] [--only NAME]

Kernels are paired by the number in front of their names. For each pair it says whether the instructions are the same, the
same but for the names of registers, or different, and then what has grown: registers, stack, shared memory, instructions.
It needs NVRTC, `cuobjdump` and `nvdisasm`: `pip install nvidia-cuda-nvrtc nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm`.
It ends with 1 if a kernel takes more of anything than `--slack` allows, or does not compile."""

import argparse
import collections
import concurrent.futures
import ctypes
import hashlib
import json
import pathlib
import re
import subprocess
import sys

ROOTS = [pathlib.Path(path) / "nvidia" for path in sys.path] + [pathlib.Path("/usr/local/cuda")]


def find(pattern):
    """The first file of this pattern below the places where packages and toolkits lie."""
    for root in ROOTS:
        for path in sorted(root.glob(pattern)):
            return str(path)
    raise SystemExit(f"no {pattern} below {', '.join(map(str, ROOTS))}: see --help")


def nvrtc_compile(text, architecture):
    """Machine code of a text for an architecture; the compiler's log instead if it refuses the text."""
    nvrtc = ctypes.CDLL(find("**/libnvrtc.so.*"))
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None)
    options = [f"--gpu-architecture={architecture}".encode(), b"--std=c++17"]
    status = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    if status != 0:
        return None, log.value.decode()
    nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
    code = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetCUBIN(program, code)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return code.raw, log.value.decode()


def measured(path, work):
    """What a kernel takes, and its instructions; kept in `work` by the hash of its text."""
    text = path.read_text()
    architecture = "sm_90a" if "sm_90" in path.name else re.search(r"sm_\d+", path.name)[0]
    kept = work / (hashlib.sha256((architecture + text).encode()).hexdigest()[:24] + ".json")
    if kept.exists():
        return json.loads(kept.read_text())
    code, log = nvrtc_compile(text, architecture)
    if code is None:
        return {"error": log}
    cubin = kept.with_suffix(".cubin")
    cubin.write_bytes(code)
    usage = subprocess.run([find("**/bin/cuobjdump"), "-res-usage", cubin], capture_output=True, text=True, check=True).stdout
    taken = {name: int(re.search(rf"{name}:(\d+)", usage)[1]) for name in ("REG", "STACK", "SHARED", "LOCAL")}
    listing = subprocess.run([find("**/bin/nvdisasm"), "-c", cubin], capture_output=True, text=True, check=True).stdout
    lines = [re.sub(r"/\*.*?\*/", "", line).strip() for line in listing.splitlines()]
    taken["code"] = [line for line in lines if line.endswith(";") or re.fullmatch(r"\.L_x_\d+:", line)]
    taken["log"] = log
    kept.write_text(json.dumps(taken))
    cubin.unlink()
    return taken


def loops(code):
    """Instructions of each innermost loop that has products of tensor cores, the smallest first."""
    labels = {line[:-1]: place for place, line in enumerate(code) if line.endswith(":")}
    found = []
    for place, line in enumerate(code):
        target = re.search(r"BRA.*(\.L_x_\d+)", line)
        start = labels.get(target[1], place) if target else place
        if start < place:
            found.append((start, place))
    inner = [(a, b) for a, b in found if not any(a <= c and d <= b and (a, b) != (c, d) for c, d in found)]
    bodies = [[line for line in code[a : b + 1] if not line.endswith(":") and "NOP" not in line] for a, b in inner]
    return sorted(len(body) for body in bodies if any("MMA." in line for line in body))


def labelled(code):
    """Instructions with labels named by their order."""
    names = {}
    return [re.sub(r"\.L_x_\d+", lambda m: names.setdefault(m[0], f"L{len(names)}"), line) for line in code]


def unnamed(code):
    """Instructions without the names of registers, predicates and barriers."""
    return [re.sub(r"\b(UR|R|UP|P|B|SB)\d+", r"\1", line) for line in labelled(code)]


def compared(before, after):
    """In a word how two kernels differ, and by how much each of what they take has grown."""
    if "error" in after:
        return "refused", {}
    old, new = labelled(before["code"]), labelled(after["code"])
    grown = {name: (before[name], after[name]) for name in ("REG", "STACK", "SHARED", "LOCAL") if before[name] != after[name]}
    turns = [loops(code["code"]) for code in (before, after)]
    if turns[0] != turns[1]:
        grown["loops"] = (sum(turns[0]), sum(turns[1]))
    useful = [sum(not re.search(r"\b(NOP|BRA \.?L)|:$", line) for line in code) for code in (old, new)]
    if useful[0] != useful[1]:
        grown["instructions"] = tuple(useful)
    if old == new:
        return "same", grown
    if unnamed(old) == unnamed(new):
        return "registers", grown
    count = [collections.Counter(re.sub(r"^@!?U?P\w+ ", "", line).split()[0] for line in code) for code in (old, new)]
    return "order" if count[0] == count[1] else "different", grown


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("before", type=pathlib.Path)
    arguments.add_argument("after", type=pathlib.Path)
    arguments.add_argument("--work", type=pathlib.Path, default=pathlib.Path("/tmp/compare_cuda"))
    arguments.add_argument("--only", default="", help="part of a kernel's file name")
    arguments.add_argument("--every", type=int, default=1, help="takes every so many pairs only")
    arguments.add_argument("--slack", type=float, default=0.01, help="growth of instructions that is allowed")
    told = arguments.parse_args()
    told.work.mkdir(parents=True, exist_ok=True)
    sets = [{path.name.split("-")[0]: path for path in sorted(folder.glob("*.cu"))} for folder in (told.before, told.after)]
    missing = sets[0].keys() ^ sets[1].keys()
    pairs = [(sets[0][key], sets[1][key]) for key in sorted(sets[0].keys() & sets[1].keys()) if told.only in sets[1][key].name]
    pairs = pairs[:: told.every]
    table, worse = collections.defaultdict(collections.Counter), []
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        old = pool.map(measured, [pair[0] for pair in pairs], [told.work] * len(pairs))
        new = pool.map(measured, [pair[1] for pair in pairs], [told.work] * len(pairs))
        for (path, other), before, after in zip(pairs, old, new):
            word, grown = compared(before, after)
            table[path.name.split("-", 1)[1]][word] += 1
            more = {name: sizes for name, sizes in grown.items() if sizes[1] > sizes[0] * (1 + told.slack * (name in ("instructions", "loops")))}
            if word == "refused" or more:
                worse.append(other.name)
            if grown or word == "refused":
                print(other.name, word, *(f"{name} {a} -> {b}" for name, (a, b) in grown.items()), after.get("error", "")[:1500], flush=True)
    for name, words in sorted(table.items()):
        print(f"{name:32}", ", ".join(f"{count} {word}" for word, count in words.items()))
    print(f"{len(pairs)} pairs, {len(worse)} worse, {len(missing)} without a partner")
    raise SystemExit(1 if worse or missing else 0)


if __name__ == "__main__":
    main()
