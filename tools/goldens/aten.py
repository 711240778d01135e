"""Writes what PyTorch gives in f64 for the sample calls of its operators that TapML defines.

    python tools/goldens/aten.py crates/onnx/tests/aten.json.gz

Needs torch. Inputs and results are f64. The samples' inputs are f32: the file has the shortest text of each value in f32, and results
have 15 digits, of which the test compares 13. One call a line: operator, attributes, inputs with null for absent ones, results with null for those without
elements. Many samples have the same inputs: numbers that an array before has, too, are told by its place among the arrays with numbers of
their own.
"""

from __future__ import annotations

import gzip
import json
import math
import pathlib
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bindings/python/python"), str(ROOT / "bindings/python/tests")]

from aten_samples import samples  # noqa: E402
from tapml.agents import Call, Executor, Unsupported, Value  # noqa: E402
from tapml.agents.__main__ import ALL  # noqa: E402
from tapml.agents._calls import NAMES  # noqa: E402


def shorten(value: float) -> float:
    """An input as its shortest text in f32 has it, if it is a value of f32."""
    return float(str(np.float32(value))) if float(np.float32(value)) == value else value


def encode(array: np.ndarray, short: Callable[[float], float]) -> dict[str, Any]:
    """A tensor as JSON, with finite floats as `short` gives them."""
    flat = [short(v) if isinstance(v, float) and math.isfinite(v) else v for v in array.reshape(-1).tolist()]
    words = [v if not isinstance(v, float) or math.isfinite(v) else {"float": str(v)} for v in flat]
    return {"dtype": NAMES[array.dtype], "shape": list(array.shape), "data": words}


def share(array: dict[str, Any], known: dict[str, int]) -> dict[str, Any]:
    """The array, with the place of the one before it that has the same numbers, if there is one."""
    numbers = json.dumps(array["data"])
    if numbers in known:
        return {**array, "data": known[numbers]}
    known[numbers] = len(known)
    return array


def widen(call: Call) -> Call:
    """The call with floats in f64."""
    wide = {n: Value(v.array.astype(np.float64) if v.array.dtype == np.float32 else v.array) for n, v in call.values.items()}
    return replace(call, values=wide)


def main() -> None:
    exact, lines = Executor(ALL["torch-f64"]()), []
    known: dict[str, int] = {}
    for call in map(widen, samples()):
        node = call.nodes[0]
        try:
            results = exact.run(call)
        except Unsupported as error:
            sys.exit(f"{node}: {error}")
        inputs = [encode(call.values[name].array, shorten) if name else None for name in node.inputs]
        outputs = [encode(r, lambda v: float(f"{v:.15g}")) if r.size else None for r in results]
        inputs, outputs = ([share(array, known) if array else None for array in arrays] for arrays in (inputs, outputs))
        made = {"op": str(node), "attributes": node.attributes, "inputs": inputs, "outputs": outputs}
        lines.append(json.dumps(made, separators=(",", ":")))
    text = "[\n" + ",\n".join(lines) + "\n]\n"
    # Without a time and a name, so that the same numbers give the same file.
    pathlib.Path(sys.argv[1]).write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
