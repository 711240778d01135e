"""Devices, here and elsewhere."""

from __future__ import annotations

import json
from typing import Any, Optional, Union

from . import _native


class Device:
    """An open device. Make one with :func:`device`, or with the function of its platform.

    It is closed when nothing uses it any more: tensors, uploaded libraries and functions keep it open.
    """

    def __init__(self, native: _native.Device) -> None:
        self._native = native
        self._info: dict[str, Any] = json.loads(native.info())

    @property
    def word(self) -> str:
        """The word that opens it, on the command line too: ``vulkan:1``, ``ws://host:port/vulkan``."""
        return self._native.word

    @property
    def platform(self) -> str:
        """``emulator``, ``vulkan``, …"""
        return str(self._info["platform"])

    @property
    def name(self) -> str:
        """The device's own name."""
        return str(self._info["name"])

    @property
    def driver(self) -> str:
        """Driver name and version."""
        return str(self._info["driver"])

    @property
    def limits(self) -> dict[str, Any]:
        """What kernels and buffers may be at most."""
        return dict(self._info["limits"])

    @property
    def features(self) -> dict[str, Any]:
        """``f16``, ``subgroups`` and what else it can do."""
        return dict(self._info["features"])

    @property
    def memory(self) -> tuple[int, int]:
        """Bytes of device memory in use, and the most that were in use at once."""
        return self._native.memory()

    def wait(self) -> None:
        """Waits for all work so far. Raises what failed in it."""
        self._native.wait()

    def findings(self) -> list[str]:
        """What a checking device (``emulator(check="all")``) has found since the last call, such as data races."""
        return self._native.findings()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and self._native.is_same(other._native)

    def __hash__(self) -> int:
        return hash(self.word)

    def __repr__(self) -> str:
        return f"<tapml.Device {self.word}: {self.name}>"


DeviceLike = Union[Device, str]


def device(word: DeviceLike) -> Device:
    """Opens a device by the word of the command line: ``"emulator"``, ``"vulkan:1"``, ``"emulator?check=all"``,
    ``"ws://host:port/vulkan"``.

    Raises:
        Unavailable: There is no such device, or no agent answers.
    """
    return word if isinstance(word, Device) else Device(_native.Device(word))


def word_of(target: DeviceLike) -> str:
    """The word of a device or platform."""
    return target.word if isinstance(target, Device) else target


def _word(word: str, index: int, options: dict[str, Any]) -> str:
    head = f"{word}:{index}" if index else word
    text = [f"{name.replace('_', '-')}={_text(value)}" for name, value in options.items() if value not in (None, False)]
    return head if not text else f"{head}{'&' if '?' in head else '?'}{'&'.join(text)}"


def _text(value: Any) -> str:
    return "on" if value is True else str(value)


def emulator(*, check: Optional[str] = None, profile: Optional[str] = None, **options: Any) -> Device:
    """A device that executes kernels on the CPU and can check them while they run. Needs no GPU.

    Args:
        check: ``"all"`` looks for data races, reads of unwritten memory and more; see :meth:`Device.findings`.
        profile: What it imitates, such as ``"mobile"``.
    """
    return device(_word("emulator", 0, {"check": check, "profile": profile, **options}))


def vulkan(index: int = 0) -> Device:
    """A GPU through Vulkan."""
    return device(_word("vulkan", index, {}))


def metal(index: int = 0) -> Device:
    """A GPU through Metal."""
    return device(_word("metal", index, {}))


def dx12(index: int = 0) -> Device:
    """A GPU through Direct3D 12."""
    return device(_word("dx12", index, {}))


def cuda(index: int = 0) -> Device:
    """A GPU through CUDA.

    Raises:
        Unavailable: There is no driver, no card or no compiler (NVRTC); the hint says what to install.
    """
    return device(_word("cuda", index, {}))


def webgpu(name: str = "webgpu", *, hub: Optional[str] = None, **options: Any) -> Device:
    """A browser tab that has dialled in to a hub.

    Args:
        name: The agent's name, such as ``"phone/webgpu"``; without it the next free browser.
        hub: The hub's address, ``ws://host:port``; else that of the variable ``TAPML_HUB``, else a hub on this machine.

    Raises:
        Unavailable: No hub answers, or no browser is there.
    """
    return device(_word(f"hub/{name}", 0, {"hub": hub, **options}))


def remote(
    url: str,
    *,
    token_file: Optional[str] = None,
    ca: Optional[str] = None,
    deadline: Optional[int] = None,
    trace: bool = False,
    **options: Any,
) -> Device:
    """A device behind an agent (``tapml device serve``).

    Args:
        url: ``ws://host:port/NAME`` or ``wss://host:port/NAME``.
        token_file: File that holds the agent's token, if not the variable ``TAPML_TOKEN``.
        ca: Certificates to trust beside the system's.
        deadline: Seconds that a request may run before it is ended as :class:`DeviceLost`.
        trace: Whether commands run one by one, so that a post-mortem names the one that was running.
        options: Options of the device, such as ``check="all"``.
    """
    given = {"token_file": token_file, "ca": ca, "deadline": deadline, "trace": trace, **options}
    return device(_word(url, 0, given))
