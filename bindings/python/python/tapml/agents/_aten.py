"""Runtimes that take PyTorch's operators: PyTorch itself, and what compiles an exported module. How such a call is written:
``_aten_calls``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ._aten_calls import TORCH, check_call, from_torch, is_aten, make_module, to_torch
from ._calls import FLOATS, Call, Unsupported, Value
from ._executor import Executable, Runtime, cast
from ._runtimes import widen


class AtenRuntime(Runtime):
    """A runtime that takes PyTorch modules. A subclass says in ``build`` how one becomes a function."""

    package, install = "torch", "torch"
    operators = ("aten.*",)
    dtypes = tuple(TORCH)
    refusals = (NotImplementedError, Unsupported)
    #: Lines of Python that run ``module.pt2`` on ``feed``, arrays by name, and set ``found`` to the first result.
    load = ""

    def build(self, module: Any, example: tuple[Any, ...], call: Call) -> Any:
        """A function from tensors to a list of tensors; ``module`` is an ``nn.Module`` of these nodes."""
        raise NotImplementedError

    def check(self, call: Call) -> Call:
        if not is_aten(call):
            other = next(node for node in call.nodes if node.domain != "aten")
            raise Unsupported(f"{self.name} serves aten.*, not {other}")
        return check_call(call)

    def keep(self, tensor: Any) -> Any:
        """What a node gave, as the next node is given it."""
        return tensor

    def prepare(self, call: Call) -> Executable:
        import torch

        module, example = make_module(call, self.keep)
        with torch.no_grad():
            program = self.build(module, example, call)

        def run(arrays: list[np.ndarray]) -> list[np.ndarray]:
            with torch.no_grad():
                return [from_torch(tensor) for tensor in program(*map(to_torch, arrays))]

        return run


class Torch(AtenRuntime):
    """PyTorch in eager mode, in the dtype of the inputs."""

    name = "torch"
    load = """
import torch
module = torch.export.load("module.pt2").module()
found = module(*map(torch.from_numpy, feed.values()))[0].numpy()
"""

    def build(self, module: Any, example: tuple[Any, ...], call: Call) -> Any:
        import torch

        device = torch.device(self.options.get("device", "cpu"))
        module = module.to(device)
        return lambda *tensors: module(*(tensor.to(device) for tensor in tensors))


class TorchF64(Torch):
    """PyTorch in f64: the oracle. Floats are widened before a node computes, and results have their declared dtypes. What a
    node itself rounds (a ``dtype``) is rounded before that."""

    name, accumulate, load = "torch-f64", "f64", ""

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
    load = """
import torch
module = torch.compile(torch.export.load("module.pt2").module(), fullgraph=True)
found = module(*map(torch.from_numpy, feed.values()))[0].numpy()
"""

    def build(self, module: Any, example: tuple[Any, ...], call: Call) -> Any:
        import torch

        torch._dynamo.reset()
        program = torch.compile(torch.export.export(module, example).module(), fullgraph=True)
        program(*example)  # Compiles: what inductor does not take is refused here.
        return program


class ExecuTorch(AtenRuntime):
    """ExecuTorch: exported, lowered to XNNPACK where that takes the operator, and to the portable kernels where not."""

    name, package, install = "executorch", "executorch.exir", "executorch"
    load = """
import executorch.exir, executorch.runtime, torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
edge = executorch.exir.to_edge_transform_and_lower(torch.export.load("module.pt2"), partitioner=[XnnpackPartitioner()])
program = executorch.runtime.Runtime.get().load_program(code := edge.to_executorch().buffer)
found = program.load_method("forward").execute([*map(torch.from_numpy, feed.values())])[0].numpy()
"""

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
    load = """
import torch, litert_torch
example = tuple(map(torch.from_numpy, feed.values()))
found = litert_torch.convert(torch.export.load("module.pt2").module(), example)(*example)
found = np.asarray(found[0] if isinstance(found, (list, tuple)) else found)
"""

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
