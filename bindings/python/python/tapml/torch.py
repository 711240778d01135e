"""PyTorch as a source: what the modules of a Hugging Face model took and gave, to compare an import with.

    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    tapml.torch.carve(model, [tokenizer(text, return_tensors="pt") for text in texts], out="llama.torch.safetensors")
    print(tapml.align(path, suite="llama.torch.safetensors").departs)
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Callable, Optional, Union

from ._devices import DeviceLike
from ._errors import InvalidInput, Unsupported
from ._modules import PathLike
from ._progress import ProgressLike
from ._records import Record, Report

__all__ = ["carve", "export", "migrate"]

Filter = Union[None, str, Callable[[str], bool]]


def carve(model: Any, inputs: Any, out: PathLike, *, modules: Filter = None) -> Record:
    """Runs a PyTorch model on inputs, and records what each of its modules takes and gives, by forward hooks.

    ``tapml align MODEL --suite OUT``, or :func:`tapml.align`, compares these values with those of the same name in the
    graph of the checkpoint. The model should be in float32 and in ``eval()`` mode, else its own roundings and dropout
    differ.

    Args:
        model: A ``torch.nn.Module`` that takes ``input_ids`` [1, tokens], such as a Hugging Face causal language model.
        inputs: Prompts, each one of: token ids in a list, a tensor or array [tokens] or [1, tokens], or what a tokenizer
            gives for one text. A single such prompt may stand alone. More than one text in a batch is refused.
        out: The safetensors file to write: for prompt ``i`` the tensors ``p{i}.input_ids`` [tokens],
            ``p{i}.in.MODULE`` and ``p{i}.out.MODULE`` [tokens, …] in float32, ``p{i}.out.MODULE:1`` for a second result,
            and ``p{i}.logits``. It is written whole or not at all.
        modules: Only modules whose names match this regular expression, or for which this function is true. All values
            of all modules are held in memory at once.

    Returns:
        ``path``, ``prompts``, ``tensors``, ``bytes`` and ``skipped``: places without one value per token, which are not
        recorded, by name.

    Raises:
        InvalidInput: There are no inputs, or one of them is a batch.
        Unsupported: The model runs no module, or its values hold no tokens.
    """
    import torch
    from safetensors.torch import save_file

    prompts = [_ids(prompt, torch) for prompt in _prompts(inputs, torch)]
    if not prompts:
        raise InvalidInput("there are no inputs", hint="give at least one prompt")
    wanted = _filter(modules)
    tensors: dict[str, Any] = {}
    skipped: set[str] = set()
    for number, ids in enumerate(prompts):
        recorder = _Recorder(f"p{number}.", len(ids), tensors, skipped, torch)
        tensors[f"p{number}.input_ids"] = ids.to(torch.int32)
        recorder.run(model, ids, wanted)
    if not any(".in." in name or ".out." in name for name in tensors):
        raise Unsupported("no module gave a value for each token", kind="unsupported", hint="look at `modules`")
    path = Path(out)
    metadata = {"format": "tapml.modules", "model": type(model).__name__, "torch": torch.__version__}
    temporary = path.with_name(f".{path.name}.{os.getpid()}-0.partial")
    try:
        save_file(tensors, temporary, metadata=metadata)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    return Record(
        path=str(path), prompts=len(prompts), tensors=len(tensors), bytes=size, skipped=sorted(skipped)
    )


def export(
    module: Any,
    args: Any,
    out: PathLike,
    *,
    kwargs: Optional[Mapping[str, Any]] = None,
    overwrite: bool = False,
) -> Report:
    """Exports a module with ``torch.export``, runs it once, and records every operator call into the suite ``out``.

    The operators are those of core ATen, and a few that targets implement whole (``linear``, ``layer_norm``,
    ``scaled_dot_product_attention``, …). :func:`tapml.check` replays them on any runtime that takes ``aten`` operators, with
    ``oracle="torch-f64"`` to judge them.

    Args:
        module: A ``torch.nn.Module``; it is put into ``eval()`` mode.
        args: Its positional arguments, a tuple.
        out: The suite's folder.
        kwargs: Its keyword arguments.
        overwrite: Whether an existing suite is replaced.

    Returns:
        ``suite``, ``nodes``, ``kinds``, ``totals``.

    Raises:
        Unsupported: ``torch.export`` does not take the module, or it holds values that no suite holds.
    """
    from ._export import export_suite

    return export_suite(module, args, out, kwargs, overwrite)


def migrate(
    module: Any,
    args: Any,
    target: DeviceLike,
    *,
    kwargs: Optional[Mapping[str, Any]] = None,
    source: DeviceLike = "torch",
    oracle: DeviceLike = "torch-f64",
    ledger: Optional[PathLike] = None,
    progress: ProgressLike = None,
) -> Report:
    """Exports a module, then moves it to the target one operator kind at a time; see :func:`tapml.migrate`.

    Args:
        module: A ``torch.nn.Module``.
        args: Its positional arguments, a tuple.
        target: A runtime that takes ``aten`` operators: ``"executorch"``, ``"inductor"``, ``"litert"``.
        kwargs: Its keyword arguments.
        source: Where the module is known to work: PyTorch in eager mode.
        oracle: Who evaluates its operators in f64.
        ledger: Folder that keeps what was decided; one of its own, which is removed, if not given.
        progress: See :func:`tapml.carve`.
    """
    import tempfile

    from ._jobs import migrate as run

    with tempfile.TemporaryDirectory(prefix="tapml-migrate-") as folder:
        suite = Path(folder) / f"{type(module).__name__}.suite"
        export(module, args, suite, kwargs=kwargs)
        kept = ledger if ledger is not None else Path(folder) / "ledger"
        return run(suite, target, source=source, oracle=oracle, ledger=kept, progress=progress)


def _prompts(inputs: Any, torch: Any) -> Iterable[Any]:
    """The prompts one by one: a single one may stand alone."""
    alone = isinstance(inputs, (Mapping, torch.Tensor)) or hasattr(inputs, "input_ids")
    if alone or hasattr(inputs, "__array_interface__"):
        return [inputs]
    given = list(inputs)
    return [given] if given and all(isinstance(token, int) for token in given) else given


def _ids(prompt: Any, torch: Any) -> Any:
    """Token ids [tokens]."""
    if isinstance(prompt, Mapping) or hasattr(prompt, "input_ids"):
        prompt = prompt["input_ids"]
    ids = torch.as_tensor(prompt, dtype=torch.long).cpu()
    if ids.ndim == 2 and ids.shape[0] == 1:
        ids = ids[0]
    if ids.ndim != 1 or len(ids) == 0:
        raise InvalidInput(
            f"a prompt has token ids of shape {list(ids.shape)}, expected [tokens] or [1, tokens]",
            hint="give the texts of a batch one by one, without padding",
        )
    return ids


def _filter(modules: Filter) -> Callable[[str], bool]:
    if modules is None:
        return lambda name: True
    if callable(modules):
        return modules
    pattern = re.compile(modules)
    return lambda name: pattern.search(name) is not None


class _Recorder:
    """Records one prompt."""

    def __init__(self, prefix: str, tokens: int, tensors: dict[str, Any], skipped: set[str], torch: Any) -> None:
        self._prefix = prefix
        self._tokens = tokens
        self._tensors = tensors
        self._skipped = skipped
        self._torch = torch

    def run(self, model: Any, ids: Any, wanted: Callable[[str], bool]) -> None:
        """Runs the model with hooks at its modules."""
        hooks = []
        device = next((p.device for p in model.parameters()), self._torch.device("cpu"))
        try:
            for name, module in model.named_modules():
                if name and wanted(name):
                    hooks.append(module.register_forward_hook(self._hook(name), with_kwargs=True))
            with self._torch.no_grad():
                result = model(input_ids=ids.unsqueeze(0).to(device), use_cache=False)
        finally:
            for hook in hooks:
                hook.remove()
        logits = getattr(result, "logits", None)
        if logits is not None:
            self._note("logits", logits)

    def _hook(self, name: str) -> Callable[..., None]:
        def hook(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            taken = args[0] if args else kwargs.get("hidden_states")
            self._note(f"in.{name}", taken)
            results = output if isinstance(output, (tuple, list)) else (output,)
            self._note(f"out.{name}", results[0] if results else None)
            if len(results) > 1:
                self._note(f"out.{name}:1", results[1])

        return hook

    def _note(self, place: str, value: Any) -> None:
        """Keeps a value that has one row per token. A module that runs several times keeps its first value."""
        torch, key = self._torch, self._prefix + place
        if not isinstance(value, torch.Tensor) or not value.is_floating_point() or key in self._tensors:
            return
        if value.ndim >= 2 and value.shape[0] == 1 and value.shape[1] == self._tokens:
            value = value[0]
        if value.ndim < 2 or value.shape[0] != self._tokens:
            self._skipped.add(place)
            return
        rows = value.detach().to("cpu", torch.float32).reshape(self._tokens, -1)
        self._tensors[key] = rows.clone(memory_format=torch.contiguous_format)
