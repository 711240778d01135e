//! Tiny random Llama checkpoints for tests. Names and shapes are written out here on their own, not taken from the
//! importer, so that they check it.
//!
//! For tests of every crate: the feature `testing` builds it. The values of a seed are the same on every
//! machine.

pub mod gguf;

use crate::safetensors::write;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use tapml_graph::{DType, Result, Tensor};

/// The choices of a checkpoint; change fields, then [`TinyLlama::write`].
#[derive(Clone, Debug)]
pub struct TinyLlama {
    /// Columns of hidden states.
    pub hidden: usize,
    /// Decoder layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Elements of one head.
    pub head_dim: usize,
    /// Columns between the projections of the feed-forward layer.
    pub intermediate: usize,
    /// Token ids lie below this.
    pub vocab: usize,
    /// Most positions.
    pub context: usize,
    /// Whether the head is the embedding table.
    pub tied: bool,
    /// Whether projections add biases.
    pub bias: bool,
    /// Dtype of the weights.
    pub dtype: DType,
    /// Number of weight files.
    pub shards: usize,
    /// Makes the values.
    pub seed: u64,
    /// Added to `config.json`, replacing keys that are there; `null` removes a key.
    pub extra: Value,
}

impl Default for TinyLlama {
    fn default() -> TinyLlama {
        TinyLlama {
            hidden: 24,
            layers: 2,
            heads: 4,
            kv_heads: 2,
            head_dim: 6,
            intermediate: 40,
            vocab: 50,
            context: 64,
            tied: true,
            bias: false,
            dtype: DType::BF16,
            shards: 1,
            seed: 1,
            extra: json!({}),
        }
    }
}

impl TinyLlama {
    /// `config.json`.
    pub fn config(&self) -> Value {
        let mut config = json!({
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
            "vocab_size": self.vocab, "hidden_size": self.hidden, "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers, "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads, "head_dim": self.head_dim,
            "max_position_embeddings": self.context, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
            "tie_word_embeddings": self.tied, "attention_bias": self.bias, "mlp_bias": self.bias,
            "bos_token_id": 0, "eos_token_id": 1,
        });
        if let (Some(config), Some(extra)) = (config.as_object_mut(), self.extra.as_object()) {
            for (key, value) in extra {
                match value {
                    Value::Null => config.remove(key),
                    value => config.insert(key.clone(), value.clone()),
                };
            }
        }
        config
    }

    /// The weights in the order of the checkpoint.
    pub fn tensors(&self) -> Result<Vec<(String, Tensor)>> {
        let (hidden, between) = (self.hidden, self.intermediate);
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let mut made = Maker { dtype: self.dtype, state: self.seed, tensors: Vec::new() };
        made.add("model.embed_tokens.weight", &[self.vocab, hidden])?;
        for layer in 0..self.layers {
            let at = format!("model.layers.{layer}");
            made.add(&format!("{at}.input_layernorm.weight"), &[hidden])?;
            for (name, outputs, inputs) in [
                ("self_attn.q_proj", q, hidden),
                ("self_attn.k_proj", kv, hidden),
                ("self_attn.v_proj", kv, hidden),
                ("self_attn.o_proj", hidden, q),
                ("mlp.gate_proj", between, hidden),
                ("mlp.up_proj", between, hidden),
                ("mlp.down_proj", hidden, between),
            ] {
                made.add(&format!("{at}.{name}.weight"), &[outputs, inputs])?;
                if self.bias {
                    made.add(&format!("{at}.{name}.bias"), &[outputs])?;
                }
            }
            made.add(&format!("{at}.post_attention_layernorm.weight"), &[hidden])?;
        }
        made.add("model.norm.weight", &[hidden])?;
        if !self.tied {
            made.add("lm_head.weight", &[self.vocab, hidden])?;
        }
        Ok(made.tensors)
    }

    /// Writes `config.json` and the weights into an existing folder.
    pub fn write(&self, dir: &Path) -> Result<()> {
        self.write_tensors(dir, &self.tensors()?)
    }

    /// Writes `config.json` and these weights instead of [`TinyLlama::tensors`].
    pub fn write_tensors(&self, dir: &Path, tensors: &[(String, Tensor)]) -> Result<()> {
        text(&dir.join("config.json"), &self.config())?;
        let tensors: Vec<(&str, Tensor)> = tensors.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
        if self.shards < 2 {
            return write(&dir.join("model.safetensors"), &tensors, &BTreeMap::new());
        }
        // Shards of equal numbers of tensors, named as Transformers names them.
        let mut map = Map::new();
        for (i, part) in tensors.chunks(tensors.len().div_ceil(self.shards)).enumerate() {
            let name = format!("model-{:05}-of-{:05}.safetensors", i + 1, self.shards);
            write(&dir.join(&name), part, &BTreeMap::new())?;
            map.extend(part.iter().map(|(tensor, _)| (tensor.to_string(), json!(name))));
        }
        text(&dir.join("model.safetensors.index.json"), &json!({"metadata": {}, "weight_map": map}))
    }
}

/// Writes JSON; errors name the file.
fn text(path: &Path, value: &Value) -> Result<()> {
    std::fs::write(path, value.to_string()).map_err(|e| tapml_graph::Error::io("write", path, &e))
}

/// Makes tensors of random values, one after another from one stream.
struct Maker {
    /// Of all tensors.
    dtype: DType,
    /// Of the generator.
    state: u64,
    tensors: Vec<(String, Tensor)>,
}

impl Maker {
    /// Matrices have columns of about unit gain, norms lie around 1, so that activations neither vanish nor grow.
    fn add(&mut self, name: &str, shape: &[usize]) -> Result<()> {
        let count: usize = shape.iter().product();
        let (mean, spread) = match shape {
            [_, columns] => (0.0, (3.0 / *columns as f64).sqrt()),
            _ if name.ends_with("bias") => (0.0, 0.3),
            _ => (1.0, 0.3),
        };
        let values: Vec<f64> = (0..count).map(|_| mean + spread * self.uniform()).collect();
        self.tensors.push((name.to_string(), Tensor::from_f64(self.dtype, shape.to_vec(), &values)?));
        Ok(())
    }

    /// Uniform in −1..1, by the generator of Knuth's MMIX.
    fn uniform(&mut self) -> f64 {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 11) as f64 * (-52f64).exp2() - 1.0
    }
}
