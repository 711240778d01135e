"""Faults of attributes: one that is ignored, or read wrongly."""

from __future__ import annotations

from typing import Any

from ._fault import Fault, View


def ignore(operator: str, attribute: str, neutral: Any, to: Any = None, kind: str = "attribute", *,
           drop: tuple[str, ...] = (), square: bool = False, reshapes: bool = False) -> Fault:  # fmt: skip
    """The attribute is not looked at: it counts as its default, or as ``to`` where the default is not neutral. A list is
    neutral if all its elements are. ``drop``: attributes that mean nothing without it. ``square``: an input of which all
    sizes are equal, because others do not fit without the attribute."""

    def shows(view: View) -> bool:
        value, array = view.attribute(attribute), view.array(0)
        if square and (array is None or len(set(array.shape)) != 1):
            return False
        return value is not None and any(v != neutral for v in (value if isinstance(value, list) else [value]))

    name = f"{operator}-{attribute}-ignored".lower().replace("_", "-")
    changed = {**dict.fromkeys(drop), attribute: to}
    rule = f"`{attribute}` is given and differs from {neutral}" + "; all sizes of the input are equal" * square
    return Fault(name, operator, kind, rule, shows, lambda view: view.node.has(**changed), reshapes=reshapes)


def assume(operator: str, attribute: str, default: Any, to: Any, kind: str = "attribute") -> Fault:
    """The attribute's default is another one than the schema's: it counts as ``to`` where it is absent."""
    name = f"{operator}-{attribute}-default".lower().replace("_", "-")

    def shows(view: View) -> bool:
        return view.attribute(attribute, default) == default

    rule = f"`{attribute}` is {default} or absent"
    return Fault(name, operator, kind, rule, shows, lambda view: view.node.has(**{attribute: to}))


def swap_pads(operator: str) -> Fault:
    """Paddings at the beginning and at the end change places."""

    def halves(view: View) -> tuple[list[int], list[int]]:
        pads = view.attribute("pads") or []
        return pads[: len(pads) // 2], pads[len(pads) // 2 :]

    def change(view: View) -> Any:
        begin, end = halves(view)
        return view.node.has(pads=end + begin)

    rule = "`pads` differ at beginning and end"
    return Fault(f"{operator.lower()}-pads-swapped", operator, "padding", rule, lambda v: halves(v)[0] != halves(v)[1], change)


def shift_axis(operator: str, attribute: str = "axis") -> Fault:
    """A negative axis is taken one too far to the left."""

    def change(view: View) -> Any:
        value = view.attribute(attribute)
        return view.node.has(**{attribute: [v - 1 for v in value] if isinstance(value, list) else value - 1})

    def shows(view: View) -> bool:
        value, array = view.attribute(attribute), view.array(0)
        values = value if isinstance(value, list) else [0 if value is None else value]
        return array is not None and len(values) == 1 and -array.ndim < values[0] < 0

    rule = f"`{attribute}` is negative, and not the first axis"
    return Fault(f"{operator.lower()}-negative-{attribute}", operator, "axis", rule, shows, change)


ATTRIBUTES = [
    # Windows.
    ignore("Conv", "dilations", 1),
    ignore("Conv", "strides", 1, kind="stride"),
    ignore("Conv", "pads", 0, kind="padding"),
    swap_pads("Conv"),
    Fault(
        "conv-same-lower-as-upper", "Conv", "padding", "`auto_pad` is SAME_LOWER",
        lambda v: v.attribute("auto_pad") == "SAME_LOWER", lambda v: v.node.has(auto_pad="SAME_UPPER"),
    ),
    ignore("ConvTranspose", "dilations", 1),
    ignore("ConvTranspose", "output_padding", 0, kind="shape", reshapes=True),
    ignore("ConvTranspose", "strides", 1, kind="stride", drop=("output_padding",)),
    swap_pads("ConvTranspose"),
    ignore("MaxPool", "dilations", 1),
    ignore("MaxPool", "ceil_mode", 0, kind="ceil"),
    ignore("MaxPool", "strides", 1, kind="stride"),
    swap_pads("MaxPool"),
    ignore("AveragePool", "ceil_mode", 0, kind="ceil"),
    ignore("AveragePool", "count_include_pad", 0, kind="padding"),
    ignore("AveragePool", "strides", 1, kind="stride"),
    assume("AveragePool", "count_include_pad", 0, 1, kind="padding"),
    swap_pads("AveragePool"),
    ignore("LpPool", "p", 2),
    # Products.
    ignore("Gemm", "alpha", 1.0),
    ignore("Gemm", "beta", 1.0),
    ignore("Gemm", "transA", 0, kind="layout", square=True),
    ignore("Gemm", "transB", 0, kind="layout", square=True),
    # Activations.
    *[ignore(op, "alpha", d) for op, d in [("LeakyRelu", 0.01), ("Elu", 1.0), ("Celu", 1.0), ("ThresholdedRelu", 1.0)]],
    ignore("HardSigmoid", "alpha", 0.2),
    ignore("HardSigmoid", "beta", 0.5),
    ignore("Selu", "gamma", 1.05070102214813232421875),
    ignore("Shrink", "lambd", 0.5),
    ignore("Shrink", "bias", 0.0),
    ignore("Gelu", "approximate", "none"),
    # Normalisation and reduction.
    ignore("Softmax", "axis", -1, to=-1, kind="axis"),
    shift_axis("Softmax"),
    ignore("LogSoftmax", "axis", -1, to=-1, kind="axis"),
    ignore("LayerNormalization", "axis", -1, kind="axis"),
    *[ignore(f"{op}Normalization", "epsilon", 1e-5) for op in ("Layer", "Batch", "Instance", "Group", "RMS")],
    *[ignore("LRN", name, d) for name, d in [("alpha", 0.0001), ("beta", 0.75), ("bias", 1.0)]],
    ignore("LpNormalization", "p", 2),
    ignore("ReduceSum", "keepdims", 1, kind="shape", reshapes=True),
    ignore("ReduceSum", "noop_with_empty_axes", 0),
    shift_axis("ReduceMean", "axes"),
    ignore("ArgMax", "axis", 0, kind="axis"),
    ignore("ArgMax", "select_last_index", 0),
    ignore("CumSum", "exclusive", 0),
    ignore("CumSum", "reverse", 0),
    ignore("TopK", "largest", 1),
    # Moving data.
    ignore("Concat", "axis", 0, to=0, kind="axis"),
    ignore("Gather", "axis", 0, kind="axis"),
    ignore("GatherElements", "axis", 0, kind="axis"),
    ignore("ScatterElements", "reduction", "none"),
    ignore("ScatterND", "reduction", "none"),
    ignore("OneHot", "axis", -1, kind="axis"),
    ignore("Trilu", "upper", 1),
    ignore("EyeLike", "k", 0),
    ignore("DepthToSpace", "mode", "DCR", kind="layout"),
    ignore("Pad", "mode", "constant", kind="padding"),
    Fault(
        "transpose-perm-inverted", "Transpose", "layout", "`perm` is not its own inverse",
        lambda v: [v.attribute("perm", [])[p] for p in v.attribute("perm", [])] != sorted(v.attribute("perm", [])),
        lambda v: v.node.has(perm=[v.attribute("perm").index(p) for p in range(len(v.attribute("perm")))]),
    ),
    ignore("Mod", "fmod", 0, kind="rounding"),
    ignore("DequantizeLinear", "axis", 1, kind="axis", square=True),
    # Sampling.
    ignore("Resize", "mode", "nearest", drop=("antialias", "exclude_outside")),
    ignore("Resize", "coordinate_transformation_mode", "half_pixel"),
    ignore("Resize", "nearest_mode", "round_prefer_floor", kind="rounding"),
    ignore("Resize", "cubic_coeff_a", -0.75),
    ignore("Resize", "exclude_outside", 0),
    ignore("Resize", "antialias", 0),
    ignore("GridSample", "align_corners", 0),
    ignore("GridSample", "padding_mode", "zeros", kind="padding"),
    ignore("RoiAlign", "sampling_ratio", 0),
    # Recurrence and attention.
    ignore("LSTM", "direction", "forward", kind="state"),
    ignore("LSTM", "activations", None),
    ignore("LSTM", "clip", None),
    ignore("GRU", "linear_before_reset", 0),
    ignore("GRU", "direction", "forward", kind="state"),
    ignore("RNN", "activations", "Tanh"),
    ignore("Attention", "is_causal", 0),
    ignore("Attention", "scale", None),
    ignore("RotaryEmbedding", "interleaved", 0, kind="layout"),
    ignore("NonMaxSuppression", "center_point_box", 0, kind="layout"),
]  # fmt: skip
