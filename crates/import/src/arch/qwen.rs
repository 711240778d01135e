//! Qwen (1): Llama with one projection of queries, keys and values, which alone has biases. It is served up to the length
//! it was trained for: its rotation and query factors beyond that are not.
//!
//! `c_attn` has a bias, every other projection none while `no_bias` holds. `w2` is the gate, `w1` up.

use super::{Architecture, Decoder};
use crate::block::activation::ActivationOp;
use crate::block::attention::{Projections, SelfAttention};
use crate::block::decoder::ModelFrame;
use crate::block::layer::Layer;
use crate::block::mlp::{Form, Mlp};
use crate::block::norm::Norm;
use crate::block::rope::{self, Partial};
use crate::block::sizes::{Defaults, Sizes};
use crate::config::Section;
use crate::net::{Net, Path};
use tapml_graph::Result;

/// Bai et al., "Qwen Technical Report", 2023, section 2.3.
pub const QWEN: Architecture = Architecture { model_types: &["qwen"], build };

/// Where the rotated part of a head is configured.
const ROTARY: Partial = Partial { theta: "rotary_emb_base", factor: "rotary_pct", default: 1.0 };

fn build(json: &Section<'_>, mut net: Net<'_>) -> Result<Decoder> {
    let mut sizes = Sizes::read(json, &Defaults { context: 8192, ..Defaults::LLAMA })?;
    // `seq_length` is what the model was trained for; `max_position_embeddings` counts its extrapolation.
    sizes.context = json.size_or("seq_length", sizes.context, 1..=1 << 26)?;
    // The key counts both projections into the feed-forward layer.
    sizes.intermediate /= 2;
    let norm = Norm::rms(json, "layer_norm_epsilon", 1e-6)?;
    let attention = SelfAttention {
        projections: Projections::Fused { name: "c_attn" },
        bias: true,
        output: "c_proj",
        output_bias: !json.flag_or("no_bias", true)?,
        ..SelfAttention::new(&sizes)
    };
    let activation = ActivationOp::read(json, "hidden_act", "silu")?;
    let mlp = Mlp::new(&sizes, activation, Form::Gated { names: ["w2", "w1", "c_proj"] });
    let layer =
        Layer { before: Some(["ln_1", "ln_2"]), modules: ["attn", "mlp"], ..Layer::new(sizes.hidden, &norm) };
    let names = ["transformer.wte", "transformer.h", "transformer.ln_f", "lm_head"];
    let angles = rope::partial_angles(json, &ROTARY, sizes.head_dim, sizes.context)?;
    let angles = net.node(&Path::new("transformer.rotary_emb"), angles, &[])?;
    ModelFrame::with_names(json, &norm, false, names)?.uniform(net, &sizes, &layer, &attention, &mlp, Some(angles))
}
