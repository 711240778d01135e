"""Faults between nodes: what a runtime does when it sees several at once. They show in a CallGraph only."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from .._calls import Node
from ._fault import Change, Fault, Shows, View
from ._values import away, halves, has_uneven_pads


def after(*makers: str, place: int = 0) -> Shows:
    """Whether an input is made by one of these operators."""

    def shows(view: View) -> bool:
        maker = view.maker(place)
        return maker is not None and maker.name in makers

    return shows


def forward(place: int = 0) -> Change:
    """The node hands on one of its inputs."""

    def change(view: View) -> Any:
        given = view.node.inputs[place]
        return replace(view.node, name="Identity", attributes={}, inputs=(given,))

    return change


def become(name: str, **attributes: Any) -> Change:
    """The node is of another operator."""
    return lambda view: replace(view.node, name=name, attributes=attributes, inputs=view.node.inputs[:1])


def users(view: View) -> list[Node]:
    """The nodes that use what the node makes."""
    return [node for node in view.call.nodes if set(view.node.outputs) & set(node.inputs)]


def feeds(*names: str) -> Shows:
    """Whether one of these operators uses what the node makes."""
    return lambda view: any(node.name in names for node in users(view))


def drop_max(view: View) -> Any:
    return replace(view.node, inputs=view.node.inputs[:2])


def double_bias(view: View) -> Any:
    return view.node, {2: 2 * view.array(2)}


def has_bias(view: View) -> bool:
    bias = view.array(2)
    return bias is not None and bool(np.any(bias)) and feeds("Relu")(view)


def first_twice(view: View) -> Any:
    return replace(view.node, inputs=(view.node.inputs[0],) * 2)


def is_residual(view: View) -> bool:
    """An Add whose second operand some node before it uses as well."""
    second = view.node.inputs[1]
    return view.maker(0) is not None and sum(second in node.inputs for node in view.call.nodes) > 1


def swap_ends(view: View) -> Any:
    return view.node, {1: np.concatenate(np.split(view.array(1), 2)[::-1])}


def zero_mean(view: View) -> Any:
    return view.node, {3: np.zeros_like(view.array(3))}


def scales_scores(view: View) -> bool:
    return feeds("Softmax")(view) and view.maker(0) is not None


def reaches_halves(view: View) -> bool:
    """A QuantizeLinear of a given value with ties, whose result is used: a pair that a runtime fuses."""
    x, scale = view.array(0), view.array(1)
    return x is not None and scale is not None and scale.size == 1 and bool(users(view)) and halves(x / scale)


def round_away(view: View) -> Any:
    scale = view.array(1)
    return view.node, {0: away(view.array(0) / scale) * scale}


def fault(name: str, operator: str, rule: str, shows: Shows, change: Change) -> Fault:
    return Fault(name, operator, "fusion", rule, shows, change, graph=True)


GRAPHS = [
    fault("fused-conv-relu-dropped", "Relu", "a Relu follows a Conv", after("Conv"), forward()),
    fault("fused-conv-bias-twice", "Conv", "a Relu follows a Conv with a bias", has_bias, double_bias),
    fault(
        "fused-batchnormalization-epsilon", "BatchNormalization", "it follows a Conv, and `epsilon` is not 1e-5",
        lambda v: after("Conv")(v) and v.attribute("epsilon", 1e-5) != 1e-5, lambda v: v.node.has(epsilon=None),
    ),
    fault(
        "fused-batchnormalization-mean", "BatchNormalization", "it follows a Conv, and the mean is not 0",
        lambda v: after("Conv")(v) and v.array(3) is not None and bool(np.any(v.array(3))), zero_mean,
    ),
    fault("fused-matmul-bias-dropped", "Add", "an Add follows a MatMul", after("MatMul"), forward()),
    fault(
        "fused-clip-without-max", "Clip", "a Clip with `max` follows a Conv or Gemm",
        lambda v: after("Conv", "Gemm")(v) and len(v.node.inputs) > 2, drop_max,
    ),
    fault("fused-pad-swapped", "Pad", "a Pad in front of a Conv differs at beginning and end",
          lambda v: has_uneven_pads(v) and feeds("Conv")(v), swap_ends),
    fault("fused-transpose-dropped", "Transpose", "a MatMul uses a Transpose", feeds("MatMul"), forward()),
    fault("fused-scale-dropped", "Mul", "a Mul stands in front of a Softmax", scales_scores, forward()),
    fault("fused-silu-hard", "Sigmoid", "a Mul uses a Sigmoid", feeds("Mul"), become("HardSigmoid", alpha=1 / 6, beta=0.5)),
    fault("fused-gelu-tanh", "Erf", "an Add uses an Erf", feeds("Add"), become("Tanh")),
    fault("fused-residual-twice", "Add", "an Add whose second operand was used before it", is_residual, first_twice),
    fault("fused-quantize-half-away", "QuantizeLinear", "ties of a given value, and the result is used", reaches_halves, round_away),
]  # fmt: skip
