"""Models of checkpoints: Hugging Face Transformers and what all implementations have in common.

A model has `run` (ids to logits, hidden states and final norm by name), `steps` (logits of the last token of each step
over a cache), `head`, `implementation` and `versions`.
"""
import dataclasses

import torch
import transformers
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForImageTextToText

# What a decoder or encoder calls its stack of layers and its last norm.
LAYERS = ("layers", "h", "layer")
NORMS = ("norm", "final_layernorm", "final_layer_norm", "ln_f", "norm_f")


@dataclasses.dataclass
class Head:
    """How logits follow from the final norm: a matrix and a bias, then a factor, then a soft cap."""

    weight: torch.Tensor
    bias: torch.Tensor | None = None
    # Whether each row of the matrix counts by its direction alone.
    unit_rows: bool = False
    scale: float = 1.0
    cap: float | None = None

    def logits(self, x):
        """Logits in float64."""
        weight = self.weight.double()
        if self.unit_rows:
            weight = torch.nn.functional.normalize(weight)
        logits = x.double() @ weight.T
        if self.bias is not None:
            logits += self.bias.double()
        logits *= self.scale
        return logits if self.cap is None else self.cap * torch.tanh(logits / self.cap)


def member(module, names):
    return next((getattr(module, name) for name in names if hasattr(module, name)), None)


def stack(model):
    """The layers and the norm behind them, if there is one."""
    for module in model.modules():
        layers = member(module, LAYERS)
        if isinstance(layers, torch.nn.ModuleList):
            return layers, member(module, NORMS)
    raise LookupError(f"{type(model).__name__} has no layers {LAYERS}")


class Recorder:
    """Keeps what enters the first layer, what leaves each, and what the final norm gives."""

    def __init__(self, model):
        (layers, norm), self.seen = stack(model), {}
        layers[0].register_forward_pre_hook(self.entering, with_kwargs=True)
        for number, layer in enumerate(layers, 1):
            layer.register_forward_hook(self.leaving(f"hidden.{number}"))
        if norm is not None:
            norm.register_forward_hook(self.leaving("final_norm"))

    def entering(self, _module, args, kwargs):
        self.seen["hidden.0"] = (args[0] if args else kwargs["hidden_states"])[0].clone()

    def leaving(self, name):
        def hook(_module, _args, output):
            self.seen[name] = (output[0] if isinstance(output, tuple) else output)[0].clone()
        return hook


class Transformers:
    """A decoder of Transformers, with its plain ("eager") attention."""

    implementation = "Hugging Face Transformers, eager attention"
    versions = dict(torch=torch.__version__, transformers=transformers.__version__)
    family = AutoModelForCausalLM

    def __init__(self, folder):
        self.model = self.open(folder).eval()
        self.recorder = Recorder(self.model.get_decoder() or self.model)

    def open(self, folder):
        return self.family.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")

    @property
    def head(self):
        config, layer = self.model.config.get_text_config(), self.model.get_output_embeddings()
        scale = getattr(config, "logit_scale", None) or 1.0 / (getattr(config, "logits_scaling", None) or 1.0)
        return Head(layer.weight, layer.bias, scale=scale, cap=getattr(config, "final_logit_softcapping", None))

    def run(self, ids):
        logits = self.model(torch.tensor([ids]), use_cache=False).logits[0]
        return dict(self.recorder.seen, logits=logits)

    def steps(self, texts):
        cache = None
        for ids in texts:
            output = self.model(torch.tensor([ids]), past_key_values=cache, use_cache=True)
            cache = output.past_key_values
            yield output.logits[0, -1]


class TextPart(Transformers):
    """The decoder of a model of Transformers that also sees images."""

    family = AutoModelForImageTextToText


class TransformersStateful(Transformers):
    """A decoder of Transformers that keeps a state instead of keys and values."""

    implementation = "Hugging Face Transformers"

    def open(self, folder):
        return self.family.from_pretrained(folder, dtype=torch.float32)

    def steps(self, texts):
        cache = None
        for ids in texts:
            output = self.model(torch.tensor([ids]), cache_params=cache, use_cache=True)
            cache = output.cache_params
            yield output.logits[0, -1]


class TransformersEncoder(Transformers):
    """An encoder of Transformers."""

    family = AutoModel

    def run(self, ids):
        output = self.model(torch.tensor([ids]))
        return dict(self.recorder.seen, embeddings=output.last_hidden_state[0], pooled=output.pooler_output)
