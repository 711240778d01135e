"""Small random checkpoints of mixtures of experts."""
import torch

from row import Tiny, published

YARN = dict(beta_fast=4, beta_slow=1, factor=4, original_max_position_embeddings=16, type="yarn")


def corrections_in_f32(tensors):
    """Published routers correct their scores in float32, whatever the other weights are."""
    return {name: tensor.float() if name.endswith(".e_score_correction_bias") else tensor
            for name, tensor in tensors.items()}


EXPERTS = {
    "mixtral_tiny": Tiny(published(
        "MixtralForCausalLM", "mixtral", attention_dropout=0.0, hidden_act="silu", hidden_size=32,
        initializer_range=0.02, intermediate_size=20, max_position_embeddings=96, num_attention_heads=4,
        num_experts_per_tok=2, num_hidden_layers=2, num_key_value_heads=2, num_local_experts=5,
        output_router_logits=False, rms_norm_eps=1e-5, rope_theta=1000000.0, router_aux_loss_coef=0.02,
        sliding_window=None, tie_word_embeddings=False, vocab_size=71),
        torch.bfloat16, (1, 9, 60), seed=0),
    "qwen2_moe_tiny": Tiny(published(
        "Qwen2MoeForCausalLM", "qwen2_moe", attention_dropout=0.0, decoder_sparse_step=1, hidden_act="silu",
        hidden_size=32, initializer_range=0.02, intermediate_size=40, max_position_embeddings=96, max_window_layers=1,
        mlp_only_layers=[1], moe_intermediate_size=12, norm_topk_prob=False, num_attention_heads=4, num_experts=5,
        num_experts_per_tok=2, num_hidden_layers=2, num_key_value_heads=2, output_router_logits=False,
        rms_norm_eps=1e-6, rope_theta=1000000.0, router_aux_loss_coef=0.001, shared_expert_intermediate_size=20,
        sliding_window=7, tie_word_embeddings=False, use_sliding_window=False, vocab_size=61),
        torch.bfloat16, (1, 9, 60), seed=0),
    "qwen3_moe_tiny": Tiny(published(
        "Qwen3MoeForCausalLM", "qwen3_moe", attention_bias=False, attention_dropout=0.0, decoder_sparse_step=2,
        head_dim=12, hidden_act="silu", hidden_size=32, initializer_range=0.02, intermediate_size=48,
        max_position_embeddings=96, max_window_layers=3, mlp_only_layers=[], moe_intermediate_size=16,
        norm_topk_prob=True, num_attention_heads=4, num_experts=8, num_experts_per_tok=3, num_hidden_layers=2,
        num_key_value_heads=2, output_router_logits=False, rms_norm_eps=1e-6, rope_scaling=None, rope_theta=1000000.0,
        router_aux_loss_coef=0.001, sliding_window=None, tie_word_embeddings=False, use_sliding_window=False,
        vocab_size=71),
        torch.bfloat16, (1, 9, 60), seed=1),
    # As DeepSeek-V2-Lite: queries at full rank, the best experts of all. https://arxiv.org/abs/2405.04434
    "deepseek_v2_tiny_lite": Tiny(published(
        "DeepseekV2ForCausalLM", "deepseek_v2", attention_bias=False, attention_dropout=0.0, aux_loss_alpha=0.001,
        first_k_dense_replace=1, hidden_act="silu", hidden_size=32, initializer_range=0.02, intermediate_size=40,
        kv_lora_rank=12, max_position_embeddings=96, moe_intermediate_size=12, moe_layer_freq=1, n_group=1,
        n_routed_experts=4, n_shared_experts=2, norm_topk_prob=False, num_attention_heads=4, num_experts_per_tok=2,
        num_hidden_layers=2, num_key_value_heads=4, pretraining_tp=1, q_lora_rank=None, qk_nope_head_dim=8,
        qk_rope_head_dim=6, rms_norm_eps=1e-6, rope_scaling=YARN | dict(mscale=0.707, mscale_all_dim=0.707),
        rope_theta=1000, routed_scaling_factor=1.0, scoring_func="softmax", seq_aux=True, tie_word_embeddings=False,
        topk_group=1, topk_method="greedy", v_head_dim=10, vocab_size=71),
        torch.bfloat16, (1, 9, 60), seed=0),
    # As DeepSeek-V2: queries through a low rank, experts of the best groups.
    "deepseek_v2_tiny": Tiny(published(
        "DeepseekV2ForCausalLM", "deepseek_v2", attention_bias=False, attention_dropout=0.0, aux_loss_alpha=0.001,
        first_k_dense_replace=1, hidden_act="silu", hidden_size=32, initializer_range=0.02, intermediate_size=40,
        kv_lora_rank=12, max_position_embeddings=96, moe_intermediate_size=12, moe_layer_freq=1, n_group=3,
        n_routed_experts=6, n_shared_experts=1, norm_topk_prob=False, num_attention_heads=4, num_experts_per_tok=3,
        num_hidden_layers=2, num_key_value_heads=4, pretraining_tp=1, q_lora_rank=16, qk_nope_head_dim=8,
        qk_rope_head_dim=6, rms_norm_eps=1e-6, rope_scaling=YARN | dict(mscale=0.707, mscale_all_dim=0.5),
        rope_theta=1000, routed_scaling_factor=4.0, scoring_func="softmax", seq_aux=True, tie_word_embeddings=False,
        topk_group=2, topk_method="group_limited_greedy", v_head_dim=10, vocab_size=71),
        torch.bfloat16, (1, 9, 60), seed=0),
    # Groups by their two best experts, scores corrected for choosing only. https://arxiv.org/abs/2412.19437
    "deepseek_v3_tiny": Tiny(published(
        "DeepseekV3ForCausalLM", "deepseek_v3", attention_bias=False, attention_dropout=0.0, aux_loss_alpha=0.001,
        ep_size=1, first_k_dense_replace=1, hidden_act="silu", hidden_size=32, initializer_range=0.02,
        intermediate_size=40, kv_lora_rank=12, max_position_embeddings=96, moe_intermediate_size=12, moe_layer_freq=1,
        n_group=3, n_routed_experts=9, n_shared_experts=1, norm_topk_prob=True, num_attention_heads=4,
        num_experts_per_tok=3, num_hidden_layers=2, num_key_value_heads=4, num_nextn_predict_layers=0,
        q_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=6, rms_norm_eps=1e-6,
        rope_scaling=YARN | dict(mscale=1.0, mscale_all_dim=1.0), rope_theta=1000, routed_scaling_factor=2.5,
        scoring_func="sigmoid", seq_aux=True, tie_word_embeddings=False, topk_group=2, topk_method="noaux_tc",
        v_head_dim=10, vocab_size=71),
        torch.bfloat16, (1, 9, 60), seed=0, finish=corrections_in_f32),
    # Windows on every second layer, a sink of each head, YaRN without rounding, a limit that clamps.
    "gpt_oss_tiny": Tiny(published(
        "GptOssForCausalLM", "gpt_oss", attention_bias=True, attention_dropout=0.0, experts_per_token=2, head_dim=12,
        hidden_act="silu", hidden_size=32, initial_context_length=16, initializer_range=0.02, intermediate_size=24,
        layer_types=["sliding_attention", "full_attention"], max_position_embeddings=96, num_attention_heads=4,
        num_experts_per_tok=2, num_hidden_layers=2, num_key_value_heads=2, num_local_experts=4,
        output_router_logits=False, pad_token_id=1, rms_norm_eps=1e-5, rope_scaling=dict(
            beta_fast=4.0, beta_slow=1.0, factor=4.0, original_max_position_embeddings=16, rope_type="yarn",
            truncate=False),
        rope_theta=1000, router_aux_loss_coef=0.9, sliding_window=7, swiglu_limit=1.0, tie_word_embeddings=False,
        vocab_size=71),
        torch.bfloat16, (1, 9, 60), seed=0),
    # Chunks with angles and norms of queries and keys; every third layer sees all, its queries grow with the position.
    "llama4_tiny": Tiny(published(
        "Llama4ForCausalLM", "llama4_text", attention_bias=False, attention_chunk_size=16, attention_dropout=0.0,
        attn_scale=0.3, attn_temperature_tuning=True, floor_scale=8, head_dim=8, hidden_act="silu", hidden_size=32,
        initializer_range=0.02, interleave_moe_layer_step=2, intermediate_size=16, intermediate_size_mlp=36,
        max_position_embeddings=96, no_rope_layers=[1, 1, 0], num_attention_heads=4, num_experts_per_tok=1,
        num_hidden_layers=3, num_key_value_heads=2, num_local_experts=4, output_router_logits=False, pad_token_id=1,
        rms_norm_eps=1e-5, rope_scaling=dict(
            factor=8.0, high_freq_factor=4.0, low_freq_factor=1.0, original_max_position_embeddings=16,
            rope_type="llama3"),
        rope_theta=1000.0, router_aux_loss_coef=0.001, router_jitter_noise=0.0, tie_word_embeddings=False,
        use_qk_norm=True, vocab_size=71),
        torch.bfloat16, (1, 9, 60), seed=0),
}
