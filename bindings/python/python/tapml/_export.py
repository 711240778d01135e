"""A PyTorch module as a suite: its exported program run once, with every operator call."""

from __future__ import annotations

import json
import math
import os
import platform
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

import numpy as np

from ._errors import InvalidInput, Unsupported

#: Operators that stay whole: targets implement them, and their decompositions are other arithmetic.
KEPT = ("linear.default", "layer_norm.default", "scaled_dot_product_attention.default", "silu.default", "gelu.default",
        "hardswish.default", "hardsigmoid.default", "batch_norm.default", "conv1d.default", "conv2d.default", "upsample_nearest2d.vec",
        "upsample_bilinear2d.vec", "group_norm.default", "lstm.input", "gru.input", "softplus.default", "mish.default",
        "adaptive_avg_pool2d.default")  # fmt: skip

#: Arguments that say where a tensor lies, which is the target's own choice.
PLACES = ("device", "layout", "pin_memory")


def write_program(module: Any, args: Sequence[Any], kwargs: Optional[Mapping[str, Any]], folder: Path) -> None:
    """Exports a module, runs it, and writes `program.json` with every value as `.npy`.

    Raises:
        Unsupported: The module cannot be exported, or holds values that are no tensors of dtypes that TapML has.
    """
    import torch

    module = module.eval()
    try:
        with torch.no_grad():
            exported = torch.export.export(module, tuple(args), dict(kwargs or {}))
            table = torch.export.default_decompositions()
            for name in KEPT:
                packet, overload = name.split(".")
                found = getattr(getattr(torch.ops.aten, packet, None), overload, None)
                if found is not None:
                    table.pop(found, None)
            exported = exported.run_decompositions(table)
    except Exception as error:  # Whatever PyTorch raises here means the same.
        text = f"torch.export does not take the module: {type(error).__name__}: {error}"
        raise Unsupported(text[:2000], kind="unsupported", hint="`torch.export.export(module, args)` says where") from error
    Recorder(exported, folder).write(args, kwargs or {}, type(module).__name__)


class Recorder:
    """Runs an exported program, and keeps what each node takes and gives."""

    def __init__(self, exported: Any, folder: Path) -> None:
        self.exported, self.folder = exported, folder
        self.count = 0
        #: The number of each value, by the node of the program that makes it and the place among its results.
        self.numbers: dict[tuple[str, int], int] = {}
        self.nodes: list[dict[str, Any]] = []

    def write(self, args: Sequence[Any], kwargs: Mapping[str, Any], name: str) -> None:
        import torch

        exported = self.exported
        given = iter(torch.utils._pytree.tree_leaves((tuple(args), dict(kwargs))))
        inputs, weights, environment = [], [], {}
        specs = {spec.arg.name: spec for spec in exported.graph_signature.input_specs}
        stored = {**dict(exported.state_dict), **dict(exported.constants)}
        with torch.no_grad():
            for node in exported.graph.nodes:
                if node.op == "placeholder":
                    spec = specs[node.name]
                    own = spec.kind.name == "USER_INPUT"
                    value = next(given) if own else stored[spec.target]
                    environment[node.name] = value
                    if isinstance(value, torch.Tensor):
                        entry = {"name": node.name if own else spec.target, "value": self.keep((node.name, 0), value)}
                        (inputs if own else weights).append(entry)
                elif node.op == "call_function":
                    environment[node.name] = self.call(node, environment)
                elif node.op == "output":
                    results = [n for n in torch.utils._pytree.tree_leaves(node.args[0]) if hasattr(n, "name")]
                    kinds = {s.arg.name for s in exported.graph_signature.output_specs if s.kind.name == "USER_OUTPUT"}
                    outputs = [{"name": n.name, "value": self.numbers[n.name, 0]} for n in results if n.name in kinds]
                else:
                    raise Unsupported(f"the program holds `{node.op}` ({node.target}), which no suite holds", kind="unsupported")
        device = f"torch {torch.__version__}"
        source = {"platform": "torch", "device": device, "driver": f"Python {platform.python_version()}"}
        program = {"schema": 1, "name": name, "source": source, "inputs": inputs, "weights": weights, "nodes": self.nodes,
                   "outputs": outputs}  # fmt: skip
        (self.folder / "program.json").write_text(json.dumps(program))

    def keep(self, place: tuple[str, int], tensor: Any) -> int:
        """Writes a value; gives its number."""
        import torch

        if tensor.dtype in (torch.bfloat16,) or tensor.is_complex() or tensor.is_quantized:
            raise Unsupported(f"`{place[0]}` is {tensor.dtype}, which is not recorded", kind="unsupported", hint="run the module in float32")
        number = self.numbers[place] = self.count
        self.count += 1
        array = tensor.detach().cpu().contiguous().numpy()
        np.save(self.folder / f"{number}.npy", array, allow_pickle=False)
        return number

    def call(self, node: Any, environment: dict[str, Any]) -> Any:
        """Runs a node. What only picks one of several results is none of its own."""
        import operator

        import torch

        values = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: environment[n.name])
        result = node.target(*values[0], **values[1])
        if node.target is operator.getitem:
            source, at = node.args
            if (source.name, at) in self.numbers:
                self.numbers[node.name, 0] = self.numbers[source.name, at]
            return result
        if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace != "aten":
            raise Unsupported(f"`{node.name}` calls {node.target}, which is no operator of aten", kind="unsupported")
        results = list(result) if isinstance(result, (tuple, list)) else [result]
        if not any(isinstance(r, torch.Tensor) for r in results):
            return result
        inputs, attributes = self.arguments(node)
        asked = used_results(node, len(results))
        kept = [at in asked and isinstance(r, torch.Tensor) and r.numel() > 0 for at, r in enumerate(results)]
        outputs = [self.keep((node.name, at), r) if kept[at] else None for at, r in enumerate(results)]
        if any(number is not None for number in outputs):
            op = f"aten.{node.target._schema.name.split('::')[1]}.{node.target._overloadname}"
            entry = {"name": node.name, "op": op, "attributes": attributes, "inputs": inputs, "outputs": outputs}
            self.nodes.append(entry)
        return result

    def arguments(self, node: Any) -> tuple[list[Optional[int]], dict[str, Any]]:
        """Values at the places of the schema's tensors, and the other arguments that have not their default."""
        import torch

        inputs: list[Optional[int]] = []
        attributes: dict[str, Any] = {}

        def place(value: Any) -> Optional[int]:
            return None if value is None else self.numbers[value.name, 0]

        for at, argument in enumerate(node.target._schema.arguments):
            there = at < len(node.args) or argument.name in node.kwargs
            value = node.args[at] if at < len(node.args) else node.kwargs.get(argument.name)
            kind = str(argument.type)
            if kind in ("Tensor", "Optional[Tensor]"):
                if isinstance(value, (int, float, bool)):
                    attributes[argument.name] = word(value)
                else:
                    inputs.append(place(value))
            elif "List[" in kind and "Tensor" in kind:
                inputs.extend(place(v) for v in value or [])
                attributes[argument.name] = {"tensors": len(value or [])}
            elif there and argument.name not in PLACES and not (argument.has_default_value() and value == argument.default_value):
                if isinstance(value, torch.fx.Node):
                    raise Unsupported(f"`{node.name}`: `{argument.name}` depends on a value", kind="unsupported")
                attributes[argument.name] = word(value)
        while inputs and inputs[-1] is None:
            inputs.pop()
        return inputs, attributes


def used_results(node: Any, count: int) -> set[int]:
    """The places of the results that something uses; all, where nothing picks one of several."""
    import operator

    picks = [user for user in node.users if user.target is operator.getitem]
    used = {user.args[1] for user in picks if user.users}
    return used if used and len(picks) == len(node.users) else set(range(count))


def word(value: Any) -> Any:
    """An argument that is no tensor, as JSON; see `tapml.agents._aten_calls`."""
    import torch

    from .agents._aten_calls import TORCH

    if isinstance(value, torch.dtype):
        names = {getattr(torch, name): own for own, name in TORCH.items()}
        if value not in names:
            raise Unsupported(f"{value} is no dtype that TapML has", kind="unsupported")
        return names[value]
    if isinstance(value, torch.memory_format):
        return str(value).removeprefix("torch.")
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}
    if isinstance(value, (list, tuple)):
        return [word(v) for v in value]
    return value


def export_suite(module: Any, args: Sequence[Any], out: Any, kwargs: Optional[Mapping[str, Any]], overwrite: bool) -> Any:
    """Writes the suite of a module; see `tapml.torch.export`."""
    from ._jobs import _run

    if not isinstance(args, (tuple, list)):
        raise InvalidInput("`args` are the positional arguments of the module", hint="give a tuple: (x,)")
    with tempfile.TemporaryDirectory(prefix="tapml-export-") as folder:
        write_program(module, args, kwargs, Path(folder))
        return _run("record", {"program": folder, "out": os.fspath(out), "overwrite": overwrite}, False)
