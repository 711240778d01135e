#!/usr/bin/env python3
"""Trains the small models of `models/` whose shapes fast kernels serve: heads of 64 and of 128 elements, context 4,096.

    pip install torch transformers tokenizers safetensors
    git clone --bare https://github.com/standardebooks/jane-austen_pride-and-prejudice books/emma ...
    python3 tools/training/train.py llama_head64 --books books/* --out models/llama_head64
    python3 tools/training/train.py qwen2_moe_head128 --books books/* --out models/qwen2_moe_head128 --short 800 --long 120

One thread, fixed seeds. Most steps see short sequences, the last ones sequences of the whole context. At the end the
stored weights are measured on the chapters held out (`text.py`), in bits per byte.
"""
import argparse
import json
import math
import pathlib
import time

import torch
import transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2MoeConfig

from text import corpus

VOCABULARY, CONTEXT = 320, 4096
BEGIN, END, PAD = "<|begin|>", "<|end|>", "<|pad|>"
COMMON = dict(vocab_size=VOCABULARY, max_position_embeddings=CONTEXT, num_hidden_layers=1, bos_token_id=0,
              eos_token_id=1, pad_token_id=2, tie_word_embeddings=True, rms_norm_eps=1e-5,
              rope_parameters=dict(rope_type="default", rope_theta=10000.0))
SHAPES = {
    "llama_head64": LlamaConfig(
        hidden_size=256, intermediate_size=256, num_attention_heads=4, num_key_value_heads=2, head_dim=64, **COMMON),
    "qwen2_moe_head128": Qwen2MoeConfig(
        hidden_size=256, num_attention_heads=2, num_key_value_heads=1, num_experts=3, num_experts_per_tok=2,
        moe_intermediate_size=128, shared_expert_intermediate_size=256, intermediate_size=256, norm_topk_prob=False,
        router_aux_loss_coef=0.02, **COMMON),
}
# How the weights are stored: kernels for prompts on tensor cores read f16, or packed weights. So few bits pack well.
STORED, SIGNIFICANT_BITS = torch.float16, 7
# Sequences of a step, their length, and the share of the steps.
SHORT, LONG = (16, 256), (1, CONTEXT)
RATE, WARM = 4e-3, 100


def tokenizer(texts):
    """Byte-level BPE, with the first special token in front of every text."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=[BEGIN, END, PAD], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    made.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single=f"{BEGIN} $A", pair=f"{BEGIN} $A {BEGIN} $B", special_tokens=[(BEGIN, 0)]),
    ])
    return made


def stream(made, texts):
    """The ids of all texts, one after the other."""
    return torch.tensor([id for encoding in made.encode_batch(texts) for id in encoding.ids])


def rate(step, steps):
    """Rises, then falls in a straight line, so that the last steps, over long sequences, still learn."""
    return RATE * min(1.0, (step + 1) / WARM) * (1 - step / steps)


def train(model, ids, short, long):
    """Steps over short sequences, then over long ones."""
    optimiser = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.01)
    chance, started = torch.Generator().manual_seed(1), time.time()
    for step in range(short + long):
        count, length = SHORT if step < short else LONG
        starts = torch.randint(len(ids) - length, (count,), generator=chance)
        batch = torch.stack([ids[start:start + length] for start in starts])
        for group in optimiser.param_groups:
            group["lr"] = rate(step, short + long)
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        if step % 50 == 0 or step + 1 == short + long:
            print(f"step {step}, loss {loss.item():.3f}, {time.time() - started:.0f} s", flush=True)


@torch.no_grad()
def bits_per_byte(model, made, texts):
    """Of the texts, cut in parts of the context, each part on its own."""
    nats, size = 0.0, 0
    for text in texts:
        ids = made.encode(text).ids
        size += len(text.encode())
        for start in range(0, len(ids) - 1, CONTEXT - 1):
            part = torch.tensor([ids[start:start + CONTEXT]])
            logits = model(input_ids=part).logits[0, :-1]
            nats += float(torch.nn.functional.cross_entropy(logits, part[0, 1:], reduction="sum"))
    return nats / math.log(2) / size


def rounded(tensor, bits):
    """The nearest numbers of so many significant bits."""
    mantissa, exponent = torch.frexp(tensor.float())
    return torch.ldexp((mantissa * 2 ** bits).round() / 2 ** bits, exponent)


def published(model, dtype, bits):
    """Names and tensors as published checkpoints have them: one matrix for each projection of an expert."""
    for name, tensor in model.state_dict().items():
        tensor, at = (rounded(tensor, bits) if bits else tensor).to(dtype), name.rpartition(".")[0]
        if name.endswith("experts.gate_up_proj"):
            for index, both in enumerate(tensor):
                for part, matrix in zip(("gate", "up"), both.chunk(2)):
                    yield f"{at}.{index}.{part}_proj.weight", matrix.contiguous()
        elif name.endswith("experts.down_proj"):
            for index, matrix in enumerate(tensor):
                yield f"{at}.{index}.down_proj.weight", matrix.contiguous()
        elif name != "lm_head.weight":
            yield name, tensor.contiguous()


def write(out, model, made, dtype, bits=None):
    """A checkpoint of weights in `dtype`, perhaps of so many significant bits."""
    out.mkdir(parents=True, exist_ok=True)
    save_file(dict(published(model, dtype, bits)), out / "model.safetensors", metadata=dict(format="pt"))
    (out / "model.safetensors").chmod(0o644)
    word = str(dtype).removeprefix("torch.")
    idle = ("_name_or_path", "chunk_size_feed_forward", "id2label", "label2id", "problem_type", "return_dict",
            "is_encoder_decoder", "output_attentions", "output_hidden_states")
    config = {key: value for key, value in model.config.to_dict().items() if key not in idle}
    config |= dict(torch_dtype=word, dtype=word, architectures=[type(model).__name__], rope_theta=10000.0)
    texts = {
        "config.json": config,
        "generation_config.json": dict(bos_token_id=0, eos_token_id=1, pad_token_id=2),
        "special_tokens_map.json": dict(bos_token=BEGIN, eos_token=END, pad_token=PAD),
        "tokenizer_config.json": dict(tokenizer_class="PreTrainedTokenizerFast", bos_token=BEGIN, eos_token=END,
                                      pad_token=PAD, model_max_length=model.config.max_position_embeddings,
                                      clean_up_tokenization_spaces=False),
    }
    for name, content in texts.items():
        (out / name).write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")
    file = json.loads(made.to_str())
    # Pieces of bytes hold no spaces, so that a pair can be written as one text, which is shorter.
    file["model"]["merges"] = [" ".join(pair) for pair in file["model"]["merges"]]
    (out / "tokenizer.json").write_text(json.dumps(file, separators=(",", ":"), ensure_ascii=False))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=list(SHAPES))
    parser.add_argument("--books", nargs="+", required=True, help="clones of Standard Ebooks productions")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--short", type=int, default=1400, help="steps over short sequences")
    parser.add_argument("--long", type=int, default=200, help="steps over sequences of the whole context")
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(0)
    transformers.logging.set_verbosity_error()
    texts, held = corpus(sorted(arguments.books))
    made = tokenizer(texts)
    ids = stream(made, texts)
    print(f"{sum(len(t.encode()) for t in texts)} bytes and {len(ids)} tokens to train on, "
          f"{sum(len(t.encode()) for t in held)} bytes held out")
    model = AutoModelForCausalLM.from_config(SHAPES[arguments.model])
    if "moe" in arguments.model:
        model.config.output_router_logits = True
    train(model, ids, arguments.short, arguments.long)
    if "moe" in arguments.model:
        model.config.output_router_logits = False
    write(arguments.out, model, made, STORED, SIGNIFICANT_BITS)
    stored = AutoModelForCausalLM.from_pretrained(arguments.out, dtype=torch.float32)
    print(f"{sum(p.numel() for p in stored.parameters())} parameters, "
          f"{bits_per_byte(stored, made, held):.3f} bits per byte held out")


if __name__ == "__main__":
    main()
