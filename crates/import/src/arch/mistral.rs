//! Mistral: Llama whose attention sees a sliding window, where one is configured.
//!
//! No projection has a bias. The default context is that of the configuration class, 4096·32.

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

/// Jiang et al., "Mistral 7B", 2023.
pub const MISTRAL: Architecture = Architecture { model_types: &["mistral"], build };

fn build(json: &Section<'_>, mut net: Net<'_>) -> Result<Decoder> {
    let sizes = Sizes::read(json, &Defaults { kv_heads: Some(8), context: 4096 * 32, ..Defaults::LLAMA })?;
    let norm = Norm::rms(json, "rms_norm_eps", 1e-6)?;
    let mut attention = SelfAttention::new(&sizes);
    // An absent key means the window of the first release, `null` none.
    let window = json.size_or("sliding_window", 4096, 1..=1 << 26)?;
    attention.scores.window = (!json.is_null("sliding_window")).then_some(window);
    let mlp = Mlp::llama(&sizes, ActivationOp::read(json, "hidden_act", "silu")?);
    let layer = Layer::new(sizes.hidden, &norm);
    let angles = rope::angles(json, sizes.head_dim, sizes.context)?;
    let angles = net.node(&Path::new("model.rotary_emb"), angles, &[])?;
    ModelFrame::llama(json, &norm, false)?.uniform(net, &sizes, &layer, &attention, &mlp, Some(angles))
}
