//! GPT-NeoX (Pythia, RedPajama): decoder with layer normalisation, one fused projection of queries, keys and values,
//! partly rotated heads and GELU; the feed-forward layer stands beside attention or, where configured, after it.

use super::{Architecture, Decoder};
use crate::block::activation::Activation;
use crate::block::attention::{Projections, SelfAttention};
use crate::block::decoder::Frame;
use crate::block::mlp::Mlp;
use crate::block::norm::Norm;
use crate::block::rope::{self, Partial};
use crate::block::sizes::{Defaults, Sizes};
use crate::config::Section;
use crate::net::{Net, Path};
use tapml_graph::Result;
use tapml_graph::op::Add;

/// Black et al., "GPT-NeoX-20B: An Open-Source Autoregressive Language Model", 2022, section 2.
pub const GPT_NEOX: Architecture = Architecture { model_types: &["gpt_neox"], build };

/// Where the rotated part of a head is configured.
const ROTARY: Partial = Partial { theta: "rotary_emb_base", factor: "rotary_pct", default: 0.25 };

fn build(json: &Section<'_>, mut net: Net<'_>) -> Result<Decoder> {
    let sizes = Sizes::read(json, &Defaults::LLAMA)?;
    let norm = Norm::layer(json, "layer_norm_eps", 1e-5)?;
    let activation = Activation::read(json, "hidden_act", "gelu")?;
    let bias = json.flag_or("attention_bias", true)?;
    let attention = SelfAttention {
        projections: Projections::Grouped { name: "query_key_value" },
        bias,
        output: "dense",
        output_bias: bias,
        ..SelfAttention::new(&sizes)
    };
    let mlp = Mlp::plain(&sizes, activation, ["dense_h_to_4h", "dense_4h_to_h"]);
    let parallel = json.flag_or("use_parallel_residual", true)?;
    let frame = Frame {
        embedding: Path::new("gpt_neox.embed_in"),
        layers: Path::new("gpt_neox.layers"),
        norm: (Path::new("gpt_neox.final_layer_norm"), norm.clone()),
        head: Path::new("embed_out"),
        ..Frame::llama(json, norm.clone(), false)?
    };
    let angles = rope::partial_angles(json, &ROTARY, sizes.head_dim, sizes.context)?;
    let angles = net.node(&Path::new("gpt_neox.rotary_emb"), angles, &[])?;
    frame.build(net, &sizes, |net, at, _, x| {
        let y = norm.apply(net, &at.at("input_layernorm"), x, sizes.hidden)?;
        let y = attention.apply(net, &at.at("attention"), y, Some(angles))?;
        let sum = net.node(&at.at("add_attention"), Add {}, &[x, y])?;
        let entering = if parallel { x } else { sum };
        let y = norm.apply(net, &at.at("post_attention_layernorm"), entering, sizes.hidden)?;
        let y = mlp.apply(net, &at.at("mlp"), y)?;
        net.node(&at.at("add_mlp"), Add {}, &[sum, y])
    })
}
