"""What is installed, for ``tapml doctor``. Runtimes are looked up and not imported: some take seconds to start."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
from collections.abc import Iterator, Mapping
from typing import Any, Optional

from ._executor import Runtime

#: What an agent needs besides its runtime: module and distribution.
NEEDED = (("google.protobuf", "protobuf"), ("websockets", "websockets"))


def is_found(module: str) -> bool:
    """Whether there is a module of this name. The packages around it are imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except Exception:  # A package around it may fail in any way while it is imported.
        return False


def find_version(module: str, install: str) -> Optional[str]:
    """The version of the distribution that a module is from; empty if it does not say, None if there is no such module."""
    if not is_found(module):
        return None
    distributions = getattr(importlib.metadata, "packages_distributions", dict)()
    for name in [*install.split(), *distributions.get(module.split(".")[0], [])]:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""


def describe(runtimes: Mapping[str, type[Runtime]]) -> Iterator[dict[str, Any]]:
    """One object for Python with this package, then one for each runtime."""
    yield {
        "python": platform.python_version(),
        "tapml": find_version("tapml", "tapml"),
        "extension": is_found("tapml._native"),
        "lacks": [name for module, name in NEEDED if not is_found(module)],
    }
    for name, runtime in runtimes.items():
        install = runtime.install or runtime.package
        yield {"runtime": name, "install": install, "version": find_version(runtime.package, install)}
