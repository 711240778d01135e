//! ChatGLM2, ChatGLM3 and the first GLM-4 under their authors' names: Llama with one biased projection of queries, keys and
//! values, a fused gate, and rotation of neighbouring pairs in half of each head.
//!
//! Keys are the authors' own; `spelling` knows those that have a usual name. Gate and up are one matrix,
//! the gate first.

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

/// Team GLM, "ChatGLM: A Family of Large Language Models from GLM-130B to GLM-4 All Tools", 2024.
pub const CHATGLM: Architecture = Architecture { model_types: &["chatglm"], build };

fn build(json: &Section<'_>, mut net: Net<'_>) -> Result<Decoder> {
    let mut sizes = Sizes::read(json, &Defaults::LLAMA)?;
    sizes.head_dim = json.size_or("kv_channels", 128, 4..=1 << 12)?;
    // The flag switches grouped-query attention on, of that many groups.
    if json.flag_or("multi_query_attention", false)? {
        sizes.kv_heads = json.size("multi_query_group_num", 1..=sizes.heads)?;
        if !sizes.heads.is_multiple_of(sizes.kv_heads) {
            return Err(json.expected_error("multi_query_group_num", "a divisor of `num_attention_heads`"));
        }
    }
    // Switches of the authors' code; only these values are served.
    for (key, served) in [("rmsnorm", true), ("apply_residual_connection_post_layernorm", false)] {
        if json.flag_or(key, served)? != served {
            return Err(json.unsupported(key, &format!("only `{served}` is supported")));
        }
    }
    let norm = Norm::rms(json, "layernorm_epsilon", 1e-5)?;
    let linear_bias = json.flag_or("add_bias_linear", false)?;
    let attention = SelfAttention {
        projections: Projections::Fused { name: "query_key_value" },
        bias: linear_bias || json.flag_or("add_qkv_bias", false)?,
        output: "dense",
        output_bias: linear_bias,
        interleaved: true,
        ..SelfAttention::new(&sizes)
    };
    let form = Form::Fused { names: ["dense_h_to_4h", "dense_4h_to_h"] };
    let mlp = Mlp { bias: linear_bias, ..Mlp::new(&sizes, ActivationOp::silu(), form) };
    let layer = Layer { modules: ["self_attention", "mlp"], ..Layer::new(sizes.hidden, &norm) };
    let model = "transformer.encoder";
    let names = [
        "transformer.embedding.word_embeddings",
        &format!("{model}.layers"),
        &format!("{model}.final_layernorm"),
        "transformer.output_layer",
    ];
    // Models for long texts raise the base of the frequencies by this factor.
    let ratio = json.number_or("rope_ratio", 1.0, 1e-3..=1e6)?;
    // Half of each head is rotated; the rest passes through.
    let angles = rope::unscaled_angles(10_000.0 * ratio, sizes.head_dim / 2);
    let angles = net.node(&Path::new("transformer.rotary_pos_emb"), angles, &[])?;
    ModelFrame::with_names(json, &norm, false, names)?.uniform(net, &sizes, &layer, &attention, &mlp, Some(angles))
}
