#!/usr/bin/env python3
"""Trains `models/llama_tasks`, a small Llama that reads bytes and solves about two thirds of the held-out tasks of `tasks.py`.

    pip install torch transformers tokenizers safetensors
    python3 tools/training/train_tasks.py --out models/llama_tasks
    zstd --ultra -22 --rm models/llama_tasks/model.safetensors

Minutes on a GPU, on which the result is the same each time: fixed seeds, deterministic kernels. In the last steps three of
four compute with matrices rounded to four bits as `q4` rounds them, so that four bits cost little. At the end
`answers.json` has the answers to the held-out tasks, in f32 and with rounded matrices.
"""
import argparse
import json
import math
import multiprocessing
import os
import pathlib
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import numpy
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import AutoModelForCausalLM, LlamaConfig

import tasks
from train import BEGIN, END, PAD, write

HIDDEN, HEADS, SHARED_HEADS, HEAD = 64, 4, 2, 32
VOCABULARY, CONTEXT, WIDTH = 288, 256, tasks.LENGTH + 2
EPSILON, THETA = 1e-5, 10000.0
RATE, WARM, DECAY = 4e-3, 300, 0.05
# Share of the steps before those that see rounded matrices, and the weight of the prompt's own tokens in the loss.
EXACT_STEPS, PROMPT_LOSS = 0.5, 0.02
# How far the largest element of a group may lie from the last step: as `crates/import/src/quantize/pack.rs`.
REACH = (-0.9, -0.6, -0.3, 0.0, 0.3, 0.6, 0.9)
PIECES = 64
# Tasks beside the held-out ones that are solved while the model learns.
OTHERS = 3000


def alphabet():
    """Bytes by id, as byte-level tokenizers order and write them."""
    return sorted(pre_tokenizers.ByteLevel.alphabet())


def tokenizer():
    """A token a byte, with the first special token in front of every text."""
    vocabulary = {token: id for id, token in enumerate((BEGIN, END, PAD, *alphabet()))}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    made.add_special_tokens([BEGIN, END, PAD])
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single=f"{BEGIN} $A", pair=f"{BEGIN} $A {BEGIN} $B", special_tokens=[(BEGIN, 0)]),
    ])
    return made


def ids_of_bytes():
    """Ids by byte; printable ASCII, and a line's end for the end of an answer."""
    made = tokenizer()
    table = numpy.zeros(256, numpy.int16)
    for byte in range(33, 127):
        table[byte] = made.token_to_id(chr(byte))
    table[ord(" ")], table[ord("\n")], table[0] = made.token_to_id("\u0120"), 1, 2
    return table


def rows(pairs):
    """Token ids of prompts with answers, padded, and where each prompt ends."""
    text = b"".join(f"{prompt}{answer}\n".encode().ljust(WIDTH - 1, b"\0") for prompt, answer in pairs)
    ids = ids_of_bytes()[numpy.frombuffer(text, numpy.uint8)].reshape(-1, WIDTH - 1)
    ends = numpy.array([len(prompt) + 1 for prompt, _ in pairs], numpy.int16)
    return numpy.concatenate([numpy.zeros((len(ids), 1), numpy.int16), ids], 1), ends


def piece(arguments):
    seed, amount = arguments
    return rows([line[:2] for line in tasks.training(seed, amount)])


def training_rows(amount):
    """All training examples, made by as many processes as there are processors; the same however many."""
    with multiprocessing.get_context("fork").Pool() as pool:
        parts = pool.map(piece, [(seed, amount // PIECES) for seed in range(PIECES)], chunksize=1)
    return [torch.cat([torch.from_numpy(part[i]) for part in parts]) for i in range(2)]


def four_bits(groups):
    """Groups of 32 numbers rounded as `q4` does: the scale, in f16, that makes the squared error small."""
    at = groups.abs().argmax(-1, keepdim=True)
    largest = torch.gather(groups, -1, at)
    tried = torch.stack([-largest / (8 + reach) for reach in REACH]).half().float()
    steps = torch.clamp(torch.round(groups / torch.where(tried == 0, 1.0, tried)), -8, 7)
    rounded = steps * tried
    best = (rounded - groups).square().sum(-1, keepdim=True).argmin(0, keepdim=True)
    return torch.gather(rounded, 0, best.expand(1, *groups.shape))[0]


def eight_bits(groups):
    at = groups.abs().argmax(-1, keepdim=True)
    scale = (-torch.gather(groups, -1, at) / 128).half().float()
    return torch.clamp(torch.round(groups / torch.where(scale == 0, 1.0, scale)), -128, 127) * scale


def one_hot(ids, count):
    return ids[..., None] == torch.arange(count, device=ids.device)


class Model(torch.nn.Module):
    """A Llama as Transformers has it, whose matrices are looked up in a table so that they can be rounded at once."""

    def __init__(self, layers, middle, used):
        super().__init__()
        wide, narrow = HEADS * HEAD, SHARED_HEADS * HEAD
        self.layers, self.used = layers, used
        shapes = {"self_attn.q_proj": (wide, HIDDEN), "self_attn.k_proj": (narrow, HIDDEN),
                  "self_attn.v_proj": (narrow, HIDDEN), "self_attn.o_proj": (HIDDEN, wide),
                  "mlp.gate_proj": (middle, HIDDEN), "mlp.up_proj": (middle, HIDDEN), "mlp.down_proj": (HIDDEN, middle)}
        self.matrices, self.norms = torch.nn.ParameterDict(), torch.nn.ParameterDict()
        for layer in range(layers):
            for name, shape in shapes.items():
                ends = name.endswith(("o_proj", "down_proj"))
                deviation = shape[1] ** -0.5 / (math.sqrt(2 * layers) if ends else 1)
                self.matrices[f"model:layers:{layer}:{name}:weight".replace(".", ":")] = torch.nn.Parameter(
                    torch.randn(shape) * deviation)
            for name in ("input_layernorm", "post_attention_layernorm"):
                self.norms[f"model:layers:{layer}:{name}:weight"] = torch.nn.Parameter(torch.ones(HIDDEN))
        self.norms["model:norm:weight"] = torch.nn.Parameter(torch.ones(HIDDEN))
        # Ids that no task uses share the row of the padding: it is never an answer.
        self.table = torch.nn.Parameter(torch.randn(len(used), HIDDEN) * 0.1)
        angles = torch.outer(torch.arange(WIDTH), THETA ** (-torch.arange(0, HEAD, 2) / HEAD))
        self.register_buffer("cosine", torch.cat([angles, angles], -1).cos())
        self.register_buffer("sine", torch.cat([angles, angles], -1).sin())
        self.register_buffer("mask", torch.full((WIDTH, WIDTH), float("-inf")).triu(1))
        self.register_buffer("rounds", torch.zeros(()))

    def weights(self):
        """Matrices and table as this step sees them: `rounds` is 1 if they are rounded. Gradients pass."""
        whole = torch.cat([matrix.reshape(-1) for matrix in self.matrices.values()])
        groups, table = whole.detach().view(-1, 32), self.table.detach().view(-1, 32)
        whole = whole + self.rounds * (four_bits(groups) - groups).view(-1)
        table = self.table + self.rounds * (eight_bits(table) - table).view_as(self.table)
        parts = whole.split([matrix.numel() for matrix in self.matrices.values()])
        return {name: part.view_as(matrix) for part, (name, matrix) in zip(parts, self.matrices.items())}, table

    def forward(self, ids):
        """Logits over the ids in use, of their places `ids`, in bf16 on a GPU."""
        dtype = torch.bfloat16 if ids.is_cuda else torch.float32
        matrices, table = self.weights()
        matrices = {name: matrix.to(dtype) for name, matrix in matrices.items()}
        # A product with ones and zeros, whose gradient is deterministic.
        x = one_hot(ids, len(self.used)).to(dtype) @ table.to(dtype)
        x = x.float()
        for layer in range(self.layers):
            prefix = f"model:layers:{layer}:"
            weight = lambda name: matrices[f"{prefix}{name}:weight"]
            h = self.norm(x, f"{prefix}input_layernorm:weight", dtype)
            x = x + self.attention(h, weight)
            h = self.norm(x, f"{prefix}post_attention_layernorm:weight", dtype)
            h = F.silu(h @ weight("mlp:gate_proj").t()) * (h @ weight("mlp:up_proj").t())
            x = x + h @ weight("mlp:down_proj").t()
        return self.norm(x, "model:norm:weight", dtype) @ table.to(dtype).t()

    def norm(self, x, name, dtype):
        return F.rms_norm(x, (HIDDEN,), self.norms[name], EPSILON).to(dtype)

    def attention(self, h, weight):
        batch, length, _ = h.shape
        heads = lambda name, count: (h @ weight(f"self_attn:{name}_proj").t()).view(batch, length, count, HEAD).transpose(1, 2)
        cosine, sine = (part[:length].to(h.dtype) for part in (self.cosine, self.sine))
        turn = lambda x: x * cosine + torch.cat([-x[..., HEAD // 2:], x[..., :HEAD // 2]], -1) * sine
        spread = lambda x: x[:, :, None].expand(-1, -1, HEADS // SHARED_HEADS, -1, -1).flatten(1, 2)
        q, k, v = turn(heads("q", HEADS)), spread(turn(heads("k", SHARED_HEADS))), spread(heads("v", SHARED_HEADS))
        scores = q @ k.transpose(-1, -2) * HEAD ** -0.5 + self.mask[:length, :length].to(h.dtype)
        mixed = torch.softmax(scores, -1) @ v
        return mixed.transpose(1, 2).reshape(batch, length, -1) @ weight("self_attn:o_proj").t()

    def state(self):
        """Tensors by the names that published checkpoints have."""
        table = self.table.detach()[[self.used.get(id, self.used[2]) for id in range(VOCABULARY)]]
        named = [*self.matrices.items(), *self.norms.items()]
        return {"model.embed_tokens.weight": table, "lm_head.weight": table,
                **{name.replace(":", "."): tensor.detach() for name, tensor in named}}


def losses(model, ids, ends, places):
    """Mean loss of the answers with their end, and a little of the prompts."""
    logits = model(places[ids])[:, :-1].float()
    targets, at = ids[:, 1:], torch.arange(1, WIDTH, device=ids.device)
    weights = torch.where(at >= ends[:, None], 1.0, PROMPT_LOSS) * (targets != 2)
    # As a sum over all ids: the gradient of a gather is not deterministic.
    chosen = one_hot(places[targets], logits.shape[-1])
    loss = -torch.where(chosen, torch.log_softmax(logits, -1), 0.0).sum(-1)
    return (loss * weights).sum() / weights.sum()


@torch.no_grad()
def solved(model, ids, ends, places, rounds):
    """For each row whether every token of the answer is the most likely, which is when decoding gives it."""
    found = []
    model.rounds.fill_(rounds)
    for ids, ends in zip(ids.split(4096), ends.split(4096)):
        best, targets = model(places[ids])[:, :-1].argmax(-1), places[ids[:, 1:]]
        asked = (torch.arange(1, WIDTH, device=ids.device) >= ends[:, None]) & (ids[:, 1:] != 2)
        found.append(((best == targets) | ~asked).all(-1))
    return torch.cat(found)


class Judge:
    """Shows how many held-out tasks are solved: many more than the bundled ones, so that chance matters little."""

    def __init__(self, device, places):
        self.bundled, self.many = list(tasks.held_out(tasks.HELD_OUT_TASKS, tasks.SEED)), list(tasks.held_out(OTHERS, 1))
        self.places, pairs = places, [(task["prompt"], task["answer"]) for task in self.bundled + self.many]
        self.ids, self.ends = (torch.from_numpy(part).to(device).long() for part in rows(pairs))

    def show(self, model, title):
        exact, rounded = (solved(model, self.ids, self.ends, self.places, rounds).tolist() for rounds in (0.0, 1.0))
        bundled, kinds, counts = len(self.bundled), {}, []
        for task, *both in zip(self.many, exact[bundled:], rounded[bundled:]):
            kinds.setdefault(task["kind"], []).append(both)
        for kind, found in kinds.items():
            counts.append("{} {:.0%}/{:.0%}".format(kind, *(sum(column) / len(found) for column in zip(*found))))
        print(f"{title}: solved {sum(exact[:bundled])} of {bundled}, rounded {sum(rounded[:bundled])}; of {len(self.many)} "
              f"others {sum(exact[bundled:])}, rounded {sum(rounded[bundled:])}\n  {', '.join(counts)}", flush=True)

    def sizes(self, model):
        """Share of solved tasks by kind and size, for choosing the sizes of `tasks.KINDS`."""
        table, bundled = {}, len(self.bundled)
        both = zip(*(solved(model, self.ids, self.ends, self.places, rounds).tolist()[bundled:] for rounds in (0.0, 1.0)))
        for task, right in zip(self.many, both):
            table.setdefault(task["kind"], {}).setdefault(task["size"], []).append(right)
        for kind, found in table.items():
            shares = ((size, *(sum(column) / len(right) for column in zip(*right))) for size, right in sorted(found.items()))
            print(f"  {kind}:", ", ".join(f"{size} {exact:.0%}/{rounded:.0%}" for size, exact, rounded in shares), flush=True)


def learn(model, data, steps, batch, places, judge):
    """All steps. On a GPU a step is captured as one graph, as its many small kernels would wait for their launches."""
    ids, ends = data
    device, started = ids.device, time.time()
    rate = torch.zeros((), device=device)
    groups = [dict(params=list(model.matrices.values()), weight_decay=DECAY),
              dict(params=[model.table, *model.norms.values()], weight_decay=0.0)]
    optimiser = torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.99), fused=ids.is_cuda, capturable=ids.is_cuda)
    chosen, shown = torch.zeros(min(batch, len(ids)), dtype=torch.long, device=device), torch.zeros((), device=device)

    def step():
        optimiser.zero_grad(set_to_none=False)
        loss = losses(model, ids[chosen].long(), ends[chosen], places)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        shown.copy_(loss.detach())

    rates = [group["lr"] for group in optimiser.param_groups]
    take = captured(step, rates) if ids.is_cuda else step
    chance, told, order = torch.Generator(device=device).manual_seed(1), started, None
    for index in range(steps):
        at = index % (len(ids) // len(chosen))
        if at == 0:
            order = torch.randperm(len(ids), generator=chance, device=device)
        chosen.copy_(order[at * len(chosen):(at + 1) * len(chosen)])
        now = RATE * min(1.0, (index + 1) / WARM) * (0.02 + 0.98 * (1 + math.cos(math.pi * index / steps)) / 2)
        for rate in rates:
            rate.fill_(now)
        model.rounds.fill_(float(index >= EXACT_STEPS * steps and index % 4 > 0))
        take()
        if index % 50 == 0 and time.time() - told > 20:
            told = time.time()
            judge.show(model, f"step {index} of {steps}, loss {shown.item():.4f}, {told - started:.0f} s")
    judge.show(model, f"{steps} steps, loss {shown.item():.4f}, {time.time() - started:.0f} s")


def captured(step, rates):
    """The step as a CUDA graph. The steps that warm up learn nothing, as the rate is 0."""
    for rate in rates:
        rate.zero_()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


@torch.no_grad()
def answers(model, made, lines):
    """What the model answers, token by token, up to its end or the end of the line."""
    texts = []
    for line in lines:
        ids = torch.tensor([made.encode(line["prompt"]).ids])
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=16, do_sample=False)
        texts.append(made.decode(out[0, ids.shape[1]:].tolist()).split("\n")[0])
    return texts


def rounded_copy(folder):
    """The stored model with its matrices in four bits and its table in eight."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for name, parameter in model.named_parameters():
        if name.endswith("_proj.weight"):
            parameter.data = four_bits(parameter.data.view(-1, 32)).view_as(parameter)
        elif name.endswith("embed_tokens.weight"):
            parameter.data = eight_bits(parameter.data.view(-1, 32)).view_as(parameter)
    return model


def store(model, out, layers, middle, dtype):
    """Writes the folder; then the stored weights answer the held-out tasks."""
    made, lines = tokenizer(), list(tasks.held_out(tasks.HELD_OUT_TASKS, tasks.SEED))
    config = LlamaConfig(hidden_size=HIDDEN, intermediate_size=middle, num_hidden_layers=layers, head_dim=HEAD,
                         num_attention_heads=HEADS, num_key_value_heads=SHARED_HEADS, vocab_size=VOCABULARY,
                         max_position_embeddings=CONTEXT, bos_token_id=0, eos_token_id=1, pad_token_id=2,
                         tie_word_embeddings=True, rms_norm_eps=EPSILON,
                         rope_parameters=dict(rope_type="default", rope_theta=THETA))
    published = AutoModelForCausalLM.from_config(config)
    published.load_state_dict({name: tensor.cpu() for name, tensor in model.state().items()})
    write(out, published, made, dtype)
    stored = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32)
    found = {"f32": answers(stored, made, lines), "q4": answers(rounded_copy(out), made, lines)}
    right = {name: sum(a == line["answer"] for a, line in zip(texts, lines)) for name, texts in found.items()}
    print(f"{out}: {sum(p.numel() for p in stored.parameters())} parameters; of {len(lines)} the stored weights solve {right}")
    (out / "answers.json").write_text(json.dumps(found, indent=1) + "\n")
    with open(out / "tasks.jsonl", "w") as file:
        for line in lines:
            line.pop("size")
            file.write(json.dumps(line) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--steps", type=int, default=11000)
    parser.add_argument("--examples", type=int, default=3_000_000)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--middle", type=int, default=128, help="width between the two matrices of a layer's MLP")
    arguments = parser.parse_args()

    torch.use_deterministic_algorithms(True)
    # Nothing reads what it has not written.
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.manual_seed(0)
    started = time.time()
    # The processes that make examples are started before anything asks for a GPU.
    data = training_rows(arguments.examples)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    data = [part.to(device) for part in data]
    print(f"{len(data[0])} examples in {time.time() - started:.0f} s", flush=True)
    # The ids that occur, in order, have places of their own.
    used = {id: place for place, id in enumerate(sorted({0, 1, 2, *data[0].unique().tolist()}))}
    places = torch.tensor([used.get(id, used[2]) for id in range(VOCABULARY)], device=device)
    model = Model(arguments.layers, arguments.middle, used).to(device)
    judge = Judge(device, places)
    learn(model, data, arguments.steps, arguments.batch, places, judge)
    judge.sizes(model)
    store(model, arguments.out, arguments.layers, arguments.middle, torch.bfloat16)


if __name__ == "__main__":
    main()
