//! Keys of configurations that mean the same. Families spell them differently, and Transformers renames them.
//!
//! Architectures ask for one spelling only. [`spellings`] says where else to look, so no architecture lists
//! alternatives of its own.

/// Keys of one meaning in each row. A row needs no other change to be read everywhere. `crates/import/tests/configs.rs`
/// holds the `attribute_map`s of Transformers 4 and 5 against them.
///
/// What moved into an object of its own (`rope_parameters`) is no other spelling; `block/rope` reads both places.
const SPELLINGS: &[&[&str]] = &[
    &["vocab_size", "padded_vocab_size"],
    &["hidden_size", "n_embd"],
    &["intermediate_size", "n_inner", "ffn_hidden_size"],
    &["num_hidden_layers", "n_layer", "num_layers"],
    &["num_attention_heads", "n_head"],
    &["num_key_value_heads", "num_kv_heads"],
    &["max_position_embeddings", "n_positions", "seq_length", "n_ctx", "context_length"],
    // `num_experts` until Transformers 4, `num_local_experts` from 5 on, for Qwen3-MoE among others.
    &["num_experts", "num_local_experts", "n_routed_experts"],
    &["num_experts_per_tok", "experts_per_token"],
    &["image_token_index", "image_token_id"],
    // `torch_dtype` until Transformers 4.55.
    &["dtype", "torch_dtype"],
    // Of AutoAWQ's own file and of the section that Transformers makes of it.
    &["bits", "w_bit"],
    &["group_size", "q_group_size"],
    // Of `preprocessor_config.json`, until Transformers 4.26.
    &["image_processor_type", "feature_extractor_type"],
];

/// The key itself, then its other spellings in the order of the table.
pub fn spellings(key: &str) -> impl Iterator<Item = &str> {
    let row = SPELLINGS.iter().find(|row| row.contains(&key)).copied().unwrap_or_default();
    std::iter::once(key).chain(row.iter().copied().filter(move |&other| other != key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_key_stands_in_one_row() {
        let keys: Vec<&str> = SPELLINGS.iter().copied().flatten().copied().collect();
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len());
        assert!(SPELLINGS.iter().all(|row| row.len() > 1));
    }

    #[test]
    fn the_key_itself_comes_first() {
        let all = |key| spellings(key).collect::<Vec<_>>();
        assert_eq!(all("num_local_experts"), ["num_local_experts", "num_experts", "n_routed_experts"]);
        assert_eq!(all("rms_norm_eps"), ["rms_norm_eps"]);
    }
}
