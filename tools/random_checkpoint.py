#!/usr/bin/env python3
"""Writes a checkpoint of random weights of real size, in shards with an index, to measure how long an import takes.

    python3 tools/random_checkpoint.py --out /tmp/llama-8b [--layers 32] [--shard-gb 2] [--dtype f16]

The shape is that of Llama-3-8B (8.03 billion parameters, 16 GB in bf16 or f16). The values repeat every 256 MiB: they only have
to be finite and not all alike. Needs numpy.
"""
import argparse
import json
import pathlib

import numpy

HIDDEN, BETWEEN, VOCAB, KV = 4096, 14336, 128256, 1024


def shapes(layers):
    """Names and shapes in the order of the checkpoint."""
    yield "model.embed_tokens.weight", (VOCAB, HIDDEN)
    for layer in range(layers):
        at = f"model.layers.{layer}"
        yield f"{at}.input_layernorm.weight", (HIDDEN,)
        for name, rows, columns in [
            ("self_attn.q_proj", HIDDEN, HIDDEN), ("self_attn.k_proj", KV, HIDDEN), ("self_attn.v_proj", KV, HIDDEN),
            ("self_attn.o_proj", HIDDEN, HIDDEN), ("mlp.gate_proj", BETWEEN, HIDDEN), ("mlp.up_proj", BETWEEN, HIDDEN),
            ("mlp.down_proj", HIDDEN, BETWEEN),
        ]:
            yield f"{at}.{name}.weight", (rows, columns)
        yield f"{at}.post_attention_layernorm.weight", (HIDDEN,)
    yield "model.norm.weight", (HIDDEN,)
    yield "lm_head.weight", (VOCAB, HIDDEN)


def split(tensors, limit):
    """Lists of tensors of at most `limit` bytes, but at least one tensor."""
    part, used = [], 0
    for name, shape in tensors:
        size = 2 * int(numpy.prod(shape))
        if part and used + size > limit:
            yield part
            part, used = [], 0
        part.append((name, shape, size))
        used += size
    yield part


def write(path, part, block, dtype):
    """One safetensors file: the length of the header, the header, the data."""
    header, offset = {}, 0
    for name, shape, size in part:
        header[name] = dict(dtype=dtype, shape=list(shape), data_offsets=[offset, offset + size])
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        while offset > 0:
            file.write(block[:offset])
            offset -= min(offset, len(block))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--shard-gb", type=float, default=2.0)
    parser.add_argument("--dtype", choices=["bf16", "f16"], default="bf16")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True)
    normal = numpy.random.default_rng(0).standard_normal(1 << 24, dtype=numpy.float32) * numpy.float32(0.02)
    half = arguments.dtype == "f16"
    block = (normal.astype(numpy.float16) if half else (normal.view(numpy.uint32) >> 16).astype(numpy.uint16)).tobytes() * 8
    config = dict(
        architectures=["LlamaForCausalLM"], model_type="llama", hidden_act="silu", hidden_size=HIDDEN,
        intermediate_size=BETWEEN, num_hidden_layers=arguments.layers, num_attention_heads=32, num_key_value_heads=8,
        max_position_embeddings=8192, rms_norm_eps=1e-5, rope_theta=500000.0, tie_word_embeddings=False,
        vocab_size=VOCAB, torch_dtype="float16" if half else "bfloat16", bos_token_id=128000, eos_token_id=128001)
    (arguments.out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    parts = list(split(shapes(arguments.layers), int(arguments.shard_gb * 1e9)))
    index = {}
    for number, part in enumerate(parts, 1):
        name = f"model-{number:05}-of-{len(parts):05}.safetensors"
        write(arguments.out / name, part, block, arguments.dtype.upper())
        index.update({tensor: name for tensor, _, _ in part})
        print(name, flush=True)
    text = json.dumps(dict(metadata={}, weight_map=index), indent=2)
    (arguments.out / "model.safetensors.index.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
