#!/usr/bin/env python3
"""Makes the golden files that the importer's tests compare with, by Hugging Face Transformers on the CPU in float32.

    python3 tools/goldens/llama.py golden --model models/llama --out tests/goldens/llama/golden.safetensors
    python3 tools/goldens/llama.py golden --model models/llama_draft --rows 2 \\
        --out tests/goldens/llama_draft/golden.safetensors
    python3 tools/goldens/llama.py tiny --out tests/goldens [--only NAME]

`golden` runs one model of any architecture; `tiny` first makes small random checkpoints that together use every
feature of the architectures, then their goldens beside them (`--only NAME` makes one). Attention is Transformers' plain ("eager") code.

Tensors, for prompt i of T tokens:
    p{i}.input_ids    i32 [T]     what the tokenizer gives
    p{i}.positions    i32 [P]     positions of the rows below: spread evenly, the last one included
    p{i}.logits       f32 [P, V]
    p{i}.hidden.{l}   f32 [P, H]  l = 0: what enters the first layer; l = 1..L: what leaves layer l
    p{i}.final_norm   f32 [T, H]  after the final norm, at every position: the logits of every position follow from it
                                  by one product with the head's matrix, plus its bias
    p{i}.greedy_ids   i32 [G]     greedy continuation, the whole text recomputed for each token, no cache
    p{i}.greedy_gap   f32 [G]     best minus second-best logit of each of those steps

The metadata says which versions made the file, the prompts, the SHA-256 of the weights, and by how much the product
of `final_norm` and the head's matrix in float64 differs from Transformers' own logits over all positions.
"""
import argparse
import hashlib
import json
import pathlib

import numpy
import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

PROMPTS = [
    "It was late in the evening when the",
    "\"You are quite right,\" said the doctor; \"and yet",
    "In the garden behind the house there stood",
    # Bytes beyond ASCII, digits, punctuation, line breaks.
    "Chère Élise -- the 14:05 train (No. 388) cost £2 10s.; \"à demain!\"\n\nShe folded it, and",
    # More than 128 tokens.
    "The coach had left the village behind it, and was climbing slowly between bare hedges toward the moor, when the "
    "elder of the two travellers, who had not spoken since they changed horses, laid down his newspaper and looked for "
    "some time out of the window. There was little enough to be seen: a grey sky, a few sheep under a wall, and far off, "
    "where the road crossed the hill, a single light that might have been a farm. \"We shall be late,\" said he. \"My "
    "brother dines at six, and he does not wait for anybody, not even for the doctor.\" The younger man smiled, and",
]

# Checkpoint name: configuration (of Llama unless `model_type` says otherwise), dtype of the weights, whether config.json gets the older rope keys, shards.
TINY = {
    "llama_tiny_llama3": (dict(
        vocab_size=97, hidden_size=36, intermediate_size=52, num_hidden_layers=3, num_attention_heads=6,
        num_key_value_heads=2, head_dim=10, max_position_embeddings=256, tie_word_embeddings=False, attention_bias=True,
        mlp_bias=True, rms_norm_eps=1e-6,
        rope_parameters=dict(rope_type="llama3", rope_theta=2000.0, factor=8.0, low_freq_factor=1.0,
                             high_freq_factor=4.0, original_max_position_embeddings=64)), torch.float32, False, 1),
    "llama_tiny_linear": (dict(
        vocab_size=101, hidden_size=32, intermediate_size=44, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=1, max_position_embeddings=128, tie_word_embeddings=True, rms_norm_eps=1e-5,
        rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=4.0)), torch.float16, True, 3),
    "llama_tiny_plain": (dict(
        vocab_size=67, hidden_size=40, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=96, tie_word_embeddings=False, attention_bias=True,
        rms_norm_eps=1e-5, rope_parameters=dict(rope_type="default", rope_theta=500000.0)), torch.bfloat16, False, 1),
    "gpt_neox_tiny": (dict(
        model_type="gpt_neox", vocab_size=89, hidden_size=36, intermediate_size=56, num_hidden_layers=2,
        num_attention_heads=3, max_position_embeddings=96, use_parallel_residual=True, hidden_act="gelu",
        rope_parameters=dict(rope_type="default", rope_theta=5000.0, partial_rotary_factor=0.5)),
        torch.float32, False, 1),
    "gpt_neox_tiny_sequential": (dict(
        model_type="gpt_neox", vocab_size=89, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=2, max_position_embeddings=64, use_parallel_residual=False, attention_bias=False,
        hidden_act="gelu_new", tie_word_embeddings=True,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.25)),
        torch.float16, False, 1),
    "phi_tiny": (dict(
        model_type="phi", vocab_size=83, hidden_size=40, intermediate_size=52, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=96, hidden_act="gelu_new",
        rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.4)),
        torch.float32, False, 1),
    "starcoder2_tiny": (dict(
        model_type="starcoder2", vocab_size=79, hidden_size=36, intermediate_size=60, num_hidden_layers=3,
        num_attention_heads=6, num_key_value_heads=2, max_position_embeddings=96, sliding_window=7, use_bias=True,
        hidden_act="gelu_pytorch_tanh", rope_parameters=dict(rope_type="default", rope_theta=100000.0)),
        torch.bfloat16, False, 1),
}


def spread(length, rows):
    """`rows` positions of a text, the last one included."""
    return sorted({round((i + 1) * length / min(rows, length)) - 1 for i in range(min(rows, length))})


class Recorder:
    """Keeps what enters the first decoder layer, what leaves each, and what the final norm gives."""

    def __init__(self, model):
        layers, self.seen = model.base_model.layers, {}
        layers[0].register_forward_pre_hook(self.entering, with_kwargs=True)
        for number, layer in enumerate(layers, 1):
            layer.register_forward_hook(self.leaving(f"hidden.{number}"))
        names = ("norm", "final_layernorm", "final_layer_norm")
        norm = next(getattr(model.base_model, name) for name in names if hasattr(model.base_model, name))
        norm.register_forward_hook(self.leaving("final_norm"))

    def entering(self, _module, args, kwargs):
        self.seen["hidden.0"] = (args[0] if args else kwargs["hidden_states"])[0].clone()

    def leaving(self, name):
        def hook(_module, _args, output):
            self.seen[name] = (output[0] if isinstance(output, tuple) else output)[0].clone()
        return hook


def greedy(model, ids, steps):
    """The next `steps` tokens and by how much each beat the second best."""
    chosen, gaps = [], []
    for _ in range(steps):
        best = model(torch.tensor([ids + chosen]), use_cache=False).logits[0, -1].topk(2)
        chosen.append(int(best.indices[0]))
        gaps.append(float(best.values[0] - best.values[1]))
    return torch.tensor(chosen, dtype=torch.int32), torch.tensor(gaps)


def weight_files(folder):
    return sorted(p for p in pathlib.Path(folder).glob("*.safetensors") if p.name != "golden.safetensors")


@torch.no_grad()
def golden(folder, prompts, rows, steps):
    """Tensors and metadata of the golden file of one checkpoint; `prompts` are lists of token ids."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    recorder, tensors, error = Recorder(model), {}, 0.0
    head = model.get_output_embeddings()
    matrix, bias = head.weight.double(), 0.0 if head.bias is None else head.bias.double()
    for i, ids in enumerate(prompts):
        logits = model(torch.tensor([ids]), use_cache=False).logits[0]
        seen = dict(recorder.seen)
        error = max(error, float((seen["final_norm"].double() @ matrix.T + bias - logits.double()).abs().max()))
        # Few rows keep the file small; the first prompt keeps all of its own, unless the file is to be smallest.
        positions = spread(len(ids), len(ids) if i == 0 and rows > 2 else rows)
        tensors[f"p{i}.input_ids"] = torch.tensor(ids, dtype=torch.int32)
        tensors[f"p{i}.positions"] = torch.tensor(positions, dtype=torch.int32)
        tensors[f"p{i}.final_norm"] = seen.pop("final_norm")
        tensors[f"p{i}.logits"] = logits[positions]
        for name, value in seen.items():
            tensors[f"p{i}.{name}"] = value[positions]
        tensors[f"p{i}.greedy_ids"], tensors[f"p{i}.greedy_gap"] = greedy(model, ids, steps)
    digest = hashlib.sha256()
    for path in weight_files(folder):
        digest.update(path.read_bytes())
    metadata = dict(
        made_by="tools/goldens/llama.py", model=pathlib.Path(folder).name, torch=torch.__version__,
        transformers=transformers.__version__, computed_in="float32 on a CPU, eager attention",
        weights_sha256=digest.hexdigest(), logits_from_final_norm_error=f"{error:.3e}")
    return tensors, metadata


def write(out, tensors, metadata):
    out.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: t.contiguous() for name, t in tensors.items()}, out, metadata=metadata)
    print(f"{out}: {len(tensors)} tensors, {out.stat().st_size / 1024:.0f} KiB, "
          f"logits from final norm within {metadata['logits_from_final_norm_error']}")


def make_tiny(name, seed, folder):
    """A random checkpoint whose attention and feed-forward layers all matter to the result."""
    options, dtype, older_keys, shards = TINY[name]
    torch.manual_seed(seed)
    options = dict(options)
    kind = options.pop("model_type", "llama")
    config = AutoConfig.for_model(kind, bos_token_id=0, eos_token_id=1, pad_token_id=None, **options)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    for parameter_name, parameter in model.named_parameters():
        if parameter.dim() == 1 and parameter_name.endswith(".weight"):
            parameter.data.normal_(1.0, 0.2)
        elif parameter.dim() == 1:
            parameter.data.normal_(0.0, 0.3)
        else:
            parameter.data.normal_(0.0, 1.2 / parameter.shape[-1] ** 0.5)
    model = model.to(dtype)
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    model.save_pretrained(folder, max_shard_size=size if shards == 1 else size // shards)
    if older_keys:
        path = folder / "config.json"
        config = json.loads(path.read_text())
        rope = config.pop("rope_parameters")
        config["rope_theta"] = rope.pop("rope_theta")
        config["rope_scaling"] = dict(type=rope["rope_type"], factor=rope["factor"])
        del config["head_dim"]
        config["torch_dtype"] = config.pop("dtype")
        path.write_text(json.dumps(config, indent=2) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("golden")
    one.add_argument("--model", required=True)
    one.add_argument("--out", required=True)
    one.add_argument("--rows", type=int, default=3, help="positions per prompt whose logits and hidden states are kept")
    one.add_argument("--steps", type=int, default=32)
    tiny = commands.add_parser("tiny")
    tiny.add_argument("--out", required=True)
    tiny.add_argument("--only", choices=list(TINY))
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.use_deterministic_algorithms(True)

    if arguments.command == "golden":
        tokenizer = AutoTokenizer.from_pretrained(arguments.model)
        ids = [tokenizer(prompt)["input_ids"] for prompt in PROMPTS]
        tensors, metadata = golden(arguments.model, ids, arguments.rows, arguments.steps)
        write(pathlib.Path(arguments.out), tensors, metadata | dict(prompts=json.dumps(PROMPTS)))
        return
    for seed, name in enumerate(TINY):
        if arguments.only not in (None, name):
            continue
        folder = pathlib.Path(arguments.out) / name
        make_tiny(name, seed, folder)
        random = numpy.random.default_rng(seed)
        vocab, longest = TINY[name][0]["vocab_size"], TINY[name][0]["max_position_embeddings"]
        ids = [random.integers(0, vocab, length).tolist() for length in (1, 9, longest - 16)]
        write(folder / "golden.safetensors", *golden(folder, ids, 12, 16))


if __name__ == "__main__":
    main()
