"""PyTorch modules as suites. What `torch.export` gives is tested where PyTorch is; what a recorded program must hold, everywhere."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import binary

import tapml as tml
from tapml._jobs import _run


def program(folder: Path, **changed: Any) -> Path:
    """A recorded program of two nodes."""
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    for number, value in enumerate([x, np.array([0.5], np.float32), np.maximum(x, 0), np.maximum(x, 0) * 0.5]):
        np.save(folder / f"{number}.npy", value.astype(np.float32))
    nodes = [
        {"name": "relu", "op": "onnx.Relu@14", "attributes": {}, "inputs": [0], "outputs": [2]},
        {"name": "half", "op": "onnx.Mul@14", "attributes": {}, "inputs": [2, 1], "outputs": [3]},
    ]
    source = {"platform": "torch", "device": "torch 2", "driver": "Python 3"}
    whole = {"schema": 1, "name": "Net", "source": source, "nodes": nodes, "inputs": [{"name": "x", "value": 0}],
             "weights": [{"name": "w", "value": 1}], "outputs": [{"name": "y", "value": 3}], **changed}  # fmt: skip
    (folder / "program.json").write_text(json.dumps(whole))
    return folder


def record(folder: Path, out: Path) -> Any:
    return _run("record", {"program": str(folder), "out": str(out)}, False)


def test_a_recorded_program_is_a_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p").mkdir()
    report = record(program(tmp_path / "p"), tmp_path / "net.suite")
    assert (report.nodes, report.totals.calls) == (2, 2)
    assert tml.check("net.suite", "cpu").passed
    # A suite of operators of others stands in the place of a model.
    assert tml.migrate("net.suite", "emulator").verdict == "accepted"
    assert tml.diagnose("net.suite", "emulator").faults == []


def run(suite: Path, target: str, out: Path, *arguments: str) -> Any:
    """The report and the first output of `tapml run`."""
    if not binary().exists():
        pytest.skip(f"no {binary()}: `cargo build` makes it; `tapml run` is not tested")
    command = [binary(), "run", suite, "--target", target, "--out", out, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError(done.stderr)
    report = json.loads((out / "run.json").read_text())
    return report, np.load(out / report["runs"][0]["outputs"][0]["file"])


def test_a_recorded_program_runs(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    suite = tmp_path / "net.suite"
    record(program(tmp_path / "p"), suite)
    _, y = run(suite, "emulator", tmp_path / "recorded")
    np.testing.assert_array_equal(y, np.load(tmp_path / "p" / "3.npy"))
    np.save(tmp_path / "x.npy", np.full((2, 3), 6, np.float32))
    report, y = run(suite, "emulator", tmp_path / "given", "--input", f"x={tmp_path / 'x.npy'}")
    np.testing.assert_array_equal(y, np.full((2, 3), 3, np.float32))
    assert [op["platform"] for op in report["ops"]] == ["emulator"] * len(report["ops"])
    np.save(tmp_path / "wide.npy", np.ones((3, 3), np.float32))
    for given, told in [("x=wide.npy", r"is f32\[3,3\], the graph takes f32\[2,3\]"), ("y=wide.npy", r"it takes x: f32\[2,3\]")]:
        with pytest.raises(RuntimeError, match=told):
            run(suite, "emulator", tmp_path / "wrong", "--input", given.replace("=", f"={tmp_path}/"))
    assert not (tmp_path / "wrong").exists()


@pytest.mark.parametrize(
    "changed, told",
    [
        ({"schema": 2}, "version 2"),
        ({"outputs": [{"name": "y", "value": 9}]}, "nothing makes the value 9"),
        ({"inputs": [{"name": "x", "value": 7}]}, "7.npy"),
        ({"surprise": 1}, "unknown field"),
        ({"nodes": [{"name": "n", "op": "relu", "attributes": {}, "inputs": [0], "outputs": [3]}]}, "`n`"),
    ],
)
def test_a_program_that_does_not_hold_is_told(tmp_path: Path, changed: dict[str, Any], told: str) -> None:
    with pytest.raises(tml.Error, match=told):
        record(program(tmp_path, **changed), tmp_path / "out.suite")
    assert not (tmp_path / "out.suite").exists()


class TestTorch:
    @pytest.fixture
    def net(self) -> Any:
        torch = pytest.importorskip("torch", reason="PyTorch is not installed")
        torch.manual_seed(1)

        class Net(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.conv = torch.nn.Conv2d(3, 8, 3, padding=1, stride=2)
                self.norm = torch.nn.BatchNorm2d(8)
                self.linear = torch.nn.Linear(128, 10)

            def forward(self, x: Any, scale: float = 1.0) -> Any:
                h = torch.relu(self.norm(self.conv(x)))
                h = torch.nn.functional.max_pool2d(h, 2)
                h = torch.cat([h, -h], 1)[:, :8] * scale
                h = self.linear(h.flatten(1))
                return torch.softmax(h, -1), h.argmax(-1)

        return Net(), (torch.randn(2, 3, 16, 16),)

    def test_a_module_is_exported_and_checked(self, net: Any, tmp_path: Path) -> None:
        module, args = net
        report = tml.torch.export(module, args, tmp_path / "net.suite", kwargs={"scale": 0.5})
        kinds = [kind for kind, _ in report.kinds]
        assert "aten.linear.default" in kinds and "aten.conv2d.default" in kinds, kinds
        checked = tml.check(tmp_path / "net.suite", "torch", oracle="torch-f64")
        assert checked.passed and checked.cases == report.nodes
        with pytest.raises(tml.Error):
            tml.torch.export(module, args, tmp_path / "net.suite")

    def test_results_that_nobody_uses_are_not_recorded(self, net: Any, tmp_path: Path) -> None:
        from tapml._export import write_program

        module, args = net
        write_program(module, args, None, tmp_path)
        nodes = json.loads((tmp_path / "program.json").read_text())["nodes"]
        (pool,) = [node for node in nodes if "max_pool2d_with_indices" in node["op"]]
        assert [output is None for output in pool["outputs"]] == [False, True]
        # Statistics of a batch, which are results for training alone.
        norms = [node for node in nodes if "_native_batch_norm" in node["op"]]
        assert all(output is None for node in norms for output in node["outputs"][1:])
        assert not any(None in node["outputs"] for node in nodes if node is not pool and node not in norms)

    def test_a_module_moves_to_another_runtime(self, net: Any) -> None:
        module, args = net
        report = tml.torch.migrate(module, args, "torch")
        assert report.verdict == "accepted" and report.regions[0].passed

    def test_what_cannot_be_exported_is_told(self, tmp_path: Path) -> None:
        torch = pytest.importorskip("torch", reason="PyTorch is not installed")

        class Branches(torch.nn.Module):
            def forward(self, x: Any) -> Any:
                return x + 1 if x.sum() > 0 else x - 1

        with pytest.raises(tml.Unsupported, match=r"torch\.export"):
            tml.torch.export(Branches(), (torch.ones(2),), tmp_path / "out.suite")
        with pytest.raises(tml.InvalidInput):
            tml.torch.export(torch.nn.ReLU(), torch.ones(2), tmp_path / "out.suite")


def convolutional(torch: Any) -> tuple[Any, tuple[Any, ...]]:
    """A net with all kinds of convolutions, statistics that are not those of a new module, and an input."""
    nn = torch.nn
    layers = [
        nn.Conv2d(3, 16, 3, padding=1, stride=2), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1, groups=16),
        nn.Conv2d(16, 32, 1), nn.SiLU(), nn.MaxPool2d(2), nn.ConvTranspose2d(32, 16, 2, stride=2), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(16, 10), nn.Softmax(-1),
    ]  # fmt: skip
    layers[1].running_mean.normal_()
    layers[1].running_var.uniform_(0.5, 2)
    return nn.Sequential(*layers).eval(), (torch.rand(1, 3, 32, 32),)


def transformer(torch: Any) -> tuple[Any, tuple[Any, ...]]:
    return torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval(), (torch.rand(2, 7, 32),)


@pytest.mark.parametrize("net", [convolutional, transformer])
@pytest.mark.parametrize("target", ["emulator", "vulkan"])
def test_a_module_is_checked_moved_and_run(net: Any, target: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed (TAPML_RUNTIMES): modules are not exported")
    try:
        tml.device(target)
    except tml.Error as error:
        pytest.skip(f"no {target}: {error}")
    torch.manual_seed(3)
    module, args = net(torch)
    suite = tmp_path / "net.suite"
    nodes = tml.torch.export(module, args, suite).nodes
    checked = tml.check(suite, target)
    assert checked.passed and checked.cases == nodes and not checked.skipped
    moved = tml.migrate(suite, target, source="torch", ledger=tmp_path / "ledger")
    assert moved.verdict == "accepted"
    # Other numbers than those that were recorded.
    other = torch.rand_like(args[0])
    (name,) = [given["name"] for given in program_of(module, args, tmp_path / "program")["inputs"]]
    np.save(tmp_path / "other.npy", other.numpy())
    report, found = run(suite, target, tmp_path / "out", "--input", f"{name}={tmp_path / 'other.npy'}")
    assert all(op["reason"] is None for op in report["ops"]), report["ops"]
    with torch.no_grad():
        wanted = module(other).numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-5)


def program_of(module: Any, args: tuple[Any, ...], folder: Path) -> Any:
    from tapml._export import write_program

    folder.mkdir()
    write_program(module, args, None, folder)
    return json.loads((folder / "program.json").read_text())
