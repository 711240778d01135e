//! Llama: pre-norm decoder with rotary positions, grouped-query attention and a SiLU-gated feed-forward layer.

use super::{Architecture, Decoder, refuse_quantized};
use crate::block::attention::{SelfAttention, rotary};
use crate::block::embed::{embedding, head};
use crate::block::mlp::{Mlp, gated_silu};
use crate::block::norm::rms_norm;
use crate::block::rope;
use crate::config::Section;
use crate::net::{Net, Path};
use tapml_graph::op::{Add, RopeAngles};
use tapml_graph::{Result, ValueId};

/// Touvron et al., "LLaMA", 2023; "The Llama 3 Herd of Models", 2024.
pub const LLAMA: Architecture = Architecture { model_types: &["llama"], build };

/// `config.json`, with the defaults of Transformers for absent keys.
struct Config {
    vocab: u32,
    hidden: u32,
    layers: u32,
    context: u32,
    eps: f32,
    tied: bool,
    attention: SelfAttention,
    mlp: Mlp,
    angles: RopeAngles,
}

impl Config {
    fn read(json: &Section) -> Result<Config> {
        refuse_quantized(json)?;
        let activation = json.text_or("hidden_act", "silu")?;
        if !matches!(activation, "silu" | "swish") {
            let text = format!("activation `{activation}` is not supported for this architecture");
            return Err(json.unsupported("hidden_act", &text).with_hint("supported: silu"));
        }
        let hidden = json.size("hidden_size", 1..=1 << 17)?;
        let heads = json.size("num_attention_heads", 1..=1 << 12)?;
        let head_dim = head_dim(json, hidden, heads)?;
        let kv_heads = json.size_or("num_key_value_heads", heads, 1..=heads)?;
        if !heads.is_multiple_of(kv_heads) {
            let expected = format!("a divisor of `num_attention_heads`, which is {heads}");
            return Err(json.expected("num_key_value_heads", &expected));
        }
        let context = json.size_or("max_position_embeddings", 2048, 1..=1 << 26)?;
        Ok(Config {
            vocab: json.size("vocab_size", 1..=1 << 24)?,
            hidden,
            layers: json.size("num_hidden_layers", 1..=1 << 12)?,
            context,
            eps: json.number_or("rms_norm_eps", 1e-6, 0.0..=1.0)? as f32,
            tied: json.flag_or("tie_word_embeddings", false)?,
            attention: SelfAttention {
                hidden,
                heads,
                kv_heads,
                head_dim,
                rotary_dim: head_dim,
                window: None,
                bias: json.flag_or("attention_bias", false)?,
                output: "o_proj",
            },
            mlp: Mlp {
                hidden,
                intermediate: json.size("intermediate_size", 1..=1 << 20)?,
                bias: json.flag_or("mlp_bias", false)?,
            },
            angles: rope::angles(json, head_dim, context)?,
        })
    }
}

/// Elements of one head: even, because they are rotated in pairs.
fn head_dim(json: &Section, hidden: u32, heads: u32) -> Result<u32> {
    let (key, head_dim) = match json.get("head_dim") {
        Some(_) => ("head_dim", json.size("head_dim", 2..=1 << 12)?),
        None if hidden.is_multiple_of(heads) => ("hidden_size", hidden / heads),
        None => {
            let expected =
                format!("a multiple of `num_attention_heads`, which is {heads}, as there is no `head_dim`");
            return Err(json.expected("hidden_size", &expected));
        }
    };
    match head_dim.is_multiple_of(2) {
        true => Ok(head_dim),
        false => Err(json.expected(key, &format!("an even size of heads (here it is {head_dim})"))),
    }
}

fn build(json: &Section<'_>, mut net: Net<'_>) -> Result<Decoder> {
    let config = Config::read(json)?;
    let model = Path::new("model");
    let embed_tokens = model.at("embed_tokens");

    let ids = net.ids()?;
    let mut x = embedding(&mut net, &embed_tokens, ids, config.vocab, config.hidden)?;
    let mut hidden = vec![embed_tokens.to_string()];
    let angles = net.node(&model.at("rotary_emb"), config.angles.clone(), &[])?;
    for index in 0..config.layers {
        let at = model.at("layers").at(index);
        x = layer(&mut net, &at, x, angles, &config)?;
        hidden.push(at.at("add_mlp").to_string());
    }
    let x = rms_norm(&mut net, &model.at("norm"), x, config.hidden, config.eps)?;

    let lm_head = Path::new("lm_head");
    let matrix = if config.tied { &embed_tokens } else { &lm_head };
    let logits = head(&mut net, &lm_head, x, matrix, [config.vocab, config.hidden], false)?;
    let graph = net.finish("logits", logits)?;
    Ok(Decoder { graph, hidden, vocab: config.vocab, context: config.context })
}

/// One decoder layer: `x: [n, hidden]` plus attention, plus feed-forward.
fn layer(net: &mut Net, at: &Path, x: ValueId, angles: ValueId, config: &Config) -> Result<ValueId> {
    let y = rms_norm(net, &at.at("input_layernorm"), x, config.hidden, config.eps)?;
    let y = rotary(net, &at.at("self_attn"), y, angles, config.attention)?;
    let x = net.node(&at.at("add_attention"), Add {}, &[x, y])?;
    let y = rms_norm(net, &at.at("post_attention_layernorm"), x, config.hidden, config.eps)?;
    let y = gated_silu(net, &at.at("mlp"), y, config.mlp)?;
    net.node(&at.at("add_mlp"), Add {}, &[x, y])
}
