"""Small random checkpoints of dense decoders: together they use every feature of the architectures.

Windows and original contexts are shorter than the longest prompt, soft caps low enough to bend the scores.
"""
import torch

from models import TransformersEncoder, TransformersStateful
from row import Tiny, complete, older_rope_keys, published

def as_first_published(tensors):
    """GPT-2's own files: names without a prefix, and the causal mask of each layer."""
    tensors = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    length, layers = len(tensors["wpe.weight"]), sum(name.endswith(".ln_1.weight") for name in tensors)
    masks = {f"h.{layer}.attn.bias": torch.ones(1, 1, length, length).tril().to(torch.uint8) for layer in range(layers)}
    return tensors | masks


def with_positions(tensors):
    """Published encoders hold the numbers of the positions."""
    length = len(tensors["embeddings.position_embeddings.weight"])
    return tensors | {"embeddings.position_ids": torch.arange(length)[None]}


LLAMA = {
    "llama_tiny_llama3": Tiny(complete(
        model_type="llama", vocab_size=97, hidden_size=36, intermediate_size=52, num_hidden_layers=2,
        num_attention_heads=6, num_key_value_heads=2, head_dim=10, max_position_embeddings=256,
        tie_word_embeddings=False, attention_bias=True, mlp_bias=True, rms_norm_eps=1e-6,
        rope_parameters=dict(rope_type="llama3", rope_theta=2000.0, factor=8.0, low_freq_factor=1.0,
                             high_freq_factor=4.0, original_max_position_embeddings=64)),
        torch.bfloat16, (1, 9, 240), seed=0, complete=True),
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
        torch.bfloat16, (1, 9, 80), seed=3, complete=True),
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
        torch.float16, (1, 9, 80), seed=5, complete=True),
    "starcoder2_tiny": Tiny(complete(
        model_type="starcoder2", vocab_size=79, hidden_size=36, intermediate_size=60, num_hidden_layers=2,
        num_attention_heads=6, num_key_value_heads=2, max_position_embeddings=96, sliding_window=7, use_bias=True,
        hidden_act="gelu_pytorch_tanh", rope_parameters=dict(rope_type="default", rope_theta=100000.0)),
        torch.bfloat16, (1, 9, 80), seed=6, complete=True),
    "gpt2_tiny": Tiny(published(
        "GPT2LMHeadModel", "gpt2", activation_function="gelu_new", attn_pdrop=0.1, embd_pdrop=0.1,
        initializer_range=0.02, layer_norm_epsilon=1e-5, n_ctx=80, n_embd=32, n_head=4, n_layer=2, n_positions=80,
        resid_pdrop=0.1, summary_activation=None, summary_first_dropout=0.1, summary_proj_to_labels=True,
        summary_type="cls_index", summary_use_proj=True, vocab_size=79),
        torch.bfloat16, (1, 9, 60), seed=0, gain=3.0, finish=as_first_published, idle=(".attn.bias[",)),
    # Scores scaled by the number of the layer; names with their prefix, as later files have them.
    "gpt2_tiny_prefixed": Tiny(published(
        "GPT2LMHeadModel", "gpt2", activation_function="gelu", attn_pdrop=0.1, embd_pdrop=0.1, initializer_range=0.02,
        layer_norm_epsilon=1e-5, n_ctx=64, n_embd=36, n_head=3, n_inner=64, n_layer=2, n_positions=64,
        reorder_and_upcast_attn=False, resid_pdrop=0.1, scale_attn_by_inverse_layer_idx=True, scale_attn_weights=True,
        tie_word_embeddings=False, vocab_size=71),
        torch.float16, (1, 9, 45), seed=0),
    "gptj_tiny": Tiny(published(
        "GPTJForCausalLM", "gptj", activation_function="gelu_new", attn_pdrop=0.0, embd_pdrop=0.0,
        gradient_checkpointing=False, initializer_range=0.02, layer_norm_epsilon=1e-5, n_embd=32, n_head=2,
        n_inner=None, n_layer=2, n_positions=80, resid_pdrop=0.0, rotary=True, rotary_dim=6, scale_attn_weights=True,
        tie_word_embeddings=False, vocab_size=71),
        torch.float16, (1, 9, 60), seed=2),
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
        num_hidden_layers=2, num_key_value_heads=2, rms_norm_eps=1e-6, rope_theta=1000000.0, sliding_window=7,
        tie_word_embeddings=True, use_sliding_window=True, vocab_size=79),
        torch.bfloat16, (1, 9, 60), seed=0, gain=2.4),
    # As Qwen1.5: untied, a head of keys for each of queries, a window that is switched off.
    "qwen2_tiny_full": Tiny(published(
        "Qwen2ForCausalLM", "qwen2", attention_dropout=0.0, hidden_act="silu", hidden_size=32, initializer_range=0.02,
        intermediate_size=44, max_position_embeddings=96, max_window_layers=1, num_attention_heads=4,
        num_hidden_layers=2, num_key_value_heads=4, rms_norm_eps=1e-6, rope_theta=1000000.0, sliding_window=7,
        tie_word_embeddings=False, use_sliding_window=False, vocab_size=79),
        torch.bfloat16, (1, 9, 60), seed=0),
    "qwen3_tiny": Tiny(published(
        "Qwen3ForCausalLM", "qwen3", attention_bias=False, attention_dropout=0.0, head_dim=12, hidden_act="silu",
        hidden_size=32, initializer_range=0.02, intermediate_size=52, max_position_embeddings=96, max_window_layers=2,
        num_attention_heads=4, num_hidden_layers=2, num_key_value_heads=2, rms_norm_eps=1e-6, rope_scaling=None,
        rope_theta=1000000, sliding_window=None, tie_word_embeddings=True, use_sliding_window=False, vocab_size=79),
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
        max_position_embeddings=96, num_attention_heads=4, num_hidden_layers=2, num_key_value_heads=2, pad_token_id=0,
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
        torch.bfloat16, (1, 9, 60), seed=0, norm_offset=1.0, post_norm=3.0),
}

MISTRAL = {
    "mistral_tiny": Tiny(published(
        "MistralForCausalLM", "mistral", attention_dropout=0.0, head_dim=12, hidden_act="silu", hidden_size=32,
        initializer_range=0.02, intermediate_size=56, max_position_embeddings=96, num_attention_heads=4,
        num_hidden_layers=2, num_key_value_heads=2, rms_norm_eps=1e-5, rope_theta=10000.0, sliding_window=7,
        tie_word_embeddings=False, vocab_size=79),
        torch.bfloat16, (1, 9, 60), seed=0, shards=3),
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

COHERE = {
    # As Aya-23 8B.
    "cohere_tiny": Tiny(published(
        "CohereForCausalLM", "cohere", attention_bias=False, attention_dropout=0.0, hidden_act="silu", hidden_size=32,
        initializer_range=0.02, intermediate_size=52, layer_norm_eps=1e-5, logit_scale=0.5,
        max_position_embeddings=96, num_attention_heads=4, num_hidden_layers=2, num_key_value_heads=2, pad_token_id=0,
        rope_theta=10000, tie_word_embeddings=True, use_qk_norm=False, vocab_size=79),
        torch.float16, (1, 9, 60), seed=0, gain=3.0),
    # As Command R+: every head of queries and keys has a norm of its own.
    "cohere_tiny_qk_norm": Tiny(published(
        "CohereForCausalLM", "cohere", attention_bias=False, attention_dropout=0.0, hidden_act="silu", hidden_size=36,
        initializer_range=0.02, intermediate_size=52, layer_norm_eps=1e-5, logit_scale=0.8333333333333334,
        max_position_embeddings=96, model_max_length=96, num_attention_heads=3, num_hidden_layers=2,
        num_key_value_heads=1, pad_token_id=0, pretraining_tp=1, rope_theta=75000000.0, use_qk_norm=True,
        vocab_size=79),
        torch.bfloat16, (1, 9, 60), seed=1, gain=3.0),
    # Windows with angles, except on every second layer, which has neither.
    "cohere2_tiny": Tiny(published(
        "Cohere2ForCausalLM", "cohere2", attention_bias=False, attention_dropout=0.0, head_dim=8, hidden_act="silu",
        hidden_size=32, initializer_range=0.02, intermediate_size=44, layer_norm_eps=1e-5, layer_switch=2,
        logit_scale=0.5, max_position_embeddings=96, num_attention_heads=4, num_hidden_layers=3,
        num_key_value_heads=2, order_of_interleaved_layers="local_attn_first", pad_token_id=0,
        position_embedding_type="rope_gptj", rope_scaling=None, rope_theta=50000, rotary_pct=1.0, sliding_window=7,
        sliding_window_pattern=2, use_embedding_sharing=True, use_gated_activation=True, use_parallel_block=True,
        use_parallel_embedding=False, use_qk_norm=False, vocab_size=79),
        torch.bfloat16, (1, 9, 60), seed=0, gain=3.0),
}

STABLELM = {
    # As StableLM 2 1.6B.
    "stablelm_tiny": Tiny(published(
        "StableLmForCausalLM", "stablelm", attention_dropout=0.0, hidden_act="silu", hidden_dropout=0.0,
        hidden_size=32, initializer_range=0.02, intermediate_size=52, layer_norm_eps=1e-5, max_position_embeddings=96,
        num_attention_heads=2, num_hidden_layers=2, num_key_value_heads=2, partial_rotary_factor=0.25,
        rope_theta=10000, tie_word_embeddings=False, use_qkv_bias=True, vocab_size=79),
        torch.float16, (1, 9, 60), seed=0),
    # As StableLM 2 12B.
    "stablelm_tiny_parallel": Tiny(published(
        "StableLmForCausalLM", "stablelm", attention_dropout=0.0, hidden_act="silu", hidden_dropout=0.0,
        hidden_size=32, initializer_range=0.02, intermediate_size=52, layer_norm_eps=1e-5, max_position_embeddings=96,
        num_attention_heads=4, num_hidden_layers=2, num_key_value_heads=2, partial_rotary_factor=0.5,
        qk_layernorm=True, rope_theta=10000, tie_word_embeddings=False, use_parallel_residual=True,
        use_qkv_bias=False, vocab_size=79),
        torch.bfloat16, (1, 9, 60), seed=0),
}

OLMO = {
    # Norms without weights, queries, keys and values clipped.
    "olmo_tiny": Tiny(published(
        "OlmoForCausalLM", "olmo", attention_bias=False, attention_dropout=0.0, clip_qkv=0.9, hidden_act="silu",
        hidden_size=32, initializer_range=0.02, intermediate_size=52, max_position_embeddings=96,
        num_attention_heads=4, num_hidden_layers=2, num_key_value_heads=4, pad_token_id=1, rope_scaling=None,
        rope_theta=10000.0, tie_word_embeddings=False, vocab_size=79),
        torch.bfloat16, (1, 9, 60), seed=0),
    # Norms behind attention and feed-forward, and over all heads of queries and keys at once.
    "olmo2_tiny": Tiny(published(
        "Olmo2ForCausalLM", "olmo2", attention_bias=False, attention_dropout=0.0, hidden_act="silu", hidden_size=32,
        initializer_range=0.02, intermediate_size=52, max_position_embeddings=96, num_attention_heads=4,
        num_hidden_layers=2, num_key_value_heads=2, pad_token_id=1, rms_norm_eps=1e-6, rope_scaling=None,
        rope_theta=500000, tie_word_embeddings=False, vocab_size=79),
        torch.bfloat16, (1, 9, 60), seed=0),
}

GLM = {
    "glm_tiny": Tiny(published(
        "GlmForCausalLM", "glm", attention_bias=True, attention_dropout=0.0, head_dim=12, hidden_act="silu",
        hidden_size=32, initializer_range=0.02, intermediate_size=52, max_position_embeddings=96,
        num_attention_heads=4, num_hidden_layers=2, num_key_value_heads=2, pad_token_id=1, partial_rotary_factor=0.5,
        rms_norm_eps=1.5625e-7, rope_theta=10000.0, tie_word_embeddings=False, vocab_size=79),
        torch.bfloat16, (1, 9, 60), seed=0),
    "glm4_tiny": Tiny(published(
        "Glm4ForCausalLM", "glm4", attention_bias=False, attention_dropout=0.0, head_dim=8, hidden_act="silu",
        hidden_size=32, initializer_range=0.02, intermediate_size=52, max_position_embeddings=96,
        num_attention_heads=4, num_hidden_layers=2, num_key_value_heads=1, pad_token_id=1, partial_rotary_factor=0.5,
        rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False, vocab_size=79),
        torch.bfloat16, (1, 9, 60), seed=2),
}

OTHERS = {
    "granite_tiny": Tiny(published(
        "GraniteForCausalLM", "granite", attention_bias=False, attention_dropout=0.1, attention_multiplier=0.25,
        embedding_multiplier=3.0, hidden_act="silu", hidden_size=32, initializer_range=0.02, intermediate_size=52,
        logits_scaling=2.0, max_position_embeddings=96, mlp_bias=False, num_attention_heads=4, num_hidden_layers=2,
        num_key_value_heads=2, pad_token_id=0, residual_multiplier=0.6, rms_norm_eps=1e-5, rope_scaling=None,
        rope_theta=10000.0, tie_word_embeddings=True, vocab_size=79),
        torch.bfloat16, (1, 9, 60), seed=0, gain=5.0),
    # No angles on every second layer.
    "smollm3_tiny": Tiny(published(
        "SmolLM3ForCausalLM", "smollm3", attention_bias=False, attention_dropout=0.0, hidden_act="silu",
        hidden_size=32, initializer_range=0.02, intermediate_size=44,
        layer_types=["full_attention", "full_attention", "full_attention"], max_position_embeddings=96,
        max_window_layers=28, mlp_bias=False, no_rope_layer_interval=2, no_rope_layers=[1, 0, 1],
        num_attention_heads=4, num_hidden_layers=3, num_key_value_heads=2, pad_token_id=1, pretraining_tp=2,
        rms_norm_eps=1e-6, rope_scaling=None, rope_theta=5000000.0, sliding_window=None, use_sliding_window=False,
        vocab_size=79),
        torch.bfloat16, (1, 9, 60), seed=0, gain=3.0),
    "nemotron_tiny": Tiny(published(
        "NemotronForCausalLM", "nemotron", attention_bias=False, attention_dropout=0.0, head_dim=12,
        hidden_act="relu2", hidden_size=32, initializer_range=0.0134, intermediate_size=64,
        max_position_embeddings=96, mlp_bias=False, norm_eps=1e-5, num_attention_heads=4, num_hidden_layers=2,
        num_key_value_heads=2, partial_rotary_factor=0.5, rope_theta=10000, tie_word_embeddings=False, vocab_size=79),
        torch.bfloat16, (1, 9, 60), seed=0, norm_offset=1.0),
    # Without attention: a state space, whose scan Transformers cuts into chunks.
    "mamba2_tiny": Tiny(published(
        "Mamba2ForCausalLM", "mamba2", chunk_size=8, conv_kernel=4, expand=2, head_dim=8, hidden_act="silu",
        hidden_size=24, initializer_range=0.1, layer_norm_epsilon=1e-5, n_groups=2, norm_before_gate=False, num_heads=6,
        num_hidden_layers=2, pad_token_id=0, rescale_prenorm_residual=False, residual_in_fp32=True, rms_norm=True,
        state_size=10, tie_word_embeddings=False, time_step_floor=0.0001, time_step_limit=[0.0, float("inf")],
        time_step_max=0.1, time_step_min=0.001, time_step_rank=2, use_bias=True, use_conv_bias=True, vocab_size=71),
        torch.bfloat16, (1, 9, 60), seed=0, load=TransformersStateful),
    # An encoder: keys hold no position, so that their bias adds the same to every score of a query.
    "bert_tiny": Tiny(dict(
        architectures=["BertModel"], attention_probs_dropout_prob=0.1, classifier_dropout=None,
        gradient_checkpointing=False, hidden_act="gelu", hidden_dropout_prob=0.1, hidden_size=32,
        initializer_range=0.02, intermediate_size=56, layer_norm_eps=1e-12, max_position_embeddings=64,
        model_type="bert", num_attention_heads=4, num_hidden_layers=2, pad_token_id=0,
        position_embedding_type="absolute", type_vocab_size=2, use_cache=True, vocab_size=79),
        torch.bfloat16, (1, 9, 64), seed=0, load=TransformersEncoder, finish=with_positions,
        idle=("self.key.bias", "position_ids")),
}
