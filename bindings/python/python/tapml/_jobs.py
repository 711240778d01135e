"""The long jobs: what the commands ``tapml carve``, ``check``, ``migrate``, ``diagnose`` and ``align`` do.

They run on a thread of their own: other Python threads go on meanwhile, and Ctrl-C ends them with ``KeyboardInterrupt``
after the work at hand. ``migrate`` goes on from where it was when it is called again.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional, Union

from . import _native
from ._devices import DeviceLike, word_of
from ._errors import InvalidInput
from ._modules import Model, PathLike
from ._progress import ProgressLike, listener
from ._records import Report, report
from ._tensors import dtype_name

ModelLike = Union[Model, PathLike]
Prompts = Union[None, PathLike, Sequence[str]]
#: Arrays for the inputs of an ONNX model: NumPy's, or files as ``--input`` takes them, such as ``"photo.png?size=640x640"``, by name;
#: or a folder of them, as ``--inputs`` takes.
Inputs = Union[None, PathLike, Mapping[str, Any]]


def _path(model: ModelLike) -> str:
    return model.path if isinstance(model, Model) else os.fspath(model)


def _prompts(prompts: Prompts) -> Union[None, str, list[str]]:
    if prompts is None or isinstance(prompts, str) or hasattr(prompts, "__fspath__"):
        return None if prompts is None else os.fspath(prompts)  # type: ignore[arg-type]
    return [str(text) for text in prompts]


def _kernels(kernels: Optional[Mapping[str, PathLike]]) -> list[str]:
    return [f"{key}={os.fspath(value)}" for key, value in (kernels or {}).items()]


def _graph(activation: Any, fuse: bool) -> dict[str, Any]:
    return {"activation": dtype_name(activation), "fuse": fuse}


@contextlib.contextmanager
def _files(inputs: Inputs) -> Iterator[Optional[dict[str, Any]]]:
    """The inputs as the job takes them; arrays lie in a folder of their own meanwhile."""
    if inputs is None:
        yield None
        return
    if not isinstance(inputs, Mapping):
        yield {"folder": os.fspath(inputs)}
        return
    with tempfile.TemporaryDirectory(prefix="tapml-inputs-") as folder:
        files = []
        for number, (name, value) in enumerate(inputs.items()):
            if isinstance(value, str) or hasattr(value, "__fspath__"):
                path = os.fspath(value)
            else:
                import numpy as np

                path = os.path.join(folder, f"{number}.npy")
                np.save(path, np.asarray(value), allow_pickle=False)
            files.append(f"{name}={path}")
        yield {"files": files}


def _run(kind: str, fields: dict[str, Any], progress: ProgressLike) -> Report:
    given = {name: value for name, value in fields.items() if value is not None}
    hears = listener(progress)
    try:
        passed, text = _native.job(kind, json.dumps(given), hears)
    finally:
        hears.close()
    return report(kind, passed, text)


def carve(
    model: ModelLike,
    out: PathLike,
    prompts: Prompts = None,
    *,
    inputs: Inputs = None,
    steps: Optional[int] = None,
    source: DeviceLike = "cpu",
    overwrite: bool = False,
    self_contained: bool = False,
    activation: Any = "f32",
    fuse: bool = True,
    progress: ProgressLike = None,
) -> Report:
    """Runs a model on the source with prompts, and records every operator call into the suite ``out``.

    Args:
        model: Checkpoint folder, GGUF or ONNX file, or what :func:`load` gave.
        out: The suite's folder.
        prompts: Texts, or a file with one per line; bundled ones if not given.
        inputs: Arrays for the inputs of an ONNX model, in the place of prompts: NumPy arrays, or files (``.npy``, images, sound,
            texts; see ``tapml carve --help``) by name, or a folder with ``NAME.npy`` or another file for each input, or with a
            folder of these for each of several runs.
        steps: Decode steps after each prompt; as many as ``tapml carve`` makes if not given.
        source: The platform where the model is known to work.
        overwrite: Whether an existing suite is replaced.
        self_contained: Whether the weights go into the suite, too.
        activation: Dtype of activations and caches.
        fuse: Whether neighbouring operators are fused.
        progress: A callback that takes a :class:`Progress`; ``True`` for a tqdm bar, ``False`` for none.

    Returns:
        ``totals`` (``calls``, ``tensors``, ``tensor_bytes``), ``suite``, ``seconds``, ….
    """
    fields = {
        "model": _path(model),
        "out": os.fspath(out),
        "prompts": _prompts(prompts),
        "steps": steps,
        "source": word_of(source),
        "overwrite": overwrite,
        "self_contained": self_contained,
        "graph": _graph(activation, fuse),
    }
    with _files(inputs) as files:
        return _run("carve", {**fields, "inputs": files}, progress)


def check(
    suite: PathLike,
    target: DeviceLike,
    *,
    ops: Sequence[str] = (),
    cases: Sequence[str] = (),
    kernels: Optional[Mapping[str, PathLike]] = None,
    model: Optional[ModelLike] = None,
    oracle: Optional[DeviceLike] = None,
    progress: ProgressLike = None,
) -> Report:
    """Replays a suite's calls on a target, each alone, and judges every output against the exact result.

    Args:
        suite: Folder written by :func:`carve`.
        target: The platform under test.
        ops: Only these operators.
        cases: Only these cases, such as ``"p0.s2.model.norm"``.
        kernels: Kernel files to use instead of the built-in ones, by operator.
        model: The checkpoint, if it is no longer where it was carved from.
        oracle: Platform that evaluates in f64 the operators of others that TapML does not evaluate itself.
        progress: See :func:`carve`.

    Returns:
        ``ops`` (``op``, ``kernel``, ``cases``, ``failed``, ``worst``, …), ``cases``, ``failed``, ``target``, …;
        :meth:`Report.frame` gives the operators.
    """
    fields = {
        "suite": os.fspath(suite),
        "target": word_of(target),
        "ops": list(ops),
        "cases": list(cases),
        "kernels": _kernels(kernels),
        "model": None if model is None else _path(model),
        "oracle": None if oracle is None else word_of(oracle),
    }
    return _run("check", fields, progress)


def migrate(
    model: ModelLike,
    target: DeviceLike,
    prompts: Prompts = None,
    *,
    inputs: Inputs = None,
    steps: Optional[int] = None,
    source: DeviceLike = "cpu",
    ledger: Optional[PathLike] = None,
    kernels: Optional[Mapping[str, PathLike]] = None,
    oracle: Optional[DeviceLike] = None,
    activation: Any = "f32",
    fuse: bool = True,
    progress: ProgressLike = None,
) -> Report:
    """Carves a model on the source, then moves it to the target one operator kind at a time, checking each step.

    Args:
        model: Checkpoint folder, GGUF or ONNX file, or what :func:`load` gave.
        target: The platform to move to.
        prompts: Texts, or a file with one per line; bundled ones if not given.
        inputs: Arrays for the inputs of an ONNX model, in the place of prompts: NumPy arrays, or files (``.npy``, images, sound,
            texts; see ``tapml carve --help``) by name, or a folder with ``NAME.npy`` or another file for each input, or with a
            folder of these for each of several runs.
        steps: Decode steps after each prompt; as many as ``tapml migrate`` makes if not given.
        source: The platform where the model is known to work.
        ledger: Folder that keeps what was decided; ``.tapml/MODEL-TARGET`` if not given. Calling again goes on from it.
        kernels: Kernel files to use instead of the built-in ones, by operator.
        oracle: Platform that evaluates in f64 the operators of others that TapML does not evaluate itself.
        activation: Dtype of activations and caches.
        fuse: Whether neighbouring operators are fused.
        progress: See :func:`carve`.

    Returns:
        ``verdict`` (``accepted``, ``rejected``, ``incomplete``), ``ops`` (``op``, ``state``, ``check``, ``model``, …),
        ``coverage``, …; :meth:`Report.frame` gives the operators.
    """
    fields = {
        "model": _path(model),
        "target": word_of(target),
        "prompts": _prompts(prompts),
        "steps": steps,
        "source": word_of(source),
        "ledger": None if ledger is None else os.fspath(ledger),
        "kernels": _kernels(kernels),
        "oracle": None if oracle is None else word_of(oracle),
        "graph": _graph(activation, fuse),
    }
    with _files(inputs) as files:
        return _run("migrate", {**fields, "inputs": files}, progress)


def diagnose(
    model: ModelLike,
    target: DeviceLike,
    prompts: Prompts = None,
    *,
    inputs: Inputs = None,
    suite: Optional[PathLike] = None,
    steps: Optional[int] = None,
    source: DeviceLike = "cpu",
    between: bool = True,
    kernels: Optional[Mapping[str, PathLike]] = None,
    oracle: Optional[DeviceLike] = None,
    activation: Any = "f32",
    fuse: bool = True,
    progress: ProgressLike = None,
) -> Report:
    """Finds every faulty operator of a model on a target, and faults between operators, and says why.

    Args:
        model: Checkpoint folder, GGUF or ONNX file, or what :func:`load` gave.
        target: The platform under test.
        prompts: Texts, or a file with one per line; bundled ones if not given.
        inputs: Arrays for the inputs of an ONNX model, in the place of prompts: NumPy arrays, or files (``.npy``, images, sound,
            texts; see ``tapml carve --help``) by name, or a folder with ``NAME.npy`` or another file for each input, or with a
            folder of these for each of several runs.
        suite: A suite of the model; carved if not given.
        steps: Decode steps after each prompt, if it is carved; as many as ``tapml diagnose`` makes if not given.
        source: The platform where the model is known to work.
        between: Whether faults between operators are looked for, too.
        kernels: Kernel files to use instead of the built-in ones, by operator.
        oracle: Platform that evaluates in f64 the operators of others that TapML does not evaluate itself.
        activation: Dtype of activations and caches.
        fuse: Whether neighbouring operators are fused.
        progress: See :func:`carve`.

    Returns:
        ``faults`` (``op``, ``nodes``, ``kind``, ``cause``, ``evidence``, …), ``clean_ops``, ``not_run`` (operators and
        kernels of which nothing is known, with the reason), …; :meth:`Report.frame` gives the faults.
    """
    if suite is not None and (prompts is not None or inputs is not None):
        raise InvalidInput("prompts or inputs of a suite that exists", hint="give suite, prompts or inputs")
    fields = {
        "model": _path(model),
        "target": word_of(target),
        "prompts": _prompts(prompts),
        "suite": None if suite is None else os.fspath(suite),
        "steps": steps,
        "source": word_of(source),
        "between": between,
        "kernels": _kernels(kernels),
        "oracle": None if oracle is None else word_of(oracle),
        "graph": _graph(activation, fuse),
    }
    with _files(inputs) as files:
        return _run("diagnose", {**fields, "inputs": files}, progress)


def align(
    model: ModelLike,
    *,
    suite: Optional[PathLike] = None,
    golden: Optional[PathLike] = None,
    target: DeviceLike = "cpu",
    tolerance: float = 1e-4,
    progress: ProgressLike = None,
) -> Report:
    """Compares a model with another implementation, and names the first value that departs.

    Args:
        model: Checkpoint folder.
        suite: What :func:`tapml.torch.carve` wrote.
        golden: Instead of it, a file with hidden states and logits, see ``tapml align --help``.
        target: The platform to run on.
        tolerance: A value departs if it differs by more than this share of the range of the other's values.
        progress: See :func:`carve`.

    Returns:
        ``departs`` (``value``, ``worst``, ``nodes``, …, or ``None``), ``values``, ``unmatched``; :meth:`Report.frame`
        gives the values in the order of computation.
    """
    if (suite is None) == (golden is None):
        raise InvalidInput("align needs a suite or a golden", hint="give one of them")
    reference = {"suite": os.fspath(suite)} if suite is not None else {"golden": os.fspath(golden)}  # type: ignore[arg-type]
    fields = {"model": _path(model), "reference": reference, "target": word_of(target), "tolerance": tolerance}
    return _run("align", fields, progress)
