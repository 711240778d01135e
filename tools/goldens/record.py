"""Runs a checkpoint by Hugging Face Transformers and keeps what the importer's tests compare with."""
import hashlib
import json
import pathlib

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

# What a causal decoder calls its stack of layers and its last norm.
LAYERS = ("layers", "h")
NORMS = ("norm", "final_layernorm", "final_layer_norm", "ln_f")

# A logit of a step over the cache that differs by more from that of the whole text: the two differ by design.
SAME_LOGIT = 1e-3


def spread(length, rows):
    """`rows` positions of a text, the last one included."""
    return sorted({round((i + 1) * length / min(rows, length)) - 1 for i in range(min(rows, length))})


def member(module, names):
    return next((getattr(module, name) for name in names if hasattr(module, name)), None)


def stack(model):
    """The decoder's layers and the norm behind them."""
    for module in model.modules():
        layers, norm = member(module, LAYERS), member(module, NORMS)
        if isinstance(layers, torch.nn.ModuleList) and norm is not None:
            return layers, norm
    raise LookupError(f"{type(model).__name__} has no layers {LAYERS} beside a norm {NORMS}")


class Recorder:
    """Keeps what enters the first decoder layer, what leaves each, and what the final norm gives."""

    def __init__(self, model):
        (layers, norm), self.seen = stack(model), {}
        layers[0].register_forward_pre_hook(self.entering, with_kwargs=True)
        for number, layer in enumerate(layers, 1):
            layer.register_forward_hook(self.leaving(f"hidden.{number}"))
        norm.register_forward_hook(self.leaving("final_norm"))

    def entering(self, _module, args, kwargs):
        self.seen["hidden.0"] = (args[0] if args else kwargs["hidden_states"])[0].clone()

    def leaving(self, name):
        def hook(_module, _args, output):
            self.seen[name] = (output[0] if isinstance(output, tuple) else output)[0].clone()
        return hook


class Head:
    """How logits follow from the final norm: a matrix and a bias, then a factor, then a soft cap."""

    def __init__(self, model, folder):
        config, layer = model.config, model.get_output_embeddings()
        self.weight, self.bias = layer.weight, layer.bias
        self.scale = getattr(config, "logit_scale", None) or 1.0 / (getattr(config, "logits_scaling", None) or 1.0)
        self.cap = getattr(config, "final_logit_softcapping", None)
        parts = (("head", self.weight), ("head_bias", self.bias))
        self.names = {key: stored_name(folder, part) for key, part in parts if part is not None}

    def logits(self, x):
        """Logits in float64."""
        logits = x.double() @ self.weight.double().T
        if self.bias is not None:
            logits += self.bias.double()
        logits *= self.scale
        return logits if self.cap is None else self.cap * torch.tanh(logits / self.cap)

    def metadata(self):
        scale = {} if self.scale == 1.0 else dict(logit_scale=repr(self.scale))
        cap = {} if self.cap is None else dict(logit_softcap=repr(self.cap))
        return self.names | scale | cap


def greedy(model, ids, steps):
    """The next `steps` tokens, by how much each beat the second best, and the logits that chose them."""
    chosen, gaps, rows = [], [], []
    for _ in range(steps):
        row = model(torch.tensor([ids + chosen]), use_cache=False).logits[0, -1]
        best = row.topk(2)
        chosen.append(int(best.indices[0]))
        gaps.append(float(best.values[0] - best.values[1]))
        rows.append(row)
    return torch.tensor(chosen, dtype=torch.int32), torch.tensor(gaps), torch.stack(rows)


def decoding_error(model, ids, chosen, rows):
    """Largest difference between the logits of steps over Transformers' cache and those of the whole text."""
    cache, worst = None, 0.0
    for step, row in zip([ids] + [[int(token)] for token in chosen], rows):
        output = model(torch.tensor([step]), past_key_values=cache, use_cache=True)
        cache = output.past_key_values
        worst = max(worst, float((output.logits[0, -1] - row).abs().max()))
    return worst


def weight_files(folder):
    return sorted(p for p in pathlib.Path(folder).glob("*.safetensors") if p.name != "golden.safetensors")


def stored_name(folder, wanted):
    """The checkpoint's name of a tensor, by its values: Transformers' own name may differ."""
    for path in weight_files(folder):
        with safe_open(path, "pt") as file:
            for name in file.keys():
                if file.get_slice(name).get_shape() == list(wanted.shape) and torch.equal(
                        file.get_tensor(name).to(wanted.dtype), wanted):
                    return name
    raise LookupError(f"{folder} holds no tensor equal to one of shape {list(wanted.shape)}")


def provenance(folder):
    """What made the file, from what."""
    digest = hashlib.sha256()
    for path in weight_files(folder):
        digest.update(path.read_bytes())
    return dict(made_by="tools/goldens", model=pathlib.Path(folder).name, torch=torch.__version__,
                transformers=transformers.__version__, computed_in="float32 on a CPU, eager attention",
                weights_sha256=digest.hexdigest())


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


@torch.no_grad()
def golden(folder, prompts, rows, steps, first=None):
    """Tensors and metadata of the golden file of one checkpoint; `prompts` are lists of token ids. Few rows (`rows` of
    each prompt, `first` or all of the first one) keep the file small."""
    head, tensors, error, differing = Head(load(folder), folder), {}, 0.0, []
    for i, ids in enumerate(prompts):
        # A fresh model each time: angles of dynamic scaling depend on the longest text so far.
        model = load(folder)
        recorder = Recorder(model)
        logits = model(torch.tensor([ids]), use_cache=False).logits[0]
        seen = dict(recorder.seen)
        error = max(error, float((head.logits(seen["final_norm"]) - logits.double()).abs().max()))
        positions = spread(len(ids), (first or len(ids)) if i == 0 else rows)
        tensors[f"p{i}.input_ids"] = torch.tensor(ids, dtype=torch.int32)
        tensors[f"p{i}.positions"] = torch.tensor(positions, dtype=torch.int32)
        tensors[f"p{i}.final_norm"] = seen.pop("final_norm")
        tensors[f"p{i}.logits"] = logits[positions]
        for name, value in seen.items():
            tensors[f"p{i}.{name}"] = value[positions]
        chosen, gaps, chosen_by = greedy(model, ids, steps)
        tensors[f"p{i}.greedy_ids"], tensors[f"p{i}.greedy_gap"] = chosen, gaps
        if decoding_error(load(folder), ids, chosen, chosen_by) > SAME_LOGIT:
            differing.append(i)
    metadata = provenance(folder) | head.metadata() | dict(logits_from_final_norm_error=f"{error:.3e}")
    return tensors, metadata | (dict(decode_differs=json.dumps(differing)) if differing else {})


def smallest_gap(tensors):
    return min(float(tensor.min()) for name, tensor in tensors.items() if name.endswith(".greedy_gap"))


def write(out, tensors, metadata):
    out.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: t.contiguous() for name, t in tensors.items()}, out, metadata=metadata)
    print(f"{out}: {len(tensors)} tensors, {out.stat().st_size / 1024:.0f} KiB, logits from final norm within "
          f"{metadata['logits_from_final_norm_error']}, smallest gap {smallest_gap(tensors):.1e}"
          + (f", decoding differs for {metadata['decode_differs']}" if "decode_differs" in metadata else ""))
