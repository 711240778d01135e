//! GLM-4 (GLM-4-9B, GLM-Edge): Llama with biases on queries, keys and values, a fused gate, and rotation of neighbouring
//! pairs in a part of each head.
//!
//! Only the first half of each head is rotated, in neighbouring pairs. The output projection has no bias
//! even where queries have one.

use super::{Architecture, Decoder};
use crate::block::activation::ActivationOp;
use crate::block::attention::SelfAttention;
use crate::block::decoder::ModelFrame;
use crate::block::layer::Layer;
use crate::block::mlp::{Form, Mlp};
use crate::block::norm::Norm;
use crate::block::rope::{self, Partial};
use crate::block::sizes::{Defaults, Sizes};
use crate::config::Section;
use crate::net::{Net, Path};
use tapml_graph::Result;

/// Team GLM, "ChatGLM: A Family of Large Language Models from GLM-130B to GLM-4 All Tools", 2024.
pub const GLM: Architecture = Architecture { model_types: &["glm"], build };

fn build(json: &Section<'_>, mut net: Net<'_>) -> Result<Decoder> {
    let defaults =
        Defaults { kv_heads: Some(2), head_dim: Some(128), context: 1 << 17, ..Defaults::LLAMA };
    let sizes = Sizes::read(json, &defaults)?;
    let norm = Norm::rms(json, "rms_norm_eps", 1.5625e-7)?;
    let bias = json.flag_or("attention_bias", true)?;
    let attention = SelfAttention { bias, interleaved: true, ..SelfAttention::new(&sizes) };
    let activation = ActivationOp::read(json, "hidden_act", "silu")?;
    let mlp = Mlp::new(&sizes, activation, Form::Fused { names: ["gate_up_proj", "down_proj"] });
    let layer = Layer::new(sizes.hidden, &norm);
    let angles = rope::partial_angles(json, &Partial::share(0.5), sizes.head_dim, sizes.context)?;
    let angles = net.node(&Path::new("model.rotary_emb"), angles, &[])?;
    ModelFrame::llama(json, &norm, false)?.uniform(net, &sizes, &layer, &attention, &mlp, Some(angles))
}
