"""Agents of other people's runtimes, in processes of their own, over the wire. What a test needs and is not installed is
named where it is skipped; `cargo xtask python` installs ONNX Runtime, and the others that TAPML_RUNTIMES lists."""

from __future__ import annotations

import numpy as np
import pytest

for package in ("onnx", "onnxruntime", "websockets", "google.protobuf"):
    pytest.importorskip(package, reason=f"{package} is not installed: agents of other runtimes are not tested")

from agents_client import Agent, Client, Refused, encode_node  # noqa: E402
from agents_samples import samples  # noqa: E402

from tapml.agents import Executor, Unsupported  # noqa: E402
from tapml.agents._calls import DTYPES  # noqa: E402
from tapml.agents.gen import tapml_pb2 as pb  # noqa: E402

F, I = np.float32, np.int64
X = np.array([[-1.5, 0, 2.5]], F)


@pytest.fixture
def client(ort: str) -> Client:
    """A session with it."""
    return Client(ort)


def start(name: str, module: str, *options: str) -> Agent:
    """An agent with a runtime that may not be installed."""
    pytest.importorskip(module, reason=f"{module} is not installed (TAPML_RUNTIMES): `{name}` is not tested")
    return Agent(name, *options)


def test_the_agent_says_what_it_serves(client: Client) -> None:
    device = client.welcome.device
    assert device.platform == "ort" and list(client.welcome.capabilities) == ["graphs"]
    served = {op.name: op for op in device.ops}
    assert set(served) == {"onnx.*", "com.microsoft.*", "ai.onnx.ml.*", "aten.*"}
    assert set(served["onnx.*"].dtypes) == set(DTYPES) and served["onnx.*"].accumulate == "f32"
    assert 0 < len(served["onnx.*"].version) <= 64


def test_one_node(client: Client) -> None:
    (y,) = client.node("onnx.Relu@14", [X])
    np.testing.assert_array_equal(y, [[0, 0, 2.5]])
    (y,) = client.node("onnx.LeakyRelu@16", [X], alpha=0.5)
    np.testing.assert_array_equal(y, [[-0.75, 0, 2.5]])
    (y,) = client.node("com.microsoft.FusedMatMul@1", [X, X], transB=1, alpha=2.0)
    np.testing.assert_array_equal(y, [[17]])


def test_rank_0_stays_rank_0(client: Client) -> None:
    (y,) = client.node("onnx.Add@14", [np.array(2, F), np.array(3, F)])
    assert y is not None and y.shape == () and y == 5
    (y,) = client.node("onnx.Identity@14", [np.zeros((0, 3), F)])
    assert y is not None and y.shape == (0, 3)


def test_absent_inputs_and_outputs(client: Client) -> None:
    (y,) = client.node("onnx.Clip@13", [X, None, np.array(1, F)])
    np.testing.assert_array_equal(y, [[-1.5, 0, 1]])
    y, mask = client.node("onnx.Dropout@13", [X], outputs=[("f32", X.shape), None])
    np.testing.assert_array_equal(y, X)
    assert mask is None
    # The values are not asked for, but stand in front of what is.
    values, places = client.node("onnx.TopK@11", [X, np.array([1], I)], outputs=[None, ("i64", (1, 1))])
    assert values is None
    np.testing.assert_array_equal(places, [[2]])


def test_constants_give_what_inputs_give(client: Client) -> None:
    axes = np.array([1], I)
    for constants in ((), (1,), (0, 1)):
        (y,) = client.node("onnx.ReduceSum@13", [X, axes], constants)
        np.testing.assert_array_equal(y, [[1]])
    (y,) = client.node("onnx.ReduceSum@13", [X, np.array([0], I)], (1,))
    np.testing.assert_array_equal(y, X)  # Another constant is another program.


@pytest.mark.parametrize("dtype", [name for name in DTYPES])
def test_every_dtype_goes_there_and_back(client: Client, dtype: str) -> None:
    import onnxruntime

    if dtype == "bf16" and not hasattr(onnxruntime.OrtValue, "ortvalue_from_numpy_with_onnx_type"):
        pytest.skip(f"ONNX Runtime {onnxruntime.__version__} takes no bf16 from Python")
    x = np.array([0, 1, 1, 0]).astype(DTYPES[dtype])
    (y,) = client.node("onnx.Identity@14", [x])
    assert y is not None and y.dtype == x.dtype
    np.testing.assert_array_equal(y, x)


def test_bool_and_i64(client: Client) -> None:
    (y,) = client.node("onnx.Greater@13", [np.array([1 << 40, 0], I), np.array([1, 1], I)])
    assert y is not None and y.dtype == np.bool_
    np.testing.assert_array_equal(y, [True, False])
    (y,) = client.node("onnx.Where@16", [y, np.array([1, 2], I), np.array([3, 4], I)])
    np.testing.assert_array_equal(y, [1, 4])


def test_attributes_of_every_type(client: Client) -> None:
    import onnx

    (y,) = client.node("onnx.Constant@13", [], value={"tensor": {"dtype": "f32", "shape": [2], "data": [1.5, "-inf"]}})
    np.testing.assert_array_equal(y, [1.5, -np.inf])
    (y,) = client.node("onnx.Constant@13", [], value_floats={"floats": ["nan", 1.0]})
    np.testing.assert_array_equal(y, np.array([np.nan, 1], F))
    (y,) = client.node("onnx.Constant@13", [], value_float={"float": "inf"})
    assert y is not None and np.isposinf(y) and y.shape == ()
    (y,) = client.node("onnx.Constant@13", [], value_ints={"ints": []})
    assert y is not None and y.shape == (0,)
    tensor = onnx.numpy_helper.from_array(np.array([True, False]))
    op, attributes = encode_node(onnx.helper.make_node("Constant", [], ["y"], value=tensor), {"": 13})
    (y,) = client.node(op, [], **attributes)
    np.testing.assert_array_equal(y, [True, False])


def test_tensors_are_held(client: Client) -> None:
    client.put(7, X)
    held = pb.Tensor(handle=7)
    assert client.node("onnx.Relu@14", [held], keep=(8,)) == [None]
    (y,) = client.node("onnx.Add@14", [held, pb.Tensor(handle=8)])
    np.testing.assert_array_equal(y, X + np.maximum(X, 0))
    client.send(drop_tensor=pb.DropTensor(handle=7))
    with pytest.raises(Refused, match="handle 7"):
        client.node("onnx.Relu@14", [held])


def test_long_results_come_in_pieces(client: Client) -> None:
    (y,) = client.node("onnx.Expand@13", [np.array([3], F), np.array([3 << 20], I)])
    assert y is not None and y.shape == (3 << 20,) and np.all(y == 3)


def test_a_graph(client: Client) -> None:
    nodes = [("onnx.MatMul@13", {}, ["x:0", "w"], ["a/b"]), ("onnx.Relu@14", {}, ["a/b"], ["r"]),
             ("onnx.Clip@13", {}, ["r", "", "top"], ["c"])]  # fmt: skip
    values = {"x:0": X, "w": np.eye(3, dtype=F), "top": np.array(1, F)}
    (places,) = client.graph([("onnx.TopK@11", {}, ["x", "k"], ["", "i"])], {"x": X, "k": np.array([1], I)}, ["i"])
    np.testing.assert_array_equal(places, [[2]])
    for constants in ((), ("w", "top")):
        c, r = client.graph(nodes, values, ["c", "r"], constants)
        np.testing.assert_array_equal(c, [[0, 0, 1]])
        np.testing.assert_array_equal(r, [[0, 0, 2.5]])


def test_graphs_that_make_no_sense(client: Client) -> None:
    relu = ("onnx.Relu@14", {}, ["x"], ["y"])
    for nodes, outputs, said in [
        ([relu], ["z"], "nothing makes the result `z`"),
        ([("onnx.Relu@14", {}, ["q"], ["y"])], ["y"], "nothing before it makes"),
        ([relu, relu], ["y"], "made twice"),
        ([relu, ("onnx.Relu@5", {}, ["y"], ["z"])], ["z"], "means something else in opset 14"),
    ]:
        with pytest.raises(Refused, match=said):
            client.graph(nodes, {"x": X}, outputs)
    (y,) = client.graph([relu], {"x": X}, ["y"])
    np.testing.assert_array_equal(y, [[0, 0, 2.5]])


@pytest.mark.parametrize(
    "op, attributes, said",
    [
        ("onnx.Relu@14", {"alpha": 0.5}, "no attribute `alpha`"),
        ("onnx.Conv@11", {"dilation": [2, 2]}, "no attribute `dilation`; it has: auto_pad"),
        ("onnx.NoSuch@14", {}, "no operator"),
        ("onnx.Relu@999", {}, "opsets up to"),
        ("com.microsoft.NoSuch@1", {}, "no operator"),
        ("org.example.Relu@1", {}, "serves onnx"),
        ("rms_norm", {}, "DOMAIN.NAME@VERSION"),
        ("onnx.ImageDecoder@20", {}, "NOT_IMPLEMENTED"),
    ],
)
def test_not_served(client: Client, op: str, attributes: dict[str, object], said: str) -> None:
    x = np.zeros(3, np.uint8) if "Image" in op else np.zeros((1, 1, 4, 4), F)
    with pytest.raises(Refused, match=said) as error:
        client.node(op, [x, x] if "Conv" in op else [x], **attributes)
    assert error.value.kind == "UNSUPPORTED"


def hostile(client: Client) -> list[tuple[object, str]]:
    """Calls that can never be right."""

    def call(tensor: object = None, attributes: str = "{}", op: str = "onnx.Relu@14", **more: object) -> object:
        return pb.CallNode(op=op, attributes=attributes, inputs=[tensor or client.tensor(X)], **more)

    return [
        (call(pb.Tensor(dtype="f33", shape=[1], data=b"1234")), "unknown dtype `f33`"),
        (call(pb.Tensor(dtype="f32", shape=[3], data=b"1234")), r"f32\[3\] needs 12 bytes, found 4"),
        (call(pb.Tensor(dtype="f32", shape=[1 << 40, 1 << 40], data=b"1234")), "needs .* bytes, found 4"),
        (call(pb.Tensor(dtype="f32", shape=[0, 1 << 62, 1 << 62])), "."),
        (call(pb.Tensor(dtype="f32", shape=[1] * 9, data=b"1234")), "at most 8 sizes"),
        (call(pb.Tensor(dtype="bool", shape=[1], data=b"\2")), "byte of 0 or 1"),
        (call(pb.Tensor(handle=99)), "handle 99"),
        (call(pb.Tensor(absent=True)), "not optional"),
        (call(attributes="[]"), "JSON object, found list"),
        (call(attributes="{"), "line 1"),
        (call(attributes="[" * 100_000), "nested too deeply"),
        (call(attributes='{"a":1,"a":2}'), "stands twice"),
        (call(attributes='{"alpha":NaN}', op="onnx.Elu@6"), "NaN is no JSON"),
        (call(attributes='{"alpha":"x"}', op="onnx.Elu@6"), "type float, found x"),
        (call(attributes='{"alpha":1e300}', op="onnx.Elu@6"), "type float"),
        (call(attributes='{"axis":%d}' % (1 << 63), op="onnx.Softmax@13"), "type int"),
        (call(attributes='{"axis":true}', op="onnx.Softmax@13"), "type int"),
        (call(attributes='{"kernel_shape":[1,"2"]}', op="onnx.MaxPool@12"), "type ints"),
        (call(op="onnx.MaxPool@12"), "needs the attribute `kernel_shape`"),
        (call(attributes='{"value":{"tensor":{"dtype":"u8","shape":[1],"data":[256]}}}', op="onnx.ConstantOfShape@9"), "type tensor"),
        (call(attributes='{"value":{"tensor":{"dtype":"f32","shape":[9],"data":[1]}}}', op="onnx.ConstantOfShape@9"), "type tensor"),
        (call(op="onnx.Add@14"), "takes 2 to 2 inputs, found 1"),
        (call(op="onnx.Gather@13", outputs=[pb.Tensor(dtype="x")]), "unknown dtype"),
        (call(keep=[0, 0, 0]), "at most 1 outputs, found 3"),
    ]  # fmt: skip


def test_hostile_requests_are_answered(client: Client) -> None:
    for request, said in hostile(client):
        with pytest.raises(Refused, match=said) as error:
            client.results(client.request(call_node=request), ())
        assert error.value.kind in ("INVALID_INPUT", "UNSUPPORTED"), said
        (y,) = client.node("onnx.Relu@14", [X])
        np.testing.assert_array_equal(y, [[0, 0, 2.5]])
    put = pb.PutTensor(tensor=pb.Tensor(handle=1, dtype="f32", shape=[1 << 50], data=b"1"), more=True)
    with pytest.raises(Refused, match="at most") as error:
        client.request(put_tensor=put)
    assert error.value.kind == "OUT_OF_MEMORY"


def test_a_call_that_fails_while_it_runs_is_no_refusal(client: Client) -> None:
    with pytest.raises(Refused, match="failed to run") as error:
        client.node("onnx.Gather@13", [X, np.array([99], I)])
    assert error.value.kind == "INVALID_INPUT"


def test_the_reference_computes_in_f64() -> None:
    agent = Agent("reference")
    client = Client(agent.address)
    accumulate = {op.name: op.accumulate for op in client.welcome.device.ops}
    assert accumulate == {"onnx.*": "f64", "ai.onnx.ml.*": "f64", "aten.*": "f32"}
    third = np.array([1 / 3], np.float64)
    (y,) = client.node("onnx.Exp@13", [third], outputs=[("f64", (1,))])
    np.testing.assert_array_equal(y, np.exp(third))
    # What the node itself rounds is rounded, and widened again.
    for word, dtype in [(1, np.float32), (10, np.float16)]:
        (y,) = client.node("onnx.Cast@13", [third], outputs=[("f64", (1,))], to=word)
        assert y is not None and y.dtype == np.float64
        np.testing.assert_array_equal(y, third.astype(dtype).astype(np.float64))
    (y,) = client.node("onnx.EyeLike@9", [np.zeros((1, 1))], outputs=[("f64", (1, 1))], dtype=1)
    assert y is not None and y.dtype == np.float64
    # f32 is widened before it is summed: in f32 the ones would be lost.
    many = np.array([1 << 24, 1, 1, 1, -(1 << 24)], F)
    (y,) = client.node("onnx.ReduceSum@13", [many], outputs=[("f32", (1,))])
    assert y is not None and y.dtype == F
    np.testing.assert_array_equal(y, [3])
    nodes = [("onnx.Cast@13", {"to": 1}, ["x"], ["a"]), ("onnx.Mul@14", {}, ["a", "x"], ["y"])]
    (y,) = client.graph(nodes, {"x": third}, ["y"])
    np.testing.assert_array_equal(y, third.astype(F).astype(np.float64) * third)
    agent.close()


@pytest.mark.parametrize("name, module", [("openvino", "openvino"), ("tract", "tract"), ("tvm", "tvm"), ("iree", "iree.compiler")])
def test_other_runtimes(name: str, module: str) -> None:
    agent = start(name, module)
    client = Client(agent.address)
    (y,) = client.node("onnx.Relu@14", [X])
    np.testing.assert_array_equal(y, [[0, 0, 2.5]])
    (y,) = client.node("onnx.Add@14", [np.array(2, F), np.array(3, F)])
    assert y is not None and y.shape == () and y == 5
    (y,) = client.node("onnx.ReduceSum@13", [X, np.array([1], I)], (1,), outputs=[("f32", (1, 1))])
    np.testing.assert_array_equal(y, [[1]])
    with pytest.raises(Refused) as error:
        client.node("onnx.ImageDecoder@20", [np.zeros(3, np.uint8)])
    assert error.value.kind == "UNSUPPORTED"
    (y,) = client.graph([("onnx.Relu@14", {}, ["x"], ["y"]), ("onnx.Neg@13", {}, ["y"], ["z"])], {"x": X}, ["z"])
    np.testing.assert_array_equal(y, -np.maximum(X, 0))
    agent.close()


@pytest.mark.parametrize("name, module", [("executorch", "executorch"), ("litert", "litert_torch")])
def test_what_compiles_modules_of_torch(name: str, module: str) -> None:
    pytest.importorskip("torch", reason=f"torch is not installed (TAPML_RUNTIMES): `{name}` is not tested")
    agent = start(name, module)
    client = Client(agent.address)
    client.node("aten.relu.default", [X], keep=(5,))
    (y,) = client.node("aten.relu.default", [-X])
    np.testing.assert_array_equal(y, [[1.5, 0, 0]])
    # What is held is not overwritten by the next call of the same program.
    (y,) = client.node("aten.neg.default", [pb.Tensor(handle=5)])
    np.testing.assert_array_equal(y, [[0, 0, -2.5]])
    nodes = [("aten.mm.default", {}, ["x", "w"], ["y"]), ("aten.relu.default", {}, ["y"], ["z"])]
    (y,) = client.graph(nodes, {"x": X, "w": np.eye(3, dtype=F)}, ["z"], ("w",))
    np.testing.assert_array_equal(y, [[0, 0, 2.5]])
    agent.close()


def test_torch() -> None:
    agent = start("torch", "torch")
    client = Client(agent.address)
    x, w = np.ones((1, 1, 4, 4)), np.ones((1, 1, 3, 3))
    more = {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "transposed": False, "output_padding": [0, 0], "groups": 1}
    for dtype in (F, np.float64):
        (y,) = client.node("aten.convolution.default", [x.astype(dtype), w.astype(dtype), None], **more)
        assert y is not None and y.dtype == dtype and y[0, 0, 0, 0] == 4 and y[0, 0, 1, 1] == 9
    (y,) = client.node("aten.cat.default", [X, X], dim=0)
    assert y is not None and y.shape == (2, 3)
    (y,) = client.node("aten.sum.dim_IntList", [X], dim=[1], keepdim=True, dtype="f64")
    assert y is not None and y.dtype == np.float64 and y.shape == (1, 1)
    (y,) = client.node("aten.add.Tensor", [np.array(1, F), np.array(2, F)], alpha=2)
    assert y is not None and y.shape == () and y == 5
    values, places = client.node("aten.topk.default", [X], k=1, keep=(0, 0))
    np.testing.assert_array_equal(places, [[2]])
    for op, more, said in [("aten.nosuch.default", {}, "no operator"), ("aten.relu.default", {"x": 1}, "no argument `x`"),
                           ("aten.relu_.default", {}, "writes to its inputs"), ("onnx.Relu@14", {}, "serves aten")]:  # fmt: skip
        with pytest.raises(Refused, match=said):
            client.node(op, [X], **more)
    agent.close()


def test_executables_are_kept_and_bounded() -> None:
    from tapml.agents.__main__ import ALL

    executor = Executor(ALL["ort"](), entries=3)
    calls = samples()[:6]
    for call in [*calls, *calls]:
        executor.run(call)
        assert len(executor._built) <= 3
    held = dict(executor._built)
    executor.run(calls[-1])
    assert dict(executor._built) == held
    small = Executor(ALL["ort"](), constants=10)
    for call in calls:
        small.run(call)
    assert len(small._built) == 1


def test_constants_that_no_model_holds_are_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    from tapml.agents import _onnx
    from tapml.agents._calls import Call, Node, Value
    from tapml.agents._runtimes import RUNTIMES

    large, small = np.arange(64, dtype=F), np.array([1], I)
    node = Node("onnx", "Gather", 13, {}, ("w", "i"), ("y",))
    call = Call((node,), {"w": Value(large, True), "i": Value(small, True)}, (("y", ("f32", (1,))),))
    runtime = RUNTIMES["ort"]()
    assert runtime.check(call).given() == []
    monkeypatch.setattr(_onnx, "CONSTANTS", 64)
    checked = runtime.check(call)
    assert checked.given() == ["w"] and call.given() == []
    assert Executor(runtime).run(call)[0].tolist() == [1]


def test_what_a_runtime_refuses_is_told_from_what_fails() -> None:
    from tapml.agents import OnnxRuntime

    class Odd(OnnxRuntime):
        name, mood = "odd", "build"

        def build(self, model: object, call: object) -> object:
            if self.mood == "build":
                raise RuntimeError("Exception from somewhere.cpp:1\nnot today\nat line 3")

            def run(arrays: list[np.ndarray]) -> list[np.ndarray]:
                if self.mood == "run":
                    raise RuntimeError("broken")
                return [arrays[0]] * 2 if self.mood == "two" else [arrays[0].astype(np.complex64)]

            return run

    odd = Odd()
    call = next(call for call in samples() if call.nodes[0].name == "Relu")
    for mood, error, said in [("build", Unsupported, "odd: not today"), ("run", ValueError, "odd failed to run it: broken"),
                              ("two", ValueError, "2 results"), ("complex", Unsupported, "complex64")]:  # fmt: skip
        odd.mood = mood
        with pytest.raises(error, match=said):
            Executor(odd).run(call)
