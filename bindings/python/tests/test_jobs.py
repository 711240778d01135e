"""The long jobs."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

import tapml as tml


@pytest.fixture(scope="module")
def suite(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("carved") / "llama.suite"
    told: list[tml.Progress] = []
    report = tml.carve(llama, out, ["Once upon a time"], steps=1, progress=told.append)
    assert report.passed and report.totals.calls > 50
    assert any(p.stage and p.done == p.total > 0 for p in told), told[-3:]
    return out


def test_a_check_says_what_passes_and_what_fails(suite: Path, tmp_path: Path) -> None:
    report = tml.check(suite, "emulator", ops=["rms_norm"])
    assert report.passed and report.failed == 0
    assert [op.op for op in report.ops] == ["rms_norm"]
    wrong = tmp_path / "wrong.wgsl"
    right = _built_in("rms_norm")
    wrong.write_text(right.replace("to_act(", "to_act(1.01 * "))
    assert wrong.read_text() != right
    report = tml.check(suite, tml.emulator(), ops=["rms_norm"], kernels={"rms_norm": wrong})
    assert not report.passed and report.ops[0].failed > 0
    assert report["ops"][0]["worst"]["ratio"] > 1


def _built_in(op: str) -> str:
    return (Path(__file__).parents[3] / f"crates/kernels/src/kernel/{op}/portable.wgsl").read_text()


def test_a_report_is_a_frame(suite: Path) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    frame = tml.check(suite, "emulator", ops=["attention", "append"]).frame()
    assert set(frame["op"]) == {"attention", "append"} and (frame["failed"] == 0).all()


def test_migrate_and_diagnose(llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    report = tml.migrate(llama, "emulator", ["Once"], steps=1, ledger=tmp_path / "ledger")
    assert report.passed and report.verdict == "accepted"
    assert all(op.state == "accepted" for op in report.ops)
    found = tml.diagnose(llama, "emulator", suite=tmp_path / "ledger" / "suite", between=False)
    assert found.passed and found.faults == []


def test_jobs_take_onnx_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx, np = pytest.importorskip("onnx"), pytest.importorskip("numpy")
    make = onnx.helper
    monkeypatch.chdir(tmp_path)
    values = [make.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 5]) for name in ("x", "y")]
    nodes = [make.make_node("LeakyRelu", ["x"], ["h"], alpha=0.2), make.make_node("Softmax", ["h"], ["y"])]
    opset = [make.make_opsetid("", 17)]
    onnx.save(make.make_model(make.make_graph(nodes, "g", values[:1], values[1:]), opset_imports=opset, ir_version=8), "m.onnx")
    x = np.linspace(-1, 1, 10, dtype=np.float32).reshape(2, 5)
    np.save("x.npy", x)
    assert tml.carve("m.onnx", "m.suite", inputs={"x": x}).totals.calls == 2
    assert tml.check("m.suite", "emulator").passed
    assert tml.migrate("m.onnx", "emulator", inputs={"x": "x.npy"}).verdict == "accepted"
    found = tml.diagnose("m.onnx", "emulator", suite="m.suite")
    assert found.passed and found.faults == []
    with pytest.raises(tml.InvalidInput):
        tml.diagnose("m.onnx", "emulator", suite="m.suite", inputs={"x": x})


def test_errors_of_jobs_are_exceptions(tmp_path: Path) -> None:
    with pytest.raises(tml.Error) as caught:
        tml.check(tmp_path / "no.suite", "emulator")
    assert "no.suite" in str(caught.value)
    with pytest.raises(tml.InvalidInput, match="suite or a golden|suite or golden|needs a suite"):
        tml.align(tmp_path)


def test_an_exception_of_the_callback_ends_the_job(llama: Path, tmp_path: Path) -> None:
    def refuse(_: tml.Progress) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        tml.carve(llama, tmp_path / "x.suite", ["Once"], progress=refuse)


def test_ctrl_c_ends_a_job(llama: Path, tmp_path: Path) -> None:
    # What a shell starts in the background ignores the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            tml.carve(llama, tmp_path / "y.suite", ["Once upon a time"] * 40, steps=60, progress=False)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    assert not (tmp_path / "y.suite").exists()
