"""Makes small random checkpoints whose weights are packed as AutoGPTQ and AutoAWQ pack them, stored as numbers of fp8 as
DeepSeek's and other releases are, or in MXFP4 as gpt-oss, and their goldens: what Transformers computes in float32 with the numbers that the packed weights stand for.

Packing follows the published formats word by word: `pack` of AutoGPTQ's `qlinear_cuda.py` and of AutoAWQ's `gemm.py`."""
import json
import pathlib
import tempfile

import numpy
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

import record
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


def quantised(weight, bits, group):
    """Codes `[o, k]`, scales and zero points `[o, groups]`: the range of each group, rounded to nearest."""
    outputs, k = weight.shape
    group = k if group == -1 else group
    grouped = weight.reshape(outputs, k // group, group)
    low, high = grouped.amin(-1).clamp(max=0), grouped.amax(-1).clamp(min=0)
    scales = ((high - low) / (2**bits - 1)).half().float()
    # AutoGPTQ stores zero points less one, so that none may be 0.
    zeros = (-low / scales).round().clamp(1, 2**bits - 1)
    codes = (grouped / scales[..., None] + zeros[..., None]).round().clamp(0, 2**bits - 1)
    numbers = ((codes - zeros[..., None]) * scales[..., None]).reshape(outputs, k)
    return codes.reshape(outputs, k).long(), scales, zeros.long(), numbers


def words(values, bits, order):
    """Rows of values to rows of words: value `order[i]` of a word's is in bits `bits·i` and up."""
    per_word = 32 // bits
    rows, columns = values.shape
    packed = numpy.zeros((rows, columns // per_word), dtype=numpy.uint32)
    for column in range(columns // per_word):
        for i in range(per_word):
            value = values[:, column * per_word + order[i]].numpy().astype(numpy.uint32)
            packed[:, column] |= value << numpy.uint32(bits * i)
    return torch.from_numpy(packed.astype(numpy.int32))


def pack_gptq(base, weight, config):
    bits = config["bits"]
    plain = list(range(32 // bits))
    codes, scales, zeros, numbers = quantised(weight, bits, config["group_size"])
    stored = zeros - (0 if config.get("checkpoint_format") == "gptq_v2" else 1)
    k = weight.shape[1]
    group = k if config["group_size"] == -1 else config["group_size"]
    return numbers, {
        # Words run along the inputs, which are rows.
        f"{base}.qweight": words(codes, bits, plain).t().contiguous(),
        f"{base}.qzeros": words(stored.t(), bits, plain).contiguous(),
        f"{base}.scales": scales.t().half().contiguous(),
        f"{base}.g_idx": (torch.arange(k) // group).int(),
    }


def pack_awq(base, weight, config):
    codes, scales, zeros, numbers = quantised(weight, 4, config["group_size"])
    return numbers, {
        # Words run along the outputs, which are columns.
        f"{base}.qweight": words(codes.t(), 4, AWQ_ORDER).contiguous(),
        f"{base}.qzeros": words(zeros.t(), 4, AWQ_ORDER).contiguous(),
        f"{base}.scales": scales.t().half().contiguous(),
    }


def pack_fp8(base, weight, config):
    """Numbers of e4m3 with a scale in bf16 for each block, as DeepSeek and Qwen release them, or in f32 for each row. Those of
    rows are numbers that f16 holds 256 times, so that nothing of them is lost."""
    outputs, k = weight.shape
    rows, columns = config.get("weight_block_size", [1, k])
    blocks = torch.nn.functional.pad(weight, (0, -k % columns, 0, -outputs % rows))
    blocks = blocks.reshape(blocks.shape[0] // rows, rows, blocks.shape[1] // columns, columns)
    scales = blocks.abs().amax((1, 3)) / 448
    blocked = "weight_block_size" in config
    scales = scales.bfloat16().float() if blocked else (256 * scales).half().float() / 256
    spread = scales.repeat_interleave(rows, 0)[:outputs].repeat_interleave(columns, 1)[:, :k]
    codes = (weight / spread).clamp(-448, 448).to(torch.float8_e4m3fn)
    scale = {f"{base}.weight_scale_inv": scales.bfloat16()} if blocked else {f"{base}.weight_scale": scales}
    return codes.float() * spread, {f"{base}.weight": codes} | scale


def pack_mxfp4(base, weight, config):
    """Experts `[count, inputs, outputs]` in blocks of 32 inputs: the exponent of the largest number less that of 6, as section 6.3
    of the OCP Microscaling Formats specification says. The numbers are what Transformers makes of the blocks."""
    turned = weight.transpose(1, 2)
    count, outputs, k = turned.shape
    blocks = turned.reshape(count, outputs, k // 32, 32)
    exponents = blocks.abs().amax(-1).log2().floor() - 2
    sizes = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
    scaled = blocks / exponents.exp2()[..., None]
    codes = (scaled.abs()[..., None] - sizes).abs().argmin(-1) + 8 * (scaled < 0)
    pairs = codes.reshape(count, outputs, k // 32, 16, 2)
    stored = (pairs[..., 0] + 16 * pairs[..., 1]).to(torch.uint8)
    scales = (exponents + 127).to(torch.uint8)
    numbers = convert_moe_packed_tensors(stored, scales, dtype=torch.float32)
    return numbers, {f"{base}_blocks": stored, f"{base}_scales": scales}


def is_packed(name, tensor, method):
    if method == "mxfp4":
        return name.endswith(("experts.gate_up_proj", "experts.down_proj"))
    kept = ("embed_tokens", "lm_head", "norm", "block_sparse_moe.gate.")
    return tensor.dim() == 2 and name.endswith(".weight") and not any(part in name for part in kept)


def tensors_of(keys, seed):
    """Random tensors under the checkpoint's names."""
    torch.manual_seed(seed)
    with tempfile.TemporaryDirectory() as scratch:
        (pathlib.Path(scratch) / "config.json").write_text(json.dumps(keys))
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(scratch), dtype=torch.float32)
        model.save_pretrained(scratch)
        tensors = {}
        for path in record.weight_files(pathlib.Path(scratch)):
            tensors |= load_file(path)
    for name in sorted(tensors):
        tensor = tensors[name]
        if tensor.dim() == 1 and name.endswith(".weight"):
            tensor.normal_(1.0, 0.2)
        elif tensor.dim() == 1:
            tensor.normal_(0.0, 0.3)
        else:
            tensor.normal_(0.0, 1.2 / tensor.shape[-1] ** 0.5)
    return {name: tensor.half().float() for name, tensor in tensors.items()}


def make(name, folder):
    """Writes the checkpoint; tensors and metadata of its golden."""
    keys, config, seed = PACKED[name]
    pack = {"gptq": pack_gptq, "awq": pack_awq, "fp8": pack_fp8, "mxfp4": pack_mxfp4}[config["quant_method"]]
    stored, numbers = {}, {}
    for tensor_name, tensor in tensors_of(keys, seed).items():
        if is_packed(tensor_name, tensor, config["quant_method"]):
            numbers[tensor_name], parts = pack(tensor_name.removesuffix(".weight"), tensor, config)
            stored |= parts
        else:
            numbers[tensor_name] = tensor
            stored[tensor_name] = tensor.half()
    folder.mkdir(parents=True, exist_ok=True)
    save_file(stored, folder / "model.safetensors", metadata=dict(format="pt"))
    full = keys | dict(torch_dtype="float16", quantization_config=config)
    (folder / "config.json").write_text(json.dumps(full, indent=2) + "\n")
    random = numpy.random.default_rng(seed)
    prompts = [random.integers(0, keys["vocab_size"], length).tolist() for length in (1, 9, 40)]
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        save_file(numbers, scratch / "model.safetensors", metadata=dict(format="pt"))
        (scratch / "config.json").write_text(json.dumps(keys | dict(torch_dtype="float32")))
        tensors, metadata = record.decoder(Transformers, scratch, prompts, ROWS, STEPS)
    if record.smallest_gap(tensors) < SMALLEST_GAP:
        raise SystemExit(f"{name}: a near tie decides the greedy text; choose another seed")
    return tensors, metadata
