"""Operators of ONNX Runtime for language models, through its agent: what their definitions say, computed with NumPy in f64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Optional

import numpy as np
import pytest

for package in ("onnx", "onnxruntime", "websockets", "google.protobuf"):
    pytest.importorskip(package, reason=f"{package} is not installed: operators of ONNX Runtime are not tested")

from agents_client import Agent, Client  # noqa: E402

Array = np.ndarray
HEADS, GROUPS, SIZE = 4, 2, 16


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """A session with ONNX Runtime."""
    agent = Agent("ort")
    yield Client(agent.address)
    agent.close()


def floats(*shape: int, seed: int = 0) -> Array:
    """Numbers around 0."""
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(np.float32)


def agree(found: Optional[Array], expected: Array) -> None:
    """Whether numbers of f32 are those of f64."""
    assert found is not None and found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=3e-5, atol=3e-5 * float(np.abs(expected).max()))


def softmax(scores: Array, sink: Optional[float] = None) -> Array:
    """Weights of scores along the last axis; a sink takes a share that counts for nothing."""
    most = scores.max(-1, keepdims=True) if sink is None else np.maximum(scores.max(-1, keepdims=True), sink)
    weights = np.exp(scores - most)
    return weights / (weights.sum(-1, keepdims=True) + (0 if sink is None else np.exp(sink - most)))


def split(x: Array, heads: int) -> Array:
    """``[batch, length, width]`` as ``[batch, heads, length, size]``."""
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3).astype(np.float64)


def joined(x: Array) -> Array:
    """The other way round."""
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


def turn(x: Array, cos: Array, sin: Array, positions: Array, interleaved: bool) -> Array:
    """Pairs of ``x`` (batch, heads, length, size) by the angles of ``positions`` (batch, length)."""
    y, half = x.astype(np.float64), cos.shape[1]
    apart, beside = (slice(half), slice(half, 2 * half)), (slice(0, 2 * half, 2), slice(1, 2 * half, 2))
    first, second = beside if interleaved else apart
    c, s = (table[positions][:, None].astype(np.float64) for table in (cos, sin))
    a, b = y[..., first].copy(), y[..., second].copy()
    y[..., first], y[..., second] = c * a - s * b, s * a + c * b
    return y


def grouped(
    q: Array,
    k: Array,
    v: Array,
    past: tuple[Array, Array],
    last: list[int],
    total: int,
    *,
    cos: Any = None,
    sin: Any = None,
    positions: Any = None,
    bias: Any = None,
    sinks: Any = None,
    scale: float = 0,
    softcap: float = 0,
    window: int = -1,
    interleaved: bool = False,
    causal: bool = True,
) -> tuple[Array, Array, Array]:
    """GroupQueryAttention as it is defined: outputs, present keys and values."""
    q, k, v = split(q, HEADS), split(k, GROUPS), split(v, GROUPS)
    batch, length = q.shape[0], q.shape[2]
    room = max(total, past[0].shape[2])
    keys, values = np.zeros((2, batch, GROUPS, room, SIZE))
    y = np.zeros_like(q)
    for n in range(batch):
        count = last[n] + 1
        before = count - length
        at = before + np.arange(length) if positions is None else positions[n]
        qn, kn = (turn(x[n : n + 1], cos, sin, at[None], interleaved)[0] if cos is not None else x[n] for x in (q, k))
        for present, cached, new in ((keys, past[0], kn), (values, past[1], v[n])):
            present[n, :, :before], present[n, :, before:count] = cached[n, :, :before], new
        for head in range(HEADS):
            group = head * GROUPS // HEADS
            scores = qn[head] @ keys[n, group, :count].T * (scale or SIZE**-0.5)
            scores = softcap * np.tanh(scores / softcap) if softcap else scores
            scores = scores if bias is None else scores + bias[n % len(bias), head % bias.shape[1], :, :count]
            own, key = before + np.arange(length)[:, None], np.arange(count)
            hidden = causal & ((key > own) | ((key <= own - window) if window > 0 else False))
            weights = softmax(np.where(hidden, -np.inf, scores), None if sinks is None else sinks[head])
            y[n, head] = weights @ values[n, group, :count]
    return joined(y), keys, values


#: Batch, new tokens, cached tokens, room for cached ones, last token of each of the batch, and how the call differs.
CALLS: list[tuple[int, int, int, int, Optional[list[int]], dict[str, Any]]] = [
    (2, 5, 0, 0, None, {}),
    (2, 5, 0, 0, None, {"rotary": True}),
    (2, 1, 6, 6, None, {"rotary": True, "interleaved": True}),
    (1, 1, 4, 9, None, {"rotary": True}),
    (2, 1, 5, 5, [5, 3], {"rotary": True}),
    (1, 6, 3, 3, None, {"window": 2, "softcap": 2.0, "scale": 0.1}),
    (1, 4, 2, 2, None, {"bias": True, "sinks": True}),
    (1, 4, 2, 2, None, {"causal": False, "bias": True}),
    (1, 4, 2, 2, None, {"rotary": True, "positions": np.array([[7, 3, 1, 0]])}),
    (2, 5, 0, 0, None, {"rotary": True, "packed": True}),
]


@pytest.mark.parametrize("batch, length, cached, room, last, how", CALLS)
def test_groups_of_queries(client: Client, batch: int, length: int, cached: int, room: int, last: Optional[list[int]],
                           how: dict[str, Any]) -> None:  # fmt: skip
    total = length + cached
    last = [total - 1] * batch if last is None else last
    q = floats(batch, length, HEADS * SIZE)
    k, v = (floats(batch, length, GROUPS * SIZE, seed=seed) for seed in (1, 2))
    past = floats(batch, GROUPS, room, SIZE), floats(batch, GROUPS, room, SIZE, seed=1)
    angles = floats(32, SIZE // 2)
    cos, sin = (np.cos(angles), np.sin(angles)) if how.get("rotary") else (None, None)
    bias = floats(1, HEADS, length, total) if how.get("bias") else None
    sinks = floats(HEADS) if how.get("sinks") else None
    positions = how.get("positions")
    inputs: list[Any] = [np.concatenate([q, k, v], -1), None, None] if how.get("packed") else [q, k, v]
    inputs += [*past, np.array(last, np.int32), np.array(total, np.int32), cos, sin, positions, bias, sinks]
    numbers = {"scale": how.get("scale"), "softcap": how.get("softcap"), "local_window_size": how.get("window")}
    attributes: dict[str, Any] = {name: value for name, value in numbers.items() if value is not None}
    attributes |= {"do_rotary": 1, "rotary_interleaved": int(how.get("interleaved", False))} if how.get("rotary") else {}
    attributes |= {"causal": 0} if how.get("causal") is False else {}
    present = "f32", (batch, GROUPS, max(total, room), SIZE)
    outputs = [("f32", q.shape), present, present]
    attributes |= {"num_heads": HEADS, "kv_num_heads": GROUPS}
    found = client.node("com.microsoft.GroupQueryAttention@1", inputs, outputs=outputs, **attributes)
    known = {name: how[name] for name in ("scale", "softcap", "window", "interleaved", "causal") if name in how}
    expected = grouped(q, k, v, past, last, total, cos=cos, sin=sin, positions=positions, bias=bias, sinks=sinks, **known)
    for one, other in zip(found, expected):
        agree(one, other)


@pytest.mark.parametrize("mask", [None, [5, 2], [[1, 1, 0, 1, 1], [0, 1, 1, 1, 0]]])
def test_several_heads(client: Client, mask: Any) -> None:
    mask = None if mask is None else np.array(mask, np.int32)
    q, k, v, bias, added = floats(2, 3, 8), floats(2, 5, 8, seed=1), floats(2, 5, 12), floats(28), floats(1, 2, 3, 5)
    inputs = [q, k, v, bias, mask, added]
    more: dict[str, Any] = {"num_heads": 2, "mask_filter_value": -3.0}
    (found,) = client.node("com.microsoft.MultiHeadAttention@1", inputs, outputs=[("f32", (2, 3, 12))], **more)
    scores = split(q + bias[:8], 2) @ split(k + bias[8:16], 2).transpose(0, 1, 3, 2) / 2 + added
    if mask is not None:
        kept = np.arange(5) < mask[:, None] if mask.ndim == 1 else mask > 0
        scores = scores + np.where(kept, 0, -3.0)[:, None, None]
    agree(found, joined(softmax(scores) @ split(v + bias[16:], 2)))


def test_one_product_for_queries_keys_and_values(client: Client) -> None:
    x, w, bias, past = floats(2, 3, 6), floats(6, 24), floats(24), floats(2, 2, 2, 4, 4)
    outputs = [("f32", (2, 3, 8)), ("f32", (2, 2, 2, 7, 4))]
    inputs = [x, w, bias, None, past]
    found, present = client.node("com.microsoft.Attention@1", inputs, outputs=outputs, num_heads=2, unidirectional=1)
    q, k, v = (split(part, 2) for part in np.split(x.astype(np.float64) @ w + bias, 3, -1))
    k, v = np.concatenate([past[0], k], 2), np.concatenate([past[1], v], 2)
    scores = np.where(np.arange(7) > np.arange(3)[:, None] + 4, -np.inf, q @ k.transpose(0, 1, 3, 2) / 2)
    agree(found, joined(softmax(scores) @ v))
    agree(present, np.stack([k, v]))


@pytest.mark.parametrize(
    "bits, k, block, zeros",
    [(4, 96, 32, "packed"), (4, 80, 32, None), (8, 64, 16, "packed"), (4, 64, 16, "floats"), (2, 96, 32, "packed")],
)
def test_weights_of_a_few_bits(client: Client, bits: int, k: int, block: int, zeros: Optional[str]) -> None:
    rng, n, blocks = np.random.default_rng(bits), 5, -(-k // block)
    packed = rng.integers(0, 256, (n, blocks, block * bits // 8), dtype=np.uint8)
    scales = floats(n, blocks) / 8

    def unpack(rows: Array, count: int) -> Array:
        parts = [rows >> shift & (1 << bits) - 1 for shift in range(0, 8, bits)]
        return np.stack(parts, -1).reshape(n, -1)[:, :count].astype(np.float64)

    points: Optional[Array] = None
    middle = np.full((n, blocks), 2.0 ** (bits - 1))
    if zeros == "packed":
        points = rng.integers(0, 256, (n, -(-blocks * bits // 8)), dtype=np.uint8)
        middle = unpack(points, blocks)
    elif zeros == "floats":
        points = floats(n, blocks, seed=3) + 8
        middle = points.astype(np.float64)
    numbers = unpack(packed.reshape(n, -1), blocks * block).reshape(n, blocks, block)
    weights = (numbers - middle[..., None]) * scales[..., None]
    a, bias = floats(3, k), floats(n)
    attributes = {"K": k, "N": n, "bits": bits, "block_size": block}
    inputs = [a, packed, scales, points, None, bias]
    (found,) = client.node("com.microsoft.MatMulNBits@1", inputs, outputs=[("f32", (3, n))], **attributes)
    agree(found, a.astype(np.float64) @ weights.reshape(n, -1)[:, :k].T + bias)


def test_normalised_sums_and_positions(client: Client) -> None:
    x, skip, gamma = floats(2, 3, 8), floats(2, 3, 8, seed=1), floats(8)
    outputs = [("f32", x.shape), None, None, ("f32", x.shape)]
    op = "com.microsoft.SkipSimplifiedLayerNormalization@1"
    found, _, _, total = client.node(op, [x, skip, gamma], outputs=outputs, epsilon=1e-5)
    both = x.astype(np.float64) + skip
    plain = both / np.sqrt((both**2).mean(-1, keepdims=True) + 1e-5) * gamma
    agree(total, both)
    agree(found, plain)
    # The same of the sum, which models have in the standard's domain.
    (found,) = client.node("onnx.SimplifiedLayerNormalization@14", [both.astype(np.float32), gamma], axis=-1, epsilon=1e-5)
    agree(found, plain)
    heads, cos, sin = floats(1, 2, 3, 8), floats(9, 4), floats(9, 4, seed=1)
    for positions, rows in ((np.array([2]), [[2, 3, 4]]), (np.array([[5, 0, 8]]), [[5, 0, 8]])):
        (found,) = client.node("com.microsoft.RotaryEmbedding@1", [heads, positions, cos, sin], interleaved=1)
        agree(found, turn(heads, cos, sin, np.array(rows), True))


def gate(name: str, y: Array) -> Array:
    """An activation."""
    return {"Relu": np.maximum(y, 0), "Tanh": np.tanh(y), "LeakyRelu": np.where(y < 0, 0.2 * y, y)}[name]


@pytest.mark.parametrize("name, more", [("Relu", {}), ("Tanh", {}), ("LeakyRelu", {"activation_alpha": 0.2})])
def test_activations_of_products(client: Client, name: str, more: dict[str, float]) -> None:
    a, b, c = floats(3, 4), floats(4, 5), floats(5)
    (found,) = client.node("com.microsoft.FusedGemm@1", [a, b, c], activation=name, alpha=2.0, beta=0.5, **more)
    agree(found, gate(name, 2 * (a.astype(np.float64) @ b) + 0.5 * c))
    x, w, z = floats(1, 4, 3, 3), floats(5, 4, 1, 1), floats(1, 5, 3, 3)
    lists = {"activation_params": {"floats": [0.2]}} if more else {}
    (found,) = client.node("com.microsoft.FusedConv@1", [x, w, c, z], activation=name, **lists)
    agree(found, gate(name, np.einsum("nchw,ocxy->nohw", x.astype(np.float64), w) + c[:, None, None] + z))
