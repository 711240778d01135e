"""A row of the table of small random checkpoints."""
import dataclasses
import typing

import torch

from models import Transformers


@dataclasses.dataclass
class Tiny:
    """One checkpoint."""

    # Keys of config.json.
    config: dict
    # Dtype of the weights.
    dtype: torch.dtype
    # Lengths of the prompts, which leave room for the greedy text.
    lengths: tuple
    # Of weights and prompts.
    seed: int
    shards: int = 1
    # What runs it.
    load: type = Transformers
    # Tensors of the checkpoint by name, from `config`, where Transformers lacks the architecture.
    shapes: typing.Callable | None = None
    # Whether config.json is as complete as Transformers writes it, and what rewrites its keys then.
    complete: bool = False
    edit: typing.Callable | None = None
    # What the model adds to the weights of its norms.
    norm_offset: float = 0.0
    # Size of what writes to the residual stream. Larger where the embedding, tied to the head, would else decide.
    gain: float = 1.2
    # Mean of the norms after attention and feed-forward (where they have such), for the same reason as `gain`.
    post_norm: float = 1.0
    # Rewrites the tensors of model.safetensors, by name, where published files differ from those of Transformers.
    finish: typing.Callable | None = None
    # Parts of the names of parameters that change nothing: keys' biases where no position is in the keys.
    idle: tuple = ()


def older_rope_keys(config):
    """Keys of `rope_parameters` where files of Transformers 4 have them."""
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = dict(type=rope["rope_type"], factor=rope["factor"])
    del config["head_dim"]
    config["torch_dtype"] = config.pop("dtype")
    return config


def complete(**config):
    """Keys of a configuration that Transformers completes."""
    return dict(bos_token_id=0, eos_token_id=1, pad_token_id=None, **config)


def published(architecture, model_type, **config):
    """Keys of a published config.json."""
    return dict(architectures=[architecture], bos_token_id=0, eos_token_id=1, model_type=model_type, use_cache=True,
                **config)
