//! GPT-NeoX (Pythia, RedPajama): decoder with layer normalisation, one fused projection of queries, keys and values,
//! partly rotated heads and GELU; the feed-forward layer stands beside attention or, where configured, after it.
//!
//! `use_parallel_residual` decides the order of the halves; both norms are there in either case.

use super::{Architecture, Decoder};
use crate::block::activation::ActivationOp;
use crate::block::attention::{Projections, SelfAttention};
use crate::block::decoder::ModelFrame;
use crate::block::layer::{Layer, Order};
use crate::block::mlp::Mlp;
use crate::block::norm::Norm;
use crate::block::rope::{self, Partial};
use crate::block::sizes::{Defaults, Sizes};
use crate::config::Section;
use crate::net::{Net, Path};
use tapml_graph::Result;

/// Black et al., "GPT-NeoX-20B: An Open-Source Autoregressive Language Model", 2022, section 2.
pub const GPT_NEOX: Architecture = Architecture { model_types: &["gpt_neox"], build };

/// Where the rotated part of a head is configured.
const ROTARY: Partial = Partial { theta: "rotary_emb_base", factor: "rotary_pct", default: 0.25 };

fn build(json: &Section<'_>, mut net: Net<'_>) -> Result<Decoder> {
    let sizes = Sizes::read(json, &Defaults::LLAMA)?;
    let norm = Norm::layer(json, "layer_norm_eps", 1e-5)?;
    let bias = json.flag_or("attention_bias", true)?;
    let attention = SelfAttention {
        projections: Projections::Grouped { name: "query_key_value" },
        bias,
        output: "dense",
        output_bias: bias,
        ..SelfAttention::new(&sizes)
    };
    let activation = ActivationOp::read(json, "hidden_act", "gelu")?;
    let mlp = Mlp::plain(&sizes, activation, ["dense_h_to_4h", "dense_4h_to_h"]);
    let parallel = json.flag_or("use_parallel_residual", true)?;
    let layer = Layer {
        modules: ["attention", "mlp"],
        order: if parallel { Order::Parallel } else { Order::Sequential },
        ..Layer::new(sizes.hidden, &norm)
    };
    // The head is called `embed_out` and is not tied by default.
    let names = ["gpt_neox.embed_in", "gpt_neox.layers", "gpt_neox.final_layer_norm", "embed_out"];
    let angles = rope::partial_angles(json, &ROTARY, sizes.head_dim, sizes.context)?;
    let angles = net.node(&Path::new("gpt_neox.rotary_emb"), angles, &[])?;
    ModelFrame::with_names(json, &norm, false, names)?.uniform(net, &sizes, &layer, &attention, &mlp, Some(angles))
}
