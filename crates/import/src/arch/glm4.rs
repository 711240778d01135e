//! GLM-4-0414: GLM-4 with norms also after attention and feed-forward layer.
//!
//! Everything else is GLM-4's: biases, fused gate and half rotation.

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

/// Team GLM, "ChatGLM: A Family of Large Language Models from GLM-130B to GLM-4 All Tools", 2024; model card of
/// GLM-4-32B-0414.
pub const GLM4: Architecture = Architecture { model_types: &["glm4"], build };

fn build(json: &Section<'_>, mut net: Net<'_>) -> Result<Decoder> {
    let defaults =
        Defaults { kv_heads: Some(2), head_dim: Some(128), context: 1 << 17, ..Defaults::LLAMA };
    let sizes = Sizes::read(json, &defaults)?;
    let norm = Norm::rms(json, "rms_norm_eps", 1.5625e-7)?;
    let bias = json.flag_or("attention_bias", true)?;
    let attention = SelfAttention { bias, interleaved: true, ..SelfAttention::new(&sizes) };
    let activation = ActivationOp::read(json, "hidden_act", "silu")?;
    let mlp = Mlp::new(&sizes, activation, Form::Fused { names: ["gate_up_proj", "down_proj"] });
    let layer = Layer {
        after: Some(["post_self_attn_layernorm", "post_mlp_layernorm"]),
        ..Layer::new(sizes.hidden, &norm)
    };
    let angles = rope::partial_angles(json, &Partial::share(0.5), sizes.head_dim, sizes.context)?;
    let angles = net.node(&Path::new("model.rotary_emb"), angles, &[])?;
    ModelFrame::llama(json, &norm, false)?.uniform(net, &sizes, &layer, &attention, &mlp, Some(angles))
}
