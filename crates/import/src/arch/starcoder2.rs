//! StarCoder2: pre-norm decoder with biases, layer normalisation, rotary positions, grouped-query attention, where
//! configured within a window, and a feed-forward layer with GELU.

use super::{Architecture, Decoder, refuse_quantized};
use crate::block::attention::{SelfAttention, rotary};
use crate::block::embed::{embedding, head};
use crate::block::mlp::{Mlp, gelu};
use crate::block::norm::layer_norm;
use crate::block::{activation, rope};
use crate::config::Section;
use crate::net::{Net, Path};
use tapml_graph::op::{Add, Gelu, RopeAngles};
use tapml_graph::{Result, ValueId};

/// Lozhkov et al., "StarCoder 2 and The Stack v2", 2024.
pub const STARCODER2: Architecture = Architecture { model_types: &["starcoder2"], build };

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
        if !hidden.is_multiple_of(heads) || !(hidden / heads).is_multiple_of(2) {
            let expected = format!("an even multiple of `num_attention_heads`, which is {heads}");
            return Err(json.expected("hidden_size", &expected));
        }
        let head_dim = hidden / heads;
        let kv_heads = json.size_or("num_key_value_heads", 2, 1..=heads)?;
        if !heads.is_multiple_of(kv_heads) {
            let expected = format!("a divisor of `num_attention_heads`, which is {heads}");
            return Err(json.expected("num_key_value_heads", &expected));
        }
        let context = json.size_or("max_position_embeddings", 4096, 1..=1 << 26)?;
        let window =
            json.get("sliding_window").map(|_| json.size("sliding_window", 1..=1 << 26)).transpose()?;
        let bias = json.flag_or("use_bias", true)?;
        let intermediate = json.size("intermediate_size", 1..=1 << 20)?;
        Ok(Config {
            vocab: json.size("vocab_size", 1..=1 << 24)?,
            layers: json.size("num_hidden_layers", 1..=1 << 12)?,
            context,
            eps: json.number_or("norm_epsilon", 1e-5, 0.0..=1.0)? as f32,
            tied: json.flag_or("tie_word_embeddings", true)?,
            attention: SelfAttention {
                hidden,
                heads,
                kv_heads,
                head_dim,
                rotary_dim: head_dim,
                window,
                bias,
                output: "o_proj",
            },
            mlp: Mlp { hidden, intermediate, bias },
            activation: activation::gelu(json, "gelu_pytorch_tanh")?,
            angles: rope::angles(json, head_dim, context)?,
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
    let x = layer_norm(&mut net, &model.at("norm"), x, width, config.eps)?;

    let lm_head = Path::new("lm_head");
    let matrix = if config.tied { &embed_tokens } else { &lm_head };
    let logits = head(&mut net, &lm_head, x, matrix, [config.vocab, width], false)?;
    let graph = net.finish("logits", logits)?;
    Ok(Decoder { graph, hidden, vocab: config.vocab, context: config.context })
}

/// One decoder layer: `x: [n, hidden]` plus attention, plus feed-forward.
fn layer(net: &mut Net, at: &Path, x: ValueId, angles: ValueId, config: &Config) -> Result<ValueId> {
    let (width, eps) = (config.mlp.hidden, config.eps);
    let y = layer_norm(net, &at.at("input_layernorm"), x, width, eps)?;
    let y = rotary(net, &at.at("self_attn"), y, angles, config.attention)?;
    let x = net.node(&at.at("add_attention"), Add {}, &[x, y])?;
    let y = layer_norm(net, &at.at("post_attention_layernorm"), x, width, eps)?;
    let y = gelu(net, &at.at("mlp"), y, config.mlp, ["c_fc", "c_proj"], config.activation.clone())?;
    net.node(&at.at("add_mlp"), Add {}, &[x, y])
}
