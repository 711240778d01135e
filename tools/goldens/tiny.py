"""Makes the small random checkpoints of the table, and their goldens."""
import itertools
import json
import pathlib
import tempfile

import numpy
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig
from transformers.pytorch_utils import Conv1D

import record
import weights
from kept import ROWS
from models import TransformersEncoder
from table import TINY

# Greedy tokens.
STEPS = 16

# A smaller gap of the greedy text, or a smaller effect of a tensor's values on a logit, is refused.
SMALLEST_GAP, SMALLEST_EFFECT = 1e-3, 5e-3

# What writes to the residual stream.
WRITERS = tuple(f"{name}.weight" for name in ("o_proj", "down_proj", "c_proj", "output.dense"))


def fill(name, tensor, tiny, transposed=False):
    """Values of a size that lets every part matter to the result."""
    vector = tensor.dim() == 1 or "norm" in name
    if vector and name.endswith(".weight"):
        mean = tiny.post_norm if "post_" in name else 1.0
        tensor.normal_(mean - tiny.norm_offset, 0.2)
    elif vector or name.endswith("bias"):
        tensor.normal_(0.0, 0.3)
    else:
        size = tiny.gain if name.endswith(WRITERS) else 1.2
        tensor.normal_(0.0, size / tensor.shape[0 if transposed else -1] ** 0.5)


def randomise(model, tiny):
    """Fills what a checkpoint of a model of Transformers holds."""
    transposed = {id(module.weight) for module in model.modules() if isinstance(module, Conv1D)}
    stored = model.state_dict()
    buffers = ((name, tensor) for name, tensor in model.named_buffers() if name in stored)
    for name, tensor in itertools.chain(model.named_parameters(), buffers):
        if tensor.is_floating_point():
            fill(name, tensor.data, tiny, id(tensor) in transposed)


def random_model(tiny, folder):
    """Writes the checkpoint of an architecture of Transformers."""
    torch.manual_seed(tiny.seed)
    config = AutoConfig.for_model(**tiny.config) if tiny.complete else AutoConfig.from_pretrained(folder)
    model = tiny.load.family.from_config(config, dtype=torch.float32)
    randomise(model, tiny)
    model = model.to(tiny.dtype)
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    model.save_pretrained(folder, max_shard_size=2 * size if tiny.shards == 1 else size // tiny.shards)


def random_tensors(tiny, folder):
    """Writes the checkpoint of an architecture that Transformers lacks."""
    torch.manual_seed(tiny.seed)
    tensors = {}
    for name, shape in tiny.shapes(tiny.config).items():
        tensors[name] = torch.empty(shape)
        fill(name, tensors[name], tiny)
    save_file({name: tensor.to(tiny.dtype) for name, tensor in tensors.items()}, folder / "model.safetensors",
              metadata=dict(format="pt"))


def checkpoint(tiny, folder):
    """Writes weights and config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "config.json"
    keys = tiny.config | dict(torch_dtype=str(tiny.dtype).removeprefix("torch."))
    path.write_text(json.dumps(keys, indent=2) + "\n")
    for stale in record.weight_files(folder):
        stale.unlink()
    (random_tensors if tiny.shapes else random_model)(tiny, folder)
    if tiny.complete:
        keys = json.loads(path.read_text())
        keys = tiny.edit(keys) if tiny.edit else keys
    else:
        (folder / "generation_config.json").unlink(missing_ok=True)
    path.write_text(json.dumps(keys, indent=2) + "\n")
    if tiny.finish:
        file = folder / "model.safetensors"
        save_file(tiny.finish(load_file(file)), file, metadata=dict(format="pt"))


@torch.no_grad()
def effects(load, folder, prompts):
    """By how much a result changes at most if the values of a tensor (of an expert) trade places."""
    tensors = {}
    for path in record.weight_files(folder):
        tensors |= load_file(path)

    def results(changed):
        with tempfile.TemporaryDirectory() as scratch:
            scratch = pathlib.Path(scratch)
            save_file(tensors | changed, scratch / "model.safetensors", metadata=dict(format="pt"))
            (scratch / "config.json").write_text((folder / "config.json").read_text())
            model = load(scratch)
            return torch.cat([record.result(model.run(ids)) for ids in prompts])

    before = results({})
    for name, tensor in tensors.items():
        for index in range(len(tensor) if tensor.dim() == 3 else 1):
            changed = tensor.clone()
            part = changed[index] if tensor.dim() == 3 else changed
            part.copy_(part.flatten().roll(1).view_as(part))
            yield f"{name}[{index}]", float((results({name: changed}) - before).abs().max())


def run(name, folder):
    """Tensors and metadata of the golden of a checkpoint."""
    tiny = TINY[name]
    random = numpy.random.default_rng(tiny.seed)
    keys = tiny.config.get("text_config", tiny.config)
    vocab = keys.get("vocab_size") or keys["padded_vocab_size"]
    prompts = [random.integers(0, vocab, length).tolist() for length in tiny.lengths]
    encodes = tiny.load is TransformersEncoder
    options = (tiny.load, folder, prompts, ROWS)
    tensors, metadata = record.encoder(*options) if encodes else record.decoder(*options, STEPS)
    if record.smallest_gap(tensors) < SMALLEST_GAP:
        raise weights.Refused("a near tie decides the greedy text")
    if not tiny.complete:
        for part, effect in effects(tiny.load, folder, prompts):
            if effect < SMALLEST_EFFECT and not any(idle in part for idle in tiny.idle):
                raise weights.Refused(f"{part} hardly matters: it changes a result by {effect:.1e} at most")
    return tensors, metadata


def make(name, folder):
    """Writes the checkpoint; tensors and metadata of its golden."""
    tiny = TINY[name]
    return weights.make(folder, tiny.seed, lambda out: checkpoint(tiny, out), lambda out: run(name, out))
