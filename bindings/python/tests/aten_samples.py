"""Calls of PyTorch's operators: those that exported programs of common modules hold, and those that planted faults are tried on."""

from __future__ import annotations

from typing import Any

import numpy as np
from agents_samples import F, I, floats, ints, many, one

from tapml.agents import Call, Node

IMAGE, KERNEL, SQUARE = floats(1, 2, 7, 7), floats(2, 2, 3, 3), floats(4, 4)
QUERY = floats(1, 2, 4, 8), floats(1, 2, 4, 8, seed=1), floats(1, 2, 4, 8, seed=2)
MASK = np.where(np.tri(4, 4, 1, bool), F(0), F(-3))
BATCH = floats(2, seed=5), floats(2, seed=6), floats(2, seed=7), np.abs(floats(2, seed=8))
TABLE = floats(9, 4)
NO = {"training": False, "momentum": 0.1, "cudnn_enabled": True}


def nullary(name: str, **attributes: Any) -> Call:
    """A call without tensors."""
    return Call((Node("aten", name, 0, attributes, (), ("y0",)),), {}, (("y0", None),))


def windows() -> list[Call]:
    """Convolutions, pools and sampling."""
    plain = {"stride": [1, 1], "padding": [0, 0], "dilation": [1, 1], "transposed": False, "output_padding": [0, 0], "groups": 1}
    conv = [
        {}, {"stride": [2, 2]}, {"padding": [1, 1]}, {"dilation": [2, 1]}, {"stride": [2, 1], "padding": [2, 1]},
        {"transposed": True}, {"transposed": True, "stride": [2, 2], "output_padding": [1, 1]}, {"transposed": True, "padding": [1, 0]},
    ]  # fmt: skip
    calls = [one("aten.convolution.default", IMAGE, KERNEL, floats(2), **{**plain, **more}) for more in conv]
    calls += [
        one("aten.convolution.default", IMAGE, KERNEL, **plain),
        one("aten.convolution.default", floats(1, 4, 5, 5), floats(4, 2, 3, 3), floats(4), **{**plain, "groups": 2}),
        one("aten.conv2d.default", IMAGE, KERNEL, floats(2), stride=[2, 2], padding=[1, 1]),
        one("aten.conv2d.default", IMAGE, KERNEL, floats(2), dilation=[2, 2]),
        one("aten.conv2d.default", IMAGE, KERNEL),
        one("aten.conv2d.default", floats(1, 4, 5, 5), floats(4, 2, 3, 3), groups=2),
        one("aten.conv1d.default", floats(2, 3, 9), floats(4, 3, 3), floats(4), stride=[2], padding=[1]),
        one("aten.conv1d.default", floats(2, 3, 9), floats(4, 3, 3)),
    ]
    pools = [{}, {"stride": [2, 2]}, {"stride": [2, 2], "ceil_mode": True}, {"stride": [2, 2], "padding": [1, 1]}]
    for more in [*pools, {"stride": [1, 1], "dilation": [2, 2]}]:
        calls.append(one("aten.max_pool2d_with_indices.default", floats(1, 2, 8, 8) - 3, outputs=2, kernel_size=[3, 3], **more))
        calls.append(one("aten.max_pool2d.default", floats(1, 2, 8, 8) - 3, kernel_size=[3, 3], **more))
    averages = [*pools, {"stride": [2, 2], "padding": [1, 1], "count_include_pad": False}, {"divisor_override": 5}]
    calls += [one("aten.avg_pool2d.default", floats(1, 2, 8, 8), kernel_size=[3, 3], **more) for more in averages]
    calls += [one("aten.adaptive_avg_pool2d.default", floats(1, 2, 6, 6), output_size=size) for size in ([1, 1], [3, 2])]
    for overload, size in [({"scale_factors": [2.0, 2.0]}, {}), ({"scale_factors": [1.5, 2.0]}, {}), ({}, {"output_size": [10, 10]})]:
        calls.append(one("aten.upsample_nearest2d.vec", IMAGE, **{"output_size": None, "scale_factors": None, **overload, **size}))
        for corners in (False, True):
            more = {"output_size": None, "scale_factors": None, "align_corners": corners, **overload, **size}
            calls.append(one("aten.upsample_bilinear2d.vec", IMAGE, **more))
    return calls


def products() -> list[Call]:
    """Products, attention and normalisation."""
    x = floats(2, 3, 4)
    calls = [
        one("aten.linear.default", SQUARE, floats(4, 4, seed=1)), one("aten.linear.default", x, floats(5, 4), floats(5)),
        one("aten.linear.default", floats(3, 4), floats(5, 4), floats(5)), one("aten.linear.default", floats(4), floats(5, 4)),
        one("aten.mm.default", SQUARE, floats(4, 4, seed=1)), one("aten.mm.default", floats(3, 5), floats(5, 2)),
        one("aten.bmm.default", x, floats(2, 4, 3)), one("aten.bmm.default", floats(1, 3, 4), floats(1, 4, 3)),
        one("aten.addmm.default", floats(2), floats(3, 5), floats(5, 2)),
        one("aten.addmm.default", floats(2), floats(3, 5), floats(5, 2), alpha=0.5, beta=2),
        one("aten.baddbmm.default", floats(2, 3, 3), x, floats(2, 4, 3), alpha=0.5),
        one("aten.matmul.default", x, floats(4, 3)), one("aten.matmul.default", floats(4), floats(4)),
        one("aten.layer_norm.default", x, floats(4), floats(4, seed=1), normalized_shape=[4]),
        one("aten.layer_norm.default", x, floats(4), floats(4, seed=1), normalized_shape=[4], eps=0.01),
        one("aten.layer_norm.default", x, normalized_shape=[4]),
        one("aten.layer_norm.default", x, floats(3, 4), normalized_shape=[3, 4]),
        one("aten.batch_norm.default", IMAGE, *BATCH, eps=0.01, **NO), one("aten.batch_norm.default", IMAGE, *BATCH, eps=1e-5, **NO),
        one("aten.batch_norm.default", floats(3, 2), *BATCH, eps=1e-5, **NO),
        one("aten.batch_norm.default", IMAGE, None, None, *BATCH[2:], eps=1e-5, **NO),
        one("aten.group_norm.default", floats(2, 4, 3, 3), floats(4), floats(4, seed=1), num_groups=2),
        one("aten.group_norm.default", floats(2, 4, 3, 3), num_groups=2, eps=0.1),
        one("aten._softmax.default", x, dim=1, half_to_float=False), one("aten._softmax.default", x, dim=-1, half_to_float=False),
        one("aten.softmax.int", x, dim=1), one("aten.softmax.int", x, dim=-1),
        one("aten._log_softmax.default", x, dim=1, half_to_float=False), one("aten._log_softmax.default", x, dim=2, half_to_float=False),
        one("aten.lstm.input", floats(3, 2, 4), floats(1, 2, 3), floats(1, 2, 3, seed=1), floats(12, 4), floats(12, 3), floats(12),
            floats(12, seed=1), outputs=3, hx={"tensors": 2}, params={"tensors": 4}, has_biases=True, num_layers=1, dropout=0.0,
            train=False, bidirectional=False, batch_first=False),
    ]  # fmt: skip
    attention = [{}, {"scale": 0.25}, {"is_causal": True}, {"is_causal": True, "scale": 0.5}]
    calls += [one("aten.scaled_dot_product_attention.default", *QUERY, **more) for more in attention]
    calls += [
        one("aten.scaled_dot_product_attention.default", *QUERY, MASK),
        one("aten.scaled_dot_product_attention.default", *QUERY, np.tri(4, 4, 0, bool)),
        one("aten.scaled_dot_product_attention.default", floats(1, 4, 4, 8), *QUERY[1:], enable_gqa=True),
    ]
    return calls


def elementwise() -> list[Call]:
    """Functions of each element."""
    x = floats(3, 5)
    calls = [one(f"aten.{name}.default", x) for name in (
        "relu", "sigmoid", "tanh", "silu", "hardswish", "hardsigmoid", "softplus", "mish", "exp", "neg", "abs", "sin", "cos",
        "erf", "floor", "ceil", "round", "sign", "reciprocal", "clone", "alias", "gelu", "elu", "leaky_relu", "relu6",
    )]  # fmt: skip
    calls += [one(f"aten.{name}.default", np.abs(x) + F(0.1)) for name in ("sqrt", "rsqrt", "log")]
    calls += [
        one("aten.gelu.default", x, approximate="tanh"), one("aten.elu.default", x, alpha=0.3), one("aten.leaky_relu.default", x, negative_slope=0.3),
        one("aten.softplus.default", x, beta=2.0), one("aten.clamp.default", x, min=-0.5, max=0.75), one("aten.clamp.default", x, min=-0.25),
        one("aten.hardtanh.default", x), one("aten.hardtanh.default", x, min_val=0.0, max_val=0.5),
        one("aten.pow.Tensor_Scalar", x, exponent=2), one("aten.pow.Tensor_Scalar", np.abs(x), exponent=0.5),
        one("aten.pow.Tensor_Tensor", np.abs(x), floats(5)), one("aten.maximum.default", x, floats(5)),
        one("aten.minimum.default", x, floats(5)), one("aten.where.self", x > 0, x, floats(5)),
        one("aten.gt.Scalar", x, other=0.25), one("aten.eq.Tensor", ints(1, 2, 3), ints(1, 5, 3)), one("aten.logical_not.default", x > 0),
        one("aten.rsub.Scalar", x, other=1.0), one("aten._to_copy.default", x * 3, dtype="i64"), one("aten._to_copy.default", ints(1, -2), dtype="f32"),
        one("aten.full_like.default", x, fill_value=0.5), one("aten.masked_fill.Scalar", x, x > 0, value=-2.0),
    ]  # fmt: skip
    mask, other = x > 0, floats(5) > 0
    calls += [one(f"aten.{op}.Tensor", x, floats(5)) for op in ("ne", "lt", "gt", "le", "ge")]
    calls += [one(f"aten.{op}.Scalar", x, other=0.5) for op in ("eq", "ne", "lt", "le", "ge")]
    calls += [one(f"aten.{op}", mask, other) for op in ("logical_and.default", "logical_or.default", "bitwise_and.Tensor", "bitwise_or.Tensor")]
    calls += [
        one("aten.bitwise_not.default", mask), one("aten.detach.default", x), one("aten.to.dtype", x, dtype="f32"),
        one("aten.masked_fill.Tensor", x, mask, np.array(0.25, F)), one("aten.zeros_like.default", x), one("aten.ones_like.default", x),
        one("aten.log_softmax.int", x, dim=1), one("aten.squeeze.default", floats(1, 2, 1)),
        one("aten._native_batch_norm_legit_no_training.default", IMAGE, *BATCH, outputs=3, momentum=0.1, eps=0.01),
        one("aten.avg_pool1d.default", floats(1, 2, 9), kernel_size=[3], stride=[2], padding=[1]),
        one("aten._adaptive_avg_pool2d.default", floats(1, 2, 6, 6), output_size=[2, 3]),
        nullary("zeros.default", size=[2, 3]), nullary("ones.default", size=[4]), nullary("arange.default", end=5),
        nullary("arange.start", start=2, end=7), nullary("full.default", size=[2, 3], fill_value=0.5),
        nullary("arange.start_step", start=1, end=9, step=3),
    ]  # fmt: skip
    for op in ("add", "sub", "mul", "div"):
        calls += [one(f"aten.{op}.Tensor", x, floats(5)), one(f"aten.{op}.Tensor", floats(4, 4), floats(4)),
                  one(f"aten.{op}.Tensor", x, other=0.3), one(f"aten.{op}.Scalar", x, other=2)]  # fmt: skip
    calls += [one("aten.add.Tensor", x, floats(5), alpha=2), one("aten.sub.Tensor", x, floats(5), alpha=0.5),
              one("aten.add.Tensor", ints(1, 2), other=3), one("aten.mul.Tensor", ints(1, 2), ints(4, -3))]  # fmt: skip
    return calls


def movement() -> list[Call]:
    """What moves, chooses and reduces."""
    x = floats(2, 3, 4)
    whole = 9223372036854775807
    calls = [
        one("aten.view.default", x, size=[6, -1]), one("aten.reshape.default", x, shape=[4, 6]), one("aten._unsafe_view.default", x, size=[24]),
        one("aten.permute.default", x, dims=[1, 2, 0]), one("aten.permute.default", x, dims=[0, 2, 1]), one("aten.permute.default", x, dims=[-1, 0, 1]),
        one("aten.transpose.int", x, dim0=1, dim1=-1), one("aten.t.default", SQUARE), one("aten.expand.default", floats(3, 1), size=[2, -1, 4]),
        one("aten.unsqueeze.default", x, dim=-1), one("aten.unsqueeze.default", x, dim=1), one("aten.squeeze.dim", floats(2, 1, 3), dim=1),
        one("aten.squeeze.dims", floats(1, 2, 1), dim=[0, 2]), one("aten.flatten.using_ints", x, start_dim=1), one("aten.flatten.using_ints", x),
        one("aten.slice.Tensor", x, dim=1, start=1, end=whole), one("aten.slice.Tensor", x, dim=2, start=0, end=whole, step=2),
        one("aten.slice.Tensor", x, dim=2, start=-3, end=-1), one("aten.slice.Tensor", x, start=1, end=2),
        one("aten.select.int", x, dim=1, index=1), one("aten.select.int", x, dim=0, index=-1),
        one("aten.cat.default", x, floats(2, 3, 4, seed=1), dim=1), one("aten.cat.default", x, floats(1, 3, 4)), one("aten.cat.default", x, floats(2, 3, 2), dim=-1),
        one("aten.stack.default", x, floats(2, 3, 4, seed=1), dim=1), one("aten.stack.default", x, floats(2, 3, 4, seed=1)),
        one("aten.split_with_sizes.default", x, outputs=2, split_sizes=[1, 3], dim=2), one("aten.constant_pad_nd.default", x, pad=[1, 2, 0, 1], value=0.5),
        one("aten.constant_pad_nd.default", x, pad=[1, 0]), one("aten.index_select.default", x, ints(2, 0), dim=1),
        one("aten.embedding.default", TABLE, np.array([[1, 8], [0, 3]], I)), one("aten.embedding.default", TABLE, ints(8, 2, 0), padding_idx=2),
        one("aten.gather.default", x, np.array([[[1, 0, 2, 1]]] * 2, I), dim=1), one("aten.repeat.default", floats(2, 3), repeats=[2, 1, 2]),
        one("aten.argmax.default", x, dim=1), one("aten.argmin.default", x), one("aten.argmax.default", x, dim=-1, keepdim=True),
    ]  # fmt: skip
    for op in ("mean.dim", "sum.dim_IntList", "amax.default", "amin.default"):
        for more in ({"dim": [1]}, {"dim": [-1], "keepdim": True}, {"dim": [0, 2]}, {"dim": [1], "keepdim": True}):
            calls.append(one(f"aten.{op}", x, **more))
    calls += [
        one("aten.cumsum.default", x, dim=1), one("aten.split.Tensor", x, outputs=2, split_size=3, dim=-1),
    ]  # fmt: skip
    calls += [one("aten.mean.default", x), one("aten.sum.default", x), one("aten.var.correction", x, dim=[2], correction=1, keepdim=True)]
    return calls


def graphs() -> list[Call]:
    """Calls of several nodes."""
    x, w, b = floats(3, 4), floats(4, 4), floats(4)
    plain = {"stride": [1, 1], "padding": [0, 0], "dilation": [1, 1], "transposed": False, "output_padding": [0, 0], "groups": 1}
    norm = {"eps": 0.01, **NO}
    scale, bias, mean, variance = BATCH
    return [
        many({"x": x, "W": w, "B": b}, "z", ("aten.linear.default", "x W B", "y", {}), ("aten.relu.default", "y", "z", {})),
        many({"x": x, "W": w, "B": b}, "z", ("aten.linear.default", "x W B", "y", {}), ("aten.gelu.default", "y", "z", {})),
        many({"x": x, "W": w, "B": b}, "z", ("aten.linear.default", "x W B", "y", {}), ("aten.add.Tensor", "y x", "z", {})),
        many({"x": IMAGE, "W": KERNEL, "B": BATCH[0]}, "z", ("aten.convolution.default", "x W B", "y", plain), ("aten.relu.default", "y", "z", {})),
        many({"x": IMAGE, "W": KERNEL, "S": scale, "B": bias, "M": mean, "V": variance}, "z", ("aten.conv2d.default", "x W", "y", {}),
             ("aten.batch_norm.default", "y S B M V", "z", norm)),
        many({"x": x, "w": w}, "z", ("aten.permute.default", "w", "t", {"dims": [1, 0]}), ("aten.mm.default", "x t", "z", {})),
        many({"x": x}, "z", ("aten.sigmoid.default", "x", "s", {}), ("aten.mul.Tensor", "x s", "z", {})),
        many({"x": x}, "z", ("aten.mul.Tensor", "x", "s", {"other": 0.25}), ("aten._softmax.default", "s", "z", {"dim": -1, "half_to_float": False})),
    ]  # fmt: skip


def beside_faults() -> list[Call]:
    """Calls that lie outside the rules of planted faults."""
    wide = [a.astype(np.float64) for a in (IMAGE, KERNEL, SQUARE, *QUERY)]
    plain = {"stride": [1, 1], "padding": [0, 0], "dilation": [1, 1], "transposed": False, "output_padding": [0, 0], "groups": 1}
    image, kernel, square, *query = wide
    scale, bias, _, variance = BATCH
    return [
        one("aten.convolution.default", image, kernel, **plain), one("aten.linear.default", square, square), one("aten.mm.default", square, square),
        one("aten.scaled_dot_product_attention.default", *query), one("aten._log_softmax.default", SQUARE, dim=-1, half_to_float=False),
        one("aten.batch_norm.default", IMAGE, scale, bias, np.zeros(2, F), variance, eps=1e-5, **NO),
    ]  # fmt: skip


def samples() -> list[Call]:
    """All calls of one node."""
    return [*windows(), *products(), *elementwise(), *movement()]
