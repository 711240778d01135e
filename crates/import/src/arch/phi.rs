//! Phi (1, 1.5 and 2): decoder whose attention and feed-forward layer read one layer normalisation side by side, with
//! biases, partly rotated heads and GELU.

use super::{Architecture, Decoder, refuse_quantized};
use crate::block::activation;
use crate::block::attention::{SelfAttention, rotary};
use crate::block::embed::{embedding, head};
use crate::block::mlp::{Mlp, gelu};
use crate::block::norm::layer_norm;
use crate::block::rope::{self, Partial};
use crate::config::Section;
use crate::net::{Net, Path};
use tapml_graph::op::{Add, Gelu, RopeAngles};
use tapml_graph::{Result, ValueId};

/// Li et al., "Textbooks Are All You Need II: phi-1.5 technical report", 2023.
pub const PHI: Architecture = Architecture { model_types: &["phi"], build };

/// Where the rotated part of a head is configured.
const ROTARY: Partial = Partial { theta: "rope_theta", factor: "partial_rotary_factor", default: 0.5 };

/// `config.json`, with the defaults of Transformers for absent keys.
struct Config {
    vocab: u32,
    layers: u32,
    context: u32,
    eps: f32,
    tied: bool,
    attention: SelfAttention,
    mlp: Mlp,
    activation: Gelu,
    angles: RopeAngles,
}

impl Config {
    fn read(json: &Section) -> Result<Config> {
        refuse_quantized(json)?;
        let hidden = json.size("hidden_size", 1..=1 << 17)?;
        let heads = json.size("num_attention_heads", 1..=1 << 12)?;
        if json.flag_or("qk_layernorm", false)? {
            return Err(json.unsupported("qk_layernorm", "norms of queries and keys are not supported"));
        }
        if !hidden.is_multiple_of(heads) {
            let expected = format!("a multiple of `num_attention_heads`, which is {heads}");
            return Err(json.expected("hidden_size", &expected));
        }
        let head_dim = hidden / heads;
        let kv_heads = json.size_or("num_key_value_heads", heads, 1..=heads)?;
        if !heads.is_multiple_of(kv_heads) {
            let expected = format!("a divisor of `num_attention_heads`, which is {heads}");
            return Err(json.expected("num_key_value_heads", &expected));
        }
        let context = json.size_or("max_position_embeddings", 2048, 1..=1 << 26)?;
        let angles = rope::partial_angles(json, &ROTARY, head_dim, context)?;
        let intermediate = json.size("intermediate_size", 1..=1 << 20)?;
        Ok(Config {
            vocab: json.size("vocab_size", 1..=1 << 24)?,
            layers: json.size("num_hidden_layers", 1..=1 << 12)?,
            context,
            eps: json.number_or("layer_norm_eps", 1e-5, 0.0..=1.0)? as f32,
            tied: json.flag_or("tie_word_embeddings", false)?,
            attention: SelfAttention {
                hidden,
                heads,
                kv_heads,
                head_dim,
                rotary_dim: 2 * angles.inv_freq.len() as u32,
                window: None,
                bias: true,
                output: "dense",
            },
            mlp: Mlp { hidden, intermediate, bias: true },
            activation: activation::gelu(json, "gelu_new")?,
            angles,
        })
    }
}

fn build(json: &Section<'_>, mut net: Net<'_>) -> Result<Decoder> {
    let config = Config::read(json)?;
    let width = config.mlp.hidden;
    let model = Path::new("model");
    let embed_tokens = model.at("embed_tokens");

    let ids = net.ids()?;
    let mut x = embedding(&mut net, &embed_tokens, ids, config.vocab, width)?;
    let mut hidden = vec![embed_tokens.to_string()];
    let angles = net.node(&model.at("rotary_emb"), config.angles.clone(), &[])?;
    for index in 0..config.layers {
        let at = model.at("layers").at(index);
        x = layer(&mut net, &at, x, angles, &config)?;
        hidden.push(at.at("add_mlp").to_string());
    }
    let x = layer_norm(&mut net, &model.at("final_layernorm"), x, width, config.eps)?;

    let lm_head = Path::new("lm_head");
    let matrix = if config.tied { &embed_tokens } else { &lm_head };
    let logits = head(&mut net, &lm_head, x, matrix, [config.vocab, width], true)?;
    let graph = net.finish("logits", logits)?;
    Ok(Decoder { graph, hidden, vocab: config.vocab, context: config.context })
}

/// One decoder layer: `x: [n, hidden]` plus attention plus feed-forward, both of the same normalised rows.
fn layer(net: &mut Net, at: &Path, x: ValueId, angles: ValueId, config: &Config) -> Result<ValueId> {
    let normed = layer_norm(net, &at.at("input_layernorm"), x, config.mlp.hidden, config.eps)?;
    let attended = rotary(net, &at.at("self_attn"), normed, angles, config.attention)?;
    let x = net.node(&at.at("add_attention"), Add {}, &[x, attended])?;
    let y = gelu(net, &at.at("mlp"), normed, config.mlp, ["fc1", "fc2"], config.activation.clone())?;
    net.node(&at.at("add_mlp"), Add {}, &[x, y])
}
