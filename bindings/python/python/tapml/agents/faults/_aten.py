"""Faults of PyTorch's operators: arguments ignored or read wrongly, inputs and results changed, and what fusion does."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

from ._attributes import ignore, shift_axis
from ._fault import Fault, Shows, View
from ._graphs import after, fault, feeds, first_twice, forward
from ._values import is_float, narrow, tail, without

CONVOLUTION, POOL = "convolution.default", "max_pool2d_with_indices.default"
ATTENTION = "scaled_dot_product_attention.default"


def reset(operator: str, argument: str, neutral: Any, kind: str = "attribute") -> Fault:
    """A list that must be given counts as if all its numbers were neutral."""
    plain = ignore(operator, argument, neutral, kind=kind)

    def change(view: View) -> Any:
        return view.node.has(**{argument: [neutral] * len(view.attribute(argument))})

    return replace(plain, change=change)


def limited(fault: Fault, shows: Shows, rule: str) -> Fault:
    """The fault, for calls alone of which this holds as well: others cannot run so."""
    return replace(fault, shows=lambda view: fault.shows(view) and shows(view), rule=f"{fault.rule}; {rule}")


def have_one_shape(view: View) -> bool:
    shapes = {None if array is None else array.shape for array in map(view.array, range(len(view.node.inputs)))}
    return len(shapes) == 1 and None not in shapes


def pads_with_zeros(view: View) -> Any:
    array, (top, left) = view.array(0), view.attribute("padding")
    assert array is not None
    return view.node.has(padding=[0, 0]), {0: np.pad(array, [(0, 0), (0, 0), (top, top), (left, left)])}


def zero_padding_rows(view: View) -> Any:
    """The row of `padding_idx` is taken for zeros, as in training it would be."""
    table = np.array(view.array(0))
    table[view.attribute("padding_idx")] = 0
    return view.node, {0: table}


def reads_padding(view: View) -> bool:
    row, table, indices = view.attribute("padding_idx"), view.array(0), view.array(1)
    return row is not None and table is not None and indices is not None and row in indices and bool(np.any(table[row]))


def inverted(view: View) -> list[int]:
    dims = view.attribute("dims", [])
    return [dims.index(place) for place in range(len(dims))] if sorted(dims) == list(range(len(dims))) else dims


def zero_mean(view: View) -> Any:
    return view.node, {3: np.zeros_like(view.array(3))}


def passes(place: int) -> Any:
    """The node hands on one of its inputs, of the same shape."""
    change = forward(place)

    def clone(view: View) -> Any:
        return replace(change(view), name="clone.default")

    return clone


def becomes(name: str, **attributes: Any) -> Any:
    return lambda view: replace(view.node, name=name, attributes=attributes)


def has_norm(view: View) -> bool:
    return after("conv2d.default", CONVOLUTION)(view) and view.attribute("eps") != 1e-5


LISTED = [
    # Convolutions, pools and sampling.
    reset(CONVOLUTION, "dilation", 1),
    limited(reset(CONVOLUTION, "stride", 1, kind="stride"), lambda v: not v.attribute("transposed"), "it is not transposed"),
    reset(CONVOLUTION, "padding", 0, kind="padding"),
    without(CONVOLUTION, 2, "bias", "operand"),
    narrow(CONVOLUTION, "bf16", ml_dtypes.bfloat16),
    ignore("conv2d.default", "dilation", 1),
    ignore("conv2d.default", "stride", 1, kind="stride"),
    ignore("conv2d.default", "padding", 0, kind="padding"),
    ignore("conv1d.default", "stride", 1, kind="stride"),
    ignore(POOL, "ceil_mode", False, kind="ceil"),
    ignore(POOL, "dilation", 1),
    Fault(
        "max-pool2d-pads-with-zeros", POOL, "padding", "`padding` is not zero, and a number is negative",
        lambda v: is_float(v) and any(v.attribute("padding") or []) and bool(np.any(v.array(0) < 0)), pads_with_zeros,
    ),
    ignore("avg_pool2d.default", "count_include_pad", True, kind="padding"),
    ignore("avg_pool2d.default", "ceil_mode", False, kind="ceil"),
    ignore("avg_pool2d.default", "divisor_override", None),
    ignore("upsample_bilinear2d.vec", "align_corners", False, to=False),
    # Products, attention and normalisation.
    without("linear.default", 2, "bias", "operand"),
    narrow("linear.default", "f16", np.float16),
    narrow("linear.default", "bf16", ml_dtypes.bfloat16),
    narrow("mm.default", "bf16", ml_dtypes.bfloat16),
    ignore("addmm.default", "alpha", 1),
    ignore("addmm.default", "beta", 1),
    ignore(ATTENTION, "scale", None),
    ignore(ATTENTION, "is_causal", False),
    without(ATTENTION, 3, "attn_mask", "operand"),
    narrow(ATTENTION, "f16", np.float16),
    ignore("layer_norm.default", "eps", 1e-5),
    without("layer_norm.default", 1, "weight", "operand", neutral=1.0),
    ignore("batch_norm.default", "eps", 1e-5, to=1e-5),
    Fault(
        "batch-norm-mean-ignored", "batch_norm.default", "operand", "`running_mean` is not 0",
        lambda v: v.array(3) is not None and bool(np.any(v.array(3))), zero_mean,
    ),
    ignore("group_norm.default", "eps", 1e-5),
    ignore("_softmax.default", "dim", -1, to=-1, kind="axis"),
    ignore("softmax.int", "dim", -1, to=-1, kind="axis"),
    ignore("_log_softmax.default", "dim", -1, to=-1, kind="axis"),
    # Functions of each element.
    ignore("gelu.default", "approximate", "none"),
    ignore("elu.default", "alpha", 1.0),
    ignore("leaky_relu.default", "negative_slope", 0.01),
    ignore("softplus.default", "beta", 1.0),
    ignore("clamp.default", "max", None),
    ignore("add.Tensor", "alpha", 1),
    tail("add.Tensor"),
    tail("sigmoid.default"),
    # Moving, choosing, reducing.
    ignore("mean.dim", "keepdim", False, kind="shape", reshapes=True),
    shift_axis("mean.dim", "dim"),
    ignore("sum.dim_IntList", "keepdim", False, kind="shape", reshapes=True),
    ignore("slice.Tensor", "step", 1, kind="stride"),
    limited(ignore("cat.default", "dim", 0, kind="axis"), have_one_shape, "all inputs have one shape"),
    ignore("stack.default", "dim", 0, kind="axis"),
    ignore("constant_pad_nd.default", "value", 0.0),
    Fault(
        "permute-inverted", "permute.default", "layout", "`dims` is not its own inverse",
        lambda v: inverted(v) != v.attribute("dims"), lambda v: v.node.has(dims=inverted(v)),
    ),
    Fault("embedding-padding-row-zeros", "embedding.default", "operand", "an index is `padding_idx`", reads_padding, zero_padding_rows),
    # Between nodes.
    fault("fused-linear-relu-dropped", "relu.default", "a relu follows a linear layer", after("linear.default"), passes(0)),
    fault("fused-convolution-relu-dropped", "relu.default", "a relu follows a convolution", after(CONVOLUTION), passes(0)),
    fault("fused-linear-gelu-tanh", "gelu.default", "a gelu follows a linear layer", after("linear.default"),
          lambda view: view.node.has(approximate="tanh")),
    fault("fused-batch-norm-eps", "batch_norm.default", "it follows a convolution, and `eps` is not 1e-5", has_norm,
          lambda view: view.node.has(eps=1e-5)),
    fault("fused-linear-residual-twice", "add.Tensor", "a sum of a linear layer's result and another value", after("linear.default"), first_twice),
    fault("fused-permute-dropped", "permute.default", "a product uses a transposed square matrix", feeds("mm.default"), passes(0)),
    fault("fused-sigmoid-mul-hard", "sigmoid.default", "a product uses a sigmoid", feeds("mul.Tensor"), becomes("hardsigmoid.default")),
    fault("fused-scale-softmax-dropped", "mul.Tensor", "a scaled value goes to a softmax", feeds("_softmax.default"), passes(0)),
]  # fmt: skip


def shorten(name: str) -> str:
    """A name of letters, digits and single hyphens, without the overload that most operators have."""
    return "aten-" + re.sub(r"[._-]+", "-", name.replace(".default", "")).strip("-")


ATEN = [replace(planted, name=shorten(planted.name)) for planted in LISTED]
