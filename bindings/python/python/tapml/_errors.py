"""Exceptions. Every error of TapML is an :class:`Error`; its class says what sort of failure it is."""

from __future__ import annotations

from typing import Optional


class Error(Exception):
    """An error of TapML.

    Attributes:
        kind: What sort of failure this is, in plain words, such as ``"device lost"``.
        message: What happened, without the technical details that ``str(error)`` has.
        hint: What to do about it, or ``None``.
        details: Technical details by name. For a device: ``kernel``, ``file``, ``line``, ``log``, ``limit``, ``asked``,
            ``offered``; for a lost device the post-mortem, see :class:`DeviceLost`.
    """

    kind: str
    message: str
    hint: Optional[str]
    details: dict[str, str]

    def __init__(
        self,
        message: str,
        *,
        kind: str = "invalid input",
        hint: Optional[str] = None,
        details: Optional[dict[str, str]] = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.hint = hint
        self.details = dict(details or {})

    def __str__(self) -> str:
        lines = [self.message]
        for name, value in self.details.items():
            if "\n" in value:
                lines.append(f"  {name}:")
                lines.extend(f"    {line}" for line in value.splitlines())
            else:
                lines.append(f"  {name}: {value}")
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)


class InvalidInput(Error, ValueError):
    """The caller's data is wrong: a file, a shape, a graph, an option."""


class Unsupported(Error):
    """The request is legal, but this build, platform or device cannot serve it."""


class FileError(Error, OSError):
    """A file could not be read or written."""

    __str__ = Error.__str__


class Unavailable(Error):
    """No driver, adapter, device or agent of the wanted sort is there."""


class CompileError(Error):
    """A kernel was refused. ``details`` holds ``file``, ``line``, ``column``, ``source`` and the compiler's ``log``."""


class OutOfMemory(Error, MemoryError):
    """The device ran out of memory."""


class DeviceLost(Error):
    """The device, or the connection to it, is gone. ``details`` is the post-mortem, as far as it is known: ``kernel``,
    ``file``, ``line`` and ``dispatch`` that were running, ``signal`` or ``exit code``, ``memory``, the ``recent``
    requests, the process's ``output`` and the kernel's ``source``."""

    @property
    def post_mortem(self) -> dict[str, str]:
        """The same as ``details``."""
        return self.details


class Interrupted(Error):
    """The work was asked to stop."""


class Timeout(Error, TimeoutError):
    """Work did not end within its time limit, such as a kernel with a loop that never ends. ``details`` holds ``deadline``."""

    __str__ = Error.__str__


class Bug(Error):
    """TapML itself is wrong. Please report it."""


_KINDS: dict[str, type[Error]] = {
    "invalid input": InvalidInput,
    "unsupported": Unsupported,
    "input/output": FileError,
    "unavailable": Unavailable,
    "compile error": CompileError,
    "out of memory": OutOfMemory,
    "device lost": DeviceLost,
    "interrupted": Interrupted,
    "time limit": Timeout,
    "bug in TapML": Bug,
}


def make(kind: str, message: str, hint: Optional[str], details: list[tuple[str, str]]) -> Error:
    """The exception for an error of the extension module."""
    named: dict[str, str] = {}
    for name, value in details:
        named.setdefault(name, value)
    return _KINDS.get(kind, Error)(message, kind=kind, hint=hint, details=named)
