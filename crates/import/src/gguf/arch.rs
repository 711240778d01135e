//! GGUF architectures: the `model_type` that each becomes, the names of its tensors in Hugging Face checkpoints, and the
//! keys of `config.json` that follow from its metadata. One row each.
//!
//! Names and keys are those of `gguf-py/gguf/constants.py` and `tensor_mapping.py` of llama.cpp. A tensor
//! without a row keeps its own name and shows up as unused.

use super::facts::{self, From, Key};

/// One architecture of GGUF files.
#[derive(Debug)]
pub struct Architecture {
    /// `general.architecture`, which also begins its metadata keys.
    pub name: &'static str,
    /// `model_type` in `config.json`.
    pub model_type: &'static str,
    /// What `config.json` has beside [`facts::COMMON`].
    pub keys: &'static [Key],
    /// The names of its tensors.
    pub tensors: &'static [&'static [NameRow]],
}

/// A tensor's name in files and in checkpoints, without `.weight` or `.bias` where that is the same in both.
#[derive(Debug)]
pub struct NameRow {
    /// In files; `#` is the layer.
    pub gguf: &'static str,
    /// In checkpoints; `#` is the layer, `%` the place of a part.
    pub name: &'static str,
    /// How the layout differs.
    pub change: Change,
}

/// What turns a tensor of a file into that of a checkpoint.
///
/// `convert_hf_to_gguf.py` of llama.cpp makes these changes; here they are undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    None,
    // llama.cpp rotates neighbouring elements for these families, Transformers halves.
    /// Rows of the rotated pairs of each head are interleaved in the file.
    Rotary(Heads),
    /// The file has the norm's factor, the checkpoint what is added to 1.
    MinusOne,
    /// The file has in one tensor what checkpoints have in one for each `%`.
    Parts,
    /// The file has all heads' queries, then keys, then values; the checkpoint has them head by head.
    HeadTriples,
}

/// Which heads a tensor's rows belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heads {
    /// Query heads.
    Query,
    /// Key/value heads.
    KeyValue,
}

/// A tensor whose layout is the same in both.
const fn row(gguf: &'static str, name: &'static str) -> NameRow {
    NameRow { gguf, name, change: Change::None }
}

/// A tensor whose layout differs.
const fn changed_row(gguf: &'static str, name: &'static str, change: Change) -> NameRow {
    NameRow { gguf, name, change }
}

/// Embedding, final norm and head.
const ENDS: &[NameRow] =
    &[row("token_embd", "model.embed_tokens"), row("output_norm", "model.norm"), row("output", "lm_head")];

/// Pre-norms of both halves of a layer.
const PRE_NORMS: &[NameRow] = &[
    row("blk.#.attn_norm", "model.layers.#.input_layernorm"),
    row("blk.#.ffn_norm", "model.layers.#.post_attention_layernorm"),
];

/// Attention with a projection each for queries, keys and values.
const ATTENTION: &[NameRow] = &[
    row("blk.#.attn_q", "model.layers.#.self_attn.q_proj"),
    row("blk.#.attn_k", "model.layers.#.self_attn.k_proj"),
    row("blk.#.attn_v", "model.layers.#.self_attn.v_proj"),
    row("blk.#.attn_output", "model.layers.#.self_attn.o_proj"),
];

/// As [`ATTENTION`], rotated in adjacent pairs.
const ROTARY_ATTENTION: &[NameRow] = &[
    changed_row("blk.#.attn_q", "model.layers.#.self_attn.q_proj", Change::Rotary(Heads::Query)),
    changed_row("blk.#.attn_k", "model.layers.#.self_attn.k_proj", Change::Rotary(Heads::KeyValue)),
    row("blk.#.attn_v", "model.layers.#.self_attn.v_proj"),
    row("blk.#.attn_output", "model.layers.#.self_attn.o_proj"),
];

/// A gated feed-forward layer.
const GATED: &[NameRow] = &[
    row("blk.#.ffn_gate", "model.layers.#.mlp.gate_proj"),
    row("blk.#.ffn_up", "model.layers.#.mlp.up_proj"),
    row("blk.#.ffn_down", "model.layers.#.mlp.down_proj"),
];

/// Phi-3: fused projections.
const PHI3: &[NameRow] = &[
    row("blk.#.attn_qkv", "model.layers.#.self_attn.qkv_proj"),
    row("blk.#.attn_output", "model.layers.#.self_attn.o_proj"),
    row("blk.#.ffn_up", "model.layers.#.mlp.gate_up_proj"),
    row("blk.#.ffn_down", "model.layers.#.mlp.down_proj"),
];

/// Gemma-2: norms before and after both halves of a layer, all as `1 + w`.
const GEMMA2: &[NameRow] = &[
    row("token_embd", "model.embed_tokens"),
    changed_row("output_norm", "model.norm", Change::MinusOne),
    changed_row("blk.#.attn_norm", "model.layers.#.input_layernorm", Change::MinusOne),
    changed_row("blk.#.post_attention_norm", "model.layers.#.post_attention_layernorm", Change::MinusOne),
    changed_row("blk.#.ffn_norm", "model.layers.#.pre_feedforward_layernorm", Change::MinusOne),
    changed_row("blk.#.post_ffw_norm", "model.layers.#.post_feedforward_layernorm", Change::MinusOne),
];

/// GPT-NeoX: queries, keys and values of each head lie together.
const GPT_NEOX: &[NameRow] = &[
    row("token_embd", "gpt_neox.embed_in"),
    row("output_norm", "gpt_neox.final_layer_norm"),
    row("output", "embed_out"),
    row("blk.#.attn_norm", "gpt_neox.layers.#.input_layernorm"),
    row("blk.#.ffn_norm", "gpt_neox.layers.#.post_attention_layernorm"),
    changed_row("blk.#.attn_qkv", "gpt_neox.layers.#.attention.query_key_value", Change::HeadTriples),
    row("blk.#.attn_output", "gpt_neox.layers.#.attention.dense"),
    row("blk.#.ffn_up", "gpt_neox.layers.#.mlp.dense_h_to_4h"),
    row("blk.#.ffn_down", "gpt_neox.layers.#.mlp.dense_4h_to_h"),
];

/// Phi-1 to 2: one norm for both halves of a layer.
const PHI: &[NameRow] = &[
    row("token_embd", "model.embed_tokens"),
    row("output_norm", "model.final_layernorm"),
    row("output", "lm_head"),
    row("blk.#.attn_norm", "model.layers.#.input_layernorm"),
    row("blk.#.attn_q", "model.layers.#.self_attn.q_proj"),
    row("blk.#.attn_k", "model.layers.#.self_attn.k_proj"),
    row("blk.#.attn_v", "model.layers.#.self_attn.v_proj"),
    row("blk.#.attn_output", "model.layers.#.self_attn.dense"),
    row("blk.#.ffn_up", "model.layers.#.mlp.fc1"),
    row("blk.#.ffn_down", "model.layers.#.mlp.fc2"),
];

/// StarCoder2's feed-forward layer.
const STARCODER2: &[NameRow] =
    &[row("blk.#.ffn_up", "model.layers.#.mlp.c_fc"), row("blk.#.ffn_down", "model.layers.#.mlp.c_proj")];

/// Norms of queries and keys.
const QUERY_KEY_NORMS: &[NameRow] = &[
    row("blk.#.attn_q_norm", "model.layers.#.self_attn.q_norm"),
    row("blk.#.attn_k_norm", "model.layers.#.self_attn.k_norm"),
];

/// StableLM: norms of queries and keys with weights for each head, which checkpoints list one by one.
const LISTED_NORMS: &[NameRow] = &[
    changed_row("blk.#.attn_q_norm", "model.layers.#.self_attn.q_layernorm.norms.%", Change::Parts),
    changed_row("blk.#.attn_k_norm", "model.layers.#.self_attn.k_layernorm.norms.%", Change::Parts),
];

/// OLMo-2: norms behind both halves of a layer.
const POST_NORMS: &[NameRow] = &[
    row("blk.#.post_attention_norm", "model.layers.#.post_attention_layernorm"),
    row("blk.#.post_ffw_norm", "model.layers.#.post_feedforward_layernorm"),
];

/// Gemma and Nemotron: pre-norms as `1 + w`.
const ONE_MORE: &[NameRow] = &[
    row("token_embd", "model.embed_tokens"),
    row("output", "lm_head"),
    changed_row("output_norm", "model.norm", Change::MinusOne),
    changed_row("blk.#.attn_norm", "model.layers.#.input_layernorm", Change::MinusOne),
    changed_row("blk.#.ffn_norm", "model.layers.#.post_attention_layernorm", Change::MinusOne),
];

/// Two projections.
const PLAIN: &[NameRow] = &[
    row("blk.#.ffn_up", "model.layers.#.mlp.up_proj"),
    row("blk.#.ffn_down", "model.layers.#.mlp.down_proj"),
];

/// GLM-4-0414: norms before and behind both halves of a layer; gate and up in one.
const GLM4: &[NameRow] = &[
    row("blk.#.post_attention_norm", "model.layers.#.post_self_attn_layernorm"),
    row("blk.#.post_ffw_norm", "model.layers.#.post_mlp_layernorm"),
    row("blk.#.ffn_up", "model.layers.#.mlp.gate_up_proj"),
    row("blk.#.ffn_down", "model.layers.#.mlp.down_proj"),
];

// Files have one key for each sort of norm, checkpoints one for each family.
const RMS_EPS: Key = Key("rms_norm_eps", From::Number("attention.layer_norm_rms_epsilon"));
const LAYER_EPS: Key = Key("layer_norm_eps", From::Number("attention.layer_norm_epsilon"));
const ATTENTION_BIAS: Key = Key("attention_bias", From::Made(facts::attention_bias));
const MLP_BIAS: Key = Key("mlp_bias", From::Made(facts::mlp_bias));

/// All architectures that are read.
const ARCHITECTURES: &[Architecture] = &[
    // Also Mistral, and whatever else has Llama's layers.
    Architecture {
        name: "llama",
        model_type: "llama",
        keys: &[RMS_EPS, ATTENTION_BIAS, MLP_BIAS],
        tensors: &[ENDS, PRE_NORMS, ROTARY_ATTENTION, GATED],
    },
    Architecture {
        name: "qwen2",
        model_type: "qwen2",
        keys: &[RMS_EPS],
        tensors: &[ENDS, PRE_NORMS, ATTENTION, GATED],
    },
    Architecture {
        name: "gemma2",
        model_type: "gemma2",
        keys: &[
            RMS_EPS,
            Key("hidden_activation", From::Text("gelu_pytorch_tanh")),
            Key("sliding_window", From::Whole("attention.sliding_window")),
            Key("attn_logit_softcapping", From::Number("attn_logit_softcapping")),
            Key("final_logit_softcapping", From::Number("final_logit_softcapping")),
            Key("query_pre_attn_scalar", From::Made(facts::gemma2_query_scale)),
        ],
        tensors: &[GEMMA2, ATTENTION, GATED],
    },
    Architecture {
        name: "phi3",
        model_type: "phi3",
        keys: &[
            RMS_EPS,
            Key(
                "original_max_position_embeddings",
                From::OptionalWhole("rope.scaling.original_context_length"),
            ),
            Key("sliding_window", From::OptionalWhole("attention.sliding_window")),
        ],
        tensors: &[ENDS, PRE_NORMS, PHI3],
    },
    Architecture {
        name: "gptneox",
        model_type: "gpt_neox",
        keys: &[
            LAYER_EPS,
            Key("use_parallel_residual", From::OptionalFlag("use_parallel_residual")),
            ATTENTION_BIAS,
            Key("hidden_act", From::Text("gelu")),
        ],
        tensors: &[GPT_NEOX],
    },
    // Phi-1, 1.5 and 2.
    Architecture {
        // The metadata does not name the activation.
        name: "phi2",
        model_type: "phi",
        keys: &[LAYER_EPS, Key("hidden_act", From::Text("gelu_new"))],
        tensors: &[PHI],
    },
    Architecture {
        name: "starcoder2",
        model_type: "starcoder2",
        keys: &[
            Key("norm_epsilon", From::Number("attention.layer_norm_epsilon")),
            Key("use_bias", From::Made(facts::attention_bias)),
            Key("hidden_act", From::Text("gelu_pytorch_tanh")),
            Key("sliding_window", From::OptionalWhole("attention.sliding_window")),
        ],
        tensors: &[ENDS, PRE_NORMS, ATTENTION, STARCODER2],
    },
    Architecture {
        name: "qwen3",
        model_type: "qwen3",
        keys: &[RMS_EPS, ATTENTION_BIAS],
        tensors: &[ENDS, PRE_NORMS, ATTENTION, QUERY_KEY_NORMS, GATED],
    },
    Architecture {
        name: "gemma",
        model_type: "gemma",
        keys: &[RMS_EPS],
        tensors: &[ONE_MORE, ATTENTION, GATED],
    },
    Architecture {
        name: "nemotron",
        model_type: "nemotron",
        keys: &[Key("norm_eps", From::Number("attention.layer_norm_epsilon")), ATTENTION_BIAS, MLP_BIAS],
        tensors: &[ONE_MORE, ATTENTION, PLAIN],
    },
    Architecture {
        name: "stablelm",
        model_type: "stablelm",
        keys: &[
            LAYER_EPS,
            Key("use_qkv_bias", From::Made(facts::attention_bias)),
            Key("qk_layernorm", From::Made(facts::query_key_norms)),
            Key("use_parallel_residual", From::OptionalFlag("use_parallel_residual")),
        ],
        tensors: &[ENDS, PRE_NORMS, ATTENTION, LISTED_NORMS, GATED],
    },
    Architecture {
        // Norms without weights: files hold none, and the epsilon is fixed.
        name: "olmo",
        model_type: "olmo",
        keys: &[Key("clip_qkv", From::OptionalNumber("attention.clamp_kqv"))],
        tensors: &[ENDS, ROTARY_ATTENTION, GATED],
    },
    Architecture {
        name: "olmo2",
        model_type: "olmo2",
        keys: &[RMS_EPS],
        tensors: &[ENDS, ATTENTION, QUERY_KEY_NORMS, POST_NORMS, GATED],
    },
    Architecture {
        name: "orion",
        model_type: "orion",
        // The key says RMS, the norm is none.
        keys: &[Key("rms_norm_eps", From::Number("attention.layer_norm_epsilon"))],
        tensors: &[ENDS, PRE_NORMS, ATTENTION, GATED],
    },
    Architecture {
        name: "granite",
        model_type: "granite",
        keys: &[
            RMS_EPS,
            ATTENTION_BIAS,
            MLP_BIAS,
            Key("attention_multiplier", From::OptionalNumber("attention.scale")),
            Key("embedding_multiplier", From::OptionalNumber("embedding_scale")),
            Key("residual_multiplier", From::OptionalNumber("residual_scale")),
            Key("logits_scaling", From::OptionalNumber("logit_scale")),
        ],
        tensors: &[ENDS, PRE_NORMS, ROTARY_ATTENTION, GATED],
    },
    Architecture {
        name: "minicpm",
        model_type: "minicpm",
        keys: &[
            RMS_EPS,
            Key("scale_emb", From::Number("embedding_scale")),
            Key("scale_depth", From::Made(facts::minicpm_depth_scale)),
            Key("dim_model_base", From::Made(facts::minicpm_base_width)),
        ],
        tensors: &[ENDS, PRE_NORMS, ROTARY_ATTENTION, GATED],
    },
    Architecture {
        name: "smollm3",
        model_type: "smollm3",
        keys: &[RMS_EPS, ATTENTION_BIAS, MLP_BIAS],
        tensors: &[ENDS, PRE_NORMS, ROTARY_ATTENTION, GATED],
    },
    // Its projection of queries, keys and values is cut up in files, which makes its layers those of Llama.
    Architecture {
        name: "internlm2",
        model_type: "llama",
        keys: &[RMS_EPS, ATTENTION_BIAS],
        tensors: &[ENDS, PRE_NORMS, ROTARY_ATTENTION, GATED],
    },
    Architecture {
        name: "command-r",
        model_type: "cohere",
        keys: &[
            LAYER_EPS,
            Key("logit_scale", From::Number("logit_scale")),
            Key("use_qk_norm", From::Made(facts::query_key_norms)),
        ],
        tensors: &[ENDS, PRE_NORMS, ATTENTION, QUERY_KEY_NORMS, GATED],
    },
    Architecture {
        name: "cohere2",
        model_type: "cohere2",
        keys: &[
            LAYER_EPS,
            Key("logit_scale", From::Number("logit_scale")),
            Key("sliding_window", From::Whole("attention.sliding_window")),
        ],
        tensors: &[ENDS, PRE_NORMS, ATTENTION, GATED],
    },
    Architecture {
        name: "glm4",
        model_type: "glm4",
        keys: &[RMS_EPS, ATTENTION_BIAS],
        tensors: &[ENDS, PRE_NORMS, ATTENTION, GLM4],
    },
];

impl Architecture {
    /// The architecture of this name.
    pub fn find(name: &str) -> Option<&'static Architecture> {
        ARCHITECTURES.iter().find(|a| a.name == name)
    }

    /// The names of all architectures, for messages.
    pub fn names() -> String {
        ARCHITECTURES.iter().map(|a| a.name).collect::<Vec<_>>().join(", ")
    }

    /// The row of a name with `#` for the layer.
    pub fn row(&self, gguf: &str) -> Option<&'static NameRow> {
        self.tensors.iter().flat_map(|rows| rows.iter()).find(|row| row.gguf == gguf)
    }

    /// Whether `config.json` says what this tensor holds.
    pub fn read_into_config(&self, name: &str) -> bool {
        facts::FREQUENCIES.contains(&name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_listed_once() {
        let names: HashSet<&str> = ARCHITECTURES.iter().map(|a| a.name).collect();
        assert_eq!(names.len(), ARCHITECTURES.len());
        for architecture in ARCHITECTURES {
            let rows: Vec<&NameRow> = architecture.tensors.iter().flat_map(|rows| rows.iter()).collect();
            let gguf: HashSet<&str> = rows.iter().map(|r| r.gguf).collect();
            let names: HashSet<&str> = rows.iter().map(|r| r.name).collect();
            assert!(gguf.len() == rows.len() && names.len() == rows.len(), "{}", architecture.name);
        }
    }
}
