"""Runtimes that take PyTorch's operators: PyTorch itself, and what compiles an exported module.

``aten.NAME.OVERLOAD`` is the operator. Its tensors are the inputs, in the order of the schema; its other arguments are
attributes by the schema's names, absent where they have their default. A list of tensors takes ``{"tensors": n}`` of the
inputs, all that are left if nothing is said. dtypes are TapML's names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ._calls import DTYPES, FLOATS, Call, Node, Unsupported, Value
from ._executor import Executable, Runtime, cast
from ._onnx import WORDS
from ._runtimes import widen

#: TapML's dtypes as PyTorch names them.
TORCH = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "i64": "int64", "i32": "int32",
    "i16": "int16", "i8": "int8", "u8": "uint8", "bool": "bool",
}  # fmt: skip

#: PyTorch's memory formats.
FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")


class AtenRuntime(Runtime):
    """A runtime that takes PyTorch modules. A subclass says in ``build`` how one becomes a function."""

    package, install = "torch", "torch"
    operators = ("aten.*",)
    dtypes = tuple(TORCH)
    refusals = (NotImplementedError, Unsupported)

    def build(self, module: Any, example: tuple[Any, ...], call: Call) -> Any:
        """A function from tensors to a list of tensors; ``module`` is an ``nn.Module`` of these nodes."""
        raise NotImplementedError

    def check(self, call: Call) -> Call:
        for node in call.nodes:
            if node.domain != "aten":
                raise Unsupported(f"{self.name} serves aten.*, not {node}")
            self.bind(node, [object() if name else None for name in node.inputs])
        if not call.results:  # Nothing says how many outputs there are: all that the operator has.
            names = tuple(f"y{i}" for i in range(len(self.find(call.nodes[-1])._schema.returns)))
            call = replace(call, nodes=(replace(call.nodes[-1], outputs=names),), results=tuple((n, None) for n in names))
        return call

    def find(self, node: Node) -> Any:
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

    def bind(self, node: Node, tensors: list[Any]) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments of the operator for these tensors."""
        schema = self.find(node)._schema
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

    def keep(self, tensor: Any) -> Any:
        """What a node gave, as the next node is given it."""
        return tensor

    def prepare(self, call: Call) -> Executable:
        import torch

        runtime, given = self, call.given()
        constants = {name: to_torch(v.array) for name, v in call.values.items() if v.constant}

        class Nodes(torch.nn.Module):
            """The nodes of the call, one after the other."""

            def __init__(self) -> None:
                super().__init__()
                for name, tensor in constants.items():
                    self.register_buffer(name, tensor)

            def forward(self, *tensors: Any) -> tuple[Any, ...]:
                values = {"": None, **{name: getattr(self, name) for name in constants}, **dict(zip(given, tensors))}
                for node in call.nodes:
                    positional, keywords = runtime.bind(node, [values[name] for name in node.inputs])
                    found = runtime.find(node)(*positional, **keywords)
                    found = found if isinstance(found, (tuple, list)) else (found,)
                    values.update((name, runtime.keep(f)) for name, f in zip(node.outputs, found) if name)
                return tuple(values[name] for name, _ in call.results)

        example = tuple(to_torch(call.values[name].array) for name in given)
        with torch.no_grad():
            program = self.build(Nodes().eval(), example, call)

        def run(arrays: list[np.ndarray]) -> list[np.ndarray]:
            with torch.no_grad():
                return [from_torch(tensor) for tensor in program(*map(to_torch, arrays))]

        return run


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


class Torch(AtenRuntime):
    """PyTorch in eager mode, in the dtype of the inputs."""

    name = "torch"

    def build(self, module: Any, example: tuple[Any, ...], call: Call) -> Any:
        import torch

        device = torch.device(self.options.get("device", "cpu"))
        module = module.to(device)
        return lambda *tensors: module(*(tensor.to(device) for tensor in tensors))


class TorchF64(Torch):
    """PyTorch in f64: the oracle. Floats are widened before a node computes, and results have their declared dtypes. What a
    node itself rounds (a ``dtype``) is rounded before that."""

    name, accumulate = "torch-f64", "f64"

    def keep(self, tensor: Any) -> Any:
        return tensor.double() if tensor.is_floating_point() else tensor

    def prepare(self, call: Call) -> Executable:
        wide = {n: Value(widen(v.array), v.constant) for n, v in call.values.items()}
        return super().prepare(replace(call, values=wide))

    def build(self, module: Any, example: tuple[Any, ...], call: Call) -> Any:
        program = super().build(module, example, call)
        return lambda *tensors: program(*map(self.keep, tensors))

    def finish(self, asked: Call, call: Call, results: list[np.ndarray]) -> list[np.ndarray]:
        floats = [value.array.dtype for value in asked.values.values() if value.dtype in FLOATS]
        return cast(results, call, floats[0] if floats else None)


class Inductor(AtenRuntime):
    """torch.compile: exported, and compiled by inductor, which needs a C++ compiler for the CPU."""

    name = "inductor"

    def build(self, module: Any, example: tuple[Any, ...], call: Call) -> Any:
        import torch

        torch._dynamo.reset()
        program = torch.compile(torch.export.export(module, example).module(), fullgraph=True)
        program(*example)  # Compiles: what inductor does not take is refused here.
        return program


class ExecuTorch(AtenRuntime):
    """ExecuTorch: exported, lowered to XNNPACK where that takes the operator, and to the portable kernels where not."""

    name, package, install = "executorch", "executorch.exir", "executorch"

    @property
    def version(self) -> str:
        from importlib.metadata import version

        return version("executorch")

    def build(self, module: Any, example: tuple[Any, ...], call: Call) -> Any:
        import torch
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
        from executorch.exir import to_edge_transform_and_lower
        from executorch.runtime import Runtime as Loader

        exported = torch.export.export(module, example)
        program = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()]).to_executorch()
        buffer = program.buffer
        loaded = Loader.get().load_program(buffer)
        method = loaded.load_method("forward")

        def run(*tensors: Any) -> Any:
            # The method reads its program and these bytes as it runs, and keeps neither alive.
            assert loaded is not None and buffer is not None
            return method.execute(tensors)

        return run


class LiteRt(AtenRuntime):
    """LiteRT: exported, and converted by litert-torch."""

    name, package, install = "litert", "litert_torch", "litert-torch"

    @property
    def version(self) -> str:
        from importlib.metadata import version

        return version("litert-torch")

    def build(self, module: Any, example: tuple[Any, ...], call: Call) -> Any:
        program = self.module.convert(module, example)

        def run(*tensors: Any) -> list[Any]:
            found = program(*tensors)
            return [to_torch(np.asarray(f)) for f in (found if isinstance(found, (list, tuple)) else [found])]

        run(*example)  # What LiteRT itself does not know is refused in the first run.
        return run


ATEN_RUNTIMES = {runtime.name: runtime for runtime in (Torch, TorchF64, Inductor, ExecuTorch, LiteRt)}
