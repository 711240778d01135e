//! GPT-NeoX (Pythia, RedPajama): decoder with layer normalisation, one fused projection of queries, keys and values,
//! partly rotated heads and GELU; the feed-forward layer stands beside attention or, where configured, after it.

use super::{Architecture, Decoder, refuse_quantized};
use crate::block::activation;
use crate::block::attention::{SelfAttention, rotary_fused};
use crate::block::embed::{embedding, head};
use crate::block::mlp::{Mlp, gelu};
use crate::block::norm::layer_norm;
use crate::block::rope::{self, Partial};
use crate::config::Section;
use crate::net::{Net, Path};
use tapml_graph::op::{Add, Gelu, RopeAngles};
use tapml_graph::{Result, ValueId};

/// Black et al., "GPT-NeoX-20B: An Open-Source Autoregressive Language Model", 2022, section 2.
pub const GPT_NEOX: Architecture = Architecture { model_types: &["gpt_neox"], build };

/// Where the rotated part of a head is configured.
const ROTARY: Partial = Partial { theta: "rotary_emb_base", factor: "rotary_pct", default: 0.25 };

/// `config.json`, with the defaults of Transformers for absent keys.
struct Config {
    vocab: u32,
    layers: u32,
    context: u32,
    eps: f32,
    tied: bool,
    parallel: bool,
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
        if !hidden.is_multiple_of(heads) {
            let expected = format!("a multiple of `num_attention_heads`, which is {heads}");
            return Err(json.expected("hidden_size", &expected));
        }
        let head_dim = hidden / heads;
        let context = json.size_or("max_position_embeddings", 2048, 1..=1 << 26)?;
        let angles = rope::partial_angles(json, &ROTARY, head_dim, context)?;
        let intermediate = json.size("intermediate_size", 1..=1 << 20)?;
        Ok(Config {
            vocab: json.size("vocab_size", 1..=1 << 24)?,
            layers: json.size("num_hidden_layers", 1..=1 << 12)?,
            context,
            eps: json.number_or("layer_norm_eps", 1e-5, 0.0..=1.0)? as f32,
            tied: json.flag_or("tie_word_embeddings", false)?,
            parallel: json.flag_or("use_parallel_residual", true)?,
            attention: SelfAttention {
                hidden,
                heads,
                kv_heads: heads,
                head_dim,
                rotary_dim: 2 * angles.inv_freq.len() as u32,
                window: None,
                bias: json.flag_or("attention_bias", true)?,
                output: "dense",
            },
            mlp: Mlp { hidden, intermediate, bias: true },
            activation: activation::gelu(json, "gelu")?,
            angles,
        })
    }
}

fn build(json: &Section<'_>, mut net: Net<'_>) -> Result<Decoder> {
    let config = Config::read(json)?;
    let width = config.mlp.hidden;
    let model = Path::new("gpt_neox");
    let embed_in = model.at("embed_in");

    let ids = net.ids()?;
    let mut x = embedding(&mut net, &embed_in, ids, config.vocab, width)?;
    let mut hidden = vec![embed_in.to_string()];
    let angles = net.node(&model.at("rotary_emb"), config.angles.clone(), &[])?;
    for index in 0..config.layers {
        let at = model.at("layers").at(index);
        x = layer(&mut net, &at, x, angles, &config)?;
        hidden.push(at.at("add_mlp").to_string());
    }
    let x = layer_norm(&mut net, &model.at("final_layer_norm"), x, width, config.eps)?;

    let embed_out = Path::new("embed_out");
    let matrix = if config.tied { &embed_in } else { &embed_out };
    let logits = head(&mut net, &embed_out, x, matrix, [config.vocab, width], false)?;
    let graph = net.finish("logits", logits)?;
    Ok(Decoder { graph, hidden, vocab: config.vocab, context: config.context })
}

/// One decoder layer: `x: [n, hidden]` plus attention plus feed-forward. The feed-forward layer normalises the layer's
/// input if both are parallel, else the sum of input and attention.
fn layer(net: &mut Net, at: &Path, x: ValueId, angles: ValueId, config: &Config) -> Result<ValueId> {
    let (width, eps) = (config.mlp.hidden, config.eps);
    let y = layer_norm(net, &at.at("input_layernorm"), x, width, eps)?;
    let y = rotary_fused(net, &at.at("attention"), y, angles, config.attention)?;
    let sum = net.node(&at.at("add_attention"), Add {}, &[x, y])?;
    let entering = if config.parallel { x } else { sum };
    let y = layer_norm(net, &at.at("post_attention_layernorm"), entering, width, eps)?;
    let names = ["dense_h_to_4h", "dense_4h_to_h"];
    let y = gelu(net, &at.at("mlp"), y, config.mlp, names, config.activation.clone())?;
    net.node(&at.at("add_mlp"), Add {}, &[sum, y])
}
