"""Planted faults: each shows within its rule, and nowhere else."""

from __future__ import annotations

import re

import numpy as np
import pytest

for package in ("onnx", "onnxruntime", "websockets", "google.protobuf"):
    pytest.importorskip(package, reason=f"{package} is not installed: faults of agents are not tested")

import aten_samples  # noqa: E402
from agents_client import Agent, Client  # noqa: E402
from agents_samples import samples  # noqa: E402

from tapml.agents import Executor, Unsupported  # noqa: E402
from tapml.agents.faults import FAULTS  # noqa: E402

F = np.float32
X = np.array([[-1.5, 0, 2.5]], F)


def same(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    """Whether results are equal in every bit."""
    return [(a.dtype, a.shape, a.tobytes()) for a in one] == [(a.dtype, a.shape, a.tobytes()) for a in other]


@pytest.fixture(scope="module")
def tried() -> tuple[Executor, list]:
    """An executor, and the sample calls of operators of the standard with their true results."""
    import onnxruntime

    try:
        return try_all("ort", samples())
    except (Unsupported, ValueError) as error:
        version = tuple(int(part) for part in onnxruntime.__version__.split(".")[:2])
        if version >= (1, 32):
            raise
        pytest.skip(f"ONNX Runtime {onnxruntime.__version__} does not run all sample calls: {error}")


@pytest.fixture(scope="module")
def tried_aten() -> tuple[Executor, list]:
    """As `tried`, of PyTorch's operators."""
    pytest.importorskip("torch", reason="torch is not installed (TAPML_RUNTIMES): faults of its operators are not tested")
    return try_all("torch", [*aten_samples.samples(), *aten_samples.beside_faults(), *aten_samples.graphs()])


def try_all(runtime: str, calls: list) -> tuple[Executor, list]:
    from tapml.agents.__main__ import ALL

    executor = Executor(ALL[runtime](), entries=4096)
    return executor, [(call, executor.run(call)) for call in calls]


def test_there_are_many_faults() -> None:
    assert len(FAULTS) >= 200
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9_]+)*", name) for name in FAULTS)
    assert {"attribute", "padding", "stride", "ceil", "axis", "layout", "rounding", "dtype", "overflow", "stale", "fusion"} <= {
        fault.kind for fault in FAULTS.values()
    }


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if "." not in fault.operator])
def test_a_fault_shows_within_its_rule_only(name: str, tried: tuple[Executor, list]) -> None:
    expect_within_rule(name, *tried)


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if "." in fault.operator])
def test_a_fault_of_pytorch_shows_within_its_rule_only(name: str, tried_aten: tuple[Executor, list]) -> None:
    expect_within_rule(name, *tried_aten)


def expect_within_rule(name: str, executor: Executor, calls: list) -> None:
    """Fails unless the fault changes some call within its rule, and none outside."""
    fault, shown, others = FAULTS[name], 0, 0
    fault.memory.clear()
    for call, true in calls:
        if fault.operator != "*" and all(node.name != fault.operator for node in call.nodes):
            assert not fault.matches(call)  # Such a call runs as it is.
            continue
        found = fault.run(call, executor._run)
        if fault.matches(call):
            shown += not same(found, true)
            assert fault.reshapes or [r.shape for r in found] == [r.shape for r in true]
        else:
            others += 1
            assert same(found, true)
    assert shown, "no call shows the fault"
    assert others or fault.operator == "*", "no call of the operator lies outside the rule"


def test_an_agent_with_a_fault() -> None:
    agent = Agent("ort", "--fault", "leakyrelu-alpha-ignored")
    client = Client(agent.address)
    assert "leakyrelu-alpha-ignored" in client.welcome.device.name
    (y,) = client.node("onnx.LeakyRelu@16", [X], alpha=0.5)
    np.testing.assert_array_equal(y, np.array([[F(-1.5) * F(0.01), 0, 2.5]], F))
    (y,) = client.node("onnx.LeakyRelu@16", [X])
    np.testing.assert_array_equal(y, np.array([[F(-1.5) * F(0.01), 0, 2.5]], F))
    agent.close()
