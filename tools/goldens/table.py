"""The table of small random checkpoints: together they use every feature of the architectures.

`config` is config.json as published checkpoints of the architecture have it, older keys included; `complete` rows have
it as Transformers 5 writes it. Windows, chunks and original contexts are shorter than the longest prompt, and soft caps
are low enough to bend the scores. Seeds are such that no near tie decides the greedy text.
"""
import dataclasses
import typing

import torch


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
    # Whether config.json is as complete as Transformers writes it, and what rewrites its keys then.
    complete: bool = False
    edit: typing.Callable | None = None
    # What the model adds to the weights of its norms.
    norm_offset: float = 0.0
    # Size of what writes to the residual stream. Larger where the embedding, tied to the head, would else decide.
    gain: float = 1.2
    # Mean of the norms after attention and feed-forward (where they have such), for the same reason as `gain`.
    post_norm: float = 1.0
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


LLAMA = {
    "llama_tiny_llama3": Tiny(complete(
        model_type="llama", vocab_size=97, hidden_size=36, intermediate_size=52, num_hidden_layers=3,
        num_attention_heads=6, num_key_value_heads=2, head_dim=10, max_position_embeddings=256,
        tie_word_embeddings=False, attention_bias=True, mlp_bias=True, rms_norm_eps=1e-6,
        rope_parameters=dict(rope_type="llama3", rope_theta=2000.0, factor=8.0, low_freq_factor=1.0,
                             high_freq_factor=4.0, original_max_position_embeddings=64)),
        torch.float32, (1, 9, 240), seed=0, complete=True),
    "llama_tiny_linear": Tiny(complete(
        model_type="llama", vocab_size=101, hidden_size=32, intermediate_size=44, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=1, max_position_embeddings=128, tie_word_embeddings=True,
        rms_norm_eps=1e-5, rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=4.0)),
        torch.float16, (1, 9, 112), seed=1, shards=3, complete=True, edit=older_rope_keys),
    "llama_tiny_plain": Tiny(complete(
        model_type="llama", vocab_size=67, hidden_size=40, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=96, tie_word_embeddings=False,
        attention_bias=True, rms_norm_eps=1e-5, rope_parameters=dict(rope_type="default", rope_theta=500000.0)),
        torch.bfloat16, (1, 9, 80), seed=2, complete=True),
    # Every key of YaRN: https://arxiv.org/abs/2309.00071.
    "llama_tiny_yarn": Tiny(published(
        "LlamaForCausalLM", "llama", attention_bias=False, hidden_act="silu", hidden_size=32, intermediate_size=48,
        max_position_embeddings=96, mlp_bias=False, num_attention_heads=2, num_hidden_layers=2, num_key_value_heads=1,
        rms_norm_eps=1e-5, rope_scaling=dict(beta_fast=4, beta_slow=1, factor=4.0, original_max_position_embeddings=24,
                                             rope_type="yarn"),
        rope_theta=1000.0, tie_word_embeddings=False, vocab_size=73),
        torch.bfloat16, (1, 9, 60), seed=0),
    # Frequencies follow the length of the text beyond `max_position_embeddings`: the last prompt crosses it.
    "llama_tiny_dynamic": Tiny(published(
        "LlamaForCausalLM", "llama", hidden_act="silu", hidden_size=32, intermediate_size=48,
        max_position_embeddings=32, num_attention_heads=4, num_hidden_layers=2, num_key_value_heads=2,
        rms_norm_eps=1e-6, rope_scaling=dict(factor=2.0, type="dynamic"), rope_theta=10000.0,
        tie_word_embeddings=False, vocab_size=73),
        torch.float16, (1, 9, 60, 24), seed=0),
}

GPT = {
    "gpt_neox_tiny": Tiny(complete(
        model_type="gpt_neox", vocab_size=89, hidden_size=36, intermediate_size=56, num_hidden_layers=2,
        num_attention_heads=3, max_position_embeddings=96, use_parallel_residual=True, hidden_act="gelu",
        rope_parameters=dict(rope_type="default", rope_theta=5000.0, partial_rotary_factor=0.5)),
        torch.float32, (1, 9, 80), seed=3, complete=True),
    "gpt_neox_tiny_sequential": Tiny(complete(
        model_type="gpt_neox", vocab_size=89, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=2, max_position_embeddings=64, use_parallel_residual=False, attention_bias=False,
        hidden_act="gelu_new", tie_word_embeddings=True,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.25)),
        torch.float16, (1, 9, 48), seed=4, complete=True),
    "phi_tiny": Tiny(complete(
        model_type="phi", vocab_size=83, hidden_size=40, intermediate_size=52, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=96, hidden_act="gelu_new",
        rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.4)),
        torch.float32, (1, 9, 80), seed=5, complete=True),
    "starcoder2_tiny": Tiny(complete(
        model_type="starcoder2", vocab_size=79, hidden_size=36, intermediate_size=60, num_hidden_layers=3,
        num_attention_heads=6, num_key_value_heads=2, max_position_embeddings=96, sliding_window=7, use_bias=True,
        hidden_act="gelu_pytorch_tanh", rope_parameters=dict(rope_type="default", rope_theta=100000.0)),
        torch.bfloat16, (1, 9, 80), seed=6, complete=True),
    "gpt_bigcode_tiny": Tiny(published(
        "GPTBigCodeForCausalLM", "gpt_bigcode", activation_function="gelu_pytorch_tanh", attention_softmax_in_fp32=True,
        attn_pdrop=0.1, embd_pdrop=0.1, initializer_range=0.02, layer_norm_epsilon=1e-5, multi_query=True, n_embd=32,
        n_head=4, n_inner=72, n_layer=2, n_positions=80, resid_pdrop=0.1, scale_attention_softmax_in_fp32=True,
        scale_attn_weights=True, vocab_size=79),
        torch.bfloat16, (1, 9, 60), seed=0, gain=3.0),
    # Queries, keys and values lie head by head.
    "gpt_bigcode_tiny_heads": Tiny(published(
        "GPTBigCodeForCausalLM", "gpt_bigcode", activation_function="gelu", attention_softmax_in_fp32=True,
        attn_pdrop=0.1, embd_pdrop=0.1, initializer_range=0.02, layer_norm_epsilon=1e-5, multi_query=False, n_embd=36,
        n_head=3, n_inner=None, n_layer=2, n_positions=64, resid_pdrop=0.1, scale_attention_softmax_in_fp32=True,
        scale_attn_weights=True, vocab_size=79),
        torch.float16, (1, 9, 45), seed=0, gain=3.0),
}

QWEN = {
    # Windows from the second layer on.
    "qwen2_tiny": Tiny(published(
        "Qwen2ForCausalLM", "qwen2", attention_dropout=0.0, hidden_act="silu", hidden_size=36, initializer_range=0.02,
        intermediate_size=52, max_position_embeddings=96, max_window_layers=1, num_attention_heads=6,
        num_hidden_layers=3, num_key_value_heads=2, rms_norm_eps=1e-6, rope_theta=1000000.0, sliding_window=7,
        tie_word_embeddings=True, use_sliding_window=True, vocab_size=79),
        torch.bfloat16, (1, 9, 60), seed=0, gain=2.4),
    # As Qwen1.5: untied, a head of keys for each of queries, a window that is switched off.
    "qwen2_tiny_full": Tiny(published(
        "Qwen2ForCausalLM", "qwen2", attention_dropout=0.0, hidden_act="silu", hidden_size=32, initializer_range=0.02,
        intermediate_size=44, max_position_embeddings=96, max_window_layers=1, num_attention_heads=4,
        num_hidden_layers=2, num_key_value_heads=4, rms_norm_eps=1e-6, rope_theta=1000000.0, sliding_window=7,
        tie_word_embeddings=False, use_sliding_window=False, vocab_size=79),
        torch.bfloat16, (1, 9, 60), seed=0),
    "qwen2_moe_tiny": Tiny(published(
        "Qwen2MoeForCausalLM", "qwen2_moe", attention_dropout=0.0, decoder_sparse_step=1, hidden_act="silu",
        hidden_size=32, initializer_range=0.02, intermediate_size=40, max_position_embeddings=96, max_window_layers=1,
        mlp_only_layers=[1], moe_intermediate_size=12, norm_topk_prob=False, num_attention_heads=4, num_experts=5,
        num_experts_per_tok=2, num_hidden_layers=3, num_key_value_heads=2, output_router_logits=False,
        rms_norm_eps=1e-6, rope_theta=1000000.0, router_aux_loss_coef=0.001, shared_expert_intermediate_size=20,
        sliding_window=7, tie_word_embeddings=False, use_sliding_window=False, vocab_size=61),
        torch.bfloat16, (1, 9, 60), seed=0),
    "qwen3_tiny": Tiny(published(
        "Qwen3ForCausalLM", "qwen3", attention_bias=False, attention_dropout=0.0, head_dim=12, hidden_act="silu",
        hidden_size=32, initializer_range=0.02, intermediate_size=52, max_position_embeddings=96, max_window_layers=2,
        num_attention_heads=4, num_hidden_layers=2, num_key_value_heads=2, rms_norm_eps=1e-6, rope_scaling=None,
        rope_theta=1000000, sliding_window=None, tie_word_embeddings=True, use_sliding_window=False, vocab_size=79),
        torch.bfloat16, (1, 9, 60), seed=0),
    "qwen3_moe_tiny": Tiny(published(
        "Qwen3MoeForCausalLM", "qwen3_moe", attention_bias=False, attention_dropout=0.0, decoder_sparse_step=2,
        head_dim=12, hidden_act="silu", hidden_size=32, initializer_range=0.02, intermediate_size=48,
        max_position_embeddings=96, max_window_layers=3, mlp_only_layers=[], moe_intermediate_size=16,
        norm_topk_prob=True, num_attention_heads=4, num_experts=8, num_experts_per_tok=3, num_hidden_layers=2,
        num_key_value_heads=2, output_router_logits=False, rms_norm_eps=1e-6, rope_scaling=None, rope_theta=1000000.0,
        router_aux_loss_coef=0.001, sliding_window=None, tie_word_embeddings=False, use_sliding_window=False,
        vocab_size=71),
        torch.bfloat16, (1, 9, 60), seed=0),
}

GEMMA = {
    # Its `gelu` is the tanh form.
    "gemma_tiny": Tiny(published(
        "GemmaForCausalLM", "gemma", attention_bias=False, attention_dropout=0.0, head_dim=12, hidden_act="gelu",
        hidden_size=32, initializer_range=0.02, intermediate_size=56, max_position_embeddings=96,
        num_attention_heads=4, num_hidden_layers=2, num_key_value_heads=1, pad_token_id=0, rms_norm_eps=1e-6,
        rope_scaling=None, rope_theta=10000.0, vocab_size=79),
        torch.bfloat16, (1, 9, 60), seed=0, gain=6.0, norm_offset=1.0),
    "gemma2_tiny": Tiny(published(
        "Gemma2ForCausalLM", "gemma2", attention_bias=False, attention_dropout=0.0, attn_logit_softcapping=2.0,
        cache_implementation="hybrid", final_logit_softcapping=3.0, head_dim=10, hidden_act="gelu_pytorch_tanh",
        hidden_activation="gelu_pytorch_tanh", hidden_size=32, initializer_range=0.02, intermediate_size=48,
        max_position_embeddings=96, num_attention_heads=4, num_hidden_layers=3, num_key_value_heads=2, pad_token_id=0,
        query_pre_attn_scalar=8, rms_norm_eps=1e-6, rope_theta=10000.0, sliding_window=7, vocab_size=79),
        torch.bfloat16, (1, 9, 60), seed=0, norm_offset=1.0, post_norm=3.0),
    # Windows with angles of their own, except on every second layer, whose angles are scaled.
    "gemma3_tiny": Tiny(published(
        "Gemma3ForCausalLM", "gemma3_text", attention_bias=False, attention_dropout=0.0, attn_logit_softcapping=None,
        cache_implementation="hybrid", final_logit_softcapping=None, head_dim=12,
        hidden_activation="gelu_pytorch_tanh", hidden_size=32, initializer_range=0.02, intermediate_size=48,
        max_position_embeddings=96, num_attention_heads=4, num_hidden_layers=3, num_key_value_heads=1, pad_token_id=0,
        query_pre_attn_scalar=8, rms_norm_eps=1e-6, rope_local_base_freq=100, rope_scaling=dict(
            factor=8.0, rope_type="linear"),
        rope_theta=1000, sliding_window=7, sliding_window_pattern=2, vocab_size=79),
        torch.bfloat16, (1, 9, 60), seed=0, norm_offset=1.0),
}

MISTRAL = {
    "mistral_tiny": Tiny(published(
        "MistralForCausalLM", "mistral", attention_dropout=0.0, head_dim=12, hidden_act="silu", hidden_size=32,
        initializer_range=0.02, intermediate_size=56, max_position_embeddings=96, num_attention_heads=4,
        num_hidden_layers=2, num_key_value_heads=2, rms_norm_eps=1e-5, rope_theta=10000.0, sliding_window=7,
        tie_word_embeddings=False, vocab_size=79),
        torch.bfloat16, (1, 9, 60), seed=0, shards=3),
    "mixtral_tiny": Tiny(published(
        "MixtralForCausalLM", "mixtral", attention_dropout=0.0, hidden_act="silu", hidden_size=32,
        initializer_range=0.02, intermediate_size=20, max_position_embeddings=96, num_attention_heads=4,
        num_experts_per_tok=2, num_hidden_layers=2, num_key_value_heads=2, num_local_experts=5,
        output_router_logits=False, rms_norm_eps=1e-5, rope_theta=1000000.0, router_aux_loss_coef=0.02,
        sliding_window=None, tie_word_embeddings=False, vocab_size=71),
        torch.bfloat16, (1, 9, 60), seed=0),
    # Queries grow with the position beyond the original context.
    "ministral3_tiny": Tiny(published(
        "Ministral3ForCausalLM", "ministral3", attention_dropout=0.0, head_dim=16, hidden_act="silu", hidden_size=32,
        initializer_range=0.02, intermediate_size=48, max_position_embeddings=96, num_attention_heads=4,
        num_hidden_layers=2, num_key_value_heads=2, rms_norm_eps=1e-5, rope_parameters=dict(
            beta_fast=4.0, beta_slow=1.0, factor=4.0, llama_4_scaling_beta=0.3, mscale=1.0, mscale_all_dim=1.0,
            original_max_position_embeddings=16, rope_theta=1000.0, rope_type="yarn", type="yarn"),
        sliding_window=None, tie_word_embeddings=True, vocab_size=79),
        torch.bfloat16, (1, 9, 60), seed=0),
}

PHI3 = {
    "phi3_tiny": Tiny(published(
        "Phi3ForCausalLM", "phi3", attention_bias=False, attention_dropout=0.0, embd_pdrop=0.0, hidden_act="silu",
        hidden_size=32, initializer_range=0.02, intermediate_size=52, max_position_embeddings=96,
        num_attention_heads=4, num_hidden_layers=2, num_key_value_heads=4, original_max_position_embeddings=96,
        pad_token_id=1, resid_pdrop=0.0, rms_norm_eps=1e-5, rope_scaling=None, rope_theta=10000.0, sliding_window=7,
        tie_word_embeddings=False, vocab_size=79),
        torch.bfloat16, (1, 9, 60), seed=0),
    # LongRoPE: the third prompt lies beyond the original context, the fourth crosses it while it is continued.
    "phi3_tiny_longrope": Tiny(published(
        "Phi3ForCausalLM", "phi3", attention_bias=False, attention_dropout=0.0, embd_pdrop=0.0, hidden_act="silu",
        hidden_size=36, initializer_range=0.02, intermediate_size=52, max_position_embeddings=96,
        num_attention_heads=3, num_hidden_layers=2, num_key_value_heads=1, original_max_position_embeddings=24,
        pad_token_id=1, resid_pdrop=0.0, rms_norm_eps=1e-5, rope_scaling=dict(
            long_factor=[1.0, 1.3, 2.1, 3.7, 5.2, 6.4], short_factor=[1.0, 1.0, 1.1, 1.2, 1.4, 1.5], type="longrope"),
        rope_theta=1000.0, sliding_window=262144, tie_word_embeddings=False, vocab_size=79),
        torch.bfloat16, (1, 9, 60, 16), seed=0),
    # As Phi-4-mini: tied, heads in groups, only a part of each rotated.
    "phi3_tiny_partial": Tiny(published(
        "Phi3ForCausalLM", "phi3", attention_bias=False, attention_dropout=0.0, embd_pdrop=0.0, full_attn_mod=1,
        hidden_act="silu", hidden_size=32, initializer_range=0.02, intermediate_size=48, interpolate_factor=1,
        lm_head_bias=False, max_position_embeddings=96, mlp_bias=False, num_attention_heads=4, num_hidden_layers=2,
        num_key_value_heads=2, original_max_position_embeddings=24, pad_token_id=1, partial_rotary_factor=0.75,
        resid_pdrop=0.0, rms_norm_eps=1e-5, rope_scaling=dict(
            long_factor=[1.0, 1.5, 4.1], short_factor=[1.0, 1.0, 1.0], type="longrope"),
        rope_theta=1000.0, sliding_window=262144, tie_word_embeddings=True, vocab_size=79),
        torch.bfloat16, (1, 9, 60, 16), seed=0, gain=3.0),
}

TINY = LLAMA | GPT | QWEN | GEMMA | MISTRAL | PHI3
