//! Phi (1, 1.5 and 2): decoder whose attention and feed-forward layer read one layer normalisation side by side, with
//! biases, partly rotated heads and GELU.

use super::{Architecture, Decoder};
use crate::block::activation::Activation;
use crate::block::attention::SelfAttention;
use crate::block::decoder::Frame;
use crate::block::mlp::Mlp;
use crate::block::norm::Norm;
use crate::block::rope::{self, Partial};
use crate::block::sizes::{Defaults, Sizes};
use crate::config::Section;
use crate::net::{Net, Path};
use tapml_graph::Result;
use tapml_graph::op::Add;

/// Li et al., "Textbooks Are All You Need II: phi-1.5 technical report", 2023.
pub const PHI: Architecture = Architecture { model_types: &["phi"], build };

/// Where the rotated part of a head is configured.
const ROTARY: Partial = Partial { theta: "rope_theta", factor: "partial_rotary_factor", default: 0.5 };

fn build(json: &Section<'_>, mut net: Net<'_>) -> Result<Decoder> {
    let sizes = Sizes::read(json, &Defaults::LLAMA)?;
    if json.flag_or("qk_layernorm", false)? {
        return Err(json.unsupported("qk_layernorm", "norms of queries and keys are not supported"));
    }
    let norm = Norm::layer(json, "layer_norm_eps", 1e-5)?;
    let activation = Activation::read(json, "hidden_act", "gelu_new")?;
    let attention =
        SelfAttention { bias: true, output: "dense", output_bias: true, ..SelfAttention::new(&sizes) };
    let mlp = Mlp::plain(&sizes, activation, ["fc1", "fc2"]);
    let frame = Frame {
        norm: (Path::new("model.final_layernorm"), norm.clone()),
        head_bias: true,
        ..Frame::llama(json, norm.clone(), false)?
    };
    let angles = rope::partial_angles(json, &ROTARY, sizes.head_dim, sizes.context)?;
    let angles = net.node(&Path::new("model.rotary_emb"), angles, &[])?;
    frame.build(net, &sizes, |net, at, _, x| {
        let normed = norm.apply(net, &at.at("input_layernorm"), x, sizes.hidden)?;
        let attended = attention.apply(net, &at.at("self_attn"), normed, Some(angles))?;
        let x = net.node(&at.at("add_attention"), Add {}, &[x, attended])?;
        let y = mlp.apply(net, &at.at("mlp"), normed)?;
        net.node(&at.at("add_mlp"), Add {}, &[x, y])
    })
}
