"""Small random checkpoints of architectures that Transformers lacks, in their authors' names, and what runs them."""
import torch

from composed import Baichuan, BaichuanAlibi, ChatGlm, InternLm, Orion
from mlx_models import InternLm2, MiniCpm, Mlx
from row import Tiny, published


def llama_shapes(keys, bias=False, norm_bias=False, packed=False, kv=None):
    """Tensors named as Llama's: biases in attention, biases of norms, queries, keys and values in one."""
    hidden, inner = keys["hidden_size"], keys["intermediate_size"]
    kv = kv or hidden // keys["num_attention_heads"] * keys.get("num_key_value_heads", keys["num_attention_heads"])
    shapes = {"model.embed_tokens.weight": (keys["vocab_size"], hidden)}
    for layer in range(keys["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        attention = dict(W_pack=(3 * hidden, hidden)) if packed else dict(
            q_proj=(hidden, hidden), k_proj=(kv, hidden), v_proj=(kv, hidden))
        for name, shape in (attention | dict(o_proj=(hidden, hidden))).items():
            shapes[f"{at}self_attn.{name}.weight"] = shape
            if bias:
                shapes[f"{at}self_attn.{name}.bias"] = shape[:1]
        shapes |= gated_shapes(f"{at}mlp.", hidden, inner)
        for name in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{at}{name}.weight"] = (hidden,)
            if norm_bias:
                shapes[f"{at}{name}.bias"] = (hidden,)
    shapes["model.norm.weight"] = (hidden,)
    if norm_bias:
        shapes["model.norm.bias"] = (hidden,)
    if not keys.get("tie_word_embeddings"):
        shapes["lm_head.weight"] = (keys["vocab_size"], hidden)
    return shapes


def gated_shapes(at, hidden, inner):
    return {f"{at}gate_proj.weight": (inner, hidden), f"{at}up_proj.weight": (inner, hidden),
            f"{at}down_proj.weight": (hidden, inner)}


def internlm_shapes(keys):
    return llama_shapes(keys, bias=keys["bias"])


def orion_shapes(keys):
    return llama_shapes(keys, norm_bias=True)


def baichuan_shapes(keys):
    return llama_shapes(keys, packed=True)


def deepseek_shapes(keys):
    shapes, hidden, inner = llama_shapes(keys), keys["hidden_size"], keys["moe_intermediate_size"]
    for layer in range(keys["first_k_dense_replace"], keys["num_hidden_layers"]):
        at = f"model.layers.{layer}.mlp."
        shapes = {name: shape for name, shape in shapes.items() if not name.startswith(at)}
        shapes[f"{at}gate.weight"] = (keys["n_routed_experts"], hidden)
        shapes |= gated_shapes(f"{at}shared_experts.", hidden, inner * keys["n_shared_experts"])
        for expert in range(keys["n_routed_experts"]):
            shapes |= gated_shapes(f"{at}experts.{expert}.", hidden, inner)
    return shapes


def qwen_shapes(keys):
    hidden, inner = keys["hidden_size"], keys["intermediate_size"] // 2
    shapes = {"transformer.wte.weight": (keys["vocab_size"], hidden)}
    for layer in range(keys["num_hidden_layers"]):
        at = f"transformer.h.{layer}."
        shapes |= {f"{at}ln_1.weight": (hidden,), f"{at}ln_2.weight": (hidden,),
                   f"{at}attn.c_attn.weight": (3 * hidden, hidden), f"{at}attn.c_attn.bias": (3 * hidden,),
                   f"{at}attn.c_proj.weight": (hidden, hidden), f"{at}mlp.w1.weight": (inner, hidden),
                   f"{at}mlp.w2.weight": (inner, hidden), f"{at}mlp.c_proj.weight": (hidden, inner)}
    return shapes | {"transformer.ln_f.weight": (hidden,), "lm_head.weight": (keys["vocab_size"], hidden)}


def internlm2_shapes(keys):
    hidden, inner, heads = keys["hidden_size"], keys["intermediate_size"], keys["num_attention_heads"]
    packed = hidden // heads * (heads + 2 * keys["num_key_value_heads"])
    shapes = {"model.tok_embeddings.weight": (keys["vocab_size"], hidden)}
    for layer in range(keys["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        shapes |= {f"{at}attention.wqkv.weight": (packed, hidden), f"{at}attention.wo.weight": (hidden, hidden),
                   f"{at}attention_norm.weight": (hidden,), f"{at}ffn_norm.weight": (hidden,),
                   f"{at}feed_forward.w1.weight": (inner, hidden), f"{at}feed_forward.w2.weight": (hidden, inner),
                   f"{at}feed_forward.w3.weight": (inner, hidden)}
    return shapes | {"model.norm.weight": (hidden,), "output.weight": (keys["vocab_size"], hidden)}


def chatglm_shapes(keys):
    hidden, inner, size = keys["hidden_size"], keys["ffn_hidden_size"], keys["kv_channels"]
    queries = keys["num_attention_heads"] * size
    packed = queries + 2 * keys["multi_query_group_num"] * size
    shapes = {"transformer.embedding.word_embeddings.weight": (keys["padded_vocab_size"], hidden)}
    for layer in range(keys["num_layers"]):
        at = f"transformer.encoder.layers.{layer}."
        shapes |= {f"{at}input_layernorm.weight": (hidden,), f"{at}post_attention_layernorm.weight": (hidden,),
                   f"{at}self_attention.query_key_value.weight": (packed, hidden),
                   f"{at}self_attention.query_key_value.bias": (packed,),
                   f"{at}self_attention.dense.weight": (hidden, queries),
                   f"{at}mlp.dense_h_to_4h.weight": (2 * inner, hidden),
                   f"{at}mlp.dense_4h_to_h.weight": (hidden, inner)}
    return shapes | {"transformer.encoder.final_layernorm.weight": (hidden,),
                     "transformer.output_layer.weight": (keys["padded_vocab_size"], hidden)}


def chatglm_angles(tensors):
    """Published files hold the inverse frequencies of the angles, which follow from config.json."""
    return tensors | {"transformer.rotary_pos_emb.inv_freq": 10000.0 ** -(torch.arange(0, 6, 2) / 6)}


def internlm_angles(tensors):
    layers = sum(name.endswith("o_proj.weight") for name in tensors)
    angles = 10000.0 ** -(torch.arange(0, 8, 2) / 8)
    return tensors | {f"model.layers.{layer}.self_attn.rotary_emb.inv_freq": angles.clone() for layer in range(layers)}


PUBLISHED = {
    "internlm_tiny": Tiny(published(
        "InternLMForCausalLM", "internlm", bias=True, hidden_act="silu", hidden_size=32, initializer_range=0.02,
        intermediate_size=52, max_position_embeddings=96, num_attention_heads=4, num_hidden_layers=2,
        num_key_value_heads=4, pad_token_id=1, rms_norm_eps=1e-6, rotary=dict(base=10000, type="dynamic"),
        tie_word_embeddings=False, vocab_size=79),
        torch.float16, (1, 9, 60), seed=0, shapes=internlm_shapes, load=InternLm, finish=internlm_angles,
        idle=("inv_freq",)),
    "internlm2_tiny": Tiny(published(
        "InternLM2ForCausalLM", "internlm2", attn_implementation="eager", bias=False, hidden_act="silu",
        hidden_size=32, initializer_range=0.02, intermediate_size=52, max_position_embeddings=96,
        num_attention_heads=4, num_hidden_layers=2, num_key_value_heads=2, pad_token_id=1, rms_norm_eps=1e-5,
        rope_scaling=dict(factor=2.0, type="dynamic"), rope_theta=1000000, tie_word_embeddings=False, vocab_size=79),
        torch.bfloat16, (1, 9, 60), seed=0, shapes=internlm2_shapes, load=InternLm2),
    "orion_tiny": Tiny(published(
        "OrionForCausalLM", "orion", attention_bias=False, hidden_act="silu", hidden_size=32, initializer_range=0.02,
        intermediate_size=52, max_position_embeddings=96, max_sequence_length=96, num_attention_heads=4,
        num_hidden_layers=2, num_key_value_heads=4, pad_token_id=0, pretraining_tp=1, rms_norm_eps=1e-5,
        rope_scaling=None, rope_theta=10000.0, tie_word_embeddings=False, vocab_size=79),
        torch.bfloat16, (1, 9, 60), seed=0, shapes=orion_shapes, load=Orion),
    # As Baichuan2 7B. Rows of the head count by their direction.
    "baichuan_tiny": Tiny(published(
        "BaichuanForCausalLM", "baichuan", hidden_act="silu", hidden_size=32, initializer_range=0.02,
        intermediate_size=52, max_position_embeddings=96, model_max_length=96, num_attention_heads=4,
        num_hidden_layers=2, pad_token_id=0, rms_norm_eps=1e-6, tie_word_embeddings=False, vocab_size=79,
        z_loss_weight=0),
        torch.bfloat16, (1, 9, 60), seed=0, shapes=baichuan_shapes, load=Baichuan),
    # As Baichuan2 13B: biases by distance, of heads that are no power of two.
    "baichuan_tiny_alibi": Tiny(published(
        "BaichuanForCausalLM", "baichuan", gradient_checkpointing=[False], hidden_act="silu", hidden_size=36,
        initializer_range=0.02, intermediate_size=52, model_max_length=96, num_attention_heads=6, num_hidden_layers=2,
        pad_token_id=0, rms_norm_eps=1e-6, tie_word_embeddings=False, vocab_size=79, z_loss_weight=0),
        torch.bfloat16, (1, 9, 60), seed=1, shapes=baichuan_shapes, load=BaichuanAlibi),
    "chatglm_tiny": Tiny(dict(
        add_bias_linear=False, add_qkv_bias=True, apply_query_key_layer_scaling=True,
        apply_residual_connection_post_layernorm=False, architectures=["ChatGLMModel"], attention_dropout=0.0,
        attention_softmax_in_fp32=True, bias_dropout_fusion=True, eos_token_id=2, ffn_hidden_size=52,
        fp32_residual_connection=False, hidden_dropout=0.0, hidden_size=32, kv_channels=12, layernorm_epsilon=1e-5,
        model_type="chatglm", multi_query_attention=True, multi_query_group_num=2, num_attention_heads=4, num_layers=2,
        original_rope=True, pad_token_id=0, padded_vocab_size=79, post_layer_norm=True, quantization_bit=0,
        rmsnorm=True, seq_length=96, tie_word_embeddings=False, use_cache=True),
        torch.float16, (1, 9, 60), seed=0, shapes=chatglm_shapes, load=ChatGlm, finish=chatglm_angles,
        idle=("inv_freq",)),
    # Served up to the length it was trained for, where the factors on queries and the scaling of angles begin.
    "qwen_tiny": Tiny(dict(
        architectures=["QWenLMHeadModel"], attn_dropout_prob=0.0, bf16=False, emb_dropout_prob=0.0, fp16=False,
        fp32=False, hidden_size=32, initializer_range=0.02, intermediate_size=104, kv_channels=8,
        layer_norm_epsilon=1e-6, max_position_embeddings=384, model_type="qwen", no_bias=True, num_attention_heads=4,
        num_hidden_layers=2, onnx_safe=None, rotary_emb_base=10000, rotary_pct=1.0, scale_attn_weights=True,
        seq_length=96, tie_word_embeddings=False, tokenizer_class="QWenTokenizer", use_cache=True,
        use_dynamic_ntk=True, use_flash_attn="auto", use_logn_attn=True, vocab_size=79),
        torch.bfloat16, (1, 9, 60), seed=0, shapes=qwen_shapes, load=Mlx),
    "minicpm_tiny": Tiny(published(
        "MiniCPMForCausalLM", "minicpm", dim_model_base=16, hidden_act="silu", hidden_size=32, initializer_range=0.1,
        intermediate_size=52, max_position_embeddings=96, num_attention_heads=4, num_hidden_layers=2,
        num_key_value_heads=4, rms_norm_eps=1e-5, rope_scaling=None, rope_theta=10000.0, scale_depth=1.4, scale_emb=3,
        tie_word_embeddings=True, vocab_size=79),
        torch.bfloat16, (1, 9, 60), seed=0, gain=5.0, shapes=llama_shapes, load=MiniCpm),
    # DeepSeekMoE, before latent attention: https://arxiv.org/abs/2401.06066.
    "deepseek_tiny": Tiny(published(
        "DeepseekForCausalLM", "deepseek", attention_bias=False, attention_dropout=0.0, aux_loss_alpha=0.001,
        first_k_dense_replace=1, hidden_act="silu", hidden_size=32, initializer_range=0.02, intermediate_size=40,
        max_position_embeddings=96, moe_intermediate_size=12, moe_layer_freq=1, n_routed_experts=5,
        n_shared_experts=2, norm_topk_prob=False, num_attention_heads=4, num_experts_per_tok=2, num_hidden_layers=2,
        num_key_value_heads=4, pretraining_tp=1, rms_norm_eps=1e-6, rope_scaling=None, rope_theta=10000,
        scoring_func="softmax", seq_aux=True, tie_word_embeddings=False, vocab_size=71),
        torch.bfloat16, (1, 9, 60), seed=0, shapes=deepseek_shapes, load=Mlx),
}
