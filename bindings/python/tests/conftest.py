"""Models, and an agent of the built binary on this machine."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import tapml as tml

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def llama() -> Path:
    """The checkpoint that the repository holds."""
    return ROOT / "models" / "llama"


@pytest.fixture
def emulator() -> tml.Device:
    """A device that checks kernels while they run."""
    return tml.emulator(check="all")


def binary() -> Path:
    """The built command."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return Path(os.environ.get("TAPML_BINARY", target / "debug" / "tapml"))


def serving(*arguments: str) -> Iterator[str]:
    """The address at which ``tapml device`` with these arguments listens."""
    if not binary().exists():
        pytest.skip(f"no {binary()}: `cargo build` makes it")
    command = [binary(), "device", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            found = re.search(r"wss?://[0-9.]+:[0-9]+", line)
            if found:
                yield found.group()
                break
        else:
            pytest.fail("it did not say where it listens")
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture(scope="session")
def agent() -> Iterator[str]:
    """The address of an agent on this machine that offers the emulator."""
    yield from serving("serve", "--listen", "127.0.0.1:0", "--target", "emulator")


@pytest.fixture(scope="module")
def ort() -> Iterator[str]:
    """The address of an agent with ONNX Runtime."""
    from agents_client import Agent

    agent = Agent("ort")
    yield agent.address
    agent.close()
