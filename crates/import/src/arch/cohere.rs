//! Cohere (Command-R, Aya): decoder whose attention and feed-forward layer stand side by side behind one layer
//! normalisation without bias, with rotation of neighbouring pairs and a factor on the logits.
//!
//! One norm for both halves; `use_qk_norm` (Command-R+) adds norms of queries and keys with weights for
//! each head. The head is tied unless the configuration says otherwise.

use super::{Architecture, Decoder};
use crate::block::activation::ActivationOp;
use crate::block::attention::{QueryKeyNorm, SelfAttention};
use crate::block::decoder::ModelFrame;
use crate::block::layer::{Layer, Order};
use crate::block::mlp::Mlp;
use crate::block::norm::{HeadWeights, Norm};
use crate::block::rope;
use crate::block::sizes::{Defaults, Sizes};
use crate::config::Section;
use crate::net::{Net, Path};
use tapml_graph::Result;

/// Cohere For AI, "Command R", 2024 (model card); Üstün et al., "Aya Model", 2024.
pub const COHERE: Architecture = Architecture { model_types: &["cohere"], build };

fn build(json: &Section<'_>, mut net: Net<'_>) -> Result<Decoder> {
    let sizes = Sizes::read(json, &Defaults { context: 8192, ..Defaults::LLAMA })?;
    let norm = Norm::layer(json, "layer_norm_eps", 1e-5)?.without_bias();
    let bias = json.flag_or("attention_bias", false)?;
    let heads = QueryKeyNorm::of_heads(["q_norm", "k_norm"], &norm, HeadWeights::Own);
    let attention = SelfAttention {
        bias,
        output_bias: bias,
        norm: json.flag_or("use_qk_norm", false)?.then_some(heads),
        interleaved: true,
        ..SelfAttention::new(&sizes)
    };
    let mlp = Mlp::llama(&sizes, ActivationOp::read(json, "hidden_act", "silu")?);
    let layer = Layer {
        before: Some(["input_layernorm"; 2]),
        order: Order::Parallel,
        ..Layer::new(sizes.hidden, &norm)
    };
    // Logits are multiplied, not divided, by this number.
    let scale = json.number_or("logit_scale", 0.0625, -1e6..=1e6)?;
    let frame = ModelFrame { logits_scale: Some(scale as f32), ..ModelFrame::llama(json, &norm, true)? };
    let angles = rope::angles(json, sizes.head_dim, sizes.context)?;
    let angles = net.node(&Path::new("model.rotary_emb"), angles, &[])?;
    frame.uniform(net, &sizes, &layer, &attention, &mlp, Some(angles))
}
