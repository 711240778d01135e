"""Keeps what the importer's tests compare with of a run of a model: see README.md."""
import hashlib
import json
import pathlib

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from kept import LAST, WITH_LOGITS, spread, states

# A logit of a step over the cache that differs by more from that of the whole text: the two differ by design.
SAME_LOGIT = 1e-3


def greedy(model, ids, steps):
    """The next `steps` tokens, by how much each beat the second best, and the logits that chose them."""
    chosen, gaps, rows = [], [], []
    for _ in range(steps):
        row = model.run(ids + chosen)["logits"][-1]
        best = row.topk(2)
        chosen.append(int(best.indices[0]))
        gaps.append(float(best.values[0] - best.values[1]))
        rows.append(row)
    return torch.tensor(chosen, dtype=torch.int32), torch.tensor(gaps), torch.stack(rows)


def decoding_error(model, ids, chosen, rows):
    """Largest difference between the logits of steps over the implementation's cache and those of the whole text."""
    steps = model.steps([ids] + [[int(token)] for token in chosen[:-1]])
    return max(float((step - row).abs().max()) for step, row in zip(steps, rows))


def result(seen):
    """What a run is for."""
    return seen["logits"] if "logits" in seen else torch.cat([seen["embeddings"], seen["pooled"]])


def weight_files(folder):
    return sorted(p for p in pathlib.Path(folder).glob("*.safetensors") if p.name != "golden.safetensors")


def stored_name(folder, wanted):
    """The checkpoint's name of a tensor, by its values: the implementation's own name may differ."""
    for path in weight_files(folder):
        with safe_open(path, "pt") as file:
            for name in file.keys():
                if file.get_slice(name).get_shape() == list(wanted.shape) and torch.equal(
                        file.get_tensor(name).to(wanted.dtype), wanted):
                    return name
    raise LookupError(f"{folder} holds no tensor equal to one of shape {list(wanted.shape)}")


def provenance(model, folder):
    """What made the file, from what."""
    digest = hashlib.sha256()
    for path in weight_files(folder):
        digest.update(path.read_bytes())
    return dict(made_by="tools/goldens", model=pathlib.Path(folder).name, weights_sha256=digest.hexdigest(),
                implementation=model.implementation, computed_in="float32 on a CPU", **model.versions)


def head_metadata(head, folder):
    parts = (("head", head.weight), ("head_bias", head.bias))
    names = {key: stored_name(folder, part) for key, part in parts if part is not None}
    unit = dict(head_rows="unit") if head.unit_rows else {}
    scale = {} if head.scale == 1.0 else dict(logit_scale=repr(head.scale))
    cap = {} if head.cap is None else dict(logit_softcap=repr(head.cap))
    return names | unit | scale | cap


@torch.no_grad()
def decoder(load, folder, prompts, rows, steps, first=None):
    """Tensors and metadata of the golden of a checkpoint that `load` gives a model of; `prompts` are lists of token
    ids. Few rows (`rows` of each prompt, `first` of the first one) keep the file small."""
    tensors, error, differing = {}, 0.0, []
    for i, ids in enumerate(prompts):
        # A fresh model each time: angles of dynamic scaling depend on the longest text so far.
        model = load(folder)
        seen = model.run(ids)
        error = max(error, float((model.head.logits(seen["final_norm"]) - seen["logits"].double()).abs().max()))
        positions = spread(len(ids), first or rows if i == 0 else rows)
        tensors[f"p{i}.input_ids"] = torch.tensor(ids, dtype=torch.int32)
        tensors[f"p{i}.positions"] = torch.tensor(positions, dtype=torch.int32)
        tensors[f"p{i}.final_norm"] = seen.pop("final_norm")[-LAST:]
        for name, value in seen.items():
            if i < WITH_LOGITS if name == "logits" else states(i, len(prompts)):
                tensors[f"p{i}.{name}"] = value[positions]
        chosen, gaps, chosen_by = greedy(model, ids, steps)
        tensors[f"p{i}.greedy_ids"], tensors[f"p{i}.greedy_gap"] = chosen, gaps
        if decoding_error(load(folder), ids, chosen, chosen_by) > SAME_LOGIT:
            differing.append(i)
    metadata = provenance(model, folder) | head_metadata(model.head, folder)
    metadata |= dict(logits_from_final_norm_error=f"{error:.3e}")
    return tensors, metadata | (dict(decode_differs=json.dumps(differing)) if differing else {})


@torch.no_grad()
def encoder(load, folder, prompts, rows):
    """The same of a checkpoint that gives embeddings instead of logits."""
    model, tensors = load(folder), {}
    for i, ids in enumerate(prompts):
        seen = model.run(ids)
        positions = spread(len(ids), rows)
        tensors[f"p{i}.input_ids"] = torch.tensor(ids, dtype=torch.int32)
        tensors[f"p{i}.positions"] = torch.tensor(positions, dtype=torch.int32)
        for name in ("embeddings", "pooled"):
            tensors[f"p{i}.{name}"] = seen.pop(name)
        for name, value in seen.items():
            tensors[f"p{i}.{name}"] = value[positions]
    return tensors, provenance(model, folder) | dict(encoder="true")


def smallest_gap(tensors):
    return min((float(tensor.min()) for name, tensor in tensors.items() if name.endswith(".greedy_gap")),
               default=float("inf"))


def write(out, tensors, metadata):
    out.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: t.contiguous() for name, t in tensors.items()}, out, metadata=metadata)
    keys = ("logits_from_final_norm_error", "decode_differs")
    notes = [f"{key} {metadata[key]}" for key in keys if key in metadata]
    print(f"{out}: {len(tensors)} tensors, {out.stat().st_size / 1024:.0f} KiB", f"gap {smallest_gap(tensors):.1e}",
          *notes, sep=", ")
