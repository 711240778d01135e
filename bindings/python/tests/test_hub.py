"""A browser tab behind a hub, by ``tml.webgpu``."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tapml as tml

from conftest import binary, serving

FLAGS = "--headless=new --no-sandbox --no-first-run --disable-extensions --disable-background-networking --enable-unsafe-webgpu --use-webgpu-adapter=swiftshader"


@pytest.fixture(scope="module")
def hub() -> Iterator[str]:
    """The address of a hub on this machine."""
    yield from serving("hub", "--listen", "127.0.0.1:0")


@pytest.fixture
def tab(hub: str, tmp_path: Path) -> Iterator[str]:
    """The hub that has a browser."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed")
    page = hub.replace("ws://", "http://") + "/#name=tab"
    process = subprocess.Popen([chromium, *FLAGS.split(), f"--user-data-dir={tmp_path}", page], stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 60
        listed = [binary(), "device", "list", "hub"]
        while b"tab/webgpu" not in subprocess.run(listed, env={**os.environ, "TAPML_HUB": hub}, capture_output=True).stdout:
            assert time.monotonic() < until, "the browser dials in"
            time.sleep(0.2)
        yield hub
    finally:
        process.terminate()
        process.wait(20)


def test_a_tab_is_a_device(tab: str, monkeypatch: pytest.MonkeyPatch) -> None:
    device = tml.webgpu(hub=tab)
    assert device.platform == "webgpu" and "tab/webgpu" in device.name
    add = tml.upload(tml.compile(tml.op("add", "f32[n,8]", "f32[n,8]"), device), device)["add"]
    a = np.arange(40, dtype=np.float32).reshape(5, 8)
    np.testing.assert_array_equal(add(a, a).numpy(), 2 * a)
    del device, add
    monkeypatch.setenv("TAPML_HUB", tab)
    assert not tml.allocate(3, "float32", tml.webgpu("tab/webgpu")).numpy().any()


def test_what_is_missing_is_said(hub: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(tml.Unavailable, match="no agent at the hub offers `webgpu`"):
        tml.webgpu(hub=hub, wait=1)
    monkeypatch.setenv("TAPML_HUB", "ws://127.0.0.1:9")
    with pytest.raises(tml.Unavailable) as caught:
        tml.webgpu()
    assert "tapml device hub" in caught.value.hint
