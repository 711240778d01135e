//! InternLM: Llama with biases in attention.
//!
//! One key, `bias`, stands for all four projections of attention.

use super::{Architecture, Decoder};
use crate::block::activation::ActivationOp;
use crate::block::attention::SelfAttention;
use crate::block::decoder::ModelFrame;
use crate::block::layer::Layer;
use crate::block::mlp::Mlp;
use crate::block::norm::Norm;
use crate::block::rope;
use crate::block::sizes::{Defaults, Sizes};
use crate::config::Section;
use crate::net::{Net, Path};
use tapml_graph::Result;

/// InternLM team, "InternLM: A Multilingual Language Model with Progressively Enhanced Capabilities", 2023.
pub const INTERNLM: Architecture = Architecture { model_types: &["internlm"], build };

fn build(json: &Section<'_>, mut net: Net<'_>) -> Result<Decoder> {
    let sizes = Sizes::read(json, &Defaults::LLAMA)?;
    let norm = Norm::rms(json, "rms_norm_eps", 1e-6)?;
    let bias = json.flag_or("bias", true)?;
    let attention = SelfAttention { bias, output_bias: bias, ..SelfAttention::new(&sizes) };
    let mlp = Mlp::llama(&sizes, ActivationOp::read(json, "hidden_act", "silu")?);
    let layer = Layer::new(sizes.hidden, &norm);
    let angles = rope::angles(json, sizes.head_dim, sizes.context)?;
    let angles = net.node(&Path::new("model.rotary_emb"), angles, &[])?;
    ModelFrame::llama(json, &norm, false)?.uniform(net, &sizes, &layer, &attention, &mlp, Some(angles))
}
