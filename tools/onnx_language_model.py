#!/usr/bin/env python3
"""Writes a small language model as ONNX Runtime's GenAI exports them, and inputs of a prompt and of the step behind it.

    python3 tools/onnx_language_model.py --out FOLDER [--layers 2] [--bits 4] [--packed] [--seed 0]
    tapml migrate FOLDER/model.onnx --inputs FOLDER/prompt --source ort --target vulkan

The model is a Llama of random weights: `SimplifiedLayerNormalization`, `SkipSimplifiedLayerNormalization`, `MatMulNBits`
in blocks of 32, and `GroupQueryAttention`, which turns queries and keys itself. `--packed` has one product for queries,
keys and values. `FOLDER/prompt` has seven tokens and an empty cache, `FOLDER/decode` one token behind seven cached ones,
which are what ONNX Runtime gives for the prompt. `FOLDER/prompt.logits.npy` and `FOLDER/decode.logits.npy` are what it
gives for both. Needs numpy, onnx and onnxruntime.
"""
import argparse
import pathlib

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

HIDDEN, HEADS, GROUPS, SIZE, BETWEEN, VOCAB, ROOM, BLOCK = 64, 4, 2, 16, 96, 160, 64, 32
PROMPT = [17, 3, 99, 4, 150, 42, 8]


class Graph:
    """Nodes and weights that grow."""

    def __init__(self, seed: int, bits: int) -> None:
        self.rng, self.bits = np.random.default_rng(seed), bits
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, name: str, array: np.ndarray) -> str:
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def node(self, op: str, inputs: list[str], outputs: list[str], domain: str = "", **attributes: object) -> str:
        self.nodes.append(helper.make_node(op, inputs, outputs, name=outputs[0], domain=domain, **attributes))
        return outputs[0]

    def linear(self, name: str, x: str, rows: int, columns: int) -> str:
        """`MatMulNBits` with weights that are rounded to so many bits, with a zero point for each block."""
        blocks, top = columns // BLOCK, (1 << self.bits) - 1
        plain = self.rng.standard_normal((rows, blocks, BLOCK)).astype(np.float32) * columns**-0.5
        least, most = plain.min(-1, keepdims=True), plain.max(-1, keepdims=True)
        scale = (most - least) / top
        zero = np.clip(np.round(-least / scale), 0, top)
        codes = np.clip(np.round(plain / scale + zero), 0, top).astype(np.uint8)
        pack = lambda rows: rows if self.bits == 8 else rows[..., ::2] | rows[..., 1::2] << 4  # noqa: E731
        points = zero.astype(np.uint8)[..., 0]
        points = np.pad(points, ((0, 0), (0, blocks % 2 if self.bits == 4 else 0)))
        inputs = [
            x,
            self.weight(f"{name}.qweight", pack(codes)),
            self.weight(f"{name}.scales", scale[..., 0]),
            self.weight(f"{name}.qzeros", pack(points)),
        ]
        sizes = {"K": columns, "N": rows, "bits": self.bits, "block_size": BLOCK}
        return self.node("MatMulNBits", inputs, [f"{name}.out"], "com.microsoft", **sizes)

    def norm(self, name: str) -> str:
        return self.weight(f"{name}.weight", (1 + self.rng.standard_normal(HIDDEN) / 8).astype(np.float32))

    def attention(self, at: str, x: str, packed: bool) -> str:
        """Products for queries, keys and values, and the attention with its cache."""
        parts = {"q": HEADS * SIZE, "k": GROUPS * SIZE, "v": GROUPS * SIZE}
        if packed:
            own = [self.linear(f"{at}.qkv_proj", x, sum(parts.values()), HIDDEN), "", ""]
        else:
            own = [self.linear(f"{at}.{part}_proj", x, rows, HIDDEN) for part, rows in parts.items()]
        layer = at.split(".")[1]
        past = [f"past_key_values.{layer}.{kind}" for kind in ("key", "value")]
        present = [f"present.{layer}.{kind}" for kind in ("key", "value")]
        inputs = [*own, *past, "seqlens_k", "total_sequence_length", "cos_cache", "sin_cache"]
        heads = {"num_heads": HEADS, "kv_num_heads": GROUPS, "do_rotary": 1, "rotary_interleaved": 0}
        y = self.node("GroupQueryAttention", inputs, [f"{at}.attn", *present], "com.microsoft", **heads)
        return self.linear(f"{at}.o_proj", y, HIDDEN, HEADS * SIZE)


def make_model(layers: int, bits: int, packed: bool, seed: int) -> onnx.ModelProto:
    """The model for any numbers of tokens."""
    g = Graph(seed, bits)
    angles = np.arange(ROOM)[:, None] * 10000.0 ** (-np.arange(SIZE // 2) / (SIZE // 2))
    for name, table in (("cos_cache", np.cos(angles)), ("sin_cache", np.sin(angles))):
        g.weight(name, table.astype(np.float32))
    one = g.weight("one", np.array([1], np.int64))
    g.node("ReduceSum", ["attention_mask", one], ["tokens"])
    g.node("Sub", ["tokens", one], ["last"])
    g.node("Cast", ["last"], ["seqlens_k"], to=TensorProto.INT32)
    g.node("Shape", ["attention_mask"], ["sizes"])
    g.node("Gather", ["sizes", g.weight("axis", np.array(1, np.int64))], ["total"], axis=0)
    g.node("Cast", ["total"], ["total_sequence_length"], to=TensorProto.INT32)
    table = g.weight("embed_tokens.weight", g.rng.standard_normal((VOCAB, HIDDEN)).astype(np.float32))
    stream = g.node("Gather", [table, "input_ids"], ["embedded"])
    norm = {"epsilon": 1e-5, "axis": -1, "stash_type": 1}
    x = g.node("SimplifiedLayerNormalization", [stream, g.norm("layers.0.input_norm")], ["layers.0.input"], **norm)
    for layer in range(layers):
        at = f"layers.{layer}"
        y = g.attention(at, x, packed)
        skip = [f"{at}.middle", "", "", f"{at}.sum"]
        inputs = [stream, y, g.norm(f"{at}.post_norm")]
        x = g.node("SkipSimplifiedLayerNormalization", inputs, skip, "com.microsoft", epsilon=1e-5)
        stream = f"{at}.sum"
        gate, up = (g.linear(f"{at}.{name}_proj", x, BETWEEN, HIDDEN) for name in ("gate", "up"))
        share = g.node("Sigmoid", [gate], [f"{at}.share"])
        open_gate = g.node("Mul", [gate, share], [f"{at}.silu"])
        y = g.linear(f"{at}.down_proj", g.node("Mul", [open_gate, up], [f"{at}.gated"]), HIDDEN, BETWEEN)
        is_last = layer + 1 == layers
        following = "final" if is_last else f"layers.{layer + 1}.input"
        skip = [following] if is_last else [following, "", "", f"layers.{layer + 1}.stream"]
        inputs = [stream, y, g.norm(f"{following}.norm")]
        x = g.node("SkipSimplifiedLayerNormalization", inputs, skip, "com.microsoft", epsilon=1e-5)
        stream = skip[-1]
    g.node("Identity", [g.linear("lm_head", x, VOCAB, HIDDEN)], ["logits"])
    info = helper.make_tensor_value_info
    inputs = [info("input_ids", TensorProto.INT64, [1, "n"]), info("attention_mask", TensorProto.INT64, [1, "t"])]
    outputs = [info("logits", TensorProto.FLOAT, [1, "n", VOCAB])]
    for layer in range(layers):
        for kind in ("key", "value"):
            inputs.append(info(f"past_key_values.{layer}.{kind}", TensorProto.FLOAT, [1, GROUPS, "p", SIZE]))
            outputs.append(info(f"present.{layer}.{kind}", TensorProto.FLOAT, [1, GROUPS, "t", SIZE]))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph(g.nodes, "llama", inputs, outputs, g.weights)
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--bits", type=int, choices=(4, 8), default=4)
    parser.add_argument("--packed", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    model = make_model(options.layers, options.bits, options.packed, options.seed)
    options.out.mkdir(parents=True, exist_ok=True)
    onnx.save(model, options.out / "model.onnx")
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    kinds = [f"{layer}.{kind}" for layer in range(options.layers) for kind in ("key", "value")]
    cache = {f"past_key_values.{kind}": np.zeros((1, GROUPS, 0, SIZE), np.float32) for kind in kinds}
    tokens, before = PROMPT, 0
    for folder in ("prompt", "decode"):
        total = before + len(tokens)
        feed = {"input_ids": np.array([tokens], np.int64), "attention_mask": np.ones((1, total), np.int64), **cache}
        place = options.out / folder / "0"
        place.mkdir(parents=True, exist_ok=True)
        for name, array in feed.items():
            np.save(place / f"{name}.npy", array)
        names = ["logits", *(f"present.{kind}" for kind in kinds)]
        logits, *present = session.run(names, feed)
        cache = {f"past_key_values.{kind}": array for kind, array in zip(kinds, present)}
        np.save(options.out / f"{folder}.logits.npy", logits)
        tokens, before = [int(logits[0, -1].argmax())], total


if __name__ == "__main__":
    main()
