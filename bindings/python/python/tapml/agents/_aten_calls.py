"""Calls of PyTorch's operators as ``nn.Module``.

``aten.NAME.OVERLOAD`` is the operator. Its tensors are the inputs, in the order of the schema; its other arguments are
attributes by the schema's names, absent where they have their default. A list of tensors takes ``{"tensors": n}`` of the
inputs, all that are left if nothing is said. dtypes are TapML's names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable

import numpy as np

from ._calls import DTYPES, WORDS, Call, Node, Unsupported

#: TapML's dtypes as PyTorch names them.
TORCH = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "i64": "int64", "i32": "int32",
    "i16": "int16", "i8": "int8", "u8": "uint8", "bool": "bool",
}  # fmt: skip

#: PyTorch's memory formats.
FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")


def is_aten(call: Call) -> bool:
    """Whether all nodes are PyTorch's operators."""
    return all(node.domain == "aten" for node in call.nodes)


def check_call(call: Call) -> Call:
    """The call with names for its outputs. Raises Unsupported for operators that PyTorch does not have, and ValueError for
    arguments that do not fit."""
    for node in call.nodes:
        bind(node, [object() if name else None for name in node.inputs])
    if not call.results:  # Nothing says how many outputs there are: all that the operator has.
        names = tuple(f"y{i}" for i in range(len(find_operator(call.nodes[-1])._schema.returns)))
        call = replace(call, nodes=(replace(call.nodes[-1], outputs=names),), results=tuple((n, None) for n in names))
    return call


def find_operator(node: Node) -> Any:
    """The operator itself."""
    import torch

    name, overload = node.name.split(".")
    packet = getattr(torch.ops.aten, name, None)
    if packet is None or overload not in packet.overloads():
        raise Unsupported(f"PyTorch {torch.__version__} has no operator {node}")
    found = getattr(packet, overload)
    if found._schema.is_mutable:
        raise Unsupported(f"{node} writes to its inputs, which operators here never do")
    return found


def bind(node: Node, tensors: list[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments of the operator for these tensors."""
    schema = find_operator(node)._schema
    names = {argument.name for argument in schema.arguments}
    if unknown := sorted(set(node.attributes) - names):
        raise Unsupported(f"{node} has no argument `{unknown[0][:80]}`; it has: {', '.join(sorted(names))}")
    rest, positional, keywords, skipped = list(tensors), [], {}, False
    for argument in schema.arguments:
        kind, given = str(argument.type), node.attributes.get(argument.name)
        if kind in ("Tensor", "Optional[Tensor]") and argument.name in node.attributes:
            value = read_argument(given, kind, node)  # A number in the place of a tensor.
        elif kind in ("Tensor", "Optional[Tensor]"):
            value = rest.pop(0) if rest else None
            if value is None and kind == "Tensor":
                raise ValueError(f"{node} needs the tensor `{argument.name}`")
        elif "List[" in kind and "Tensor" in kind:
            count = given["tensors"] if isinstance(given, dict) and "tensors" in given else len(rest)
            value, rest = rest[:count], rest[count:]
        elif argument.name in node.attributes:
            value = read_argument(given, kind, node)
        elif argument.has_default_value():
            skipped = True
            continue
        else:
            raise ValueError(f"{node} needs the argument `{argument.name}`")
        if argument.kwarg_only or skipped:
            keywords[argument.name] = value
        else:
            positional.append(value)
    if rest:
        raise ValueError(f"{node} takes {len(tensors) - len(rest)} tensors, found {len(tensors)}")
    return positional, keywords


def make_module(call: Call, keep: Callable[[Any], Any] = lambda tensor: tensor) -> tuple[Any, tuple[Any, ...]]:
    """An ``nn.Module`` that runs the nodes one after the other, in ``eval()`` mode, and tensors to run it on. Constants are
    its buffers; ``keep`` changes what a node gave before the next one is given it."""
    import torch

    given = call.given()
    constants = {name: to_torch(v.array) for name, v in call.values.items() if v.constant}

    class Nodes(torch.nn.Module):
        """The nodes of the call."""

        def __init__(self) -> None:
            super().__init__()
            for name, tensor in constants.items():
                self.register_buffer(name, tensor)

        def forward(self, *tensors: Any) -> tuple[Any, ...]:
            values = {"": None, **{name: getattr(self, name) for name in constants}, **dict(zip(given, tensors))}
            for node in call.nodes:
                positional, keywords = bind(node, [values[name] for name in node.inputs])
                found = find_operator(node)(*positional, **keywords)
                found = found if isinstance(found, (tuple, list)) else (found,)
                values.update((name, keep(f)) for name, f in zip(node.outputs, found) if name)
            return tuple(values[name] for name, _ in call.results)

    return Nodes().eval(), tuple(to_torch(call.values[name].array) for name in given)


def read_argument(value: Any, kind: str, node: Node) -> Any:
    """An argument that is no tensor, as PyTorch takes it."""
    import torch

    if isinstance(value, str) and value in TORCH and "int" in kind:  # The schema calls a dtype an int.
        return getattr(torch, TORCH[value])
    if isinstance(value, str) and value in FORMATS and "int" in kind:  # A memory format as well.
        return getattr(torch, value)
    if isinstance(value, dict):
        if set(value) == {"float"} and value["float"] in WORDS:
            return WORDS[value["float"]]
        if len(value) == 1 and next(iter(value)) in ("ints", "floats", "bools"):
            return [WORDS.get(v, v) if isinstance(v, str) else v for v in next(iter(value.values()))]
        raise ValueError(f"an argument of {node} is {str(value)[:80]}, which is no number, list or dtype")
    return value


def to_torch(array: np.ndarray) -> Any:
    """A tensor of its own."""
    import torch

    if array.dtype == DTYPES["bf16"]:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def from_torch(tensor: Any) -> np.ndarray:
    """A copy of a result: runtimes use the memory of their results again."""
    import torch

    if not isinstance(tensor, torch.Tensor):
        raise Unsupported(f"a result is a {type(tensor).__name__}, which is no tensor")
    tensor = tensor.detach().cpu().contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().copy().view(DTYPES["bf16"])
    return tensor.numpy().copy()
