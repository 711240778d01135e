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

import importlib.util
import os
from typing import TYPE_CHECKING, Any

if "XDG_RUNTIME_DIR" not in os.environ:
    # Mesa's device-selection layer asks a desktop session for its device and complains where none runs.
    os.environ.setdefault("NODEVICE_SELECT", "1")

if TYPE_CHECKING:
    from . import torch
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
        Timeout,
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
    "Timeout",
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


#: Which module has which of the names above. They are imported when they are used: the agents (`tapml.agents`) run where
#: there is no extension module, and nobody but the models of PyTorch needs PyTorch.
_PLACES = {
    "_devices": ("Device", "cuda", "device", "dx12", "emulator", "metal", "remote", "vulkan", "webgpu"),
    "_errors": (
        "Bug",
        "CompileError",
        "DeviceLost",
        "Error",
        "FileError",
        "Interrupted",
        "InvalidInput",
        "OutOfMemory",
        "Timeout",
        "Unavailable",
        "Unsupported",
    ),
    "_jobs": ("align", "carve", "check", "diagnose", "migrate"),
    "_modules": (
        "Argument",
        "Function",
        "Library",
        "Model",
        "Module",
        "RemoteLibrary",
        "compile",
        "graph",
        "kernel",
        "load",
        "op",
        "upload",
    ),
    "_native": ("__version__",),
    "_progress": ("Progress",),
    "_records": ("Record", "Report"),
    "_tensors": ("Tensor", "allocate", "tensor"),
}
_HOMES = {name: module for module, names in _PLACES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in ("agents", "torch"):
        return importlib.import_module(f"tapml.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'tapml' has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(f"tapml.{_HOMES[name]}"), name)
    except ImportError:
        if importlib.util.find_spec("tapml._native"):
            raise
        raise ImportError(
            f"tapml.{name} needs the extension module, which is not built: `pip install ./bindings/python`"
        ) from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
