//! Phi-3, Phi-3.5 and Phi-4: Llama with fused projections, where configured partly rotated, within a window and with
//! LongRoPE.
//!
//! `qkv_proj` holds queries, keys, values; `gate_up_proj` holds gate, up. Phi-3-vision builds on
//! [`decoder`].

use super::{Architecture, Decoder};
use crate::block::activation::ActivationOp;
use crate::block::attention::{Projections, SelfAttention};
use crate::block::decoder::ModelFrame;
use crate::block::layer::Layer;
use crate::block::mlp::{Form, Mlp};
use crate::block::norm::Norm;
use crate::block::rope;
use crate::block::sizes::{Defaults, Sizes};
use crate::config::Section;
use crate::net::{Net, Path};
use tapml_graph::Result;

/// Abdin et al., "Phi-3 Technical Report", 2024.
pub const PHI3: Architecture = Architecture { model_types: &["phi3"], build };

fn build(json: &Section<'_>, net: Net<'_>) -> Result<Decoder> {
    decoder(json, net, |frame| frame)
}

/// The decoder with what stands around the layers as `changed`.
pub(super) fn decoder(
    json: &Section<'_>,
    mut net: Net<'_>,
    changed: impl FnOnce(ModelFrame) -> ModelFrame,
) -> Result<Decoder> {
    let sizes = Sizes::read(json, &Defaults { context: 4096, ..Defaults::LLAMA })?;
    let norm = Norm::rms(json, "rms_norm_eps", 1e-5)?;
    let mut attention = SelfAttention {
        projections: Projections::Fused { name: "qkv_proj" },
        ..SelfAttention::new(&sizes)
    };
    attention.scores.window = json.optional_size("sliding_window", 1..=1 << 26)?;
    let activation = ActivationOp::read(json, "hidden_act", "silu")?;
    let mlp = Mlp::new(&sizes, activation, Form::Fused { names: ["gate_up_proj", "down_proj"] });
    let layer = Layer::new(sizes.hidden, &norm);
    let angles = rope::angles(json, sizes.head_dim, sizes.context)?;
    let angles = net.node(&Path::new("model.rotary_emb"), angles, &[])?;
    changed(ModelFrame::llama(json, &norm, false)?).uniform(net, &sizes, &layer, &attention, &mlp, Some(angles))
}
