"""Makes the small random checkpoints of the table, and their goldens."""
import itertools
import json

import numpy
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.pytorch_utils import Conv1D

import record
from table import TINY

# Positions kept of each prompt, greedy tokens.
ROWS, STEPS = 8, 16

# A smaller gap of the greedy text, or a smaller effect of a tensor's values on a logit, is refused.
SMALLEST_GAP, SMALLEST_EFFECT = 1e-3, 5e-3

# What writes to the residual stream.
WRITERS = ("o_proj.weight", "down_proj.weight", "c_proj.weight")


def randomise(model, tiny):
    """Weights of a size that lets every part matter to the result."""
    transposed = {id(module.weight) for module in model.modules() if isinstance(module, Conv1D)}
    for name, tensor in itertools.chain(model.named_parameters(), floating_buffers(model)):
        vector = tensor.dim() == 1 or "norm" in name
        if vector and name.endswith(".weight"):
            mean = tiny.post_norm if "post_" in name else 1.0
            tensor.data.normal_(mean - tiny.norm_offset, 0.2)
        elif vector or name.endswith("bias"):
            tensor.data.normal_(0.0, 0.3)
        else:
            size = tiny.gain if name.endswith(WRITERS) else 1.2
            tensor.data.normal_(0.0, size / tensor.shape[0 if id(tensor) in transposed else -1] ** 0.5)


def floating_buffers(model):
    """Buffers that a checkpoint holds."""
    stored = model.state_dict()
    return [(name, tensor) for name, tensor in model.named_buffers() if name in stored and tensor.is_floating_point()]


def save(tiny, model, folder):
    """Writes the checkpoint, with the config.json that was there before unless the row is a complete one."""
    path, size = folder / "config.json", sum(p.numel() * p.element_size() for p in model.parameters())
    text = None if tiny.complete else path.read_text()
    model.save_pretrained(folder, max_shard_size=2 * size if tiny.shards == 1 else size // tiny.shards)
    if text is None:
        config = json.loads(path.read_text())
        text = json.dumps(tiny.edit(config) if tiny.edit else config, indent=2) + "\n"
    else:
        (folder / "generation_config.json").unlink(missing_ok=True)
    if tiny.finish:
        weights = folder / "model.safetensors"
        save_file(tiny.finish(load_file(weights)), weights, metadata=dict(format="pt"))
    path.write_text(text)


def build(tiny, folder):
    """The configuration as Transformers reads it."""
    if tiny.complete:
        return AutoConfig.for_model(**tiny.config)
    folder.mkdir(parents=True, exist_ok=True)
    dtype = str(tiny.dtype).removeprefix("torch.")
    (folder / "config.json").write_text(json.dumps(tiny.config | dict(torch_dtype=dtype), indent=2) + "\n")
    return AutoConfig.from_pretrained(folder)


@torch.no_grad()
def effects(model, prompts):
    """By how much a logit changes at most if the values of a tensor (of an expert) trade places."""
    def logits():
        return torch.cat([model(torch.tensor([ids]), use_cache=False).logits[0] for ids in prompts])

    before = logits()
    for name, tensor in itertools.chain(model.named_parameters(), floating_buffers(model)):
        for index, part in enumerate(tensor if tensor.dim() == 3 else [tensor]):
            kept = part.clone()
            part.copy_(kept.flatten().roll(1).view_as(kept))
            yield f"{name}[{index}]", float((logits() - before).abs().max())
            part.copy_(kept)


def make(name, folder):
    """Writes the checkpoint; tensors and metadata of its golden."""
    tiny = TINY[name]
    torch.manual_seed(tiny.seed)
    model = AutoModelForCausalLM.from_config(build(tiny, folder), dtype=torch.float32).eval()
    randomise(model, tiny)
    save(tiny, model.to(tiny.dtype), folder)
    random = numpy.random.default_rng(tiny.seed)
    prompts = [random.integers(0, tiny.config["vocab_size"], length).tolist() for length in tiny.lengths]
    if not tiny.complete:
        for part, effect in effects(model.float(), prompts):
            if effect < SMALLEST_EFFECT and not any(idle in part for idle in tiny.idle):
                raise SystemExit(f"{name}: {part} hardly matters: it changes a logit by {effect:.1e} at most")
    tensors, metadata = record.golden(folder, prompts, 12 if tiny.complete else ROWS, STEPS)
    if record.smallest_gap(tensors) < SMALLEST_GAP:
        raise SystemExit(f"{name}: a near tie decides the greedy text; choose another seed")
    return tensors, metadata
