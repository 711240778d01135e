"""Tensors in a device's memory, and what becomes one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional, Union

import numpy as np

from . import _native
from ._devices import Device, DeviceLike, device as open_device
from ._errors import InvalidInput, Unsupported

#: Names of dtypes in NumPy's spelling, and in that of graphs.
_NAMES = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "int32": "i32",
    "uint32": "u32",
    "uint8": "u8",
}
_LONG = {short: long for long, short in _NAMES.items()}

Shape = Union[int, Sequence[int]]


def dtype_name(dtype: Any) -> str:
    """The graph's spelling (``f32``) of a dtype: a name in either spelling, a NumPy dtype or a PyTorch dtype."""
    text = dtype if isinstance(dtype, str) else ""
    if not text:
        text = str(dtype).removeprefix("torch.") if type(dtype).__module__ == "torch" else np.dtype(dtype).name
    if text in _LONG:
        return text
    if text in _NAMES:
        return _NAMES[text]
    raise InvalidInput(f"unknown dtype {dtype!r}", hint=f"known: {', '.join(_NAMES)}")


class Tensor:
    """A tensor in a device's memory, in row-major order. Make one with :func:`tensor` or :func:`allocate`.

    Its memory is freed when nothing refers to it any more.
    """

    def __init__(self, native: _native.Tensor, device: Device) -> None:
        self._native = native
        self._device = device

    @property
    def device(self) -> Device:
        """Where it is."""
        return self._device

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes, the slowest first."""
        return tuple(self._native.shape)

    @property
    def dtype(self) -> str:
        """Element type in NumPy's spelling: ``float32``, ``bfloat16``, …"""
        return _LONG[self._native.dtype]

    @property
    def ndim(self) -> int:
        """Number of sizes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self._native.nbytes

    def numpy(self) -> np.ndarray:
        """Waits for all work so far, and copies the tensor into a new NumPy array.

        NumPy has no bfloat16: such a tensor becomes ``ml_dtypes.bfloat16`` if that package is there, else float32,
        which holds every value.

        Raises:
            DeviceLost: The device crashed, or missed a deadline, in this or earlier work. ``details`` is the post-mortem.
        """
        if self._native.dtype == "bf16":
            return _bfloat16(np.frombuffer(self._native.read(), "<u2").reshape(self.shape))
        out = np.empty(self.shape, self.dtype)
        self._native.read_into(out)
        return out

    def torch(self) -> Any:
        """Waits for all work so far, and copies the tensor into a PyTorch tensor on the CPU."""
        import torch

        return torch.from_dlpack(self)

    def write(self, data: Any) -> None:
        """Replaces the contents by those of an array of the same dtype and shape."""
        self._native.write(_array(data, dtype=None))

    def to(self, device: DeviceLike) -> Tensor:
        """A copy on another device."""
        return tensor(self, device)

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> np.ndarray:
        if copy is False:
            raise ValueError("a tensor of a device cannot become a NumPy array without a copy")
        found = self.numpy()
        return found if dtype is None else found.astype(dtype)

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Optional[bool] = None
    ) -> Any:
        if copy is False:
            raise BufferError("a tensor of a device cannot be shared without a copy")
        return self._native.dlpack()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor without sizes has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<tapml.Tensor {self.dtype}{list(self.shape)} on {self.device.word}>"


def tensor(data: Any, device: DeviceLike, dtype: Any = None) -> Tensor:
    """Copies an array to a device. The array's own memory is read; nothing is copied before.

    Args:
        data: A NumPy array, anything with DLPack (``torch.Tensor``, JAX, …) on the CPU, numbers in lists, or a tensor
            of another device. Lists of floats become float32, lists of whole numbers int32.
        device: Where it goes.
        dtype: Converts to this dtype first.

    Raises:
        InvalidInput: The dtype is one that kernels do not have, such as float64 or int64, and no ``dtype`` is given.
    """
    place = open_device(device)
    return Tensor(_native.Tensor.upload(place._native, _array(data, dtype)), place)


def allocate(shape: Shape, dtype: Any, device: DeviceLike) -> Tensor:
    """A tensor of zeros on a device, for a function to write to."""
    place = open_device(device)
    sizes = [int(shape)] if isinstance(shape, (int, np.integer)) else [int(size) for size in shape]
    if any(size < 0 for size in sizes):
        raise InvalidInput(f"the shape {sizes} has a negative size")
    return Tensor(_native.Tensor.allocate(place._native, sizes, dtype_name(dtype)), place)


def type_text(value: Any) -> str:
    """A type in a graph's text form: of a text, as it is; else the dtype and sizes of an array or tensor."""
    if isinstance(value, str):
        return value
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        raise InvalidInput(
            f"expected a type such as 'f32[n,320]' or an array, found {type(value).__name__}",
        )
    return f"{dtype_name(value.dtype)}[{','.join(str(int(size)) for size in value.shape)}]"


def _array(data: Any, dtype: Any) -> Any:
    """An array of this machine in row-major order, of a dtype that devices have."""
    if isinstance(data, Tensor):
        data = data.torch() if data.dtype == "bfloat16" else data.numpy()
    if hasattr(data, "__dlpack__") and not hasattr(data, "__array_interface__"):
        return _foreign(data, dtype)
    plain = not isinstance(data, (np.ndarray, np.generic))
    found = np.asarray(data)
    if dtype is not None:
        wanted = dtype_name(dtype)
        if wanted == "bf16":
            raise Unsupported("NumPy has no bfloat16", kind="unsupported", hint="give a torch.bfloat16 tensor")
        found = _converted(found, np.dtype(_LONG[wanted]))
    elif plain and found.dtype == np.float64:
        found = found.astype(np.float32)
    elif plain and found.dtype == np.int64:
        found = _converted(found, np.dtype(np.int32))
    found = np.asarray(found, order="C")
    little = found.dtype.newbyteorder("<")
    found = found.astype(little, copy=False)
    if found.dtype.name not in _NAMES or (found.dtype == np.float64 and dtype is None):
        raise InvalidInput(
            f"kernels have no {found.dtype.name}",
            hint="convert the array, such as .astype('float32'), or give dtype='float32'",
        )
    return found


def _foreign(data: Any, dtype: Any) -> Any:
    """As :func:`_array` for arrays of PyTorch and others. Only PyTorch's are converted."""
    if not type(data).__module__.startswith("torch"):
        return data
    data = data.detach().cpu()
    if dtype is not None:
        import torch

        data = data.to(getattr(torch, _LONG[dtype_name(dtype)]))
    name = str(data.dtype).removeprefix("torch.")
    if name not in _NAMES or name == "float64":
        raise InvalidInput(f"kernels have no {name}", hint="convert the tensor, such as .float(), or give dtype='float32'")
    return data.contiguous()


def _converted(data: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The same values in another dtype; whole numbers must fit."""
    found = data.astype(dtype)
    if data.dtype.kind in "iu" and dtype.kind in "iu" and not np.array_equal(found, data):
        raise InvalidInput(f"the numbers do not fit {dtype.name}")
    return found


def _bfloat16(words: np.ndarray) -> np.ndarray:
    try:
        import ml_dtypes
    except ImportError:
        return (words.astype(np.uint32) << 16).view(np.float32)
    return words.view(ml_dtypes.bfloat16)
