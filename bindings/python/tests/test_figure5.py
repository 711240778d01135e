"""The script of the paper's figure 5, as printed but for names, here and through an agent."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, serving

import tapml as tml


@pytest.mark.parametrize("place", ["here", "agent"])
def test_the_script_runs(place: str, request: pytest.FixtureRequest) -> None:
    device = tml.emulator() if place == "here" else tml.remote(request.getfixturevalue("agent") + "/emulator")
    mod = tml.op("add", "f32[n,8]", "f32[n,8]")
    lib = tml.compile(mod, device)
    remote_lib = tml.upload(lib, device)

    a_np = np.random.default_rng(0).random((5, 8), dtype=np.float32)
    b_np = np.random.default_rng(1).random((5, 8), dtype=np.float32)
    a = tml.tensor(a_np, device)
    b = tml.tensor(b_np, device)
    c = tml.allocate((5, 8), "float32", device)
    f = remote_lib.get_function("add")
    f(a, b, c)
    np.testing.assert_array_equal(c.numpy(), a_np + b_np)


def test_the_script_of_the_documentation_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "guide" / "python.md").read_text()
    command = re.search(r"\$ tapml device (serve .*)", page)
    script = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert command and script
    for name in ("cert.pem", "key.pem"):
        shutil.copy(ROOT / "crates" / "rpc" / "tests" / "data" / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    for place in serving(*command[1].replace(":7070", ":0").split(), "--target", "emulator"):
        port = place.rsplit(":", 1)[1]
        exec(script[1].replace("phone:7070/vulkan", f"localhost:{port}/emulator"), {})


def test_a_device_that_is_lost_tells_why(agent: str) -> None:
    device = tml.remote(agent + "/emulator", deadline=1, trace=True)
    text = """@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(1) fn forever() { while y[0] >= 0.0 { y[0] = y[0] + 0.0; } }
"""
    lib = tml.upload(tml.compile(tml.kernel(text, ["f32[1]"]), device), device)
    y = tml.allocate(1, "float32", device)
    lib["forever"](y)
    with pytest.raises(tml.DeviceLost) as caught:
        y.numpy()
    error = caught.value
    assert error.kind == "device lost"
    assert error.post_mortem["kernel"] == "forever"
    assert "forever" in str(error) and "hint:" in str(error)
    again = tml.remote(agent + "/emulator")
    assert tml.tensor([1.0], again).numpy()[0] == 1.0


def test_devices_that_are_not_there_say_so() -> None:
    with pytest.raises(tml.Unavailable) as caught:
        tml.cuda(1000)
    assert caught.value.hint
    with pytest.raises(tml.Unavailable):
        tml.remote("ws://127.0.0.1:9/emulator")
    with pytest.raises(tml.InvalidInput):
        tml.device("vulcan")
    assert tml.emulator().platform == "emulator"
