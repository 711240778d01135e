#!/usr/bin/env python3
"""Trains `models/llava`: a LLaVA of some 190,000 parameters that answers questions about the pictures of `pictures.py`.

    pip install torch transformers tokenizers safetensors
    python3 tools/training/see.py --out llava --seconds 200            # on a GPU
    python3 tools/training/see.py --out llava --steps 20 --batch 8     # to try it on a CPU

Fixed seeds, and sums in a fixed order: one machine gives one model for one number of steps. Pictures are painted anew
for every step, on the device. The steps of the second half alternate between weights as they are and weights of 4 bits,
so that quantised models answer alike. Accuracy is measured on chats held out; an answer counts that is right whole.
"""
import argparse
import json
import math
import os
import pathlib
import time

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch.nn.attention import SDPBackend, sdpa_kernel

import pictures
from chats import (
    ANSWERS, BEGIN, CONTEXT, END, IMAGE, PAD, PATCH, ROWS, SPECIAL, TEMPLATE, VOCABULARY, make_chats, tokenizer)

HIDDEN, HEADS, GROUPS, INNER, LAYERS, THETA, EPS = 64, 4, 2, 96, 3, 10000.0, 1e-5
EYES, EYE_HEADS, EYE_INNER, EYE_LAYERS = 64, 4, 96, 2
RATE, WARM = 3e-3, 300
# Steps that learn nothing, to see how long one takes.
PACE = 60


# The model. -----------------------------------------------------------------------------------------------------------

class Move(torch.autograd.Function):
    """Rows `[b, n, c]` at `index [b, m]`, zeros for -1. No row is taken twice, and `inverse [b, n]` says by whom, so that
    the gradient is a choice of rows as well, without sums whose order is open."""

    @staticmethod
    def take(rows, index):
        taken = rows.gather(1, index.clamp(min=0)[..., None].expand(-1, -1, rows.shape[-1]))
        return taken * (index >= 0)[..., None]

    @staticmethod
    def forward(context, rows, index, inverse):
        context.save_for_backward(inverse)
        return Move.take(rows, index)

    @staticmethod
    def backward(context, gradient):
        return Move.take(gradient, context.saved_tensors[0]), None, None


def shapes():
    """Names and shapes of all parameters, as published checkpoints name them."""
    made = {"language_model.model.embed_tokens.weight": (VOCABULARY, HIDDEN), "language_model.model.norm.weight": (HIDDEN,)}
    head = HIDDEN // HEADS
    for i in range(LAYERS):
        at = f"language_model.model.layers.{i}."
        made |= {at + "input_layernorm.weight": (HIDDEN,), at + "post_attention_layernorm.weight": (HIDDEN,),
                 at + "self_attn.q_proj.weight": (HIDDEN, HIDDEN), at + "self_attn.k_proj.weight": (GROUPS * head, HIDDEN),
                 at + "self_attn.v_proj.weight": (GROUPS * head, HIDDEN), at + "self_attn.o_proj.weight": (HIDDEN, HIDDEN),
                 at + "mlp.gate_proj.weight": (INNER, HIDDEN), at + "mlp.up_proj.weight": (INNER, HIDDEN),
                 at + "mlp.down_proj.weight": (HIDDEN, INNER)}
    tower = "vision_tower.vision_model."
    made |= {tower + "embeddings.class_embedding": (EYES,), tower + "embeddings.position_embedding.weight": (ROWS, EYES),
             tower + "embeddings.patch_embedding.weight": (EYES, 3, PATCH, PATCH)}
    pair = lambda name, *shape: {name + ".weight": shape, name + ".bias": shape[:1]}
    # The last norm is of the tower's own result, which LLaVA does not take; a tower without it is not opened.
    made |= pair(tower + "pre_layrnorm", EYES) | pair(tower + "post_layernorm", EYES)
    for i in range(EYE_LAYERS):
        at = f"{tower}encoder.layers.{i}."
        made |= pair(at + "layer_norm1", EYES) | pair(at + "layer_norm2", EYES)
        for one in ["q_proj", "k_proj", "v_proj", "out_proj"]:
            made |= pair(at + "self_attn." + one, EYES, EYES)
        made |= pair(at + "mlp.fc1", EYE_INNER, EYES) | pair(at + "mlp.fc2", EYES, EYE_INNER)
    made |= pair("multi_modal_projector.linear_1", HIDDEN, EYES) | pair("multi_modal_projector.linear_2", HIDDEN, HIDDEN)
    return made


def first_weights(device):
    """Parameters before training."""
    chance, made = torch.Generator().manual_seed(7), {}
    for name, shape in shapes().items():
        norm = "norm" in name
        if name.endswith(".bias"):
            value = torch.zeros(shape)
        elif norm:
            value = torch.ones(shape)
        elif "embed" in name and "patch" not in name:
            value = torch.randn(shape, generator=chance) * (0.1 if "vision" in name else 0.3)
        else:
            value = torch.randn(shape, generator=chance) / math.prod(shape[1:]) ** 0.5
            # Results that are added start small.
            value *= 0.4 if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight", "fc2.weight")) else 1
        made[name] = value.to(device).requires_grad_("post_layernorm" not in name)
    return made


def rounded(weight, bits):
    """What a weight is once stored in groups of 32 with a scale: the largest number lies on the side of one code more."""
    groups = weight.reshape(-1, 32)
    largest = groups.gather(1, groups.abs().argmax(1, keepdim=True))
    half = 2 ** (bits - 1)
    scale = largest / -half
    codes = (groups / torch.where(scale == 0, 1, scale)).round().clamp(-half, half - 1)
    return (codes * scale).reshape(weight.shape)


def packed(weights, share, bits=4):
    """The weights, or (`share` 1) what is left of the matrices of layers with 4 bits and of the table of tokens with 8.
    The gradient passes as if nothing was rounded."""
    made = dict(weights)
    for name, weight in weights.items():
        table = "embed_tokens" in name
        if table or (weight.dim() == 2 and "embed" not in name):
            still = weight.detach()
            made[name] = weight + share * (rounded(still, 8 if table else bits) - still)
    return made


def linear(w, at, x, dtype):
    weight = w[at + ".weight"].flatten(1)
    bias = w.get(at + ".bias")
    return F.linear(x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)).float()


def heads(x, count):
    return x.unflatten(-1, (count, -1)).transpose(-3, -2)


def see(w, samples, dtype):
    """Rows of pictures: samples of 0 to 255 `[m, 3, side, side]` to `[m, ROWS, HIDDEN]`."""
    at = "vision_tower.vision_model."
    m, side = len(samples), pictures.SIDE // PATCH
    x = (samples / 255 - 0.5) / 0.5
    x = x.view(m, 3, side, PATCH, side, PATCH).permute(0, 2, 4, 1, 3, 5).reshape(m, side * side, -1)
    x = linear(w, at + "embeddings.patch_embedding", x, dtype)
    x = torch.cat([w[at + "embeddings.class_embedding"].expand(m, 1, -1), x], 1)
    x = x + w[at + "embeddings.position_embedding.weight"]
    norm = lambda name, x: F.layer_norm(x, (EYES,), w[name + ".weight"], w[name + ".bias"], 1e-5)
    x = norm(at + "pre_layrnorm", x)
    for i in range(EYE_LAYERS):
        here = f"{at}encoder.layers.{i}."
        y = norm(here + "layer_norm1", x)
        q, k, v = (heads(linear(w, f"{here}self_attn.{n}_proj", y, dtype).to(dtype), EYE_HEADS) for n in "qkv")
        # Seventeen rows: written out, it is one product.
        scores = (q @ k.transpose(-1, -2)).float() * (EYES // EYE_HEADS) ** -0.5
        y = (scores.softmax(-1).to(dtype) @ v).transpose(-3, -2).flatten(-2)
        x = x + linear(w, here + "self_attn.out_proj", y, dtype)
        y = linear(w, here + "mlp.fc1", norm(here + "layer_norm2", x), dtype)
        x = x + linear(w, here + "mlp.fc2", y * torch.sigmoid(1.702 * y), dtype)
    x = F.gelu(linear(w, "multi_modal_projector.linear_1", x, dtype))
    return linear(w, "multi_modal_projector.linear_2", x, dtype)


def turned(x, cosine, sine):
    """Rotary positions as Llama has them."""
    left, right = x.chunk(2, -1)
    return torch.cat([left * cosine - right * sine, right * cosine + left * sine], -1)


def angles(device):
    half = HIDDEN // HEADS // 2
    steps = torch.arange(CONTEXT, device=device)[:, None] * THETA ** (-torch.arange(half, device=device) / half)
    return steps.cos(), steps.sin()


def say(w, table, batch, rows, turns, dtype):
    """Logits `[b, ANSWERS, VOCABULARY]` before each id of an answer. `table` are the embeddings that are in use."""
    b = len(batch["ids"])
    words = (batch["ids"][..., None] == torch.arange(VOCABULARY, device=table.device)).to(dtype) @ table.to(dtype)
    words = words.float() * (batch["rows"] < 0)[..., None]
    x = words + Move.apply(rows.reshape(b, -1, HIDDEN), batch["rows"], batch["places"])
    norm = lambda name, x: F.rms_norm(x, (HIDDEN,), w[name + ".weight"], EPS)
    for i in range(LAYERS):
        at = f"language_model.model.layers.{i}."
        y = norm(at + "input_layernorm", x)
        q, k, v = (heads(linear(w, f"{at}self_attn.{n}_proj", y, dtype), HEADS if n == "q" else GROUPS) for n in "qkv")
        q, k = turned(q, *turns), turned(k, *turns)
        k, v = (one[:, :, None].expand(-1, -1, HEADS // GROUPS, -1, -1).flatten(1, 2) for one in (k, v))
        y = F.scaled_dot_product_attention(q.to(dtype), k.to(dtype), v.to(dtype), is_causal=True)
        x = x + linear(w, at + "self_attn.o_proj", y.transpose(1, 2).flatten(2), dtype)
        y = norm(at + "post_attention_layernorm", x)
        y = F.silu(linear(w, at + "mlp.gate_proj", y, dtype)) * linear(w, at + "mlp.up_proj", y, dtype)
        x = x + linear(w, at + "mlp.down_proj", y, dtype)
    x = norm("language_model.model.norm", Move.apply(x, batch["says"], batch["asked"]))
    return F.linear(x.to(dtype), table.to(dtype)).float()


class Trainer:
    """Weights, and one step on static inputs, which a GPU records once and repeats."""

    def __init__(self, data, batch, device):
        self.device, self.data = device, {k: v.to(device) for k, v in data.items()}
        self.dtype = torch.bfloat16 if device == "cuda" else torch.float32
        self.weights, self.turns = first_weights(device), angles(device)
        self.batch = {k: v[:batch].long().clone() for k, v in self.data.items()}
        # Tokens that no chat has stay zero: they give nothing, and pack to nothing.
        used = torch.zeros(VOCABULARY, 1)
        used[self.data["ids"].unique().long().cpu()] = 1
        self.used = used.to(device)
        self.rate, self.share = (torch.zeros((), device=device) for _ in range(2))
        self.loss = torch.zeros((), device=device)
        self.chance = torch.Generator(device).manual_seed(11)
        trained = [w for w in self.weights.values() if w.requires_grad]
        self.trained = trained
        self.first, self.second = ([torch.zeros_like(w) for w in trained] for _ in range(2))
        self.count = torch.zeros((), device=device)

    def forward(self, batch, samples, weights):
        table = weights["language_model.model.embed_tokens.weight"] * self.used
        rows = see(weights, samples, self.dtype)
        return say(weights, table, batch, rows, self.turns, self.dtype)

    def paint(self, batch, chance):
        kinds = batch["kinds"].flatten(0, 1)
        return pictures.grain(pictures.paint(pictures.arrange(kinds, chance)), chance)

    def step(self):
        samples = self.paint(self.batch, self.chance)
        logits = self.forward(self.batch, samples, packed(self.weights, self.share))
        labels = self.batch["labels"]
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-1)
        gradients = torch.autograd.grad(loss, self.trained)
        self.loss.copy_(loss.detach())
        self.update(gradients)

    @torch.no_grad()
    def update(self, gradients):
        """Adam with gradients of a bounded length."""
        norm = torch.stack([g.square().sum() for g in gradients]).sum().sqrt()
        gradients = torch._foreach_mul(gradients, 1 / norm.clamp(min=1))
        self.count += 1
        torch._foreach_lerp_(self.first, gradients, 0.1)
        torch._foreach_mul_(self.second, 0.98)
        torch._foreach_addcmul_(self.second, gradients, gradients, 0.02)
        rate = self.rate * (1 - 0.98 ** self.count).sqrt() / (1 - 0.9 ** self.count)
        roots = torch._foreach_sqrt(self.second)
        torch._foreach_add_(roots, 1e-8)
        steps = torch._foreach_div(self.first, roots)
        torch._foreach_mul_(steps, rate)
        torch._foreach_mul_(self.trained, 1 - self.rate * 0.01)
        torch._foreach_sub_(self.trained, steps)

    def record(self, eager):
        """A function that does one step: the recorded one on a GPU."""
        if self.device != "cuda" or eager:
            return self.step
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.chance)
        with torch.cuda.graph(graph):
            self.step()
        return graph.replay

    def load(self, index):
        for name, tensor in self.batch.items():
            tensor.copy_(self.data[name][index])

    @torch.no_grad()
    def measure(self, data, answers, bits=None):
        """Right and asked by kind of question; and over all."""
        weights = self.weights if bits is None else packed(self.weights, 1.0, bits)
        found, size = {}, 128
        chance = torch.Generator(self.device).manual_seed(12)
        for start in range(0, len(answers), size):
            batch = {k: v[start:start + size].to(self.device).long() for k, v in data.items()}
            labels = batch["labels"]
            right = (self.forward(batch, self.paint(batch, chance), weights).argmax(-1) == labels).cpu()
            for row, several in zip(right, answers[start:start + size]):
                place = 0
                for length, sort, _ in several:
                    good = bool(row[place:place + length].all())
                    place += length
                    for key in (sort, "all"):
                        pair = found.setdefault(key, [0, 0])
                        pair[0] += good
                        pair[1] += 1
        return found


def told(found):
    return ", ".join(f"{key} {100 * good / asked:.1f} %" for key, (good, asked) in sorted(found.items()))


def rate_at(done):
    """`done` is from 0 to 1: level, then falling."""
    return RATE * min(1.0, (1 - done) / 0.6)


def train(trainer, step_once, held, answers, steps, every):
    """So many steps."""
    started, shown, order = time.time(), 0.0, torch.Generator().manual_seed(3)
    size, count = len(trainer.batch["ids"]), len(trainer.data["ids"])
    for number in range(steps):
        done = number / steps
        trainer.load(torch.randint(count, (size,), generator=order).to(trainer.device))
        trainer.rate.fill_(rate_at(done) * min(1.0, (number + 1) / WARM))
        trainer.share.fill_(float(done > 0.5 and number % 2))
        step_once()
        if number % 20 == 0 and trainer.device == "cuda":
            torch.cuda.synchronize()
        if time.time() - started - shown > every:
            shown = time.time() - started
            print(f"{shown:.0f} s, {number + 1} steps, loss {trainer.loss.item():.4f}: "
                  f"{told(trainer.measure(held, answers))}", flush=True)
    print(f"{steps} steps of {size} chats in {time.time() - started:.1f} s", flush=True)


def pace(trainer, step_once):
    """Seconds of a step."""
    started = time.time()
    for _ in range(PACE if trainer.device == "cuda" else 1):
        step_once()
    if trainer.device == "cuda":
        torch.cuda.synchronize()
        return (time.time() - started) / PACE
    return time.time() - started


# What is written. -----------------------------------------------------------------------------------------------------

def stored(weights, used, bits=7):
    """Weights in float16 with so many significant bits, so that they pack well."""
    made = {}
    for name, weight in weights.items():
        weight = (weight * used if "embed_tokens" in name else weight).detach().float().cpu()
        mantissa, exponent = torch.frexp(weight)
        made[name] = torch.ldexp((mantissa * 2 ** bits).round() / 2 ** bits, exponent).half().contiguous()
    return made


def config():
    return dict(
        architectures=["LlavaForConditionalGeneration"], model_type="llava", dtype="float16", torch_dtype="float16",
        image_token_index=IMAGE, image_seq_length=ROWS, multimodal_projector_bias=True, projector_hidden_act="gelu",
        vision_feature_layer=-1, vision_feature_select_strategy="full", tie_word_embeddings=True,
        bos_token_id=BEGIN, eos_token_id=END, pad_token_id=PAD,
        vision_config=dict(
            model_type="clip_vision_model", hidden_size=EYES, intermediate_size=EYE_INNER, num_hidden_layers=EYE_LAYERS,
            num_attention_heads=EYE_HEADS, image_size=pictures.SIDE, patch_size=PATCH, num_channels=3,
            hidden_act="quick_gelu", layer_norm_eps=1e-5, attention_dropout=0.0, projection_dim=EYES),
        text_config=dict(
            model_type="llama", vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=INNER,
            num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=GROUPS, head_dim=HIDDEN // HEADS,
            max_position_embeddings=CONTEXT, rms_norm_eps=EPS, rope_theta=THETA, hidden_act="silu",
            rope_parameters=dict(rope_type="default", rope_theta=THETA), attention_bias=False, mlp_bias=False,
            bos_token_id=BEGIN, eos_token_id=END, pad_token_id=PAD, tie_word_embeddings=True))


def write(out, weights, made):
    """The folder of the model, as published ones are laid out."""
    out.mkdir(parents=True, exist_ok=True)
    save_file(weights, out / "model.safetensors", metadata=dict(format="pt"))
    (out / "model.safetensors").chmod(0o644)
    tokens = dict(bos_token=SPECIAL[BEGIN], eos_token=SPECIAL[END], pad_token=SPECIAL[PAD])
    ids = dict(bos_token_id=BEGIN, eos_token_id=END, pad_token_id=PAD)
    processor = dict(
        image_processor_type="CLIPImageProcessor", do_convert_rgb=True, do_resize=True, do_center_crop=False, resample=3,
        size=dict(height=pictures.SIDE, width=pictures.SIDE), do_rescale=True, rescale_factor=1 / 255, do_normalize=True,
        image_mean=[0.5] * 3, image_std=[0.5] * 3)
    files = {
        "config.json": config(), "generation_config.json": ids, "special_tokens_map.json": tokens,
        "preprocessor_config.json": processor,
        "processor_config.json": dict(processor_class="LlavaProcessor", patch_size=PATCH, num_additional_image_tokens=1,
                                      vision_feature_select_strategy="full", image_token=SPECIAL[IMAGE]),
        "tokenizer_config.json": tokens | dict(
            tokenizer_class="PreTrainedTokenizerFast", model_max_length=CONTEXT, clean_up_tokenization_spaces=False,
            image_token=SPECIAL[IMAGE], chat_template=TEMPLATE),
    }
    for name, content in files.items():
        (out / name).write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")
    file = json.loads(made.to_str())
    # Pieces of bytes hold no spaces, so that a pair can be written as one text, which is shorter.
    file["model"]["merges"] = [pair if isinstance(pair, str) else " ".join(pair) for pair in file["model"]["merges"]]
    (out / "tokenizer.json").write_text(json.dumps(file, separators=(",", ":"), ensure_ascii=False))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=float, default=170, help="time for training itself")
    parser.add_argument("--steps", type=int, help="so many steps instead")
    parser.add_argument("--batch", type=int, default=384, help="chats of a step")
    parser.add_argument("--chats", type=int, default=1 << 17, help="different chats, whose pictures differ every time")
    parser.add_argument("--every", type=float, default=20, help="seconds between measurements")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--held", type=int, default=512, help="chats held out to measure on")
    parser.add_argument("--eager", action="store_true", help="do not record the steps of a GPU")
    arguments = parser.parse_args()
    began = time.time()
    made = tokenizer()
    data, _ = make_chats(made, 2, arguments.chats, pictures.TRAINED, arguments.processes)
    held, answers = make_chats(made, 1, arguments.held, None, arguments.processes)
    fresh = make_chats(made, 3, arguments.held, pictures.TRAINED, arguments.processes)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    device = "cuda" if torch.cuda.is_available() else "cpu"
    trainer = Trainer(data, arguments.batch, device)
    print(f"{sum(w.numel() for w in trainer.weights.values())} parameters, {int(trainer.used.sum())} tokens in use, "
          f"{len(data['ids'])} chats after {time.time() - began:.1f} s", flush=True)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION if device == "cuda" else SDPBackend.MATH):
        step_once = trainer.record(arguments.eager)
        seconds = pace(trainer, step_once)
        steps = arguments.steps or int(arguments.seconds / seconds)
        print(f"{steps} steps of {1000 * seconds:.2f} ms after {time.time() - began:.1f} s", flush=True)
        train(trainer, step_once, held, answers, steps, arguments.every)
        for bits in (None, 8, 4):
            print(f"weights of {bits or 32} bits: {told(trainer.measure(held, answers, bits))}", flush=True)
        weights = stored(trainer.weights, trainer.used)
        write(arguments.out, weights, made)
        trainer.weights = {name: weight.float().to(device) for name, weight in weights.items()}
        print(f"as stored: {told(trainer.measure(held, answers))}", flush=True)
        print(f"as stored, of kinds that were trained on: {told(trainer.measure(*fresh))}; "
              f"{time.time() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
