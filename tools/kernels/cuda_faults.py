#!/usr/bin/env python3
"""Writes eleven faulty kernels in CUDA C++, as people make them, each a file for `--kernel`; and a model that they serve.

    python3 tools/kernels/cuda_faults.py --out faults --model llama64
    tapml migrate llama64 --target cuda --activation f16 --kernel rope_append_attention/flash_decode_cuda=faults/decode_join.cu

Each fault is one change of a built-in kernel or of a header, which is written into the file in the place of its include.
Every row of the kernel list that launches the kernel is in `faults/rows.json`. The model is a Llama of two layers with heads of 64
elements and random weights (needs numpy and safetensors).
"""
import argparse
import json
import pathlib
import re
import shutil

# Whose tokenizer the model has.
WORDS = pathlib.Path(__file__).parents[2] / "models/llama"
KERNELS = pathlib.Path(__file__).parents[2] / "crates/kernels/src/kernel/cuda"
DECODE, PREFILL = ["rope_append_attention/flash_decode_cuda"], ["rope_attention/flash_prefill_hopper"]

# Name, kernel, header of the change or none, text before and after, rows of the kernel list, what is wrong.
FAULTS = [
    ("decode_join", "flash_decode", "flash_decode.cuh", "weight += f * read_of(", "weight += read_of(", DECODE,
     "parts of the cache are joined wrongly behind 256 rows"),
    ("decode_tail", "flash_decode", "flash_decode.cuh", "end - at < 16 ? end - at : 16", "16", DECODE,
     "keys behind the last cached one count"),
    ("decode_split", "flash_decode", "flash_decode.cuh", "/ H::splits + 15) / 16 * 16", "/ H::splits) / 16 * 16", DECODE,
     "the last keys of a split cache are left out"),
    ("decode_ring", "flash_decode", "flash_decode.cuh", "if (++slot == P::depth) slot = 0;", "if (++slot == P::depth) slot = 1;", DECODE,
     "a stage of the ring is read twice"),
    ("prefill_cached", "flash_prefill_hopper", "softmax.cuh", "p(symbols[1])", "p(0)", PREFILL,
     "the cached rows are ignored in a later part of a prompt"),
    ("prefill_mask", "flash_prefill_hopper", "softmax.cuh", "at + KEYS > low_position + 1", "at + KEYS > low_position + 16", PREFILL,
     "tiles on the diagonal are not masked"),
    ("append_cached", "rope_kv_write", None, "symbols[1]", "0", ["rope_append/rows_cuda"],
     "new keys are written over the cached ones"),
    ("gemm_rest", "gemm_hopper", "gemm_hopper.cuh", "(rows + H::n - 1) / H::n", "(rows < H::n ? 1 : rows / H::n)",
     ["linear/gemm_hopper", "linears/gemm_hopper", "gated_linear/gemm_hopper"], "rows behind the last whole tile of 128 are left out"),
    ("norm_eps", "normalise", None, "squares / K + (float)EPS", "squares / K", ["rms_norm/rows_cuda", "add_rms_norm/rows_cuda"],
     "the norm of many rows has no eps"),
    ("norm_row_eps", "rms_norm", None, "(float)EPS);", "0.0f);", ["rms_norm/row_cuda", "add_rms_norm/row_cuda"],
     "the norm of one row has no eps"),
    ("fused_norm_eps", "gemv", None, "eps = (float)EPS", "eps = 0.0f", ["norm_linear/gemv_cuda"],
     "the norm in front of a product has no eps"),
]


# Constants of kernels are macros of the file that is given, and headers have parameters of these names.
MACROS = re.compile(r"\b(D|GROUPS)\b")


def inlined(text, wanted):
    """The text with this header, and those that lead to it, in the place of their includes."""
    def place(match):
        header = (KERNELS / "include" / match[1]).read_text()
        inner = inlined(header, wanted)
        return MACROS.sub(r"\1_", inner) if match[1] == wanted or inner != header else match[0]

    return re.sub(r'#include "([^"]+)"', place, text)


def faulty(kernel, header, before, after):
    text = (KERNELS / f"{kernel}.cu").read_text()
    text = inlined(text, header) if header else text
    if before not in text:
        raise SystemExit(f"{kernel}: `{before}` is not in the text any more")
    return text.replace(before, after)


def write_model(folder):
    import numpy
    from safetensors.numpy import save_file

    hidden, heads, kv, layers, between = 512, 8, 2, 2, 1024
    vocab = json.loads((WORDS / "config.json").read_text())["vocab_size"]
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden, "head_dim": 64, "num_attention_heads": heads,
        "num_key_value_heads": kv, "num_hidden_layers": layers, "vocab_size": vocab, "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6, "hidden_act": "silu", "rope_theta": 10000.0, "tie_word_embeddings": False, "torch_dtype": "float16",
        "intermediate_size": between,
    }
    random = numpy.random.default_rng(1)
    shapes = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,), "lm_head.weight": (vocab, hidden)}
    for layer in range(layers):
        at = f"model.layers.{layer}"
        for name, shape in [("input_layernorm", (hidden,)), ("post_attention_layernorm", (hidden,)),
                            ("self_attn.q_proj", (hidden, hidden)), ("self_attn.k_proj", (kv * 64, hidden)),
                            ("self_attn.v_proj", (kv * 64, hidden)), ("self_attn.o_proj", (hidden, hidden)),
                            ("mlp.gate_proj", (between, hidden)), ("mlp.up_proj", (between, hidden)), ("mlp.down_proj", (hidden, between))]:
            shapes[f"{at}.{name}.weight"] = shape
    tensors = {}
    for name, shape in shapes.items():
        spread = 0.1 if len(shape) == 1 else shape[1] ** -0.5
        tensors[name] = (random.normal(1.0 if len(shape) == 1 else 0.0, spread, shape)).astype(numpy.float16)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    for file in ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"]:
        shutil.copy(WORDS / file, folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--model", type=pathlib.Path)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    rows = {}
    for name, kernel, header, before, after, served, what in FAULTS:
        (given.out / f"{name}.cu").write_text(faulty(kernel, header, before, after))
        rows[name] = {"rows": served, "fault": what}
    (given.out / "rows.json").write_text(json.dumps(rows, indent=1) + "\n")
    if given.model:
        write_model(given.model)


if __name__ == "__main__":
    main()
