"""PyTorch as the oracle of its own operators, and runtimes that take ONNX models as their targets."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

for package in ("onnx", "torch", "websockets", "google.protobuf"):
    pytest.importorskip(package, reason=f"{package} is not installed (TAPML_RUNTIMES): operators of PyTorch are not tested")

from agents_client import PACKAGE, Agent, Client, Refused  # noqa: E402
from aten_samples import graphs, samples  # noqa: E402

import torch  # noqa: E402
from tapml.agents import Call, Executor, Unsupported  # noqa: E402
from tapml.agents.__main__ import ALL  # noqa: E402
from tapml.agents._calls import Invalid  # noqa: E402
from tapml.agents._scripts import write_program  # noqa: E402

LOADS = {word: runtime.load for word, runtime in ALL.items() if runtime.load}

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


#: Operators whose calls are exported here: an export takes half a second.
EXPORTED = ("linear", "conv2d", "layer_norm", "_softmax", "scaled_dot_product_attention", "gelu", "max_pool2d", "embedding", "cat", "slice",
            "mean", "batch_norm", "upsample_bilinear2d", "where", "lstm")  # fmt: skip


def exported() -> list[Call]:
    """The last sample call of each of these operators, and two of several nodes."""
    last = {call.nodes[0].name.split(".")[0]: call for call in samples()}
    return [*(last[name] for name in EXPORTED), graphs()[0], graphs()[4]]


RUNTIMES = [("ort", "onnxruntime"), ("openvino", "openvino"), ("tract", "tract"), ("reference", "onnx"), ("tvm", "tvm"), ("iree", "iree.compiler")]


@pytest.mark.parametrize("name, package", RUNTIMES)
def test_runtimes_of_onnx_take_operators_of_pytorch(name: str, package: str) -> None:
    for needed in (package, "onnxscript"):
        pytest.importorskip(needed, reason=f"{needed} is not installed (TAPML_RUNTIMES): `{name}` with aten operators is not tested")
    target, exact, right = Executor(ALL[name]()), Executor(ALL["torch-f64"]()), 0
    for call in exported():
        try:
            found = target.run(call)
        except Unsupported:
            continue
        right += 1
        for y, true in zip(found, exact.run(call)):
            np.testing.assert_allclose(y, true, rtol=1e-4, atol=1e-5, err_msg=str(call.nodes[0]))
            assert y.shape == true.shape
    assert right >= len(exported()) - 2, f"{right} of {len(exported())} are served"


def test_an_onnx_runtime_says_that_it_takes_them() -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed (TAPML_RUNTIMES): the export is not tested")
    agent = Agent("ort")
    client = Client(agent.address)
    assert "aten.*" in {op.name for op in client.welcome.device.ops}
    (y,) = client.node("aten.leaky_relu.default", [X], negative_slope=0.5)
    np.testing.assert_array_equal(y, [[-0.75, 0, 2.5]])
    (y,) = client.node("aten.add.Tensor", [np.array(2, F), np.array(3, F)], (1,))
    assert y is not None and y.shape == () and y == 5
    nodes = [("aten.relu.default", {}, ["x"], ["y"]), ("aten.neg.default", {}, ["y"], ["z"])]
    z, y = client.graph(nodes, {"x": X}, ["z", "y"])
    np.testing.assert_array_equal(z, -np.maximum(X, 0))
    for op, attributes, said in [
        ("aten.relu.default", {"alpha": 1}, "no argument `alpha`"),
        ("aten.no_such.default", {}, "no operator"),
        ("aten._thnn_fused_lstm_cell.default", {}, "."),
        ("aten.relu_.default", {}, "writes to its inputs"),
    ]:
        with pytest.raises(Refused, match=said) as error:
            client.node(op, [X, X, X, X] if "lstm" in op else [X], **attributes)
        assert error.value.kind == "UNSUPPORTED", op
    mixed = [("aten.relu.default", {}, ["x"], ["y"]), ("onnx.Neg@13", {}, ["y"], ["z"])]
    with pytest.raises(Refused, match=r"serves .*, not aten.relu.default"):
        client.graph(mixed, {"x": X}, ["z"])
    agent.close()


@pytest.mark.parametrize("missing", ["torch", "onnxscript"])
def test_what_the_export_needs_is_named(missing: str) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    if missing == "torch" and not importlib.util.find_spec("onnxscript"):
        pytest.skip("onnxscript is not installed (TAPML_RUNTIMES)")
    code = (
        f"import sys; sys.modules['{missing}'] = None\n"
        "import numpy as np\n"
        "from tapml.agents import Call, Executor, Node, Unsupported, Value\n"
        "from tapml.agents.__main__ import ALL\n"
        "node = Node('aten', 'relu.default', 0, {}, ('x',), ('y',))\n"
        "try:\n"
        "    Executor(ALL['ort']()).run(Call((node,), {'x': Value(np.zeros(2, np.float32))}, (('y', None),)))\n"
        "except Unsupported as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": str(PACKAGE)}, timeout=120)
    assert f"for which {missing} is not installed: `pip install torch onnxscript`" in done.stdout, done


def tell(call: Call, **more: Any) -> dict[str, Any]:
    """The call as ``tapml reduce`` tells it, with its arrays in the current folder."""
    values = call.values.items()
    for name, value in values:
        folder = Path("constants" if value.constant else "inputs")
        folder.mkdir(exist_ok=True)
        np.save(folder / f"{name}.npy", value.array)
    parts = ("inputs", "outputs", "attributes")
    nodes = [{"op": str(node), **{part: getattr(node, part) for part in parts}} for node in call.nodes]
    nodes = [{**node, "inputs": list(node["inputs"]), "outputs": list(node["outputs"])} for node in nodes]
    constants = [name for name, value in values if value.constant]
    return {"inputs": list(call.values), "constants": constants, "nodes": nodes, "outputs": [n for n, _ in call.results], **more}


def run_script(word: str, call: Call) -> Any:
    """What ``found`` is when the lines of a script have run the program of a call."""
    for file in [*Path("constants").glob("*"), *Path("inputs").glob("*")]:
        file.unlink()
    lines = write_program(word, tell(call), Path("."))
    scope: dict[str, Any] = {"np": np, "model": "model.onnx", "feed": {name: call.values[name].array for name in call.given()}}
    exec(lines, scope)  # What it runs was just written.
    return scope["found"]


def test_a_program_without_this_package_gives_what_the_agent_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    eager = Executor(ALL["torch"]())
    for call in exported():
        expected, call = eager.run(call)[0], eager.runtime.check(call)
        found = run_script("torch", call)
        assert found.dtype == expected.dtype, call.nodes
        np.testing.assert_array_equal(found, expected, err_msg=str(call.nodes))


@pytest.mark.parametrize("word, package", [("inductor", "torch"), ("executorch", "executorch.exir"), ("litert", "litert_torch")])
def test_a_script_runs_the_runtime(word: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        importlib.import_module(package)
    except ImportError:
        pytest.skip(f"{package} is not installed (TAPML_RUNTIMES): scripts for `{word}` are not tested")
    monkeypatch.chdir(tmp_path)
    call = graphs()[0]
    executor = Executor(ALL[word]())
    try:
        expected = executor.run(call)[0]
    except Unsupported as error:
        pytest.skip(f"`{word}` does not run here: {error}")
    np.testing.assert_allclose(run_script(word, executor.runtime.check(call)), expected, rtol=1e-5)


def test_what_a_program_is_made_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    node = {"op": "aten.linear.default", "inputs": ["x0", "x1"], "outputs": ["y0"], "attributes": {}}
    call = {"inputs": ["x0", "x1"], "constants": ["x1"], "nodes": [node], "outputs": ["y0"]}
    for folder, array in (("inputs/x0", X), ("constants/x1", np.array([[1, 2, 3]], F))):
        Path(folder).parent.mkdir()
        np.save(f"{folder}.npy", array)
    lines = write_program("torch", call, tmp_path)
    assert "module.pt2" in lines and not Path("model.onnx").exists()
    module = torch.export.load("module.pt2").module()
    assert module(torch.from_numpy(X))[0].item() == 6
    assert not any("stack_trace" in node.meta for node in torch.export.load("module.pt2").graph.nodes)
    # Runtimes that take ONNX models are given one, with the constants inside.
    if importlib.util.find_spec("onnxscript"):
        import onnx

        assert "ORT_DISABLE_ALL" in write_program("ort", call, tmp_path)
        model = onnx.load("model.onnx")
        assert [value.name for value in model.graph.input] == ["x0"]
        assert "ORT_ENABLE_ALL" in write_program("ort", {**call, "graph": True}, tmp_path)
    # The oracle is no target, and nothing is known of others: the program is there, no lines are.
    assert write_program("torch-f64", call, tmp_path) == write_program("mine", call, tmp_path) == ""
    relu = {**call, "nodes": [{**node, "op": "onnx.Relu@14", "inputs": ["x0"]}]}
    assert write_program("ort", relu, tmp_path).startswith("import onnxruntime")
    assert write_program("executorch", relu, tmp_path) == ""
    for name in ("../x0", "x 0", ""):
        with pytest.raises(Invalid, match="no name of an input"):
            write_program("torch", {**call, "inputs": [name, "x1"]}, tmp_path)


@pytest.mark.parametrize("word", sorted(LOADS))
def test_a_script_has_at_most_fifteen_lines(word: str) -> None:
    # The rest of a script has ten, which a test of the command counts with those of ONNX Runtime.
    assert len(LOADS[word].strip().splitlines()) <= 5
