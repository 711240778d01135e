#!/usr/bin/env python3
"""RWKV-5, RWKV-6 and RWKV-7 by the authors' own code, the package `rwkv` on PyPI, and texts in its World vocabulary.

    pip install --no-deps rwkv
    python3 tools/goldens/goldens.py tiny --out tests/goldens --only rwkv5_tiny rwkv6_tiny rwkv7_tiny
    python3 tools/goldens/rwkv.py --out tests/goldens/rwkv_world

The checkpoints have the names and shapes of the published ones on Hugging Face: RWKV/rwkv-5-world-*,
RWKV/rwkv-6-world-* and, for RWKV-7, those of flash-linear-attention (fla-hub/rwkv7-*). The package runs them on the
CPU in float32, without TorchScript, after a translation into its own names.

`rwkv_world` is no checkpoint but texts with their ids by the package's tokenizer (`ids.json`), and its vocabulary cut
to the tokens that occur in these texts and to single bytes, which gives the same ids.
"""
import argparse
import contextlib
import importlib.metadata
import importlib.util
import io
import json
import os
import pathlib
import re
import tempfile

import torch
from safetensors.torch import load_file

from models import Head
from row import Tiny, published

# The package's layer norms have this epsilon, its norm over heads 64 times it.
EPS = 1e-5
HEAD_NORM = 64.0


def older_shapes(config, mixes):
    """Tensors of RWKV-5 and RWKV-6; `mixes` are those that only one of them has in a layer."""
    width, heads = config["hidden_size"], config["hidden_size"] // config["head_size"]
    inner = int(width * 3.5) // 32 * 32
    shapes = {"rwkv.embeddings.weight": [config["vocab_size"], width], "head.weight": [config["vocab_size"], width]}
    norms = ["rwkv.blocks.0.pre_ln", "rwkv.ln_out"]
    for layer in range(config["num_hidden_layers"]):
        at = f"rwkv.blocks.{layer}"
        norms += [f"{at}.ln1", f"{at}.ln2", f"{at}.attention.ln_x"]
        shapes |= {f"{at}.{name}": shape for name, shape in mixes.items()}
        shapes[f"{at}.attention.time_faaaa"] = [heads, config["head_size"]]
        for name in ("receptance", "key", "value", "gate", "output"):
            shapes[f"{at}.attention.{name}.weight"] = [width, width]
        shapes |= {f"{at}.feed_forward.key.weight": [inner, width],
                   f"{at}.feed_forward.receptance.weight": [width, width],
                   f"{at}.feed_forward.value.weight": [width, inner]}
    return shapes | {f"{norm}.{part}": [width] for norm in norms for part in ("weight", "bias")}


def shapes5(config):
    width, size = config["hidden_size"], config["head_size"]
    mixes = {f"attention.time_mix_{name}": [1, 1, width] for name in ("key", "value", "receptance", "gate")}
    mixes |= {f"feed_forward.time_mix_{name}": [1, 1, width] for name in ("key", "receptance")}
    return older_shapes(config, mixes | {"attention.time_decay": [width // size, size]})


def shapes6(config):
    width = config["hidden_size"]
    mixes = {f"attention.time_maa_{name}": [1, 1, width] for name in "xwkvrg"}
    mixes |= {"attention.time_maa_w1": [width, 5 * 32], "attention.time_maa_w2": [5, 32, width],
              "attention.time_decay": [1, 1, width], "attention.time_decay_w1": [width, 64],
              "attention.time_decay_w2": [64, width]}
    return older_shapes(config, mixes | {f"feed_forward.time_maa_{name}": [1, 1, width] for name in "kr"})


def shapes7(config):
    width, heads = config["hidden_size"], config["hidden_size"] // config["head_dim"]
    shapes = {"model.embeddings.weight": [config["vocab_size"], width], "lm_head.weight": [config["vocab_size"], width]}
    norms = ["model.layers.0.pre_norm", "model.norm"]
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        norms += [f"{at}.attn_norm", f"{at}.ffn_norm", f"{at}.attn.g_norm"]
        shapes |= {f"{at}.attn.x_{name}": [1, 1, width] for name in "rwkvag"}
        shapes |= {f"{at}.attn.k_k": [width], f"{at}.attn.k_a": [width], f"{at}.attn.r_k": [heads, config["head_dim"]]}
        ranks = dict(w="decay_low_rank_dim", a="a_low_rank_dim", v="v_low_rank_dim", g="gate_low_rank_dim")
        for name, key in ranks.items():
            lora = f"{at}.attn.{name}_lora.lora"
            if name == "v" and layer == 0:
                continue
            shapes |= {f"{lora}.0.weight": [config[key], width], f"{lora}.2.weight": [width, config[key]]}
            if name != "g":
                shapes[f"{lora}.2.bias"] = [width]
        shapes |= {f"{at}.attn.{name}_proj.weight": [width, width] for name in "rkvo"}
        shapes |= {f"{at}.ffn.x_k": [width], f"{at}.ffn.key.weight": [config["intermediate_size"], width],
                   f"{at}.ffn.value.weight": [width, config["intermediate_size"]]}
    return shapes | {f"{norm}.{part}": [width] for norm in norms for part in ("weight", "bias")}


def spread(tensors):
    """Mixes between both rows and decays from fast to slow, as trained models have them."""
    for name, tensor in tensors.items():
        if re.search(r"time_mix_|time_maa_[xwkvrg]$|\.x_[rwkvag]$", name):
            tensors[name] = tensor + 0.5
        elif name.endswith("time_decay"):
            tensors[name] = 8.0 * tensor - 2.0
        elif name.endswith("w_lora.lora.2.bias"):
            tensors[name] = 4.0 * tensor - 2.0
    return tensors


# Parts of names: those of the checkpoints, then those of the package.
OLDER = [("rwkv.", ""), ("embeddings", "emb"), ("pre_ln", "ln0"), ("feed_forward", "ffn"), ("attention", "att"),
         ("time_mix_key", "time_mix_k"), ("time_mix_value", "time_mix_v"), ("time_mix_receptance", "time_mix_r"),
         ("time_mix_gate", "time_mix_g")]
NEWER = [("model.embeddings", "emb"), ("model.norm", "ln_out"), ("lm_head", "head"), ("model.layers", "blocks"),
         ("pre_norm", "ln0"), ("attn_norm", "ln1"), ("ffn_norm", "ln2"), ("attn.", "att."), ("r_proj", "receptance"),
         ("k_proj", "key"), ("v_proj", "value"), ("o_proj", "output"), ("g_norm", "ln_x")]
# The factors of a low-rank projection and its bias: `w1`, `w2` and `w0` in the package, transposed.
LOW_RANK = {"0.weight": "1", "2.weight": "2", "2.bias": "0"}


def translated(tensors, config):
    """The same model under the names that the package expects."""
    newer, result = config["model_type"] == "rwkv7", {}
    for name, tensor in tensors.items():
        for theirs, own in NEWER if newer else OLDER:
            name = name.replace(theirs, own)
        low_rank = re.fullmatch(r"(.*\.)(\w)_lora\.lora\.(.*)", name)
        if low_rank:
            name = low_rank[1] + low_rank[2] + LOW_RANK[low_rank[3]]
            tensor = tensor.T if tensor.dim() == 2 else tensor
        result[name] = tensor.float().contiguous()
    if newer:
        # The published norm over heads has head_dim times the epsilon, the package's always 64 times. Without changing
        # the model, what is normed may be multiplied by the root of the quotient, through the receptance.
        factor = (HEAD_NORM / config["head_dim"]) ** 0.5
        for name in result:
            if name.endswith("att.receptance.weight"):
                result[name] = result[name] * factor
            elif name.endswith("att.r_k"):
                result[name] = result[name] / factor
    return result


def installed(file):
    """A file of the package, by its path: this file has the package's name."""
    return pathlib.Path(importlib.metadata.distribution("rwkv").locate_file(f"rwkv/{file}"))


def imported(file, name):
    spec = importlib.util.spec_from_file_location(name, installed(file))
    module = importlib.util.module_from_spec(spec)
    with contextlib.redirect_stdout(io.StringIO()):
        spec.loader.exec_module(module)
    return module


def package(version):
    """The package's models, imported for this version and without TorchScript."""
    os.environ |= dict(RWKV_JIT_ON="0", RWKV_CUDA_ON="0", RWKV_V7_ON="1" if version == 7 else "0")
    scripted = torch.jit.ScriptModule, torch.jit.script_method, torch.jit.script
    torch.jit.ScriptModule, torch.jit.script_method, torch.jit.script = torch.nn.Module, lambda f: f, lambda f: f
    try:
        return imported("model.py", f"rwkv{version}")
    finally:
        torch.jit.ScriptModule, torch.jit.script_method, torch.jit.script = scripted


class Rwkv:
    """A model of the package. Its layers are no modules: hidden states are what enters its layer norms."""

    implementation = "the package rwkv, without TorchScript"

    def __init__(self, folder):
        config = json.loads((folder / "config.json").read_text())
        tensors = load_file(folder / "model.safetensors")
        names = ("model.embeddings", "lm_head") if config["model_type"] == "rwkv7" else ("rwkv.embeddings", "head")
        self.embedding, head = (tensors[f"{name}.weight"].float() for name in names)
        self.head, self.layers = Head(head), config["num_hidden_layers"]
        self.versions = dict(torch=torch.__version__, rwkv=importlib.metadata.version("rwkv"))
        module = package(int(config["model_type"][-1]))
        with tempfile.TemporaryDirectory() as scratch, contextlib.redirect_stdout(io.StringIO()):
            torch.save(translated(tensors, config), f"{scratch}/model.pth")
            self.model = module.RWKV(model=f"{scratch}/model", strategy="cpu fp32")

    def run(self, ids):
        seen, plain = [], torch.nn.functional.layer_norm

        def recorded(x, *arguments, **keys):
            seen.append((x.clone(), plain(x, *arguments, **keys)))
            return seen[-1][1].clone()

        torch.nn.functional.layer_norm = recorded
        logits, _ = self.model.forward(list(ids), None, full_output=True)
        torch.nn.functional.layer_norm = plain
        # Two norms in each layer, then the last one.
        assert len(seen) == 2 * self.layers + 1
        hidden = [self.embedding[ids]] + [x for x, _ in seen[2::2]]
        rows = {f"hidden.{layer}": x for layer, x in enumerate(hidden)} | dict(logits=logits, final_norm=seen[-1][1])
        return {name: x.reshape(len(ids), -1) for name, x in rows.items()}

    def steps(self, texts):
        state = None
        for ids in texts:
            logits, state = self.model.forward(list(ids), state)
            yield logits.flatten()


def older(architecture, model_type, **config):
    """config.json of RWKV-5 and RWKV-6. `num_attention_heads` is the size of a head, as published."""
    return published(architecture, model_type, **config) | dict(
        attention_hidden_size=config["hidden_size"], num_attention_heads=config["head_size"], head_size_divisor=8,
        intermediate_size=None, layer_norm_epsilon=EPS, rescale_every=6, tie_word_embeddings=False, eos_token_id=0)


RWKV = {
    "rwkv5_tiny": Tiny(
        older("RwkvForCausalLM", "rwkv5", vocab_size=71, hidden_size=32, head_size=8, num_hidden_layers=2,
              model_version="5_2"),
        torch.bfloat16, (1, 9, 48), seed=0, shapes=shapes5, load=Rwkv, finish=spread),
    "rwkv6_tiny": Tiny(
        older("Rwkv6ForCausalLM", "rwkv6", vocab_size=61, hidden_size=32, head_size=16, num_hidden_layers=2),
        torch.float16, (1, 9, 48), seed=0, shapes=shapes6, load=Rwkv, finish=spread),
    "rwkv7_tiny": Tiny(
        published("RWKV7ForCausalLM", "rwkv7", vocab_size=67, hidden_size=36, head_dim=12, num_heads=3,
                  num_hidden_layers=2, intermediate_size=80, hidden_ratio=4.0, hidden_act="sqrelu",
                  decay_low_rank_dim=8, gate_low_rank_dim=12, a_low_rank_dim=6, v_low_rank_dim=5, norm_first=True,
                  norm_bias=True, norm_eps=EPS, value_dim=[36, 36, 36], attn=None, attn_mode="chunk", fuse_norm=False,
                  max_position_embeddings=96, tie_word_embeddings=False),
        torch.bfloat16, (1, 9, 48), seed=2, shapes=shapes7, load=Rwkv, finish=spread),
}

TEXTS = [
    "It was late in the evening when the coach stopped; \"we shall be late,\" said he.",
    "def main():\n    print(f\"{x:>8.3f}\")\t# 100% of 12345678901234567890\r\n\n\n        return None",
    "Chère Élise — le train de 14h05 (n° 388) coûte 2 £ 10 s. ; « à demain ! »",
    "你好，世界！大语言模型可以写诗、写代码。鸟鸣山更幽。",
    "吾輩は猫である。名前はまだ無い。カタカナも。",
    "Привет, мир! Όλα καλά; שלום עולם مرحبا بالعالم नमस्ते दुनिया 안녕하세요",
    "👩‍👩‍👧‍👦 🏳️‍🌈 é (e + ◌́) ﷽ \u200b\ufeff 𝔘𝔫𝔦𝔠𝔬𝔡𝔢",
    "\x00\x01\x7f\x80\xff\\'\"''' <s> </s> <|endoftext|>",
    " " * 200 + "-" * 100 + "#" * 81 + "\n" * 17,
    "User: hi\n\nAssistant: Hi. I am your assistant and I will provide expert full response in full details.\n\n",
    "a",
    "",
]


def world(folder):
    """Writes the texts with their ids and the cut vocabulary."""
    vocabulary, tokenizer = installed("rwkv_vocab_v20230424.txt"), imported("rwkv_tokenizer.py", "rwkv_tokenizer")
    whole = tokenizer.TRIE_TOKENIZER(vocabulary)
    ids = [whole.encode(text) for text in TEXTS]

    folder.mkdir(parents=True, exist_ok=True)
    cut, texts = folder / vocabulary.name, [text.encode() for text in TEXTS]
    with vocabulary.open(encoding="utf-8", newline="\n") as lines, cut.open("w", encoding="utf-8", newline="\n") as out:
        for line in lines:
            token = whole.idx2token[int(line.split(" ", 1)[0])]
            if len(token) == 1 or any(token in text for text in texts):
                out.write(line)
    assert ids == [tokenizer.TRIE_TOKENIZER(cut).encode(text) for text in TEXTS]
    result = dict(made_by="tools/goldens", rwkv=importlib.metadata.version("rwkv"),
                  texts=[dict(text=text, ids=own) for text, own in zip(TEXTS, ids)])
    (folder / "ids.json").write_text(json.dumps(result, indent=1) + "\n")
    print(f"{folder}: {sum(1 for _ in cut.open())} of {len(whole.idx2token)} tokens, {sum(map(len, ids))} ids")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    world(pathlib.Path(parser.parse_args().out))


if __name__ == "__main__":
    main()
