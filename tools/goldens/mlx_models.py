"""Models of checkpoints by mlx-lm, on the CPU: a public implementation of its own of architectures that Transformers
lacks."""
import importlib.metadata
import pathlib

import mlx.core as mx
import numpy
import torch
from mlx import nn
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model

from models import NORMS, Head


class Spy(nn.Module):
    """Stands in for a module and keeps what enters it and what it gives."""

    def __init__(self, inner, seen, leaving, entering=None):
        super().__init__()
        # Not as attributes of the module, which would count them among its parameters.
        self.__dict__.update(inner=inner, seen=seen, leaving=leaving, entering=entering)

    def __call__(self, x, *args, **kwargs):
        result = self.inner(x, *args, **kwargs)
        if self.entering:
            self.seen[self.entering] = x[0]
        self.seen[self.leaving] = result[0]
        return result


def tensor(array):
    return torch.from_numpy(numpy.array(array))


class Mlx:
    """A decoder of mlx-lm in float32."""

    implementation = "mlx-lm on the CPU"
    versions = {name.replace("-", "_"): importlib.metadata.version(name) for name in ("mlx", "mlx-lm")}
    # Keys of config.json that mlx-lm has to see otherwise, and where.
    overrides = {}
    head_module = "lm_head"

    def __init__(self, folder):
        mx.set_default_device(mx.cpu)
        self.model, self.config = load_model(pathlib.Path(folder), model_config=self.overrides)
        self.model.set_dtype(mx.float32)
        self.seen = {}
        decoder, layers = getattr(self.model, "transformer", None) or self.model.model, self.model.layers
        for number, layer in enumerate(layers):
            layers[number] = Spy(layer, self.seen, f"hidden.{number + 1}", None if number else "hidden.0")
        norm = next(name for name in NORMS if name in decoder)
        decoder[norm] = Spy(decoder[norm], self.seen, "final_norm")

    @property
    def head(self):
        return Head(tensor(self.model[self.head_module].weight))

    def run(self, ids):
        logits = self.model(mx.array([ids]))[0]
        return dict({name: tensor(value) for name, value in self.seen.items()}, logits=tensor(logits))

    def steps(self, texts):
        cache = make_prompt_cache(self.model)
        for ids in texts:
            yield tensor(self.model(mx.array([ids]), cache=cache)[0, -1])


class InternLm2(Mlx):
    head_module = "output"


class MiniCpm(Mlx):
    """Divides what the head sees also where the head is the embedding table, as the authors' code does."""

    overrides = dict(tie_word_embeddings=False)

    @property
    def head(self):
        head = super().head
        head.scale = self.config["dim_model_base"] / self.config["hidden_size"]
        return head
