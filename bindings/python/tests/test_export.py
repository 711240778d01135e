"""PyTorch modules as suites. What `torch.export` gives is tested where PyTorch is; what a recorded program must hold, everywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

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
        assert not any(None in node["outputs"] for node in nodes if node is not pool)

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
