#!/usr/bin/env python3
"""Makes GGUF files and what they must be read as, with ggml's own Python package (`gguf`).

    python3 tools/goldens/gguf_files.py blocks --out blocks.safetensors
    python3 tools/goldens/gguf_files.py convert --model tests/goldens/phi_tiny --out phi_tiny.gguf
    python3 tools/goldens/gguf_files.py quantized --out .

`blocks.safetensors` is kept packed, as `tests/goldens/gguf/blocks.tar.zst`:

    tar --owner=0 --group=0 --numeric-owner --mtime=@0 -cf - blocks.safetensors | zstd -19 -o blocks.tar.zst

Converted files are kept in `converted.tar.zst`, as what they add to the weights of their checkpoint (`delta.py`), those of `quantized` in
`quantized.tar.zst`:

    tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -c quantized.gguf quantized.safetensors |
        zstd --ultra -22 > quantized.tar.zst

`blocks`: for each quantised type, u8 `TYPE.blocks` [n, bytes of a block] and f32 `TYPE.values` [n, elements of a block],
the latter by `gguf.quants.dequantize`. Scales are chosen, codes random.

`convert`: a checkpoint, or one that `weights.json` describes, as llama.cpp's converter lays it out: names by
`gguf.TensorNameMap`, vectors and norms in f32, matrices in the checkpoint's dtype, rows of rotated pairs interleaved where
the architecture wants it. What Transformers reads from such a file is compared with the checkpoint, where it reads the
architecture.

`quantized`: `quantized.gguf`, a small Llama with weights of every quantised type and with divisors of its rotary
frequencies, and `quantized.safetensors`: i32 `p{i}.input_ids` [T] and f32 `p{i}.logits` [T, V] of Transformers for the
dequantised weights.
"""
import argparse
import math
import pathlib
import tempfile

import gguf
import numpy
import torch
import transformers
from gguf import GGMLQuantizationType as Type
from safetensors.numpy import save_file
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

import weights

# Types of blocks, and where in a block its f16 scales are.
SCALES = {
    Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q5_0: [0], Type.Q5_1: [0, 2], Type.Q8_0: [0], Type.IQ4_NL: [0],
    Type.Q2_K: [80, 82], Type.Q3_K: [108], Type.Q4_K: [0, 2], Type.Q5_K: [0, 2], Type.Q6_K: [208],
    Type.IQ4_XS: [0], Type.MXFP4: [],
}

# model_type: architecture of the file.
ARCHITECTURES = {
    "llama": gguf.MODEL_ARCH.LLAMA,
    "gpt_neox": gguf.MODEL_ARCH.GPTNEOX,
    "phi": gguf.MODEL_ARCH.PHI2,
    "phi3": gguf.MODEL_ARCH.PHI3,
    "starcoder2": gguf.MODEL_ARCH.STARCODER2,
    "qwen2": gguf.MODEL_ARCH.QWEN2,
    "qwen3": gguf.MODEL_ARCH.QWEN3,
    "gemma": gguf.MODEL_ARCH.GEMMA,
    "gemma2": gguf.MODEL_ARCH.GEMMA2,
    "nemotron": gguf.MODEL_ARCH.NEMOTRON,
    "stablelm": gguf.MODEL_ARCH.STABLELM,
    "olmo": gguf.MODEL_ARCH.OLMO,
    "olmo2": gguf.MODEL_ARCH.OLMO2,
    "granite": gguf.MODEL_ARCH.GRANITE,
    "smollm3": gguf.MODEL_ARCH.SMOLLM3,
    "cohere": gguf.MODEL_ARCH.COMMAND_R,
    "cohere2": gguf.MODEL_ARCH.COHERE2,
    "glm4": gguf.MODEL_ARCH.GLM4,
}
# The ones whose rows of rotated pairs are interleaved, and whose norms are stored as 1 + w.
INTERLEAVED = ("llama", "olmo", "granite", "smollm3")
ONE_MORE = ("gemma", "gemma2", "nemotron")
# The ones that Transformers reads from GGUF files.
READ_BY_TRANSFORMERS = ("llama", "starcoder2", "qwen2", "qwen3", "gemma2", "phi3", "stablelm", "nemotron")


def random_blocks(kind, count, scales, generator):
    """Blocks of random codes; scale `i` of block `b` is `scales[b][i]`."""
    _, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = generator.integers(0, 256, (count, size), dtype=numpy.uint8)
    for block, values in zip(blocks, scales):
        if kind == Type.MXFP4:
            block[0] = values[0]
        for place, value in zip(SCALES[kind], values):
            block[place:place + 2] = numpy.array([value], dtype=numpy.float16).view(numpy.uint8)
    return blocks


def make_blocks(out):
    generator, tensors = numpy.random.default_rng(0), {}
    # Ordinary, negative, zero, smallest subnormal, largest.
    chosen = [(0.013, 0.002), (-1.75, 0.31), (0.0, 1.0), (6e-8, -6e-8), (65504.0, -65504.0)]
    for kind in SCALES:
        scales = [(e, 0) for e in (0, 1, 2, 120, 128, 254, 255)] if kind == Type.MXFP4 else chosen
        blocks = random_blocks(kind, len(scales), scales, generator)
        tensors[f"{kind.name}.blocks"] = blocks
        tensors[f"{kind.name}.values"] = gguf.quants.dequantize(blocks, kind)
    out.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, out, metadata=versions())
    print(f"{out}: {out.stat().st_size / 1024:.0f} KiB")


def versions():
    return dict(made_by="tools/goldens/gguf_files.py", gguf=gguf_version(), transformers=transformers.__version__)


def gguf_version():
    from importlib.metadata import version
    return version("gguf")


def interleave(rows, heads):
    """From all first rows of the rotated pairs of a head, then all second ones, to pair after pair."""
    return rows.reshape(heads, 2, -1, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def separate(rows, heads):
    """The inverse of `interleave`."""
    return rows.reshape(heads, -1, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def rope_parameters(config):
    return getattr(config, "rope_parameters", None) or {}


# Attribute of a configuration: what writes it.
KEYS = {
    "rms_norm_eps": "add_layer_norm_rms_eps", "layer_norm_eps": "add_layer_norm_eps", "norm_eps": "add_layer_norm_eps",
    "norm_epsilon": "add_layer_norm_eps", "layer_norm_epsilon": "add_layer_norm_eps", "sliding_window": "add_sliding_window",
    "attn_logit_softcapping": "add_attn_logit_softcapping", "final_logit_softcapping": "add_final_logit_softcapping",
    "use_parallel_residual": "add_parallel_residual", "clip_qkv": "add_clamp_kqv", "logit_scale": "add_logit_scale",
    "attention_multiplier": "add_attention_scale", "embedding_multiplier": "add_embedding_scale",
    "residual_multiplier": "add_residual_scale", "logits_scaling": "add_logit_scale",
}


def add_metadata(writer, config):
    """What llama.cpp's converter writes about the model's shape."""
    heads = config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(heads)
    writer.add_head_count_kv(getattr(config, "num_key_value_heads", None) or heads)
    writer.add_vocab_size(config.vocab_size)
    if head_dim * heads != config.hidden_size:
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    for key, add in KEYS.items():
        if getattr(config, key, None) is not None:
            getattr(writer, add)(getattr(config, key))
    rope = rope_parameters(config)
    share = rope.get("partial_rotary_factor", 1.0)
    writer.add_rope_freq_base(rope.get("rope_theta", 10000.0))
    writer.add_rope_dimension_count(int(head_dim * share))
    kind = rope.get("rope_type")
    if kind == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    elif kind == "longrope":
        original = config.original_max_position_embeddings
        scale = config.max_position_embeddings / original
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(scale) / math.log(original)) if scale > 1 else 1.0)
        writer.add_tensor("rope_factors_long.weight", numpy.array(rope["long_factor"], dtype=numpy.float32))
        writer.add_tensor("rope_factors_short.weight", numpy.array(rope["short_factor"], dtype=numpy.float32))
    writer.add_bos_token_id(config.bos_token_id)
    writer.add_eos_token_id(config.eos_token_id)


def laid_out(name, value, config):
    """A checkpoint's tensor with its rows in the file's order, and norms as the file has them."""
    heads = config.num_attention_heads
    if config.model_type in INTERLEAVED and any(f".{part}." in name for part in ("q_proj", "k_proj")):
        kv_heads = getattr(config, "num_key_value_heads", None) or heads
        return interleave(value, heads if ".q_proj." in name else kv_heads)
    if config.model_type == "gpt_neox" and "query_key_value" in name:
        grouped = value.reshape(heads, 3, -1, *value.shape[1:])
        return grouped.swapaxes(0, 1).reshape(value.shape)
    if config.model_type in ONE_MORE and name.endswith("norm.weight"):
        return value + 1
    return value


def stacked(state):
    """Norms of single heads in one tensor for all heads."""
    joined = {}
    for name, value in state.items():
        before, listed, place = name.partition(".norms.")
        joined.setdefault(before + ".weight" if listed else name, []).append((int(place.split(".")[0] or 0) if listed else 0, value))
    return {name: parts[0][1] if len(parts) == 1 else torch.stack([part for _, part in sorted(parts, key=lambda p: p[0])])
            for name, parts in joined.items()}


def add_tensor(writer, name, value, dtype):
    """Vectors and norms in f32, matrices in the checkpoint's dtype."""
    value = numpy.ascontiguousarray(value, dtype=numpy.float32)
    kind = Type.F32 if value.ndim == 1 or "norm" in name else {
        torch.float32: Type.F32, torch.float16: Type.F16, torch.bfloat16: Type.BF16}[dtype]
    if kind == Type.BF16:
        writer.add_tensor(name, gguf.quants.quantize(value, kind), raw_dtype=kind)
    else:
        writer.add_tensor(name, value.astype(numpy.float16) if kind == Type.F16 else value)


def file_name(names, name):
    for ending in (".weight", ".bias"):
        if name.endswith(ending):
            found = names.get_name(name, try_suffixes=(ending,))
            if found:
                return found
    raise ValueError(f"no name for {name}")


def close(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def convert(folder, out):
    config = AutoConfig.from_pretrained(folder)
    architecture = ARCHITECTURES[config.model_type]
    state = {}
    for path in sorted(folder.glob("model*.safetensors")):
        state |= load_file(path)
    out.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(out, gguf.MODEL_ARCH_NAMES[architecture])
    add_metadata(writer, config)
    names = gguf.get_tensor_name_map(architecture, config.num_hidden_layers)
    for name, value in stacked(state).items():
        value, dtype = value.float().numpy(), value.dtype
        add_tensor(writer, file_name(names, name), laid_out(name, value, config), dtype)
    close(writer)
    checked = compare(folder, out) if config.model_type in READ_BY_TRANSFORMERS else "not read by Transformers"
    print(f"{out}: {out.stat().st_size / 1024:.0f} KiB, {checked}")


def convert_described(folder, out):
    """The same of a golden, whose weights are described instead of stored."""
    with tempfile.TemporaryDirectory() as scratch:
        whole = pathlib.Path(scratch) / folder.name
        weights.materialise(folder, whole)
        convert(whole, out)


def compare(folder, out):
    """Transformers must read the same weights from the file as from the checkpoint."""
    ours = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict()
    config = AutoConfig.from_pretrained(folder)
    # Of the others, Transformers does not read all sizes.
    known = {} if config.model_type == "llama" else dict(config=config)
    theirs = AutoModelForCausalLM.from_pretrained(out.parent, gguf_file=out.name, dtype=torch.float32, **known)
    theirs = theirs.state_dict()
    assert ours.keys() == theirs.keys(), ours.keys() ^ theirs.keys()
    for name, value in ours.items():
        # A norm that is stored as 1 + w has lost the last bits of w.
        slack = 1.2e-7 if name.endswith("norm.weight") else 0.0
        assert torch.allclose(value, theirs[name], rtol=0.0, atol=slack), name
    return "read alike by Transformers"


def divisors(config):
    """What llama.cpp divides the frequencies of Llama 3.1 by."""
    rope = rope_parameters(config)
    base, size = rope["rope_theta"], config.head_dim
    low = rope["original_max_position_embeddings"] / rope["low_freq_factor"]
    high = rope["original_max_position_embeddings"] / rope["high_freq_factor"]
    factors = []
    for i in range(0, size, 2):
        length = 2 * math.pi * base ** (i / size)
        if length < high:
            factors.append(1.0)
        elif length > low:
            factors.append(rope["factor"])
        else:
            smooth = (rope["original_max_position_embeddings"] / length - rope["low_freq_factor"]) / (
                rope["high_freq_factor"] - rope["low_freq_factor"])
            factors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return numpy.array(factors, dtype=numpy.float32)


def quantized_matrix(kind, shape, generator):
    """Random blocks whose values have about the spread that keeps activations alive, and the values."""
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    count = shape[0] * shape[1] // elements
    target = 1.2 / shape[1] ** 0.5
    if kind == Type.MXFP4:
        scales = generator.integers(122, 125, (count, 1))
    else:
        ones = random_blocks(kind, count, numpy.ones((count, 2)), generator)
        spread = gguf.quants.dequantize(ones, kind).std()
        scales = target / spread * generator.uniform(0.7, 1.3, (count, 2))
        # A minimum is added in some types and subtracted in others.
        scales[:, 1] *= -7.5 if kind in (Type.Q4_1, Type.Q5_1) else 1.0
    blocks = random_blocks(kind, count, scales, generator).reshape(shape[0], -1)
    return blocks, gguf.quants.dequantize(blocks, kind)


@torch.no_grad()
def quantized(out):
    generator = numpy.random.default_rng(7)
    config = AutoConfig.for_model(
        "llama", vocab_size=64, hidden_size=32, intermediate_size=256, num_hidden_layers=6, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, max_position_embeddings=128, tie_word_embeddings=False, bos_token_id=0,
        eos_token_id=1, pad_token_id=None, rms_norm_eps=1e-5,
        rope_parameters=dict(rope_type="llama3", rope_theta=2000.0, factor=8.0, low_freq_factor=1.0,
                             high_freq_factor=4.0, original_max_position_embeddings=64))
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    wide = [Type.Q2_K, Type.Q3_K, Type.Q4_K, Type.Q5_K, Type.Q6_K, Type.IQ4_XS]
    narrow = [Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.IQ4_NL, Type.MXFP4]
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    writer = gguf.GGUFWriter(out / "quantized.gguf", "llama")
    add_metadata(writer, config)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_K_M)
    writer.add_tensor("rope_freqs.weight", divisors(config))
    state = {}
    for name, parameter in model.state_dict().items():
        shape = tuple(parameter.shape)
        if len(shape) == 1:
            state[name] = generator.normal(1.0, 0.2, shape).astype(numpy.float32)
            add_tensor(writer, file_name(names, name), state[name], torch.float32)
            continue
        kinds = wide if shape[1] % 256 == 0 else narrow
        kind = kinds.pop(0)
        kinds.append(kind)
        blocks, values = quantized_matrix(kind, shape, generator)
        writer.add_tensor(file_name(names, name), blocks, raw_dtype=kind)
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(name.split(".")[-2])
        state[name] = separate(values, heads) if heads else values
    close(writer)
    model.load_state_dict({name: torch.from_numpy(value) for name, value in state.items()})
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        compare(pathlib.Path(folder), out / "quantized.gguf")
    tensors = {}
    for i, length in enumerate((1, 9, 100)):
        ids = torch.from_numpy(generator.integers(0, config.vocab_size, (1, length)))
        tensors[f"p{i}.input_ids"] = ids[0].numpy().astype(numpy.int32)
        tensors[f"p{i}.logits"] = model(ids, use_cache=False).logits[0].numpy()
    save_file(tensors, out / "quantized.safetensors", metadata=versions())
    print(f"{out}/quantized.gguf: {(out / 'quantized.gguf').stat().st_size / 1024:.0f} KiB, "
          f"logits within ±{max(abs(t).max() for n, t in tensors.items() if n.endswith('logits')):.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("blocks", "convert", "quantized"):
        command = commands.add_parser(name)
        command.add_argument("--out", required=True, type=pathlib.Path)
        if name == "convert":
            command.add_argument("--model", required=True, type=pathlib.Path)
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if arguments.command == "blocks":
        make_blocks(arguments.out)
    elif arguments.command == "convert":
        described = (arguments.model / weights.PACKED).exists()
        (convert_described if described else convert)(arguments.model, arguments.out)
    else:
        quantized(arguments.out)


if __name__ == "__main__":
    main()
