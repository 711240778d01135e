"""Lines of Python that run a call without this package, for the scripts of ``tapml reduce``."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

from ._aten import ATEN_RUNTIMES
from ._aten_calls import bind, find_operator
from ._calls import Invalid, Node, parse_subgraph
from ._onnx import EXPORTED, OnnxRuntime
from ._runtimes import RUNTIMES

#: Whatever stands around the nodes of a script: nothing.
AROUND = Node("script", "script", 0, {}, (), ())


class Name:
    """A value of a module, as the module calls it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


def load_lines(word: str, call: dict[str, Any]) -> str:
    """Lines that set ``found`` to the first result of a call on a runtime; empty if none are known. They read ``feed``, arrays by
    name, and for operators of ONNX ``model``, a path.

    ``call`` has the names of its ``inputs``, of the ``constants`` among them and of its ``outputs``, its ``nodes`` as in a graph
    within an operator, and whether it is a ``graph`` that the runtime may optimise."""
    runtime = {**RUNTIMES, **ATEN_RUNTIMES}.get(word)
    if runtime is None or not runtime.load:
        return ""
    parsed = parse_subgraph({name: call.get(name) for name in ("inputs", "nodes", "outputs")}, AROUND)
    takes_models = issubclass(runtime, OnnxRuntime)
    load = (call.get("graph") and takes_models and runtime.load_graph) or runtime.load
    lines = load.strip().splitlines()
    if not all(node.domain == "aten" for node in parsed["nodes"]):
        return "\n".join(lines) if takes_models else ""
    module = module_lines(parsed["inputs"], call.get("constants", []), parsed["nodes"], parsed["outputs"])
    export = export_lines(runtime.opset, parsed["outputs"]) if takes_models else []
    return "\n".join([*module, *export, *lines])


def module_lines(inputs: Sequence[str], constants: Collection[str], nodes: Sequence[Node], outputs: Sequence[str]) -> list[str]:
    """Lines that make ``module``, with its constants from files, and ``example``, the tensors that it is given."""
    given = [name for name in inputs if name not in constants]
    values: dict[str, Any] = {"": None, **{name: Name(name) for name in given}}
    values.update({name: Name(f"self.{name}") for name in constants})
    body = []
    for node in nodes:
        positional, keywords = bind(node, [values[name] for name in node.inputs])
        arguments = [*map(write, positional), *(f"{name}={write(value)}" for name, value in keywords.items())]
        body.append(assign(node, f"torch.ops.aten.{node.name}({', '.join(arguments)})"))
        values.update((name, Name(name)) for name in node.outputs if name)
    results = ", ".join(repr(values[name]) for name in outputs) + ("," if len(outputs) == 1 else "")
    loaded = [
        'for file in glob.glob("constants/*.npy"):',
        "    module.register_buffer(file[10:-4], torch.from_numpy(np.load(file)))",
    ]
    return [
        "import torch",
        "",
        "class Module(torch.nn.Module):",
        f"    def forward({', '.join(['self', *given])}):",
        *("        " + line for line in body),
        f"        return ({results})",
        "",
        "module, example = Module().eval(), tuple(map(torch.from_numpy, feed.values()))",
        *(loaded if constants else []),
    ]


def assign(node: Node, call: str) -> str:
    """The line that gives the results of an operator their names."""
    returns = find_operator(node)._schema.returns
    listed = len(returns) == 1 and "List" in str(returns[0].type)
    if len(returns) == 1 and not listed:
        return f"{node.outputs[0]} = {call}"
    asked = [(at, name) for at, name in enumerate(node.outputs) if name]
    if len(asked) == 1:
        return f"{asked[0][1]} = {call}[{asked[0][0]}]"
    more = ["*_"] if listed or len(returns) > len(node.outputs) else []
    return f"{', '.join([*(name or '_' for name in node.outputs), *more])} = {call}"


def write(value: Any) -> str:
    """An argument as Python has it."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(write, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, (Name, bool, int, float, str)) or value is None or type(value).__module__ == "torch":
        return repr(value)
    raise Invalid(f"an argument is a {type(value).__name__}, which no script has")


def export_lines(opset: int, outputs: Sequence[str]) -> list[str]:
    """Lines that export ``module`` as ``model``, as an agent does."""
    options = f", opset_version={min(opset, EXPORTED)}" if opset else ""
    names = f"input_names=list(feed), output_names={list(outputs)!r}"
    return [
        'model = "model.onnx"',
        f"torch.onnx.export(module, example, model, dynamo=True, {names}, verbose=False{options})",
    ]
