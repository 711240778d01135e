//! GPT-BigCode (StarCoder, SantaCoder): GPT-2 with matrices stored as `[outputs, inputs]` and, in all published models, one
//! key/value head.
//!
//! With one key/value head `c_attn` holds all queries, then the key, then the value; else query, key and
//! value of each head in turn.

use super::{Architecture, Decoder};
use crate::block::activation::ActivationOp;
use crate::block::attention::{Projections, SelfAttention};
use crate::block::decoder::{ModelFrame, LearnedPositions};
use crate::block::layer::Layer;
use crate::block::mlp::Mlp;
use crate::block::norm::Norm;
use crate::block::sizes::{Defaults, Sizes};
use crate::config::Section;
use crate::net::{Net, Path};
use tapml_graph::Result;

/// Li et al., "StarCoder: may the source be with you!", 2023, section 5; Shazeer, "Fast Transformer Decoding", 2019.
pub const GPT_BIGCODE: Architecture = Architecture { model_types: &["gpt_bigcode"], build };

fn build(json: &Section<'_>, net: Net<'_>) -> Result<Decoder> {
    let mut sizes = Sizes::read(json, &Defaults { intermediate: Some(4), context: 1024, ..Defaults::LLAMA })?;
    let multi_query = json.flag_or("multi_query", true)?;
    sizes.kv_heads = if multi_query { 1 } else { sizes.heads };
    let norm = Norm::layer(json, "layer_norm_epsilon", 1e-5)?;
    let name = "c_attn";
    let mut attention = SelfAttention {
        projections: if multi_query { Projections::Fused { name } } else { Projections::Grouped { name } },
        bias: true,
        output: "c_proj",
        output_bias: true,
        ..SelfAttention::new(&sizes)
    };
    if !json.flag_or("scale_attn_weights", true)? {
        attention.scores.scale = 1.0;
    }
    let activation = ActivationOp::read(json, "activation_function", "gelu_pytorch_tanh")?;
    let mlp = Mlp::plain(&sizes, activation, ["c_fc", "c_proj"]);
    let layer =
        Layer { before: Some(["ln_1", "ln_2"]), modules: ["attn", "mlp"], ..Layer::new(sizes.hidden, &norm) };
    let names = ["transformer.wte", "transformer.h", "transformer.ln_f", "lm_head"];
    let positions = LearnedPositions { at: Path::new("transformer.wpe"), count: sizes.context };
    let frame = ModelFrame { positions: Some(positions), ..ModelFrame::with_names(json, &norm, true, names)? };
    frame.uniform(net, &sizes, &layer, &attention, &mlp, None)
}
