"""Calls of ONNX operators as models: names and types of attributes are checked against the operator's schema. Calls of PyTorch's
operators are exported by PyTorch."""

from __future__ import annotations

import importlib.util
import logging
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from . import _aten_calls
from ._calls import DTYPES, WORDS, Call, Invalid, Node, Unsupported, decode, graphs_within, is_graph, own_inputs
from ._executor import Executable, Runtime, explain

#: Most bytes of constants in a model: protobuf's limit, less room for the rest. Those beyond are inputs.
CONSTANTS = (2 << 30) - (64 << 20)
#: The newest opset that is asked of PyTorch's exporter.
EXPORTED = 20
FLOAT_MAX = float(np.finfo(np.float32).max)


class OnnxRuntime(Runtime):
    """A runtime that takes ONNX models. A subclass says in ``build`` how one becomes a function."""

    operators: tuple[str, ...] = ("onnx.*",)
    #: The newest opset of ai.onnx that it serves; 0: as new as the installed onnx package.
    opset = 0
    #: Lines of Python that run ``model``, a path, on ``feed``, arrays by name, and set ``found`` to the first result.
    load = ""
    #: The same for a model of several nodes, where it differs.
    load_graph = ""

    def build(self, model: Any, call: Call) -> Executable:
        """A function from the inputs, in the order of ``model.graph.input``, to the results, in the order of
        ``model.graph.output``. Whatever is raised here means: not served. ``model`` is an ``onnx.ModelProto`` whose
        constants are initialisers; ``call.graph`` tells several nodes from one."""
        raise NotImplementedError

    def served(self) -> tuple[str, ...]:
        return (*self.operators, "aten.*")

    def accumulate_of(self, operators: str) -> str:
        # PyTorch's exporter writes numbers, such as the scale of attention, in f32.
        return "f32" if operators == "aten.*" else self.accumulate

    def prepare(self, call: Call) -> Executable:
        model = export_model(call, self.opset) if _aten_calls.is_aten(call) else make_model(call, self.find_schema)
        return self.build(model, call)

    def find_schema(self, domain: str, name: str, version: int) -> Any:
        """The operator's schema in this opset."""
        from onnx import defs

        domain = "" if domain == "onnx" else domain
        try:
            return defs.get_schema(name, version, domain)
        except defs.SchemaError:
            raise Unsupported(f"the installed onnx package has no operator {domain or 'onnx'}.{name}@{version}") from None

    def need_exporter(self) -> None:
        """Refuses PyTorch's operators where PyTorch's exporter is not installed."""
        if missing := [name for name in ("torch", "onnxscript") if not importlib.util.find_spec(name)]:
            text = f"{self.name} takes aten operators by torch.onnx.export, for which {missing[0]} is not installed"
            raise Unsupported(f"{text}: `pip install torch onnxscript`")

    def check(self, call: Call) -> Call:
        if _aten_calls.is_aten(call):
            self.need_exporter()
            return _aten_calls.check_call(call).fit_constants(CONSTANTS)
        for node in with_inner(call.nodes):
            if not any(pattern == f"{node.domain}.*" for pattern in self.operators):
                raise Unsupported(f"{self.name} serves {', '.join(self.operators)}, not {node}")
            limit = self.opset or newest_opset()
            if node.domain == "onnx" and node.version > limit:
                raise Unsupported(f"{self.name} serves opsets up to {limit}, not {node}")
        newest = opsets(call)
        for node in with_inner(call.nodes):
            schema = self.find_schema(node.domain, node.name, node.version)
            check_node(node, schema)
            # A model has one opset for each domain, in which every node must mean what its own version says.
            used = self.find_schema(node.domain, node.name, newest[node.domain])
            if used.since_version != schema.since_version:
                raise Unsupported(f"{node} means something else in opset {newest[node.domain]}, which others here ask for")
        nodes = []
        for number, node in enumerate(call.nodes):
            nodes.append(fill_outputs(node, self.find_schema(node.domain, node.name, node.version), f"u{number}_"))
        call = replace(call, nodes=tuple(nodes))
        if not call.results:  # Neither types nor handles say how many outputs there are: all that are not optional.
            call = replace(call, results=tuple((name, None) for name in call.nodes[-1].outputs if name))
        return call.fit_constants(CONSTANTS)


def with_inner(nodes: Iterable[Node]) -> Iterator[Node]:
    """The nodes, and those of the graphs within them."""
    for node in nodes:
        yield node
        for graph in graphs_within(node).values():
            yield from with_inner(graph["nodes"])


def newest_opset() -> int:
    """The newest released opset that the installed onnx package knows."""
    from onnx import defs

    return int(defs.onnx_opset_version())


def opsets(call: Call) -> dict[str, int]:
    """The opset of each domain: the newest that a node asks for."""
    found: dict[str, int] = {}
    for node in with_inner(call.nodes):
        found[node.domain] = max(node.version, found.get(node.domain, 0))
    return found


def fill_outputs(node: Node, schema: Any, prefix: str) -> Node:
    """The node with names for outputs that must exist, whether anybody asks for them or not."""
    names = [*node.outputs, *[""] * (schema.min_output - len(node.outputs))]
    outputs = tuple(name or (f"{prefix}{i}" if i < schema.min_output else "") for i, name in enumerate(names))
    return replace(node, outputs=outputs)


def check_node(node: Node, schema: Any) -> None:
    """Refuses attributes that the operator does not have: runtimes ignore them."""
    if schema.deprecated:
        raise Unsupported(f"{node} is deprecated: this opset does not have it")
    known = schema.attributes
    if unknown := sorted(set(node.attributes) - set(known)):
        names = ", ".join(sorted(known)) or "none"
        raise Unsupported(f"{node} has no attribute `{unknown[0][:80]}`; it has: {names}")
    if missing := [name for name, a in known.items() if a.required and name not in node.attributes]:
        raise ValueError(f"{node} needs the attribute `{missing[0]}`")
    inputs = node.inputs[: own_inputs(node)]
    if not schema.min_input <= len(inputs) <= schema.max_input:
        most = "any number" if schema.max_input > 1 << 20 else schema.max_input
        raise ValueError(f"{node} takes {schema.min_input} to {most} inputs, found {len(inputs)}")
    for formal, name in zip(schema.inputs, inputs):
        if not name and formal.option.name == "Single":
            raise ValueError(f"the input `{formal.name}` of {node} is not optional, and is absent")
    if len(node.outputs) > schema.max_output:
        raise ValueError(f"{node} has at most {schema.max_output} outputs, found {len(node.outputs)}")


def make_model(call: Call, find_schema: Any) -> Any:
    """The model of a call: constants are initialisers, the other values inputs. Results have dtypes, and no shapes: a
    runtime that finds another shape shall say which, and not refuse."""
    import onnx

    nodes = [make_node(node, f"n{number}", find_schema) for number, node in enumerate(call.nodes)]
    inputs, constants = [], []
    for name, value in call.values.items():
        kind = onnx.TensorProto.DataType.Value(ELEMENTS[value.dtype])
        if value.constant:
            data = value.array.tobytes()
            constants.append(onnx.TensorProto(name=name, data_type=kind, dims=value.array.shape, raw_data=data))
        else:
            inputs.append(onnx.helper.make_tensor_value_info(name, kind, value.array.shape))
    outputs = []
    for name, declared in call.results:
        kind = onnx.TensorProto.DataType.Value(ELEMENTS[declared[0]]) if declared else None
        outputs.append(onnx.helper.make_tensor_value_info(name, kind, None) if kind else onnx.ValueInfoProto(name=name))
    graph = onnx.GraphProto(name="call", node=nodes, input=inputs, output=outputs, initializer=constants)
    # A model of another domain alone still names an opset of ai.onnx, which runtimes ask for.
    imports = {"onnx": min(17, newest_opset()), **opsets(call)}
    sets = [onnx.helper.make_opsetid("" if d == "onnx" else d, v) for d, v in imports.items()]
    # From version 4 on, initialisers need not be inputs as well.
    version = max(4, onnx.helper.find_min_ir_version_for(sets, ignore_unknown=True))
    model = onnx.ModelProto(ir_version=version, opset_import=sets, graph=graph, producer_name="tapml")
    # Where nothing is declared, the types of the results are inferred: most importers want them.
    return model if all(declared for _, declared in call.results) else onnx.shape_inference.infer_shapes(model)


def make_node(node: Node, name: str, find_schema: Any) -> Any:
    """The NodeProto of a node. The graphs within it read the values around it by their names."""
    import onnx

    domain = "" if node.domain == "onnx" else node.domain
    inputs = node.inputs[: own_inputs(node)]
    made = onnx.NodeProto(op_type=node.name, domain=domain, name=name, input=inputs, output=node.outputs)
    schema, graphs = find_schema(node.domain, node.name, node.version), graphs_within(node)
    for key, value in node.attributes.items():
        kind = schema.attributes[key].type.name
        if is_graph(value) != (kind == "GRAPH"):
            raise Invalid(f"attribute `{key}` of {node} is of type {kind.lower()}, found {str(value)[:80]}")
        if key in graphs:
            attribute = onnx.AttributeProto(name=key, type=onnx.AttributeProto.GRAPH)
            attribute.g.CopyFrom(make_subgraph(graphs[key], node.inputs, f"{name}_{key}", find_schema))
            made.attribute.append(attribute)
        else:
            made.attribute.append(make_attribute(key, value, kind, str(node)))
    return made


def make_subgraph(graph: dict[str, Any], outer: tuple[str, ...], name: str, find_schema: Any) -> Any:
    """The GraphProto of a graph within an operator of these inputs."""
    import onnx

    names = {own: outer[place] for own, place in graph["outer"].items()}

    def rename(texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(names.get(text, text) for text in texts)

    nodes = []
    for number, node in enumerate(graph["nodes"]):
        node = replace(node, inputs=rename(node.inputs))
        node = fill_outputs(node, find_schema(node.domain, node.name, node.version), f"{name}_u{number}_")
        nodes.append(make_node(node, f"{name}_{number}", find_schema))
    inputs = [make_info(own, known) for own, known in zip(graph["inputs"], graph["types"])]
    outputs = [onnx.ValueInfoProto(name=own) for own in rename(graph["outputs"])]
    return onnx.GraphProto(name=name, node=nodes, input=inputs, output=outputs)


def make_info(name: str, known: Any) -> Any:
    """The ValueInfoProto of a value, of which the type may be known."""
    import onnx

    if known is None:
        return onnx.ValueInfoProto(name=name)
    dtype, shape = known
    return onnx.helper.make_tensor_value_info(name, onnx.TensorProto.DataType.Value(ELEMENTS[dtype]), shape)


def read_names(node: Any) -> list[str]:
    """The names that a NodeProto reads: its inputs, and what graphs within it read of those around them."""
    found = dict.fromkeys(name for name in node.input if name)
    for attribute in node.attribute:
        made = {value.name for value in attribute.g.input}
        for inner in attribute.g.node:
            found.update(dict.fromkeys(name for name in read_names(inner) if name not in made))
            made.update(inner.output)
        found.update(dict.fromkeys(value.name for value in attribute.g.output if value.name not in made))
    return list(found)


def export_model(call: Call, limit: int) -> Any:
    """The model that PyTorch's exporter makes of a call of its operators, in an opset of at most ``limit`` unless that is 0.
    Inputs, results and constants have the names of the call. What the exporter does not take is not served."""
    import torch

    given, wanted = call.given(), [name for name, _ in call.results]
    module, example = _aten_calls.make_module(call)
    opset = {"opset_version": min(limit, EXPORTED)} if limit else {}
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # It warns that torchvision is not there.
    try:
        with torch.no_grad():
            options = {"input_names": given, "output_names": wanted, "verbose": False, **opset}
            model = torch.onnx.export(module, example, dynamo=True, **options).model_proto
    except Exception as error:  # Whatever it raises means the same.
        raise Unsupported(f"torch.onnx.export does not take it: {explain(error)}") from error
    found = [[value.name for value in side] for side in (model.graph.input, model.graph.output)]
    if found != [given, wanted]:
        raise Unsupported(f"torch.onnx.export gave a model from {found[0]} to {found[1]}, not from {given} to {wanted}")
    for part in (model.graph, *model.graph.node, *model.graph.value_info, *model.graph.input, *model.graph.output):
        part.ClearField("metadata_props")  # Places in this machine's files, which runtimes hand on in their messages.
    return model


ELEMENTS = {
    "f64": "DOUBLE", "f32": "FLOAT", "f16": "FLOAT16", "bf16": "BFLOAT16", "bool": "BOOL",
    **{f"i{bits}": f"INT{bits}" for bits in (8, 16, 32, 64)}, **{f"u{bits}": f"UINT{bits}" for bits in (8, 16, 32, 64)},
}  # fmt: skip


def make_attribute(name: str, value: Any, kind: str, node: str) -> Any:
    """The attribute of a JSON value, of the type that the schema gives it."""
    import onnx

    made = onnx.AttributeProto(name=name, type=onnx.AttributeProto.AttributeType.Value(kind))

    def expect(found: bool) -> None:
        if not found:
            raise Invalid(f"attribute `{name}` of {node} is of type {kind.lower()}, found {str(value)[:80]}")

    if kind == "INT":
        expect(is_int(value))
        made.i = value
    elif kind == "FLOAT":
        made.f = read_float(value["float"] if isinstance(value, dict) and set(value) == {"float"} else value, expect)
    elif kind == "STRING":
        expect(isinstance(value, str))
        made.s = value.encode()
    elif kind in ("INTS", "FLOATS", "STRINGS"):
        if isinstance(value, dict):
            expect(set(value) == {kind.lower()})
            value = value[kind.lower()]
        expect(isinstance(value, list))
        if kind == "INTS":
            expect(all(is_int(v) for v in value))
            made.ints.extend(value)
        elif kind == "FLOATS":
            made.floats.extend(read_float(v, expect) for v in value)
        else:
            expect(all(isinstance(v, str) for v in value))
            made.strings.extend(v.encode() for v in value)
    elif kind == "TENSOR":
        expect(isinstance(value, dict) and set(value) == {"tensor"})
        made.t.CopyFrom(make_tensor(value["tensor"], expect))
    else:
        raise Unsupported(f"attribute `{name}` of {node} is of type {kind.lower()}, which is not served")
    return made


def make_tensor(value: Any, expect: Any) -> Any:
    """A TensorProto of ``{"dtype":…,"shape":…,"data":…}``, whose data are flat."""
    import onnx

    expect(isinstance(value, dict) and set(value) == {"dtype", "shape", "data"} and value["dtype"] in DTYPES)
    dtype, shape, data = value["dtype"], value["shape"], value["data"]
    expect(isinstance(shape, list) and all(is_int(size) and size >= 0 for size in shape) and isinstance(data, list))
    expect(len(data) == math.prod(shape))
    if dtype == "bool":
        expect(all(isinstance(v, bool) for v in data))
    elif DTYPES[dtype].kind in "iu":
        limits = np.iinfo(DTYPES[dtype])
        expect(all(is_int(v, limits.min, limits.max) for v in data))
    else:
        data = [read_float(v, expect, math.inf) for v in data]
    array = decode(dtype, shape, np.array(data, DTYPES[dtype]).tobytes())
    kind = onnx.TensorProto.DataType.Value(ELEMENTS[dtype])
    return onnx.TensorProto(data_type=kind, dims=array.shape, raw_data=array.tobytes())


def is_int(value: Any, low: int = -(1 << 63), high: int = (1 << 63) - 1) -> bool:
    """Whether a JSON value is an integer in these limits."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def read_float(value: Any, expect: Any, most: float = FLOAT_MAX) -> float:
    """A number, or the word of one that is not finite."""
    if isinstance(value, str):
        expect(value in WORDS)
        return WORDS[value]
    expect(isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= most)
    return float(value)
