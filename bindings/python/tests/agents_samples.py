"""Calls that planted faults are tried on: for each fault at least one that shows it and one that does not."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from tapml.agents import Call, Node, Value
from tapml.agents._calls import parse_operator

F, I = np.float32, np.int64


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    """Numbers around 0."""
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(F)


def ints(*values: int) -> np.ndarray:
    """An i64 list."""
    return np.array(values, I)


def one(op: str, *arrays: Optional[np.ndarray], outputs: int = 1, **attributes: Any) -> Call:
    """A call of one node; inputs behind the first are constants."""
    names = tuple("" if array is None else f"x{i}" for i, array in enumerate(arrays))
    values = {name: Value(array, i > 0) for i, (name, array) in enumerate(zip(names, arrays)) if array is not None}
    made = tuple(f"y{i}" for i in range(outputs))
    return Call((Node(*parse_operator(op), attributes, names, made),), values, tuple((name, None) for name in made))


def many(values: dict[str, np.ndarray], result: str, *nodes: tuple[str, str, str, dict[str, Any]]) -> Call:
    """A call of several nodes: (operator, inputs with spaces between, output, attributes). Upper-case values are constants."""
    made = tuple(Node(*parse_operator(op), a, tuple(given.split(" ")), (out,)) for op, given, out, a in nodes)
    given = {name: Value(np.asarray(array), name.isupper()) for name, array in values.items()}
    return Call(made, given, ((result, None),), graph=True)


IMAGE, KERNEL, SQUARE = floats(1, 2, 7, 7), floats(2, 2, 3, 3), floats(4, 4)
TIES = np.array([0.5, 1.5, 2.5, -0.5, -2.5, 0.2], F)
NAN = np.array([1, np.nan, -1, 3], F)
BIG, TINY = np.array([1, 200, -200], F), np.array([1e-40, 1, 2], F)
LSTM = floats(3, 2, 4), floats(1, 12, 4, seed=1), floats(1, 12, 3, seed=2)
GRU = floats(3, 2, 4), floats(1, 9, 4, seed=1), floats(1, 9, 3, seed=2), floats(1, 18, seed=3)
RNN = floats(3, 2, 4), floats(1, 3, 4), floats(1, 3, 3)
STATE = floats(1, 2, 3, seed=4)
NORM = floats(2, seed=5), floats(2, seed=6), floats(2, seed=7), np.abs(floats(2, seed=8))
QUERY = floats(1, 2, 4, 8), floats(1, 2, 4, 8, seed=1), floats(1, 2, 4, 8, seed=2)
BOXES = np.array([[[0, 0, 2, 2], [0, 0, 4, 4], [3, 3, 1, 1]]], F)


def windows() -> list[Call]:
    """Convolutions and pools."""
    calls = [
        one("onnx.Conv@11", IMAGE, KERNEL),
        one("onnx.Conv@11", IMAGE[:, :1], KERNEL[:, :1]),
        one("onnx.Conv@11", IMAGE, KERNEL, floats(2)),
        one("onnx.Conv@11", IMAGE, KERNEL, np.zeros(2, F), dilations=[2, 1]),
        one("onnx.Conv@11", IMAGE, KERNEL, strides=[2, 2]),
        one("onnx.Conv@11", IMAGE, KERNEL, pads=[1, 1, 1, 1]),
        one("onnx.Conv@11", IMAGE, KERNEL, pads=[0, 0, 2, 2]),
        one("onnx.Conv@11", floats(1, 2, 6, 6), floats(2, 2, 2, 2), auto_pad="SAME_LOWER"),
        one("onnx.Conv@11", floats(1, 4, 5, 5), floats(4, 2, 3, 3), group=2),
        one("onnx.Conv@11", np.ones((1, 1, 4, 4), F), np.ones((1, 1, 1, 1), F)),
        one("onnx.ConvTranspose@11", IMAGE, KERNEL),
        one("onnx.ConvTranspose@11", IMAGE, KERNEL, dilations=[2, 2]),
        one("onnx.ConvTranspose@11", IMAGE, KERNEL, strides=[2, 2], output_padding=[1, 1]),
        one("onnx.ConvTranspose@11", IMAGE, KERNEL, pads=[0, 0, 1, 2]),
        one("onnx.LpPool@18", IMAGE, kernel_shape=[2, 2]),
        one("onnx.LpPool@18", IMAGE, kernel_shape=[2, 2], p=1),
    ]
    for op in ("MaxPool@12", "AveragePool@11"):
        for more in (
            {}, {"strides": [2, 2]}, {"strides": [2, 2], "ceil_mode": 1}, {"pads": [1, 1, 1, 1]}, {"pads": [0, 0, 2, 2]},
            {"dilations": [2, 2]}, {"pads": [1, 1, 1, 1], "count_include_pad": 1},
        ):  # fmt: skip
            if not (op.startswith("Max") and "count_include_pad" in more or op.startswith("Av") and "dilations" in more):
                shape = floats(1, 2, 6, 6) - (3 if op.startswith("Max") and "pads" in more else 0)
                calls.append(one(f"onnx.{op}", shape, kernel_shape=[3, 3], **more))
    return [*calls, one("onnx.AveragePool@11", floats(1, 1, 4, 4), kernel_shape=[2, 2])]


def arithmetic() -> list[Call]:
    """Products, activations and what rounds."""
    x = floats(3, 5)
    gemm = [{}, {"alpha": 0.5}, {"beta": 2.0}, {"transA": 1}, {"transB": 1}]
    calls = [one("onnx.Gemm@13", SQUARE, floats(4, 4, seed=1), floats(4), **a) for a in gemm]
    for op, *sets in [
        ("LeakyRelu@16", {}, {"alpha": 0.3}), ("Elu@6", {}, {"alpha": 0.3}), ("Celu@12", {}, {"alpha": 0.3}),
        ("ThresholdedRelu@10", {}, {"alpha": 0.1}), ("HardSigmoid@6", {}, {"alpha": 0.3}, {"beta": 0.1}),
        ("Selu@6", {}, {"gamma": 2.0}), ("Shrink@9", {}, {"lambd": 0.1}, {"bias": 0.2}),
        ("Gelu@20", {}, {"approximate": "tanh"}), ("Softmax@13", {}, {"axis": 0}), ("LogSoftmax@13", {}, {"axis": 0}),
    ]:  # fmt: skip
        calls += [one(f"onnx.{op}", x, **attributes) for attributes in sets]
    calls += [
        one("onnx.Softmax@13", floats(2, 3, 4), axis=-2), one("onnx.Softmax@13", BIG),
        one("onnx.Softmax@13", x.astype(np.float64)), one("onnx.Tanh@13", x), one("onnx.Tanh@13", BIG),
        one("onnx.Relu@14", x), one("onnx.Relu@14", NAN), one("onnx.Sigmoid@13", floats(4, 2)), one("onnx.Sigmoid@13", x),
        one("onnx.Sigmoid@13", NAN), one("onnx.Erf@13", x), one("onnx.Erf@13", floats(4, 2)),
        one("onnx.MatMul@13", SQUARE, SQUARE), one("onnx.MatMul@13", floats(2, 3, 4), floats(2, 4, 3)),
        one("onnx.MatMul@13", SQUARE.astype(np.float64), SQUARE.astype(np.float64)),
        one("onnx.Add@14", x, floats(5)), one("onnx.Add@14", SQUARE, floats(4)),
        one("onnx.Add@14", ints(1, 2), ints(1 << 40, 3)), one("onnx.Add@14", ints(1, 2), ints(2, 3)),
        one("onnx.Mul@14", ints(1, 2), ints(1 << 40, 3)), one("onnx.Mul@14", TINY, np.full(3, 3, F)), one("onnx.Mul@14", x, x),
        one("onnx.Div@14", np.array([-7, 7], np.int32), np.array([2, 2], np.int32)), one("onnx.Div@14", ints(8), ints(2)),
        one("onnx.Mod@13", np.array([-7, 7], np.int32), np.array([3, 3], np.int32)),
        one("onnx.Mod@13", np.array([-7, 7], np.int32), np.array([3, 3], np.int32), fmod=1),
        one("onnx.Pow@15", np.abs(x), np.array([0.5], F)), one("onnx.Pow@15", x, np.array([2], F)),
        one("onnx.Round@11", TIES), one("onnx.Round@11", x),
        one("onnx.QuantizeLinear@13", TIES, np.array(1, F), np.array(3, np.uint8)),
        one("onnx.QuantizeLinear@13", np.array([1, 2], F), np.ones((), F), np.zeros((), np.uint8)),
        one("onnx.Cast@13", x * 3, to=7), one("onnx.Cast@13", x, to=11),
        one("onnx.Clip@13", x, np.array(-0.1, F), np.array(0.1, F)), one("onnx.Clip@13", NAN, np.array(-0.5, F)), one("onnx.Clip@13", x),
        one("onnx.DequantizeLinear@13", np.arange(6, dtype=np.uint8).reshape(2, 3), floats(2), np.full(2, 3, np.uint8), axis=0),
        one("onnx.DequantizeLinear@13", np.arange(4, dtype=np.uint8).reshape(2, 2), floats(2), np.full(2, 3, np.uint8), axis=0),
        one("onnx.DequantizeLinear@13", np.arange(4, dtype=np.uint8).reshape(2, 2), floats(2), axis=1),
    ]  # fmt: skip
    return calls


def reductions() -> list[Call]:
    """Normalisation, reduction, order."""
    x, four = floats(2, 3, 4), floats(2, 2, 3, 3)
    calls = [
        one("onnx.ReduceSum@13", x, ints(1)), one("onnx.ReduceSum@13", x, ints(-1)),
        one("onnx.ReduceSum@13", x, ints(1), keepdims=0), one("onnx.ReduceSum@13", x, noop_with_empty_axes=1),
        one("onnx.ReduceMean@13", x, axes=[1]), one("onnx.ReduceMean@13", x, axes=[-1]),
        one("onnx.ReduceMax@13", NAN.reshape(2, 2)), one("onnx.ReduceMax@13", x),
        one("onnx.ArgMax@13", x), one("onnx.ArgMax@13", x, axis=2),
        one("onnx.ArgMax@13", np.ones((3, 2), F), select_last_index=1),
        one("onnx.CumSum@14", x, np.array(1)), one("onnx.CumSum@14", x, np.array(1), exclusive=1),
        one("onnx.CumSum@14", x, np.array(1), reverse=1),
        one("onnx.TopK@11", x, ints(2), outputs=2), one("onnx.TopK@11", x, ints(2), outputs=2, largest=0),
        one("onnx.LpNormalization@1", x), one("onnx.LpNormalization@1", x, p=1),
        one("onnx.LRN@13", four, size=3), one("onnx.LRN@13", four, size=3, alpha=0.5), one("onnx.LRN@13", four, size=3, beta=0.5, alpha=0.5),
        one("onnx.LRN@13", four, size=3, bias=2.0),
        one("onnx.LayerNormalization@17", x, floats(3, 4), axis=1), one("onnx.LayerNormalization@17", floats(4, 4), floats(4)),
    ]  # fmt: skip
    for epsilon in ({}, {"epsilon": 0.1}):
        calls += [
            one("onnx.LayerNormalization@17", x, floats(4), **epsilon),
            one("onnx.BatchNormalization@15", four, *NORM, **epsilon),
            one("onnx.InstanceNormalization@6", four, *NORM[:2], **epsilon),
            one("onnx.GroupNormalization@21", four, *NORM[:2], num_groups=1, **epsilon),
            one("onnx.RMSNormalization@23", x, floats(4), **epsilon),
        ]
    return [*calls, one("onnx.BatchNormalization@15", floats(2, 2), *NORM)]


def movement() -> list[Call]:
    """What moves data."""
    x, cube = floats(3, 3), floats(2, 2, 2)
    index = np.array([[0, 2, 1]], I)
    at, rows = np.array([[0], [0]], I), floats(2, 3)
    pads, start = ints(1, 0, 0, 2), (ints(0), ints(3), ints(0))
    return [
        one("onnx.Concat@13", x, x, axis=0), one("onnx.Concat@13", x, x, axis=1),
        one("onnx.Gather@13", x, ints(0, 2)), one("onnx.Gather@13", x, ints(0, 2), axis=1), one("onnx.Gather@13", x, ints(-1, 0)),
        one("onnx.Gather@13", ints(1 << 40, 5), ints(0, 1)),
        one("onnx.GatherElements@13", x, index), one("onnx.GatherElements@13", x, index, axis=1),
        one("onnx.ScatterElements@16", x, index, floats(1, 3), axis=1),
        one("onnx.ScatterElements@16", x, index, floats(1, 3), axis=1, reduction="add"),
        one("onnx.ScatterND@16", x, at, rows), one("onnx.ScatterND@16", x, at, rows, reduction="add"),
        one("onnx.OneHot@11", ints(0, 2, 1), ints(3), ints(0, 5)), one("onnx.OneHot@11", ints(0, 2, 0), ints(3), ints(0, 5), axis=0),
        one("onnx.Trilu@14", x), one("onnx.Trilu@14", x, upper=0), one("onnx.Trilu@14", x, np.array(1)),
        one("onnx.EyeLike@9", x), one("onnx.EyeLike@9", x, k=1),
        one("onnx.DepthToSpace@13", floats(1, 8, 2, 2), blocksize=2),
        one("onnx.DepthToSpace@13", floats(1, 8, 2, 2), blocksize=2, mode="CRD"),
        one("onnx.Pad@13", x, ints(1, 1, 1, 1)), one("onnx.Pad@13", x, pads), one("onnx.Pad@13", x, pads, mode="reflect"),
        one("onnx.Pad@13", x, ints(1, 1, 1, 1), np.array(7, F)),
        one("onnx.Transpose@13", cube), one("onnx.Transpose@13", cube, perm=[1, 0, 2]), one("onnx.Transpose@13", cube, perm=[1, 2, 0]),
        one("onnx.Slice@13", x, *start, ints(1)), one("onnx.Slice@13", x, *start, ints(2)),
    ]  # fmt: skip


def sampling() -> list[Call]:
    """Resampling, boxes, recurrence and attention."""
    image, scales = floats(1, 1, 4, 4), np.array([1, 1, 1.7, 1.7], F)
    grid = (floats(1, 3, 3, 2) * 0.9).astype(F)
    linear, cubic = {"mode": "linear"}, {"mode": "cubic"}
    calls = [
        one("onnx.Resize@18", image, None, scales, **a)
        for a in ({}, linear, cubic, {**linear, "coordinate_transformation_mode": "asymmetric"}, {"nearest_mode": "ceil"},
                  {**cubic, "cubic_coeff_a": -0.5}, {**cubic, "exclude_outside": 1})
    ]  # fmt: skip
    small = np.array([1, 1, 0.5, 0.5], F)
    calls += [one("onnx.Resize@18", image, None, small, **linear), one("onnx.Resize@18", image, None, small, **linear, antialias=1)]
    calls += [one("onnx.GridSample@16", image, grid, **a) for a in ({}, {"align_corners": 1}, {"padding_mode": "border"})]
    roi = (np.array([[0, 0, 9, 5]], F), ints(0))
    calls += [
        one("onnx.RoiAlign@16", floats(1, 1, 8, 8), *roi, output_height=2, output_width=2, **a) for a in ({}, {"sampling_ratio": 1})
    ]
    scores = np.array([[[0.9, 0.8, 0.7]]], F)
    limits = (ints(3), np.array([0.1], F))
    calls += [one("onnx.NonMaxSuppression@11", BOXES, scores, *limits, **a) for a in ({}, {"center_point_box": 1})]
    lengths, peep = np.array([3, 1], np.int32), floats(1, 9)
    calls += [one("onnx.LSTM@14", *LSTM, hidden_size=3, **a) for a in (
        {}, {"direction": "reverse"}, {"activations": ["Sigmoid", "Tanh", "Relu"]}, {"clip": 0.1})]  # fmt: skip
    for place, array in [(4, lengths), (5, STATE), (6, STATE), (7, peep)]:
        more = [None] * 5
        more[place - 3] = array
        calls.append(one("onnx.LSTM@14", *LSTM, *more, hidden_size=3))
    calls += [one("onnx.GRU@14", *GRU, hidden_size=3, **a) for a in ({}, {"direction": "reverse"}, {"linear_before_reset": 1})]
    calls += [one("onnx.GRU@14", *GRU, None, STATE, hidden_size=3)]
    calls += [one("onnx.RNN@14", *RNN, hidden_size=3, **a) for a in ({}, {"activations": ["Relu"]})]
    calls += [one("onnx.Attention@23", *QUERY, **a) for a in ({}, {"is_causal": 1}, {"scale": 2.0})]
    angles = floats(4, 4), floats(4, 4, seed=1), np.array([[0, 1, 2, 3]], I)
    return calls + [one("onnx.RotaryEmbedding@23", QUERY[0], *angles, **a) for a in ({}, {"interleaved": 1})]


def graphs() -> list[Call]:
    """Several nodes as one model."""
    conv = {"x": IMAGE, "W": KERNEL, "B": floats(2)}
    pads = ints(0, 0, 1, 1, 0, 0, 0, 2)
    norm = dict(zip(("S", "T", "M", "V"), NORM))
    start: dict[str, Any] = {}
    return [
        many(conv, "z", ("onnx.Conv@11", "x W B", "y", start), ("onnx.Relu@14", "y", "z", {})),
        many(conv, "z", ("onnx.Conv@11", "x W", "y", start), ("onnx.Sigmoid@13", "y", "z", {})),
        *[many({**conv, **norm}, "z", ("onnx.Conv@11", "x W", "y", {}), ("onnx.BatchNormalization@15", "y S T M V", "z", a))
          for a in ({}, {"epsilon": 0.1})],
        many({"x": IMAGE, **norm}, "z", ("onnx.BatchNormalization@15", "x S T M V", "z", {"epsilon": 0.1})),
        many({"x": SQUARE, "W": SQUARE, "B": floats(4)}, "z", ("onnx.MatMul@13", "x W", "y", {}), ("onnx.Add@14", "y B", "z", {})),
        many({"x": SQUARE, "W": SQUARE, "L": np.array(-0.1, F), "H": np.array(0.1, F)}, "z",
             ("onnx.Gemm@13", "x W", "y", {}), ("onnx.Clip@13", "y L H", "z", {})),
        many({**conv, "P": pads}, "z", ("onnx.Pad@13", "x P", "y", {}), ("onnx.Conv@11", "y W", "z", {})),
        many({**conv, "P": pads}, "z", ("onnx.Pad@13", "x P", "z", {})),
        many({"x": SQUARE, "w": SQUARE}, "z", ("onnx.Transpose@13", "w", "y", {}), ("onnx.MatMul@13", "x y", "z", {})),
        many({"x": SQUARE, "w": SQUARE, "C": np.array(0.3, F)}, "z", ("onnx.MatMul@13", "x w", "y", {}),
             ("onnx.Mul@14", "y C", "u", {}), ("onnx.Softmax@13", "u", "z", {})),
        many({"x": SQUARE}, "z", ("onnx.Sigmoid@13", "x", "y", {}), ("onnx.Mul@14", "x y", "z", {})),
        many({"x": SQUARE, "O": np.array(1, F)}, "z", ("onnx.Erf@13", "x", "y", {}), ("onnx.Add@14", "y O", "z", {})),
        many({"x": SQUARE}, "z", ("onnx.Tanh@13", "x", "y", {}), ("onnx.Add@14", "y x", "z", {})),
        many({"x": SQUARE}, "z", ("onnx.Erf@13", "x", "z", {})),
        many({"x": TIES, "S": np.array(1, F), "Z": np.array(100, np.uint8)}, "z", ("onnx.QuantizeLinear@13", "x S Z", "y", {}),
             ("onnx.DequantizeLinear@13", "y S Z", "z", {})),
    ]  # fmt: skip


def samples() -> list[Call]:
    """All of them."""
    return [*windows(), *arithmetic(), *reductions(), *movement(), *sampling(), *graphs()]
