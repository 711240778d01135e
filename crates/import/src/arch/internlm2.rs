//! InternLM2 and InternLM2.5: Llama with one projection that holds, for each key/value head, its queries, key and value.
//!
//! Of the feed-forward layer `w1` is the gate, `w3` up, `w2` down.

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

/// Cai et al., "InternLM2 Technical Report", 2024.
pub const INTERNLM2: Architecture = Architecture { model_types: &["internlm2"], build };

fn build(json: &Section<'_>, mut net: Net<'_>) -> Result<Decoder> {
    let sizes = Sizes::read(json, &Defaults::LLAMA)?;
    let norm = Norm::rms(json, "rms_norm_eps", 1e-6)?;
    let bias = json.flag_or("bias", true)?;
    let attention = SelfAttention {
        projections: Projections::Grouped { name: "wqkv" },
        bias,
        output: "wo",
        output_bias: bias,
        ..SelfAttention::new(&sizes)
    };
    let activation = ActivationOp::read(json, "hidden_act", "silu")?;
    let mlp = Mlp::new(&sizes, activation, Form::Gated { names: ["w1", "w3", "w2"] });
    let layer = Layer {
        before: Some(["attention_norm", "ffn_norm"]),
        modules: ["attention", "feed_forward"],
        ..Layer::new(sizes.hidden, &norm)
    };
    let names = ["model.tok_embeddings", "model.layers", "model.norm", "output"];
    let angles = rope::angles(json, sizes.head_dim, sizes.context)?;
    let angles = net.node(&Path::new("model.rotary_emb"), angles, &[])?;
    ModelFrame::with_names(json, &norm, false, names)?.uniform(net, &sizes, &layer, &attention, &mlp, Some(angles))
}
