"""Planted faults: each shows within its rule, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest

for package in ("onnx", "onnxruntime", "websockets", "grpc_tools"):
    pytest.importorskip(package, reason=f"{package} is not installed: faults of agents are not tested")

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
    """An executor, and the sample calls with their true results."""
    import onnxruntime

    from tapml.agents.__main__ import ALL

    executor = Executor(ALL["ort"](), entries=4096)
    try:
        return executor, [(call, executor.run(call)) for call in samples()]
    except (Unsupported, ValueError) as error:
        version = tuple(int(part) for part in onnxruntime.__version__.split(".")[:2])
        if version >= (1, 32):
            raise
        pytest.skip(f"ONNX Runtime {onnxruntime.__version__} does not run all sample calls: {error}")


def test_there_are_many_faults() -> None:
    assert len(FAULTS) >= 100
    assert {"attribute", "padding", "stride", "ceil", "axis", "layout", "rounding", "dtype", "overflow", "stale", "fusion"} <= {
        fault.kind for fault in FAULTS.values()
    }


@pytest.mark.parametrize("name", list(FAULTS))
def test_a_fault_shows_within_its_rule_only(name: str, tried: tuple[Executor, list]) -> None:
    fault, (executor, calls), shown, others = FAULTS[name], tried, 0, 0
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
