"""PyTorch as the oracle of its own operators."""

from __future__ import annotations

import numpy as np
import pytest

for package in ("onnx", "torch", "websockets", "grpc_tools"):
    pytest.importorskip(package, reason=f"{package} is not installed (TAPML_RUNTIMES): `torch-f64` is not tested")

from agents_client import Agent, Client  # noqa: E402

F = np.float32
X = np.array([[-1.5, 0, 2.5]], F)


def test_torch_in_f64() -> None:
    agent = Agent("torch-f64")
    client = Client(agent.address)
    # In f32 the ones would be lost.
    many = np.array([1 << 24, 1, 1, 1, -(1 << 24)], F)
    (y,) = client.node("aten.sum.default", [many], outputs=[("f32", ())])
    assert y is not None and y.dtype == F and y == 3
    third = np.array([1 / 3])
    (y,) = client.node("aten._to_copy.default", [third], outputs=[("f64", (1,))], dtype="f32")
    np.testing.assert_array_equal(y, third.astype(F).astype(np.float64))
    (y,) = client.node("aten.add.Tensor", [third], outputs=[("f64", (1,))], other=0.1)  # A number in a tensor's place.
    np.testing.assert_array_equal(y, third + 0.1)
    y, absent = client.node("aten.max.dim", [X], outputs=[("f32", (1,)), None], dim=1)
    assert y is not None and y == 2.5 and absent is None
    agent.close()
