"""Makes small random checkpoints whose weights are packed as AutoGPTQ and AutoAWQ pack them, stored as numbers of fp8 as
DeepSeek's and other releases are, or in MXFP4 as gpt-oss, and their goldens: what Transformers computes in float32 with the numbers that the packed weights stand for.

Codes and zero points are random bits. What they stand for follows the published formats word by word: `pack` of AutoGPTQ's
`qlinear_cuda.py` and of AutoAWQ's `gemm.py`."""
import json
import pathlib
import tempfile

import numpy
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

import record
import weights
from kept import ROWS
from models import Transformers

STEPS = 12
SMALLEST_GAP = 1e-3

LLAMA = dict(
    architectures=["LlamaForCausalLM"], model_type="llama", vocab_size=67, hidden_size=64, intermediate_size=96,
    num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2, head_dim=16, max_position_embeddings=96,
    rms_norm_eps=1e-5, rope_theta=10000.0, hidden_act="silu", attention_bias=True, tie_word_embeddings=False)
MIXTRAL = dict(
    architectures=["MixtralForCausalLM"], model_type="mixtral", vocab_size=67, hidden_size=64, intermediate_size=64,
    num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2, head_dim=16, max_position_embeddings=96,
    rms_norm_eps=1e-5, rope_theta=10000.0, hidden_act="silu", num_local_experts=4, num_experts_per_tok=2,
    sliding_window=None, tie_word_embeddings=False)

GPT_OSS = dict(
    architectures=["GptOssForCausalLM"], model_type="gpt_oss", vocab_size=71, hidden_size=64, intermediate_size=32,
    num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16, max_position_embeddings=96,
    rms_norm_eps=1e-5, hidden_act="silu", num_local_experts=4, num_experts_per_tok=2, sliding_window=7,
    layer_types=["sliding_attention", "full_attention"], swiglu_limit=1.0, attention_bias=True,
    tie_word_embeddings=False, rope_theta=1000.0, rope_scaling=dict(
        rope_type="yarn", factor=4.0, beta_fast=4.0, beta_slow=1.0, original_max_position_embeddings=16, truncate=False))

# Of the codes of fp8: their largest numbers are below the largest of e4m3.
FP8_DEVIATION = 120.0
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def gptq(bits, group, **more):
    return dict(quant_method="gptq", bits=bits, group_size=group, desc_act=False, sym=False, **more)


def awq(group):
    return dict(quant_method="awq", bits=4, group_size=group, zero_point=True, version="gemm",
                modules_to_not_convert=["gate"])


def fp8(**more):
    return dict(quant_method="fp8", activation_scheme="dynamic", **more)


PACKED = {
    "llama_tiny_gptq": (LLAMA, gptq(4, 32), 1),
    "llama_tiny_gptq_8bit": (LLAMA, gptq(8, -1, checkpoint_format="gptq_v2"), 2),
    "llama_tiny_awq": (LLAMA, awq(16), 3),
    "mixtral_tiny_awq": (MIXTRAL, awq(32), 5),
    "llama_tiny_fp8": (LLAMA, fp8(fmt="e4m3", weight_block_size=[40, 32]), 6),
    "gpt_oss_tiny_mxfp4": (GPT_OSS, dict(quant_method="mxfp4", modules_to_not_convert=["model.layers.*.self_attn"]), 8),
    "mixtral_tiny_fp8_rows": (MIXTRAL, fp8(), 7),
}


def words_described(rows, columns, bits, mask=0xFFFFFFFF):
    return ["I32", [rows, columns * bits // 32], "bits"] + ([] if mask == 0xFFFFFFFF else [mask])


def unpacked(words, bits, order):
    """Rows of words to rows of values: value `order[i]` of a word's is in bits `bits·i` and up."""
    values = torch.empty(*words.shape, 32 // bits, dtype=torch.int64)
    for i, place in enumerate(order):
        values[..., place] = words.long() >> bits * i & (1 << bits) - 1
    return values.flatten(-2)


def scales_described(groups, outputs, k, levels):
    """Scales with which random codes and zero points have the deviation 1.2 / sqrt(k)."""
    scale = 1.2 / k**0.5 / (levels * (2 / 12) ** 0.5)
    return ["F16", [groups, outputs], weights.rounded(scale), weights.rounded(scale / 5)]


def describe_gptq(base, shape, config):
    bits, (outputs, k) = config["bits"], shape
    group = k if config["group_size"] == -1 else config["group_size"]
    # AutoGPTQ stores zero points less one, so that none may be 0: the largest number of 4 bits is not among these.
    mask = 0xFFFFFFFF if config.get("checkpoint_format") == "gptq_v2" else 0xEEEEEEEE
    return {
        # Words run along the inputs, which are rows.
        f"{base}.qweight": ["I32", [k * bits // 32, outputs], "bits"],
        f"{base}.qzeros": words_described(k // group, outputs, bits, mask),
        f"{base}.scales": scales_described(k // group, outputs, k, 2**bits),
        f"{base}.g_idx": ["I32", [k], [[i, group] for i in range(k // group)]],
    }


def unpack_gptq(base, stored, config):
    bits = config["bits"]
    plain = list(range(32 // bits))
    codes = unpacked(stored[f"{base}.qweight"].t(), bits, plain)
    zeros = unpacked(stored[f"{base}.qzeros"], bits, plain) + (config.get("checkpoint_format") != "gptq_v2")
    groups = stored[f"{base}.g_idx"].long()
    return (codes - zeros[groups].t()) * stored[f"{base}.scales"].float()[groups].t()


def describe_awq(base, shape, config):
    outputs, k = shape
    return {
        # Words run along the outputs, which are columns.
        f"{base}.qweight": words_described(k, outputs, 4),
        f"{base}.qzeros": words_described(k // config["group_size"], outputs, 4),
        f"{base}.scales": scales_described(k // config["group_size"], outputs, k, 16),
    }


def unpack_awq(base, stored, config):
    codes = unpacked(stored[f"{base}.qweight"], 4, AWQ_ORDER)
    zeros = unpacked(stored[f"{base}.qzeros"], 4, AWQ_ORDER)
    spread = lambda rows: rows.repeat_interleave(config["group_size"], 0)
    return ((codes - spread(zeros)) * spread(stored[f"{base}.scales"].float())).t()


def describe_fp8(base, shape, config):
    """Numbers of e4m3 with a scale in bf16 for each block, as DeepSeek and Qwen release them, or in f32 for each row. Those of
    rows are numbers that f16 holds 256 times, so that nothing of them is lost."""
    outputs, k = shape
    rows, columns = config.get("weight_block_size", [1, k])
    size = weights.rounded(1.2 / k**0.5 / FP8_DEVIATION)
    scales, sizes = [-(-outputs // rows), -(-k // columns)], [size, weights.rounded(size / 5)]
    blocked = "weight_block_size" in config
    scale = {f"{base}.weight_scale_inv": ["BF16", scales, *sizes]} if blocked else {
        f"{base}.weight_scale": ["F32", scales, *sizes, "BF16"]}
    return {f"{base}.weight": ["F8_E4M3", [outputs, k], 0.0, FP8_DEVIATION]} | scale


def unpack_fp8(base, stored, config):
    codes = stored[f"{base}.weight"].float()
    scales = stored.get(f"{base}.weight_scale_inv", stored.get(f"{base}.weight_scale")).float()
    rows, columns = config.get("weight_block_size", [1, codes.shape[1]])
    return codes * scales.repeat_interleave(rows, 0)[:len(codes)].repeat_interleave(columns, 1)[:, :codes.shape[1]]


def describe_mxfp4(base, shape, config):
    """Experts `[count, inputs, outputs]` in blocks of 32 inputs, as section 6.3 of the OCP Microscaling Formats specification
    says: codes of two numbers in a byte, and exponents."""
    count, k, outputs = shape
    return {f"{base}_blocks": ["U8", [count, outputs, k // 32, 16], "bits"],
            f"{base}_scales": ["U8", [count, outputs, k // 32], 122.0, 0.8]}


def unpack_mxfp4(base, stored, config):
    """What Transformers makes of the blocks."""
    return convert_moe_packed_tensors(stored[f"{base}_blocks"], stored[f"{base}_scales"], dtype=torch.float32)


METHODS = {
    "gptq": (describe_gptq, unpack_gptq), "awq": (describe_awq, unpack_awq), "fp8": (describe_fp8, unpack_fp8),
    "mxfp4": (describe_mxfp4, unpack_mxfp4)}


def is_packed(name, shape, method):
    if method == "mxfp4":
        return name.endswith(("experts.gate_up_proj", "experts.down_proj"))
    kept = ("embed_tokens", "lm_head", "norm", "block_sparse_moe.gate.")
    return len(shape) == 2 and name.endswith(".weight") and not any(part in name for part in kept)


def plain(name, shape):
    """The description of a tensor that is not packed."""
    if len(shape) == 1:
        return ["F16", shape, *((1.0, 0.2) if name.endswith(".weight") else (0.0, 0.3))]
    return ["F16", shape, 0.0, weights.rounded(1.2 / shape[-1] ** 0.5)]


def shapes_of(keys):
    """Shapes under the checkpoint's names."""
    with tempfile.TemporaryDirectory() as scratch:
        (pathlib.Path(scratch) / "config.json").write_text(json.dumps(keys))
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(scratch), dtype=torch.float32)
        model.save_pretrained(scratch)
        tensors = {}
        for path in record.weight_files(pathlib.Path(scratch)):
            tensors |= load_file(path)
    return {name: list(tensors[name].shape) for name in sorted(tensors)}


def write_checkpoint(keys, config, shapes, folder):
    """Writes config.json; the description of the weights."""
    (folder / "config.json").write_text(
        json.dumps(keys | dict(torch_dtype="float16", quantization_config=config), indent=2) + "\n")
    method, described = config["quant_method"], {}
    for name, shape in shapes.items():
        packed = is_packed(name, shape, method)
        described |= METHODS[method][0](name.removesuffix(".weight"), shape, config) if packed else {
            name: plain(name, shape)}
    # As in published files, wider numbers come first, so that each is aligned.
    size = lambda name: -weights.DTYPES[described[name][0]].itemsize
    return {"model.safetensors": {name: described[name] for name in sorted(described, key=lambda n: (size(n), n))}}


def run(keys, config, shapes, seed, folder):
    """Tensors and metadata of the golden of a checkpoint, by the numbers that it stands for."""
    stored, method = load_file(folder / "model.safetensors"), config["quant_method"]
    numbers = {
        name: METHODS[method][1](name.removesuffix(".weight"), stored, config).contiguous()
        if is_packed(name, shape, method) else stored[name].float() for name, shape in shapes.items()}
    assert all(list(numbers[name].shape) == shape for name, shape in shapes.items())
    random = numpy.random.default_rng(seed)
    prompts = [random.integers(0, keys["vocab_size"], length).tolist() for length in (1, 9, 40)]
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch) / folder.name
        scratch.mkdir()
        save_file(numbers, scratch / "model.safetensors", metadata=dict(format="pt"))
        (scratch / "config.json").write_text(json.dumps(keys | dict(torch_dtype="float32")))
        tensors, metadata = record.decoder(Transformers, scratch, prompts, ROWS, STEPS)
    if record.smallest_gap(tensors) < SMALLEST_GAP:
        raise weights.Refused("a near tie decides the greedy text")
    return tensors, metadata


def make(name, folder):
    """Writes the checkpoint; tensors and metadata of its golden."""
    keys, config, seed = PACKED[name]
    shapes = shapes_of(keys)
    return weights.make(folder, seed, lambda out: write_checkpoint(keys, config, shapes, out),
                        lambda out: run(keys, config, shapes, seed, out))
