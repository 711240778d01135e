"""Models of architectures that equal one of Transformers but for names, a norm or the positions: its modules with those
parts exchanged, after the authors' published code."""
import json
import pathlib

import torch
from safetensors.torch import load_file
from transformers import GlmConfig, GlmForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.models.bloom.modeling_bloom import build_alibi_tensor

from models import Head, Transformers


class Composed(Transformers):
    """A model of Transformers whose configuration and weights come from a checkpoint with other names."""

    def open(self, folder):
        folder = pathlib.Path(folder)
        keys = json.loads((folder / "config.json").read_text())
        tensors = {name: tensor.float() for name, tensor in load_file(folder / "model.safetensors").items()}
        model = self.build(keys)
        model.load_state_dict(self.rename(keys, {n: t for n, t in tensors.items() if not n.endswith("inv_freq")}))
        return model

    def rename(self, _keys, tensors):
        return tensors


def llama(keys, **more):
    """Llama by the keys that the architectures share with it."""
    shared = ("hidden_act", "hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers",
              "num_key_value_heads", "rms_norm_eps", "rope_theta", "vocab_size", "tie_word_embeddings")
    config = LlamaConfig(**{key: keys[key] for key in shared if key in keys}, **more)
    config._attn_implementation = "eager"
    return LlamaForCausalLM(config)


class InternLm(Composed):
    implementation = "Hugging Face Transformers' Llama with biases in attention, eager attention"

    def build(self, keys):
        return llama(keys, attention_bias=keys["bias"])


class Orion(Composed):
    implementation = "Hugging Face Transformers' Llama with torch's LayerNorm, eager attention"

    def build(self, keys):
        model = llama(keys)

        def norm():
            return torch.nn.LayerNorm(keys["hidden_size"], eps=keys["rms_norm_eps"])

        model.model.norm = norm()
        for layer in model.model.layers:
            layer.input_layernorm, layer.post_attention_layernorm = norm(), norm()
        return model


class Baichuan(Composed):
    implementation = ("Hugging Face Transformers' Llama with queries, keys and values in one matrix and the rows "
                      "of the head at length 1, eager attention")

    def build(self, keys):
        return llama(keys)

    def rename(self, _keys, tensors):
        named = {}
        for name, tensor in tensors.items():
            if "W_pack" in name:
                for part, chunk in zip("qkv", tensor.chunk(3)):
                    named[name.replace("W_pack", f"{part}_proj")] = chunk
            else:
                named[name] = tensor
        self.raw_head = named["lm_head.weight"]
        named["lm_head.weight"] = torch.nn.functional.normalize(self.raw_head)
        return named

    @property
    def head(self):
        return Head(self.raw_head, unit_rows=True)


class BaichuanAlibi(Baichuan):
    implementation = Baichuan.implementation + ", with BLOOM's biases by distance instead of rotations"

    def build(self, keys):
        model = llama(keys)
        model.model.rotary_emb.forward = lambda x, position_ids: (torch.ones(1), torch.zeros(1))
        return model

    def mask(self, new, cached):
        """What is added to the scores of each head: [1, heads, new, cached + new]."""
        total = cached + new
        alibi = build_alibi_tensor(torch.ones(1, total), self.model.config.num_attention_heads, torch.float32)
        future = torch.full((total, total), torch.finfo(torch.float32).min).triu(1)
        return (alibi + future)[None, :, cached:]

    def run(self, ids):
        logits = self.model(torch.tensor([ids]), attention_mask=self.mask(len(ids), 0), use_cache=False).logits[0]
        return dict(self.recorder.seen, logits=logits)

    def steps(self, texts):
        cache, cached = None, 0
        for ids in texts:
            output = self.model(torch.tensor([ids]), attention_mask=self.mask(len(ids), cached), past_key_values=cache,
                                use_cache=True)
            cache, cached = output.past_key_values, cached + len(ids)
            yield output.logits[0, -1]


class ChatGlm(Composed):
    implementation = "Hugging Face Transformers' GLM under the first names of its weights, eager attention"
    names = (("transformer.embedding.word_embeddings", "model.embed_tokens"),
             ("transformer.encoder.final_layernorm", "model.norm"), ("transformer.output_layer", "lm_head"),
             ("transformer.encoder", "model"), ("self_attention.dense", "self_attn.o_proj"),
             ("mlp.dense_h_to_4h", "mlp.gate_up_proj"), ("mlp.dense_4h_to_h", "mlp.down_proj"))

    def build(self, keys):
        config = GlmConfig(
            attention_bias=keys["add_qkv_bias"], head_dim=keys["kv_channels"], hidden_size=keys["hidden_size"],
            intermediate_size=keys["ffn_hidden_size"], num_attention_heads=keys["num_attention_heads"],
            num_hidden_layers=keys["num_layers"], num_key_value_heads=keys["multi_query_group_num"], pad_token_id=None,
            rms_norm_eps=keys["layernorm_epsilon"], vocab_size=keys["padded_vocab_size"],
            rope_parameters=dict(rope_type="default", rope_theta=10000.0 * keys.get("rope_ratio", 1.0),
                                 partial_rotary_factor=0.5))
        config._attn_implementation = "eager"
        return GlmForCausalLM(config)

    def rename(self, keys, tensors):
        named = {}
        heads, kv_heads, size = keys["num_attention_heads"], keys["multi_query_group_num"], keys["kv_channels"]
        for name, tensor in tensors.items():
            for theirs, ours in self.names:
                name = name.replace(theirs, ours)
            if "query_key_value" in name:
                parts = tensor.split([heads * size, kv_heads * size, kv_heads * size])
                for part, rows in zip("qkv", parts):
                    named[name.replace("self_attention.query_key_value", f"self_attn.{part}_proj")] = rows
            else:
                named[name] = tensor
        return named
