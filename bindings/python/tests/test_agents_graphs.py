"""Operators with graphs within them, and calls that take too long, over the wire."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

for package in ("onnx", "onnxruntime", "websockets", "google.protobuf"):
    pytest.importorskip(package, reason=f"{package} is not installed: agents of other runtimes are not tested")

from agents_client import PACKAGE, Agent, Client, Refused  # noqa: E402

from tapml.agents.gen import tapml_pb2 as pb  # noqa: E402

F, I = np.float32, np.int64
X = np.array([1, 10], F)


def inner(op: str, inputs: list[str], outputs: list[str], **attributes: Any) -> dict[str, Any]:
    """A node of a graph within an operator."""
    return {"op": op, "attributes": attributes, "inputs": inputs, "outputs": outputs}


#: ``a = (a + step) * 0.5``, where ``step`` is input 3 of the loop.
BODY = {
    "inputs": ["i", "go", "a"], "types": ["i64[]", "bool[]", "f32[?]"], "outer": {"step": 3}, "outputs": ["go", "c", "b"], "turns": 9,
    "nodes": [inner("onnx.Add@17", ["a", "step"], ["b"]), inner("onnx.Constant@17", [], ["half"], value_float=0.5),
              inner("onnx.Mul@17", ["b", "half"], ["c"])],
}  # fmt: skip


@pytest.fixture(scope="module", params=["ort", "reference"])
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    """A session with an agent that runs loops."""
    agent = Agent(request.param)
    yield Client(agent.address)
    agent.close()


def loop(client: Client, body: Any, **more: Any) -> list[Any]:
    """What 3 turns give."""
    inputs = [np.array(3, I), np.array(True), X, np.array([1, 2], F)]
    return client.node("onnx.Loop@17", inputs, (0, 1, 3), outputs=[("f32", (2,)), ("f32", (3, 2))], body=body, **more)


def test_a_loop_reads_what_is_around_it(client: Client) -> None:
    last, all = loop(client, {"graph": BODY})
    expected, rows = X, []
    for _ in range(3):
        rows.append(expected + np.array([1, 2], F))
        expected = rows[-1] / 2
    np.testing.assert_array_equal(last, expected)
    np.testing.assert_array_equal(all, rows)


def test_a_branch_within_a_graph_of_nodes(client: Client) -> None:
    def branch(op: str) -> dict[str, Any]:
        return {"graph": {"inputs": [], "outer": {"p": 1}, "nodes": [inner(op, ["p"], ["q"])], "outputs": ["q"]}}

    nodes = [("onnx.Relu@17", {}, ["x"], ["r"]),
             ("onnx.If@17", {"then_branch": branch("onnx.Neg@17"), "else_branch": branch("onnx.Abs@17")}, ["f", "r"], ["y"])]  # fmt: skip
    for flag in (True, False):
        (y,) = client.graph(nodes, {"x": X, "f": np.array(flag)}, ["y"])
        np.testing.assert_array_equal(y, -X if flag else X)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"outer": {"step": 9}}, "reads an input that the operator has not"),
        ({"outer": {"step": -1}}, "reads an input that the operator has not"),
        ({"inputs": 3}, "expected a list of names"),
        ({"types": ["i64[]"]}, "a type for each input, or none"),
        ({"types": ["i64[]", "bool[]", "odd[1]"]}, "is no type such as"),
        ({"nodes": [{"op": "onnx.Add@17"}]}, "a node has op, inputs, outputs"),
        ({"nodes": [inner("onnx.Add@17", ["a", "step"], ["b"], colour=1)]}, "has no attribute `colour`"),
        ({"nodes": [inner("onnx.NoSuch@17", ["a"], ["b"])]}, "has no operator onnx.NoSuch@17"),
        ({"nodes": [inner("far.Add@17", ["a"], ["b"])]}, "serves onnx"),
        ({"colour": 1}, "perhaps types, outer and turns"),
    ],
)
def test_graphs_that_make_no_sense(client: Client, change: dict[str, Any], said: str) -> None:
    with pytest.raises(Refused, match=said):
        loop(client, {"graph": {**BODY, **change}})
    with pytest.raises(Refused, match="is of type graph"):
        loop(client, 3)
    loop(client, {"graph": BODY})


def test_a_call_that_takes_too_long_ends_the_agent(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "import time\n"
        "from tapml.agents import OnnxRuntime, serve\n"
        "class Slow(OnnxRuntime):\n"
        "    name = 'slow'\n"
        "    def build(self, model, call):\n"
        "        return lambda arrays: [time.sleep(60 * (model.graph.node[0].op_type == 'Relu')) or arrays[0]]\n"
        "serve(Slow())\n"
    )
    command = [sys.executable, str(tmp_path / "slow.py"), "--listen", "127.0.0.1:0", "--deadline", "1.5"]
    agent = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={"PYTHONPATH": str(PACKAGE)})
    assert agent.stdout and agent.stderr
    client = Client(agent.stdout.readline().split()[-1])
    assert client.welcome.limits.deadline_ms == 1500
    client.node("onnx.Neg@13", [X])
    client.send(call_node=pb.CallNode(op="onnx.Relu@14", attributes="{}", inputs=[client.tensor(X)]))
    assert agent.wait(20) == 124
    assert "onnx.Relu@14 ran for 1.5 s" in agent.stderr.read()
