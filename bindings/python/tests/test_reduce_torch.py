"""`tapml reduce` on calls of PyTorch's operators, from the export of a module to the script of the folder."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import binary

import tapml as tml

torch = pytest.importorskip("torch", reason="torch is not installed (TAPML_RUNTIMES): calls of PyTorch are not reduced")


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two products with an activation between them."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(12, 7), torch.nn.GELU(), torch.nn.Linear(7, 5)).eval()
    out = tmp_path_factory.mktemp("net") / "net.suite"
    tml.torch.export(module, (torch.randn(3, 12),), out)
    return out


def reduce(suite: Path, target: str, out: Path) -> Any:
    """The report of the command, and its exit code."""
    if not binary().exists():
        pytest.skip(f"no {binary()}: `cargo build` makes it; `tapml reduce` is not tested")
    command = [binary(), "reduce", suite, "--op", "aten.linear.default", "--target", target]
    command += ["--oracle", "torch-f64", "--out", out, "--json", "-"]
    environment = {**os.environ, "TAPML_PYTHON": sys.executable}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    return (json.loads(done.stdout) if done.stdout.startswith("{") else done.stderr), done.returncode


def code_lines(script: str) -> int:
    """Lines that are neither empty, nor comments, nor the text at the top."""
    tree = ast.parse(script)
    assert isinstance(tree.body[0], ast.Expr)
    body = script.splitlines()[tree.body[0].end_lineno :]
    return sum(bool(line.strip()) and not line.lstrip().startswith("#") for line in body)


def exit_code(folder: Path) -> int:
    """What the script gives for its runtime, without this package."""
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run([sys.executable, "repro.py"], cwd=folder, env=plain, capture_output=True, timeout=300).returncode


@pytest.mark.parametrize(
    "word, packages", [("torch", []), ("ort", ["onnxruntime", "onnxscript"]), ("executorch", ["executorch.exir"])]
)
def test_a_failing_call_becomes_a_program_and_a_script(word: str, packages: list[str], suite: Path, tmp_path: Path) -> None:
    for package in packages:
        pytest.importorskip(package, reason=f"{package} is not installed (TAPML_RUNTIMES): calls on `{word}` are not reduced")
    bug = tmp_path / "bug"
    report, code = reduce(suite, f"{word}?fault=aten-linear-bias-ignored", bug)
    assert code == 0 and report["fails"], report
    assert report["after"]["elements"] < report["before"]["elements"]
    # Constants stand in the program. ONNX runtimes get a model that PyTorch exported from it.
    assert (bug / "module.pt2").is_file() and not (bug / "constants").exists()
    assert (bug / "model.onnx").is_file() == (word == "ort")
    script = (bug / "repro.py").read_text()
    assert 8 <= code_lines(script) <= 15, script
    # The fault is the agent's, and the script runs the runtime as it is.
    assert exit_code(bug) == 0
    np.save(bug / "expected.npy", np.load(bug / "expected.npy") + 1)
    assert exit_code(bug) == 1


def test_a_call_that_passes_is_not_reduced(suite: Path, tmp_path: Path) -> None:
    told, code = reduce(suite, "torch", tmp_path / "bug")
    assert code == 1 and "aten.linear.default" in json.dumps(told)
    assert not (tmp_path / "bug").exists()
