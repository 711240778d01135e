//! Phi (1, 1.5 and 2): decoder whose attention and feed-forward layer read one layer normalisation side by side, with
//! biases, partly rotated heads and GELU.
//!
//! The head has a bias. The rotated share is `partial_rotary_factor`, 0.5 by default.

use super::{Architecture, Decoder};
use crate::block::activation::ActivationOp;
use crate::block::attention::{QueryKeyNorm, SelfAttention};
use crate::block::decoder::ModelFrame;
use crate::block::layer::{Layer, Order};
use crate::block::mlp::Mlp;
use crate::block::norm::{HeadWeights, Norm};
use crate::block::rope::{self, Partial};
use crate::block::sizes::{Defaults, Sizes};
use crate::config::Section;
use crate::net::{Net, Path};
use tapml_graph::Result;

/// Li et al., "Textbooks Are All You Need II: phi-1.5 technical report", 2023.
pub const PHI: Architecture = Architecture { model_types: &["phi"], build };

fn build(json: &Section<'_>, mut net: Net<'_>) -> Result<Decoder> {
    let sizes = Sizes::read(json, &Defaults::LLAMA)?;
    let norm = Norm::layer(json, "layer_norm_eps", 1e-5)?;
    let heads = QueryKeyNorm::of_heads(["q_layernorm", "k_layernorm"], &norm, HeadWeights::Shared);
    let attention = SelfAttention {
        bias: true,
        output: "dense",
        output_bias: true,
        norm: json.flag_or("qk_layernorm", false)?.then_some(heads),
        ..SelfAttention::new(&sizes)
    };
    let mlp = Mlp::plain(&sizes, ActivationOp::read(json, "hidden_act", "gelu_new")?, ["fc1", "fc2"]);
    let layer = Layer {
        before: Some(["input_layernorm"; 2]),
        order: Order::Parallel,
        ..Layer::new(sizes.hidden, &norm)
    };
    let names = ["model.embed_tokens", "model.layers", "model.final_layernorm", "lm_head"];
    let frame = ModelFrame { head_bias: true, ..ModelFrame::with_names(json, &norm, false, names)? };
    let angles = rope::partial_angles(json, &Partial::share(0.5), sizes.head_dim, sizes.context)?;
    let angles = net.node(&Path::new("model.rotary_emb"), angles, &[])?;
    frame.uniform(net, &sizes, &layer, &attention, &mlp, Some(angles))
}
