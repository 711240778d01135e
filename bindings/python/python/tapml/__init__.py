"""TapML: bring ML models to new platforms, one checked operator at a time.

    import numpy as np
    import tapml as tml

    device = tml.remote("ws://phone:7070/vulkan")   # or tml.vulkan(), tml.emulator(), …
    mod = tml.op("add", "f32[1024]", "f32[1024]")
    lib = tml.compile(mod, device)                  # here
    remote_lib = tml.upload(lib, device)            # there

    a_np, b_np = np.random.rand(2, 1024).astype("float32")
    a, b = tml.tensor(a_np, device), tml.tensor(b_np, device)
    c = tml.allocate((1024,), "float32", device)
    remote_lib.get_function("add")(a, b, c)
    np.testing.assert_allclose(c.numpy(), a_np + b_np)
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if "XDG_RUNTIME_DIR" not in os.environ:
    # Mesa's device-selection layer asks a desktop session for its device and complains where none runs.
    os.environ.setdefault("NODEVICE_SELECT", "1")

from ._devices import Device, cuda, device, dx12, emulator, metal, remote, vulkan, webgpu
from ._errors import (
    Bug,
    CompileError,
    DeviceLost,
    Error,
    FileError,
    Interrupted,
    InvalidInput,
    OutOfMemory,
    Unavailable,
    Unsupported,
)
from ._jobs import align, carve, check, diagnose, migrate
from ._modules import (
    Argument,
    Function,
    Library,
    Model,
    Module,
    RemoteLibrary,
    compile,
    graph,
    kernel,
    load,
    op,
    upload,
)
from ._native import __version__
from ._progress import Progress
from ._records import Record, Report
from ._tensors import Tensor, allocate, tensor

if TYPE_CHECKING:
    from . import torch

__all__ = [
    "Argument",
    "Bug",
    "CompileError",
    "Device",
    "DeviceLost",
    "Error",
    "FileError",
    "Function",
    "Interrupted",
    "InvalidInput",
    "Library",
    "Model",
    "Module",
    "OutOfMemory",
    "Progress",
    "Record",
    "RemoteLibrary",
    "Report",
    "Tensor",
    "Unavailable",
    "Unsupported",
    "__version__",
    "align",
    "allocate",
    "carve",
    "check",
    "compile",
    "cuda",
    "device",
    "diagnose",
    "dx12",
    "emulator",
    "graph",
    "kernel",
    "load",
    "metal",
    "migrate",
    "op",
    "remote",
    "tensor",
    "torch",
    "upload",
    "vulkan",
    "webgpu",
]


def __getattr__(name: str) -> Any:
    # `tapml.torch` is imported when it is used: nobody else needs PyTorch.
    if name == "torch":
        return importlib.import_module("tapml.torch")
    raise AttributeError(f"module 'tapml' has no attribute {name!r}")
