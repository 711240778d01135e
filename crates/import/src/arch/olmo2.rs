//! OLMo-2: Llama with norms after attention and feed-forward layer instead of before, and of all queries and all keys.
//!
//! Queries and keys are normalised over all their columns at once, before they are cut into heads.

use super::{Architecture, Decoder};
use crate::block::activation::ActivationOp;
use crate::block::attention::{QueryKeyNorm, SelfAttention};
use crate::block::decoder::ModelFrame;
use crate::block::layer::Layer;
use crate::block::mlp::Mlp;
use crate::block::norm::Norm;
use crate::block::rope;
use crate::block::sizes::{Defaults, Sizes};
use crate::config::Section;
use crate::net::{Net, Path};
use tapml_graph::Result;

/// OLMo Team, "2 OLMo 2 Furious", 2025, section 2.
pub const OLMO2: Architecture = Architecture { model_types: &["olmo2"], build };

fn build(json: &Section<'_>, mut net: Net<'_>) -> Result<Decoder> {
    let sizes = Sizes::read(json, &Defaults::LLAMA)?;
    let norm = Norm::rms(json, "rms_norm_eps", 1e-5)?;
    let bias = json.flag_or("attention_bias", false)?;
    let attention = SelfAttention {
        bias,
        output_bias: bias,
        norm: Some(QueryKeyNorm::of_all(["q_norm", "k_norm"], &norm)),
        ..SelfAttention::new(&sizes)
    };
    let mlp = Mlp::llama(&sizes, ActivationOp::read(json, "hidden_act", "silu")?);
    let layer = Layer {
        // What enters a half is the stream itself.
        before: None,
        after: Some(["post_attention_layernorm", "post_feedforward_layernorm"]),
        ..Layer::new(sizes.hidden, &norm)
    };
    let angles = rope::angles(json, sizes.head_dim, sizes.context)?;
    let angles = net.node(&Path::new("model.rotary_emb"), angles, &[])?;
    ModelFrame::llama(json, &norm, false)?.uniform(net, &sizes, &layer, &attention, &mlp, Some(angles))
}
