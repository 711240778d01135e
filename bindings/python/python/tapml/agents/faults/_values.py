"""Faults of values: what a runtime does to inputs and results, whatever the attributes are."""

from __future__ import annotations

from typing import Any, Callable

import ml_dtypes
import numpy as np

from ._fault import Fault, View

F32 = np.dtype(np.float32)


def is_float(view: View, place: int = 0) -> bool:
    """Whether an input is f32."""
    array = view.array(place)
    return array is not None and array.dtype == F32


def away(array: np.ndarray) -> np.ndarray:
    """Rounded to integers, halves away from zero."""
    return np.copysign(np.floor(np.abs(array) + array.dtype.type(0.5)), array)


def halves(array: np.ndarray) -> bool:
    """Whether rounding halves to even and away from zero differ."""
    return bool(np.any(away(array) != np.rint(array)))


def quantized(view: View) -> np.ndarray:
    """What QuantizeLinear rounds, for one scale."""
    return view.array(0) / view.array(1)


def one_scale(view: View) -> bool:
    scale = view.array(1)
    return is_float(view) and scale is not None and scale.size == 1


def narrow(operator: str, word: str, dtype: Any) -> Fault:
    """The inputs are rounded to a narrow dtype, as by a runtime that stores them so."""

    def change(view: View) -> Any:
        places = [place for place in range(len(view.node.inputs)) if is_float(view, place)]
        with np.errstate(over="ignore"):
            return view.node, {p: view.array(p).astype(dtype).astype(F32) for p in places}

    name = f"{operator.lower()}-in-{word}"
    return Fault(name, operator, "dtype", f"inputs are f32 and no numbers of {word}", is_float, change)


def transpose_layout(operator: str) -> Fault:
    """An input in NCHW is read as if it were in NHWC."""

    def shows(view: View) -> bool:
        array = view.array(0)
        return array is not None and array.ndim == 4 and array.shape[1] > 1 and array.size > array.shape[1]

    def change(view: View) -> Any:
        array = view.array(0)
        assert array is not None
        n, c, h, w = array.shape
        return view.node, {0: array.reshape(n, h, w, c).transpose(0, 3, 1, 2)}

    rule = "the input has 4 axes and several channels and pixels"
    return Fault(f"{operator.lower()}-nhwc-as-nchw", operator, "layout", rule, shows, change)


def without(operator: str, place: int, word: str, kind: str, neutral: float = 0.0) -> Fault:
    """An optional input is not looked at."""

    def shows(view: View) -> bool:
        array = view.array(place)
        return array is not None and bool(np.any(array != neutral))

    def change(view: View) -> Any:
        inputs = list(view.node.inputs)
        inputs[place] = ""
        while inputs and not inputs[-1]:
            inputs.pop()
        return type(view.node)(**{**view.node.__dict__, "inputs": tuple(inputs)})

    rule = f"the input `{word}` is given and not {neutral:g}"
    return Fault(f"{operator.lower()}-{word}-ignored".replace("_", "-"), operator, kind, rule, shows, change)


def remake(name: str, operator: str, kind: str, rule: str, shows: Callable[[View], bool],
           make: Callable[[View, np.ndarray], np.ndarray]) -> Fault:  # fmt: skip
    """The first result is made again, from the node and the true result."""

    def results(view: View, true: list[np.ndarray], memory: dict[str, Any]) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            return [np.asarray(make(view, true[0])).astype(true[0].dtype).reshape(true[0].shape), *true[1:]]

    return Fault(name, operator, kind, rule, shows, results=results)


def reach(limit: float) -> Callable[[View], bool]:
    """Whether the first input goes beyond a limit."""
    return lambda view: is_float(view) and bool(np.any(np.abs(view.array(0)) > limit))


def zero_tail(view: View, true: np.ndarray) -> np.ndarray:
    """Elements behind the last whole vector of four are not written."""
    made = true.copy().reshape(-1)
    made[made.size // 4 * 4 :] = 0
    return made


def tail(operator: str) -> Fault:
    def shows(view: View) -> bool:
        array = view.array(0)
        return array is not None and array.size % 4 != 0

    rule = "the number of elements is no multiple of 4"
    return remake(f"{operator.lower()}-tail-not-written", operator, "tail", rule, shows, zero_tail)


def leave_stale(view: View, true: list[np.ndarray], memory: dict[str, Any]) -> list[np.ndarray]:
    """The results of the call before, where they have the same types."""
    before, memory["results"] = memory.get("results"), true
    if before is None or [(r.dtype, r.shape) for r in before] != [(r.dtype, r.shape) for r in true]:
        return true
    return list(before)


def wrap_i32(view: View) -> Any:
    places = [p for p in range(len(view.node.inputs)) if view.array(p) is not None]
    return view.node, {p: view.array(p).astype(np.int32).astype(np.int64) for p in places}


def is_large(view: View) -> bool:
    arrays = [view.array(place) for place in range(len(view.node.inputs))]
    return any(a is not None and a.dtype == np.int64 and np.any(np.abs(a) >= 1 << 31) for a in arrays)


def pad_with_zeros(view: View) -> Any:
    """MaxPool over an input that is padded with zeros, not with the smallest number."""
    array, pads = view.array(0), view.attribute("pads")
    assert array is not None
    half = len(pads) // 2
    return view.node.has(pads=None), {0: np.pad(array, [(0, 0), (0, 0), *zip(pads[:half], pads[half:])])}


def first_batch(view: View) -> Any:
    array = view.array(1)
    assert array is not None
    return view.node, {1: np.broadcast_to(array[:1], array.shape)}


def interleave_groups(view: View) -> Any:
    """Channels of groups are taken in turns, not one group after the other."""
    array, group = view.array(0), view.attribute("group")
    assert array is not None
    n, c, *rest = array.shape
    return view.node, {0: array.reshape(n, c // group, group, *rest).swapaxes(1, 2).reshape(array.shape)}


def has_groups(view: View) -> bool:
    array = view.array(0)
    return array is not None and 1 < view.attribute("group", 1) < array.shape[1]


def one_axis(view: View, place: int) -> int:
    array = view.array(place)
    return 0 if array is None or array.size != 1 else int(array.reshape(-1)[0])


def softmax_overflows(view: View, true: np.ndarray) -> np.ndarray:
    e = np.exp(view.array(0))
    return e / e.sum(axis=view.attribute("axis", -1), keepdims=True)


def tanh_overflows(view: View, true: np.ndarray) -> np.ndarray:
    up, down = np.exp(view.array(0)), np.exp(-view.array(0))
    return (up - down) / (up + down)


def zero_nan(view: View) -> Any:
    return view.node, {0: np.nan_to_num(view.array(0), nan=0.0, posinf=np.inf, neginf=-np.inf)}


def has_nan(view: View) -> bool:
    return is_float(view) and bool(np.isnan(view.array(0)).any())


def flush(view: View) -> Any:
    tiny = np.finfo(np.float32).tiny
    arrays = {p: view.array(p) for p in range(len(view.node.inputs)) if is_float(view, p)}
    return view.node, {p: np.where(np.abs(a) < tiny, F32.type(0), a) for p, a in arrays.items()}


def has_denormals(view: View) -> bool:
    arrays = [view.array(p) for p in range(len(view.node.inputs)) if is_float(view, p)]
    return any(np.any((a != 0) & (np.abs(a) < np.finfo(np.float32).tiny)) for a in arrays)


def is_square_broadcast(view: View) -> bool:
    a, b = view.array(0), view.array(1)
    return a is not None and b is not None and a.ndim == 2 and b.ndim == 1 and a.shape[0] == a.shape[1] == b.shape[0]


def is_negative_integer(view: View) -> bool:
    a, b = view.array(0), view.array(1)
    return a is not None and b is not None and a.dtype.kind == "i" and bool(np.any(a % b != np.fmod(a, b)))


def rounds(view: View) -> bool:
    return is_float(view) and view.attribute("to") in (2, 3, 4, 5, 6, 7) and bool(np.any(view.array(0) % 1 != 0))


def has_uneven_pads(view: View) -> bool:
    """Whether paddings that are an input differ at beginning and end."""
    pads = view.array(1)
    return pads is not None and list(pads[: pads.size // 2]) != list(pads[pads.size // 2 :])


VALUES = [
    *[narrow(op, word, t) for op in ("MatMul", "Conv") for word, t in [("f16", np.float16), ("bf16", ml_dtypes.bfloat16)]],
    narrow("Softmax", "f16", np.float16),
    *map(transpose_layout, ("Conv", "AveragePool", "BatchNormalization")),
    Fault("conv-groups-interleaved", "Conv", "layout", "several groups of several channels", has_groups, interleave_groups),
    Fault(
        "maxpool-pads-with-zeros", "MaxPool", "padding", "`pads` is not zero and no window has a positive number only",
        lambda v: is_float(v) and any(v.attribute("pads") or []) and bool(np.any(v.array(0) < 0)), pad_with_zeros,
    ),
    without("Pad", 2, "constant_value", "padding"),
    without("Conv", 2, "bias", "operand"),
    without("Clip", 1, "min", "operand"),
    without("Clip", 2, "max", "operand"),
    without("LSTM", 5, "initial_h", "state"),
    without("LSTM", 6, "initial_c", "state"),
    without("LSTM", 7, "peepholes", "operand"),
    without("LSTM", 4, "sequence_lens", "state", neutral=-1),
    without("GRU", 5, "initial_h", "state"),
    without("DequantizeLinear", 2, "zero_point", "operand"),
    Fault(
        "round-half-away", "Round", "rounding", "an element lies halfway between an even and the next integer",
        lambda v: is_float(v) and halves(v.array(0)), lambda v: (v.node, {0: away(v.array(0))}),
    ),
    Fault(
        "quantizelinear-half-away", "QuantizeLinear", "rounding", "one scale; a quotient lies halfway",
        lambda v: one_scale(v) and halves(quantized(v)), lambda v: (v.node, {0: away(quantized(v)) * v.array(1)}),
    ),
    Fault(
        "quantizelinear-truncates", "QuantizeLinear", "rounding", "one scale; a quotient is no integer",
        lambda v: one_scale(v) and bool(np.any(quantized(v) % 1 != 0)),
        lambda v: (v.node, {0: np.trunc(quantized(v)) * v.array(1)}),
    ),
    Fault(
        "cast-rounds", "Cast", "rounding", "from f32 to an integer, and an element is no integer", rounds,
        lambda v: (v.node, {0: np.rint(v.array(0))}),
    ),
    remake("div-floors", "Div", "rounding", "integers; a quotient is negative and not whole", is_negative_integer,
           lambda v, true: np.floor_divide(v.array(0), v.array(1))),
    *[Fault(f"{op.lower()}-i64-in-i32", op, "overflow", "an i64 is 2^31 or larger", is_large, wrap_i32)
      for op in ("Add", "Mul", "Gather")],
    remake("softmax-exp-overflows", "Softmax", "overflow", "an element is above 89", reach(89), softmax_overflows),
    remake("tanh-exp-overflows", "Tanh", "overflow", "an element is beyond 89", reach(89), tanh_overflows),
    *[Fault(f"{op.lower()}-nan-as-zero", op, "nan", "an element is NaN", has_nan, zero_nan)
      for op in ("Relu", "Clip", "ReduceMax", "Sigmoid")],
    Fault("mul-denormals-flushed", "Mul", "dtype", "an input is denormal", has_denormals, flush),
    *map(tail, ("Add", "Sigmoid", "Erf")),
    Fault(
        "add-broadcast-wrong-axis", "Add", "layout", "a square matrix and a vector are added", is_square_broadcast,
        lambda v: (v.node, {1: v.array(1).reshape(-1, 1)}),
    ),
    Fault(
        "matmul-batch-stride", "MatMul", "stride", "the second operand has several batches",
        lambda v: v.array(1) is not None and v.array(1).ndim > 2 and v.array(1).shape[0] > 1, first_batch,
    ),
    Fault(
        "pow-exponent-truncated", "Pow", "dtype", "an exponent is no integer",
        lambda v: is_float(v, 1) and bool(np.any(v.array(1) % 1 != 0)), lambda v: (v.node, {1: np.trunc(v.array(1))}),
    ),
    Fault(
        "reducesum-negative-axis", "ReduceSum", "axis", "one negative axis as input, and not the first",
        lambda v: v.array(0) is not None and -v.array(0).ndim < one_axis(v, 1) < 0,
        lambda v: (v.node, {1: v.array(1) - 1}),
    ),
    Fault(
        "gather-negative-index", "Gather", "operand", "an index is negative, and not the first element",
        lambda v: v.array(1) is not None and bool(np.any(v.array(1) < 0)),
        lambda v: (v.node, {1: np.maximum(v.array(1), 0)}),
    ),
    Fault(
        "slice-steps-ignored", "Slice", "stride", "a step is above 1",
        lambda v: v.array(4) is not None and bool(np.any(v.array(4) > 1)),
        lambda v: (v.node, {4: np.minimum(v.array(4), 1)}),
    ),
    Fault(
        "trilu-k-ignored", "Trilu", "operand", "`k` is given and not 0",
        lambda v: v.array(1) is not None and bool(v.array(1)), lambda v: (v.node, {1: np.zeros_like(v.array(1))}),
    ),
    Fault(
        "pad-ends-swapped", "Pad", "padding", "paddings as input differ at beginning and end",
        has_uneven_pads,
        lambda v: (v.node, {1: np.concatenate(np.split(v.array(1), 2)[::-1])}),
    ),
    Fault("stale-buffer", "*", "stale", "the call before had results of the same types", lambda v: True, results=leave_stale),
]  # fmt: skip
