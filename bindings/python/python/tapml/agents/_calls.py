"""What an agent is asked to run: nodes, the values that they are given, and the results that are wanted."""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import dataclass, field, replace
from typing import Any, Optional

import ml_dtypes
import numpy as np

#: TapML's dtypes as NumPy has them.
DTYPES = {
    "f64": np.dtype(np.float64),
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "i64": np.dtype(np.int64),
    "i32": np.dtype(np.int32),
    "i16": np.dtype(np.int16),
    "i8": np.dtype(np.int8),
    "u64": np.dtype(np.uint64),
    "u32": np.dtype(np.uint32),
    "u16": np.dtype(np.uint16),
    "u8": np.dtype(np.uint8),
    "bool": np.dtype(np.bool_),
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
#: Floats that JSON does not have.
WORDS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
FLOATS = ("f64", "f32", "f16", "bf16")
#: Most sizes of a tensor.
RANK = 8

OPERATOR = re.compile(r"(?P<domain>[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*)\.(?P<name>[A-Za-z0-9_]+)(@(?P<version>[0-9]{1,4}))?")
TYPE = re.compile(r"(?P<dtype>[a-z0-9]+)(\[(?P<shape>((\?|[0-9]{1,18})(,(\?|[0-9]{1,18}))*)?)\])?")
ATEN = re.compile(r"aten\.(?P<name>[A-Za-z0-9_]+\.[A-Za-z0-9_]+)")


class Unsupported(Exception):
    """The runtime does not serve what is asked, which says nothing against it."""


class Invalid(ValueError):
    """A call that cannot be right on any runtime."""


@dataclass
class Value:
    """An array that is given to a call. ``constant``: it is the same in every call, and may become part of the program."""

    array: np.ndarray
    constant: bool = False
    _digest: Optional[bytes] = field(default=None, repr=False, compare=False)

    @property
    def dtype(self) -> str:
        """TapML's name of the dtype."""
        return NAMES[self.array.dtype]

    def digest(self) -> bytes:
        """A hash of the bytes, computed once."""
        if self._digest is None:
            self._digest = hashlib.blake2b(self.array.tobytes(), digest_size=16).digest()
        return self._digest


@dataclass(frozen=True)
class Node:
    """One operator of a call. ``attributes`` are JSON values as the wire has them; an empty name is an absent value."""

    domain: str
    name: str
    version: int
    attributes: dict[str, Any]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.domain}.{self.name}" + (f"@{self.version}" if self.version else "")

    def has(self, **attributes: Any) -> Node:
        """The node with these attributes; ``None`` takes one away."""
        changed = {**self.attributes, **attributes}
        return replace(self, attributes={k: v for k, v in changed.items() if v is not None or k not in attributes})


@dataclass(frozen=True)
class Call:
    """Nodes that run as one model. ``values`` are the inputs by name; ``results`` has for each wanted output its name and
    its declared (dtype, shape), None where nothing is declared. ``graph``: it came as a CallGraph."""

    nodes: tuple[Node, ...]
    values: dict[str, Value]
    results: tuple[tuple[str, Optional[tuple[str, tuple[int, ...]]]], ...]
    graph: bool = False

    def given(self) -> list[str]:
        """Names of the inputs that are no constants, in order."""
        return [name for name, value in self.values.items() if not value.constant]

    def fit_constants(self, limit: int) -> Call:
        """The call with at most ``limit`` bytes of constants: the largest are inputs in its place where there are more."""
        constants = {name: value for name, value in self.values.items() if value.constant}
        size = sum(value.array.nbytes for value in constants.values())
        moved = {}
        for name, value in sorted(constants.items(), key=lambda item: -item[1].array.nbytes):
            if size <= limit:
                break
            moved[name] = replace(value, constant=False)
            size -= value.array.nbytes
        return replace(self, values={**self.values, **moved}) if moved else self

    def key(self) -> bytes:
        """Equal keys may share an executable: all but the values of inputs that are no constants."""
        nodes = [(str(n), json.dumps(n.attributes, sort_keys=True), n.inputs, n.outputs) for n in self.nodes]
        types = [(k, v.dtype, v.array.shape, v.digest() if v.constant else None) for k, v in self.values.items()]
        return hashlib.blake2b(repr((nodes, types, self.results, self.graph)).encode(), digest_size=16).digest()


def own_inputs(node: Node) -> int:
    """How many inputs are the operator's own: behind them stand those that graphs within it read."""
    outer = [place for graph in graphs_within(node).values() for place in graph["outer"].values()]
    return min(outer, default=len(node.inputs))


def graphs_within(node: Node) -> dict[str, Any]:
    """The graphs among the attributes, by name, in the form of the wire; ``nodes`` are of the type Node."""
    return {name: parse_subgraph(value["graph"], node) for name, value in node.attributes.items() if is_graph(value)}


def is_graph(value: Any) -> bool:
    """Whether an attribute is a graph."""
    return isinstance(value, dict) and set(value) == {"graph"}


def parse_subgraph(graph: Any, around: Node) -> dict[str, Any]:
    """A graph within an operator, checked."""

    def texts(value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise Invalid(f"a graph within {around}: expected a list of names, found {str(value)[:80]}")
        return tuple(value)

    needed, more = {"inputs", "nodes", "outputs"}, {"types", "outer", "turns"}
    if not isinstance(graph, dict) or not needed <= set(graph) <= needed | more:
        raise Invalid(f"a graph within {around} has inputs, nodes, outputs, and perhaps types, outer and turns")
    outer = graph.get("outer", {})
    count = len(around.inputs)
    if not isinstance(outer, dict) or not all(type(place) is int and 0 <= place < count for place in outer.values()):
        raise Invalid(f"a graph within {around} reads an input that the operator has not")
    nodes = []
    for node in graph["nodes"] if isinstance(graph["nodes"], list) else [None]:
        if not isinstance(node, dict) or not {"op", "inputs", "outputs"} <= set(node) <= {"op", "inputs", "outputs", "attributes"}:
            raise Invalid(f"a graph within {around}: a node has op, inputs, outputs, and perhaps attributes")
        attributes = node.get("attributes", {})
        if not isinstance(node["op"], str) or not isinstance(attributes, dict):
            raise Invalid(f"a graph within {around}: a node has the name of an operator, and attributes")
        nodes.append(Node(*parse_operator(node["op"]), attributes, texts(node["inputs"]), texts(node["outputs"])))
    inputs, types = texts(graph["inputs"]), texts(graph.get("types", []))
    if types and len(types) != len(inputs):
        raise Invalid(f"a graph within {around} has a type for each input, or none")
    types = tuple(parse_type(text) for text in types) or (None,) * len(inputs)
    return {"inputs": inputs, "types": types, "outer": outer, "nodes": nodes, "outputs": texts(graph["outputs"])}


def parse_type(text: str) -> Optional[tuple[str, Optional[tuple[Optional[int], ...]]]]:
    """Dtype and sizes of ``f32[2,?]``, no sizes of ``f32``, nothing of an empty text."""
    if not text:
        return None
    found = TYPE.fullmatch(text)
    if not found or found["dtype"] not in DTYPES:
        raise Invalid(f"`{text[:80]}` is no type such as f32[2,?]")
    if found["shape"] is None:
        return found["dtype"], None
    sizes = [size for size in found["shape"].split(",") if size]
    return found["dtype"], tuple(None if size == "?" else int(size) for size in sizes)


def find_dtype(name: str) -> np.dtype:
    """NumPy's dtype of a name on the wire."""
    if name not in DTYPES:
        raise ValueError(f"unknown dtype `{name[:40]}`; known: {', '.join(DTYPES)}")
    return DTYPES[name]


def decode(dtype: str, shape: Any, data: bytes) -> np.ndarray:
    """The array of these bytes: elements in row-major order, little-endian. Rank 0 stays rank 0."""
    kind, shape = find_dtype(dtype), tuple(int(size) for size in shape)
    if len(shape) > RANK:
        raise ValueError(f"a tensor has at most {RANK} sizes, found {len(shape)}")
    if len(data) != math.prod(shape) * kind.itemsize:
        raise ValueError(f"{dtype}{list(shape)} needs {math.prod(shape) * kind.itemsize} bytes, found {len(data)}")
    if kind == np.bool_ and len(data) and max(data) > 1:
        raise ValueError("a bool is a byte of 0 or 1")
    return np.frombuffer(data, kind).reshape(shape)


def parse_operator(text: str) -> tuple[str, str, int]:
    """Domain, name and version of ``onnx.Conv@11`` or ``aten.add.Tensor``, which has none: version 0."""
    if aten := ATEN.fullmatch(text):
        return "aten", aten["name"], 0
    found = OPERATOR.fullmatch(text) if len(text) < 256 else None
    if not found or not found["version"]:
        raise Unsupported(f"`{text[:80]}` is no operator of this agent; expected DOMAIN.NAME@VERSION or aten.NAME.OVERLOAD")
    return found["domain"], found["name"], int(found["version"])


def parse_attributes(text: str) -> dict[str, Any]:
    """A JSON object as Python has it. A name that stands twice, and numbers that JSON does not have, are refused."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) != len(pairs):
            raise ValueError("a name stands twice in the JSON of the attributes")
        return dict(pairs)

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is no JSON; a float that is not finite is written as {{\"float\":\"inf\"}}")

    try:
        found = json.loads(text or "{}", object_pairs_hook=unique, parse_constant=refuse)
    except RecursionError:
        raise ValueError("the JSON of the attributes is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError(f"attributes are a JSON object, found {type(found).__name__}")
    return found


def parse_node(request: Any, values: list[Optional[Value]]) -> Call:
    """The call of a CallNode; ``values`` are its inputs, None where one is absent."""
    domain, name, version = parse_operator(request.op)
    inputs = tuple("" if value is None else f"x{i}" for i, value in enumerate(values))
    types = [None] * len(request.keep) if not request.outputs else [declare(t) for t in request.outputs]
    absent = [bool(t.absent) for t in request.outputs] or [False] * len(types)
    outputs = tuple("" if gone else f"y{i}" for i, gone in enumerate(absent))
    node = Node(domain, name, version, parse_attributes(request.attributes), inputs, outputs)
    given = {name: value for name, value in zip(inputs, values) if value is not None}
    return Call((node,), given, tuple((name, t) for name, t in zip(outputs, types) if name))


def parse_graph(request: Any, values: list[Optional[Value]]) -> Call:
    """The call of a CallGraph. Values are named v0, v1, … in the order in which they appear, whatever their names were."""
    if len(request.inputs) != len(values) or len(request.outputs) != len(request.types or request.outputs):
        raise ValueError("a graph has one value for each input, and one type for each output or none")
    names, given, nodes = {"": ""}, {}, []

    def define(name: str) -> str:
        if name and name in names:
            raise ValueError(f"the value `{name[:80]}` is made twice")
        return names.setdefault(name, f"v{len(names) - 1}")

    for name, value in zip(request.inputs, values):
        if not name or value is None:
            raise ValueError("an input of a graph has a name and a value")
        given[define(name)] = value
    for node in request.nodes:
        for name in node.inputs:
            if name not in names:
                raise ValueError(f"node `{node.node[:80]}` uses `{name[:80]}`, which nothing before it makes")
        inputs = tuple(names[name] for name in node.inputs)
        outputs = tuple(define(name) for name in node.outputs)
        nodes.append(Node(*parse_operator(node.op), parse_attributes(node.attributes), inputs, outputs))
    if missing := [name for name in request.outputs if not names.get(name)]:
        raise ValueError(f"nothing makes the result `{missing[0][:80]}`")
    types = [declare(t) for t in request.types] or [None] * len(request.outputs)
    return Call(tuple(nodes), given, tuple((names[n], t) for n, t in zip(request.outputs, types)), graph=True)


def declare(tensor: Any) -> Optional[tuple[str, tuple[int, ...]]]:
    """The type of a declared output; None for an absent one."""
    if tensor.absent or not tensor.dtype:  # Nobody asks for it, or the runtime tells.
        return None
    find_dtype(tensor.dtype)
    return tensor.dtype, tuple(int(size) for size in tensor.shape)
