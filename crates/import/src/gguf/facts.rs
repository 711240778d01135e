//! The keys of `config.json`, and what a GGUF file's metadata makes of each.
//!
//! A row says where a key's value comes from. What no metadata says (activation, biases, tied embeddings)
//! is told from the tensors that are there. The keys are then read with the bounds of every other
//! configuration.

use super::metadata::{Metadata, MetadataValue};
use super::shards::Model;
use serde_json::{Map, Value as Json, json};
use tapml_graph::{Error, Result};

/// Divisors of rotary frequencies: for all lengths, for short and for long texts. Their names in the file.
pub const FREQUENCIES: [&str; 3] =
    ["rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight"];
// Metadata may name one id only, while a chat ends with another.
/// Control tokens that end a turn of a chat, as the makers of models spell them.
const ENDS_OF_TURN: [&str; 7] =
    ["<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<EOT>"];
/// Number of the control tokens among the types of tokens.
const CONTROL: u64 = 3;

/// A key of `config.json` and where its value comes from.
#[derive(Debug)]
pub struct Key(pub &'static str, pub From);

/// Where the value of a key comes from. Metadata keys stand below the architecture's name.
///
/// A missing required key is an error here; a missing optional key leaves the architecture's default.
#[derive(Debug)]
pub enum From {
    /// The whole number under this metadata key, which must be there. An array of equal ones is one.
    Whole(&'static str),
    /// The same, if it is there.
    OptionalWhole(&'static str),
    /// The number under this metadata key, which must be there.
    Number(&'static str),
    /// The same, if it is there.
    OptionalNumber(&'static str),
    /// The truth value under this metadata key, if it is there.
    OptionalFlag(&'static str),
    /// What all models of the architecture have.
    Text(&'static str),
    /// What this makes of the file; nothing if that is null.
    Made(fn(&Facts) -> Result<Json>),
}

/// What every `config.json` has.
pub const COMMON: &[Key] = &[
    Key("vocab_size", From::Made(vocab)),
    Key("hidden_size", From::Whole("embedding_length")),
    Key("num_hidden_layers", From::Whole("block_count")),
    Key("num_attention_heads", From::Whole("attention.head_count")),
    Key("num_key_value_heads", From::Made(key_value_heads)),
    Key("head_dim", From::Made(head_dim)),
    Key("intermediate_size", From::OptionalWhole("feed_forward_length")),
    Key("max_position_embeddings", From::Whole("context_length")),
    Key("rope_parameters", From::Made(rope)),
    Key("tie_word_embeddings", From::Made(tied_embedding)),
    Key("bos_token_id", From::Made(bos)),
    Key("eos_token_id", From::Made(eos)),
];

/// A file, as the values of keys are made from it.
pub struct Facts<'a> {
    /// Metadata and tensors; the values of small tensors are read.
    pub model: &'a Model,
    /// The name of its architecture.
    pub architecture: &'static str,
    /// What the architecture has beside [`COMMON`].
    pub keys: &'static [Key],
}

impl Facts<'_> {
    fn metadata(&self) -> &Metadata {
        self.model.metadata()
    }

    /// A metadata key of the architecture.
    fn key(&self, end: &str) -> String {
        format!("{}.{end}", self.architecture)
    }

    /// The value of a key; null if an optional one is absent.
    pub fn value(&self, from: &From) -> Result<Json> {
        Ok(match *from {
            From::Whole(end) => json!(self.whole(end)?),
            From::OptionalWhole(end) => json!(self.optional_whole(end)?),
            From::Number(end) => json!(self.require(end, self.number(end)?)?),
            From::OptionalNumber(end) => json!(self.number(end)?),
            From::OptionalFlag(end) => json!(self.metadata().flag(&self.key(end))?),
            From::Text(text) => json!(text),
            From::Made(make) => make(self)?,
        })
    }

    /// A value that must be there.
    fn require<T>(&self, end: &str, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| {
            Error::invalid(format!("metadata `{}` is missing", self.key(end)))
                .with_hint("convert the model again with current tools")
        })
    }

    /// A whole number below the architecture's name that must be there.
    fn whole(&self, end: &str) -> Result<u64> {
        self.require(end, self.optional_whole(end)?)
    }

    /// A whole number, which may be given for each layer if it is the same for all.
    fn optional_whole(&self, end: &str) -> Result<Option<u64>> {
        let key = self.key(end);
        let Some(MetadataValue::Array(_)) = self.metadata().get(&key) else {
            return self.metadata().whole(&key);
        };
        let values = self.metadata().wholes(&key)?.unwrap_or_default();
        match values.iter().find(|&value| Some(value) != values.first()) {
            None => Ok(values.first().copied()),
            Some(other) => {
                let text = format!("metadata `{key}`: layers with {} and with {other} differ", values[0]);
                Err(Error::unsupported(text).with_hint("only models whose layers are alike are supported"))
            }
        }
    }

    /// A number below the architecture's name, if it is there.
    fn number(&self, end: &str) -> Result<Option<f64>> {
        self.metadata().number(&self.key(end))
    }

    /// Whether the file has this tensor.
    pub fn has(&self, tensor: &str) -> bool {
        self.model.find(tensor).is_some()
    }

    /// The values of a tensor, if the file has it.
    fn values(&self, tensor: &str) -> Result<Option<Vec<f64>>> {
        let Some((file, entry)) = self.model.find(tensor) else { return Ok(None) };
        Ok(Some(file.load(entry)?.to_f64()))
    }

    /// Elements of a head.
    fn head_dim(&self) -> Result<u64> {
        // At least 1: a hostile count of 0 must not divide.
        let heads = self.whole("attention.head_count")?.max(1);
        Ok(self.optional_whole("attention.key_length")?.unwrap_or(self.whole("embedding_length")? / heads))
    }

    /// Mixtures of experts share architectures with models that are none.
    pub fn refuse_experts(&self) -> Result<()> {
        match self.optional_whole("expert_count")? {
            None | Some(0) => Ok(()),
            Some(count) => {
                let text = format!(
                    "metadata `{}`: {count} experts in a GGUF file are not supported",
                    self.key("expert_count")
                );
                Err(Error::unsupported(text).with_hint("take the checkpoint with safetensors"))
            }
        }
    }

    /// Keys and values have heads of one size, unless the architecture says both.
    pub fn check_heads(&self) -> Result<()> {
        let value = self.optional_whole("attention.value_length")?;
        let both = self.keys.iter().any(|key| key.0 == "v_head_dim");
        match value.filter(|&value| !both && Some(value) != self.head_dim().ok()) {
            None => Ok(()),
            Some(found) => {
                let expected = format!("{}, the size of a key's head", self.head_dim()?);
                Err(self.metadata().expected_error(&self.key("attention.value_length"), &expected).with_hint(
                    format!(
                        "heads of {found} elements for values alone are not supported for this architecture"
                    ),
                ))
            }
        }
    }
}

/// From the table's rows: metadata may leave the number out or count unused tokens.
fn vocab(facts: &Facts) -> Result<Json> {
    let rows = facts.model.find("token_embd.weight").and_then(|(_, entry)| entry.shape.first().copied());
    match rows {
        Some(rows) => Ok(json!(rows)),
        None => Err(Error::invalid("tensor `token_embd.weight` is missing")
            .with_hint("the file holds no language model, or only a part of one")),
    }
}

/// As many as there are query heads unless the file says otherwise.
fn key_value_heads(facts: &Facts) -> Result<Json> {
    let own = facts.optional_whole("attention.head_count_kv")?;
    Ok(json!(own.map_or_else(|| facts.whole("attention.head_count"), Ok)?))
}

/// See [`Facts::head_dim`].
fn head_dim(facts: &Facts) -> Result<Json> {
    Ok(json!(facts.head_dim()?))
}

/// A file without a head of its own uses the table.
fn tied_embedding(facts: &Facts) -> Result<Json> {
    Ok(json!(!facts.has("output.weight")))
}

/// Whether queries have a bias.
pub fn attention_bias(facts: &Facts) -> Result<Json> {
    Ok(json!(facts.has("blk.0.attn_q.bias") || facts.has("blk.0.attn_qkv.bias")))
}

/// Whether feed-forward layers have biases.
pub fn mlp_bias(facts: &Facts) -> Result<Json> {
    Ok(json!(facts.has("blk.0.ffn_up.bias")))
}

/// Whether queries and keys are normalised.
pub fn query_key_norms(facts: &Facts) -> Result<Json> {
    Ok(json!(facts.has("blk.0.attn_q_norm.weight")))
}

/// MiniCPM's factor on what each half of a layer adds, times the root of the number of layers.
pub fn minicpm_depth_scale(facts: &Facts) -> Result<Json> {
    let scale = facts.require("residual_scale", facts.number("residual_scale")?)?;
    Ok(json!(scale * (facts.whole("block_count")? as f64).sqrt()))
}

/// The width at which MiniCPM's logits are not scaled.
pub fn minicpm_base_width(facts: &Facts) -> Result<Json> {
    let scale = facts.require("logit_scale", facts.number("logit_scale")?)?;
    Ok(json!(facts.whole("embedding_length")? as f64 / scale))
}

/// The square of what scores are divided by. Files do not say: all sizes but 27B take the size of a head, that one the
/// share of a head in the hidden columns (Gemma Team, "Gemma 2", 2024, table 1, and the released configurations).
pub fn gemma2_query_scale(facts: &Facts) -> Result<Json> {
    const LAYERS_OF_27B: u64 = 46;
    Ok(json!(match facts.whole("block_count")? {
        LAYERS_OF_27B => facts.whole("embedding_length")? / facts.whole("attention.head_count")?.max(1),
        _ => facts.head_dim()?,
    }))
}

/// Base, rotated share and scaling of rotary positions.
fn rope(facts: &Facts) -> Result<Json> {
    let mut rope = Map::new();
    if let Some(base) = facts.number("rope.freq_base")? {
        rope.insert("rope_theta".into(), json!(base));
    }
    if let Some(share) = rotated_share(facts)? {
        rope.insert("partial_rotary_factor".into(), json!(share));
    }
    rope.extend(scaling(facts)?);
    Ok(if rope.is_empty() { Json::Null } else { Json::Object(rope) })
}

/// The share of each head that is rotated, unless that is all of it.
fn rotated_share(facts: &Facts) -> Result<Option<f64>> {
    let (Some(rotated), head) = (facts.optional_whole("rope.dimension_count")?, facts.head_dim()?) else {
        return Ok(None);
    };
    if rotated >= head {
        return Ok(None);
    }
    // The file counts elements, configurations give a share; the next float up survives the cut.
    let share = rotated as f64 / head as f64;
    // Readers multiply by the head's size and cut the fraction off.
    Ok(Some(if share * (head as f64) < rotated as f64 { share.next_up() } else { share }))
}

/// The method of scaling under the keys of `rope_parameters`.
fn scaling(facts: &Facts) -> Result<Map<String, Json>> {
    let key = facts.key("rope.scaling.type");
    let original = facts.optional_whole("rope.scaling.original_context_length")?;
    let factor = facts.number("rope.scaling.factor")?.or(facts.number("rope.scale_linear")?);
    let attention = facts.number("rope.scaling.attn_factor")?;
    let mut scaling = Map::new();
    let mut put = |key: &str, value: Json| {
        if !value.is_null() {
            scaling.insert(key.into(), value);
        }
    };
    let [all, short, long] = FREQUENCIES.map(|name| facts.values(name));
    let default = if factor.is_some_and(|f| f != 1.0) { "linear" } else { "none" };
    match (facts.metadata().text(&key)?.unwrap_or(default), all?, short?, long?) {
        (_, _, Some(short), Some(long)) => {
            put("rope_type", json!("longrope"));
            put("short_factor", json!(short));
            put("long_factor", json!(long));
            put("original_max_position_embeddings", json!(original));
            put("attention_factor", json!(attention));
        }
        ("none", Some(divisors), ..) => {
            put("rope_type", json!("divided"));
            put("divisors", json!(divisors));
        }
        ("none", ..) => put("rope_type", json!("default")),
        ("linear", None, ..) => {
            put("rope_type", json!("linear"));
            put("factor", json!(facts.require("rope.scaling.factor", factor)?));
        }
        ("yarn", None, ..) => {
            put("rope_type", json!("yarn"));
            put("factor", json!(facts.require("rope.scaling.factor", factor)?));
            put("original_max_position_embeddings", json!(original));
            put("beta_fast", json!(facts.number("rope.scaling.yarn_beta_fast")?));
            put("beta_slow", json!(facts.number("rope.scaling.yarn_beta_slow")?));
        }
        (other, ..) => {
            let text =
                format!("metadata `{key}`: scaling method `{other}` is not supported with these tensors");
            return Err(Error::unsupported(text)
                .with_hint("supported: none, linear, yarn, and longrope with its two tensors of factors"));
        }
    }
    Ok(scaling)
}

/// Absent where the tokenizer has none.
fn bos(facts: &Facts) -> Result<Json> {
    Ok(json!(facts.metadata().whole("tokenizer.ggml.bos_token_id")?))
}

/// All tokens that end a text: those that the metadata names, and control tokens with a known spelling.
fn eos(facts: &Facts) -> Result<Json> {
    let metadata = facts.metadata();
    let mut ids: Vec<u64> = Vec::new();
    for key in ["eos_token_id", "eot_token_id", "eom_token_id"] {
        ids.extend(metadata.whole(&format!("tokenizer.ggml.{key}"))?);
    }
    let types = metadata.wholes("tokenizer.ggml.token_type")?.unwrap_or_default();
    if !types.is_empty() {
        let tokens = metadata.texts("tokenizer.ggml.tokens")?.unwrap_or_default();
        let ends = tokens.iter().zip(&types).enumerate();
        let ends = ends.filter(|(_, (token, kind))| **kind == CONTROL && ENDS_OF_TURN.contains(*token));
        ids.extend(ends.map(|(id, _)| id as u64));
    }
    // Order is kept: the first id is the tokenizer's own end of text.
    let mut seen = std::collections::HashSet::new();
    ids.retain(|&id| seen.insert(id));
    Ok(if ids.is_empty() { Json::Null } else { json!(ids) })
}
