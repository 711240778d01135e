"""Modules to compile, libraries, and functions."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Optional, Union

import numpy as np

from . import _native
from ._devices import Device, DeviceLike, device as open_device
from ._errors import InvalidInput
from ._tensors import Tensor, _LONG, _array, dtype_name, tensor, type_text

PathLike = Union[str, "os.PathLike[str]"]


class Module:
    """Something to compile: :func:`op`, :func:`graph`, :func:`kernel` and :func:`load` make them."""

    def __init__(self, native: _native.Module) -> None:
        self._native = native

    @property
    def name(self) -> str:
        """The name of its function."""
        return self._native.name

    @property
    def text(self) -> Optional[str]:
        """The graph in its text form; ``None`` for a kernel of one's own."""
        return self._native.text()

    @property
    def ops(self) -> dict[str, int]:
        """Kinds of operators with their numbers of nodes."""
        return dict(self._native.ops())

    def __repr__(self) -> str:
        return f"<tapml.{type(self).__name__} {self.name}>"


class Model(Module):
    """A checkpoint, opened by :func:`load`. A language model gives the functions ``prefill``, ``decode`` and ``forward``.

    Its tokenizer is there if the checkpoint has one.
    """

    def __init__(self, native: _native.Model) -> None:
        super().__init__(native.module())
        self._model = native

    @property
    def path(self) -> str:
        """The folder or file."""
        return self._model.path

    @property
    def architecture(self) -> str:
        """``llama``, ``gemma2``, …"""
        return self._model.architecture

    @property
    def vocab(self) -> int:
        """Number of tokens that it knows."""
        return self._model.vocab

    @property
    def context(self) -> int:
        """Most tokens that it was made for."""
        return self._model.context

    @property
    def eos(self) -> list[int]:
        """Tokens that end a text."""
        return self._model.eos

    @property
    def notes(self) -> list[str]:
        """What the import has to say, such as tensors that nothing uses."""
        return self._model.notes

    def encode(self, text: str) -> np.ndarray:
        """Token ids of a text: uint32 [tokens]."""
        return np.asarray(self._model.encode(text), dtype=np.uint32)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of token ids."""
        return self._model.decode([int(token) for token in ids])


def op(operator: str, /, *inputs: Any, name: Optional[str] = None, **attributes: Any) -> Module:
    """One operator, such as ``op("rms_norm", "f32[n,320]", "f32[320]", eps=1e-5)``.

    Args:
        operator: Its name, as ``tapml inspect`` and graphs show it.
        inputs: Types of its inputs: texts such as ``"f32[n,320]"``, where ``n`` may be of any size up to the ``step``
            of :func:`compile`; or arrays and tensors, whose dtypes and shapes count.
        name: The function's name, if not the operator's.
        attributes: The operator's attributes.

    Raises:
        Unsupported: There is no such operator; the hint lists all.
        InvalidInput: The attributes or types do not fit it.
    """
    made = _native.Module.op(operator, json.dumps(attributes), [type_text(value) for value in inputs])
    return Module(made if name is None else made.with_name(name))


def graph(text: str, weights: Optional[Mapping[str, Any]] = None, *, name: Optional[str] = None) -> Module:
    """A graph in its text form, as ``tapml inspect MODEL --text`` prints it, with the values of its weights by name."""
    arrays = {key: _array(value, None) for key, value in (weights or {}).items()}
    made = _native.Module.graph(text, arrays)
    return Module(made if name is None else made.with_name(name))


def kernel(
    source: PathLike,
    arguments: Sequence[Any],
    *,
    entry: Optional[str] = None,
    groups: Union[None, int, str, Sequence[Union[int, str]]] = None,
    constants: Optional[Mapping[str, float]] = None,
    name: Optional[str] = None,
) -> Module:
    """A kernel of one's own in WGSL.

    Args:
        source: The text, or the path of a ``.wgsl`` file. What it binds is ``@group(0)``, numbered from 0; bindings that
            are ``read_write`` are its outputs. The function takes them all in this order.
        arguments: Types of what it binds, as for :func:`op`.
        entry: The entry point, if there are several.
        groups: Numbers of workgroups in x, y and z: whole numbers, or texts such as ``"n"`` and ``"320*n/64"`` (rounded
            up). Without them there is one invocation in x for every element of the last output.
        constants: Values of ``override`` constants.
        name: The function's name, if not the entry point's.

    Raises:
        CompileError: The text is wrong; ``details`` holds ``file``, ``line`` and ``column``.
    """
    file, text = _source(source)
    counts = [groups] if isinstance(groups, (int, str)) else groups
    texts = None if counts is None else [str(count) for count in counts]
    values = [(key, float(value)) for key, value in (constants or {}).items()]
    made = _native.Module.kernel(file, text, entry, values, [type_text(value) for value in arguments], texts)
    return Module(made if name is None else made.with_name(name))


def _source(source: PathLike) -> tuple[str, str]:
    if isinstance(source, str) and ("\n" in source or not source.endswith(".wgsl")):
        return "kernel.wgsl", source
    path = Path(source)
    return str(path), path.read_text(encoding="utf-8")


def load(path: PathLike, *, activation: Any = "f32", fuse: bool = True, logits: str = "all") -> Model:
    """Opens a checkpoint: a folder in Hugging Face layout, or a GGUF file.

    Args:
        path: The folder or file.
        activation: Dtype of activations and caches, float32 or float16.
        fuse: Whether neighbouring operators are fused.
        logits: ``"all"`` for logits of every position, [n, vocab]; ``"last"`` for those of the last one, [1, vocab].

    Raises:
        Unsupported: The architecture, or a setting of it, is not supported; the message names it.
        InvalidInput: A file is broken, or a weight holds NaN or infinity.
    """
    if logits not in ("all", "last"):
        raise InvalidInput(f"logits={logits!r}", hint="'all' or 'last'")
    options = json.dumps({"activation": dtype_name(activation), "fuse": fuse})
    return Model(_native.Model(os.fspath(path), options, logits == "last"))


class Argument(NamedTuple):
    """What a function takes or gives."""

    #: Its name.
    name: str
    #: Dtype and sizes, such as ``f32[n,320]``.
    type: str
    #: Whether the function writes it.
    output: bool


class Library:
    """Compiled modules on the host, made by :func:`compile`."""

    def __init__(self, native: _native.Library) -> None:
        self._native = native

    @property
    def functions(self) -> list[str]:
        """Names of the functions."""
        return self._native.functions

    @property
    def target(self) -> str:
        """The device that it was compiled for."""
        return self._native.target

    @property
    def memory(self) -> dict[str, int]:
        """Bytes of device memory by use, at the largest sizes."""
        return dict(zip(("weights", "states", "activations", "constants"), self._native.memory()))

    @property
    def kernels(self) -> dict[str, str]:
        """WGSL of the kernels by name; of several by one name, the last."""
        return dict(self._native.kernels())

    def arguments(self, function: str) -> list[Argument]:
        """What a function takes and gives."""
        return [Argument(*row) for row in self._native.arguments(function)]

    def __repr__(self) -> str:
        return f"<tapml.Library {', '.join(self.functions)} for {self.target}>"


def compile(  # noqa: A001
    modules: Union[Module, Sequence[Module]],
    device: DeviceLike,
    *,
    step: Optional[int] = None,
    context: Optional[int] = None,
    kernels: Optional[Mapping[str, PathLike]] = None,
) -> Library:
    """Compiles modules for a device. Nothing is sent to it.

    Args:
        modules: One module, or several.
        device: The device whose limits and features count.
        step: The largest ``n``: most tokens of one run. 64 for language models, which run longer inputs in parts; else
            1024.
        context: Most tokens that a language model remembers, 2048 if it was made for as many.
        kernels: Kernel files to use instead of the built-in ones, by operator.

    Raises:
        Unsupported: A node has no kernel at its types, or exceeds the device's limits.
    """
    several = [modules] if isinstance(modules, Module) else list(modules)
    place = open_device(device)
    own = [f"{key}={os.fspath(value)}" for key, value in (kernels or {}).items()]
    return Library(_native.compile([m._native for m in several], place._native, step, context, own))


def upload(library: Library, device: DeviceLike) -> RemoteLibrary:
    """Puts a library on a device: kernels are compiled there, weights are sent.

    Raises:
        CompileError: The device's compiler refuses a kernel.
        Unsupported: The library was compiled for another device, and a kernel is beyond the limits of this one.
    """
    place = open_device(device)
    return RemoteLibrary(library._native.upload(place._native), place)


class RemoteLibrary:
    """A library on a device, made by :func:`upload`."""

    def __init__(self, native: _native.Uploaded, device: Device) -> None:
        self._native = native
        self._device = device

    @property
    def device(self) -> Device:
        """Where it is."""
        return self._device

    @property
    def functions(self) -> list[str]:
        """Names of the functions."""
        return self._native.functions

    def get_function(self, name: str) -> Function:
        """The function of this name."""
        return Function(self._native.function(name), self._device)

    __getitem__ = get_function

    def __repr__(self) -> str:
        return f"<tapml.RemoteLibrary {', '.join(self.functions)} on {self._device.word}>"


class Function:
    """A function on a device.

    Called with all its arguments it writes its outputs in place and returns ``None``; called with its inputs alone it
    returns new tensors: one, or a tuple. Inputs may be tensors of its device, or arrays, which are copied there. A call
    returns before the work is complete; :meth:`Tensor.numpy` and :meth:`Device.wait` wait, and raise what failed.
    """

    def __init__(self, native: _native.Function, device: Device) -> None:
        self._native = native
        self._device = device
        self._arguments = [Argument(*row) for row in native.arguments]

    @property
    def name(self) -> str:
        """Its name."""
        return self._native.name

    @property
    def arguments(self) -> list[Argument]:
        """What it takes and gives, in the order of a call."""
        return list(self._arguments)

    @property
    def device(self) -> Device:
        """Where it runs."""
        return self._device

    @property
    def position(self) -> Optional[int]:
        """For a language model, tokens that it remembers; ``None`` after a failed run."""
        return self._native.position

    def reset(self) -> None:
        """Forgets all tokens: states begin empty again."""
        self._native.reset()

    def __call__(self, *arguments: Any) -> Union[None, Tensor, tuple[Tensor, ...]]:
        inputs = [argument for argument in self._arguments if not argument.output]
        if len(arguments) != len(self._arguments) and len(arguments) == len(inputs):
            given = [self._input(a, value)._native for a, value in zip(inputs, arguments)]
            outputs = tuple(Tensor(made, self._device) for made in self._native.call_new(given))
            return outputs[0] if len(outputs) == 1 else outputs
        wanted: Iterable[Optional[Argument]] = self._arguments
        if len(arguments) != len(self._arguments):
            wanted = [None] * len(arguments)  # refused below, with what is expected
        self._native.call([self._input(a, value)._native for a, value in zip(wanted, arguments)])
        return None

    def _input(self, argument: Optional[Argument], value: Any) -> Tensor:
        if isinstance(value, Tensor):
            return value
        if argument is not None and argument.output:
            raise InvalidInput(
                f"`{argument.name}` of `{self.name}` is an output: it must be a tensor of the device",
                hint="make it with tapml.allocate, or leave the outputs away",
            )
        if str(getattr(value, "dtype", "")) == "torch.int64":
            value = value.detach().cpu().numpy()
        dtype = None
        if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack__"):
            wanted = argument.type.split("[")[0] if argument else ""
            # Token ids are mostly int64 in Python.
            whole = np.asarray(value).dtype.kind in "iu"
            dtype = _LONG[wanted] if wanted in ("u32", "i32") and whole else None
        return tensor(value, self._device, dtype)

    def __repr__(self) -> str:
        shown = ", ".join(f"{'out ' if a.output else ''}{a.name}: {a.type}" for a in self._arguments)
        return f"<tapml.Function {self.name}({shown}) on {self._device.word}>"
