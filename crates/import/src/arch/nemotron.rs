//! Nemotron (Minitron): decoder with layer normalisation stored less 1, partly rotated heads and squared ReLU.
//!
//! The feed-forward layer is not gated. Half of each head is rotated unless the configuration says
//! otherwise.

use super::{Architecture, Decoder};
use crate::block::activation::ActivationOp;
use crate::block::attention::SelfAttention;
use crate::block::decoder::ModelFrame;
use crate::block::layer::Layer;
use crate::block::mlp::Mlp;
use crate::block::norm::Norm;
use crate::block::rope::{self, Partial};
use crate::block::sizes::{Defaults, Sizes};
use crate::config::Section;
use crate::net::{Net, Path};
use tapml_graph::Result;

/// Parmar et al., "Nemotron-4 15B Technical Report", 2024, section 2.
pub const NEMOTRON: Architecture = Architecture { model_types: &["nemotron"], build };

fn build(json: &Section<'_>, mut net: Net<'_>) -> Result<Decoder> {
    let sizes = Sizes::read(json, &Defaults { context: 4096, ..Defaults::LLAMA })?;
    let norm = Norm::layer(json, "norm_eps", 1e-5)?.stored_less_one();
    let bias = json.flag_or("attention_bias", false)?;
    let attention = SelfAttention { bias, output_bias: bias, ..SelfAttention::new(&sizes) };
    let activation = ActivationOp::read(json, "hidden_act", "relu2")?;
    let bias = json.flag_or("mlp_bias", false)?;
    let mlp = Mlp { bias, ..Mlp::plain(&sizes, activation, ["up_proj", "down_proj"]) };
    let layer = Layer::new(sizes.hidden, &norm);
    let angles = rope::partial_angles(json, &Partial::share(0.5), sizes.head_dim, sizes.context)?;
    let angles = net.node(&Path::new("model.rotary_emb"), angles, &[])?;
    ModelFrame::llama(json, &norm, false)?.uniform(net, &sizes, &layer, &attention, &mlp, Some(angles))
}
