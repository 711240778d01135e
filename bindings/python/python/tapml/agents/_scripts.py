"""Programs and lines of Python that run a call without this package, for the folders of ``tapml reduce``."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np

from ._aten import ATEN_RUNTIMES
from ._aten_calls import is_aten, make_module
from ._calls import Call, Invalid, Node, Value, parse_subgraph
from ._onnx import OnnxRuntime, export_model
from ._runtimes import RUNTIMES

#: Whatever stands around the nodes of a call: nothing.
AROUND = Node("script", "script", 0, {}, (), ())


def write_program(word: str, told: dict[str, Any], folder: pathlib.Path) -> str:
    """Writes the program of a call into the folder, and gives lines that run it on a runtime and set ``found`` to the first result;
    empty if none are known. They read ``feed``, arrays by name, and for operators of ONNX ``model``, a path.

    ``told`` has the names of the call's ``inputs``, of the ``constants`` among them and of its ``outputs``, its ``nodes`` as in a graph
    within an operator, and whether it is a ``graph`` that the runtime may optimise. The folder has the arrays by name, in ``inputs`` and
    ``constants``. PyTorch's operators become ``module.pt2``, and ``model.onnx`` for a runtime that takes ONNX models. The model of ONNX
    operators is the caller's own. Raises Unsupported where PyTorch does not export the call."""
    runtime = {**RUNTIMES, **ATEN_RUNTIMES}.get(word)
    nodes = parse_subgraph({name: told.get(name) for name in ("inputs", "nodes", "outputs")}, AROUND)["nodes"]
    takes_models = runtime is not None and issubclass(runtime, OnnxRuntime)
    if all(node.domain == "aten" for node in nodes):
        call = read_call(told, tuple(nodes), folder)
        save_module(call, folder / "module.pt2")
        if runtime is not None and takes_models:
            (folder / "model.onnx").write_bytes(export_model(call, runtime.opset).SerializeToString())
    elif not takes_models:
        return ""
    load = runtime.load if runtime is not None else ""
    if runtime is not None and takes_models and told.get("graph"):
        load = runtime.load_graph or load
    return load.strip()


def read_call(told: dict[str, Any], nodes: tuple[Node, ...], folder: pathlib.Path) -> Call:
    """The call with its arrays, which lie in the folder."""
    constants, values = set(told.get("constants", ())), {}
    for name in told["inputs"]:
        if not name.isidentifier():
            raise Invalid(f"`{name[:80]}` is no name of an input: expected one that Python takes")
        file = folder / ("constants" if name in constants else "inputs") / f"{name}.npy"
        values[name] = Value(np.load(file, allow_pickle=False), name in constants)
    return Call(nodes, values, tuple((name, None) for name in told["outputs"]), bool(told.get("graph")))


def save_module(call: Call, file: pathlib.Path) -> None:
    """Writes the call as an exported program of PyTorch."""
    import torch

    if not is_aten(call):
        raise Invalid("only PyTorch's operators become an exported program")
    module, example = make_module(call)
    with torch.no_grad():
        program = torch.export.export(module, example)
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # Places in this machine's files.
    torch.export.save(program, file)
