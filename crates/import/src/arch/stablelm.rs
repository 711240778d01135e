//! StableLM: Llama with layer normalisation and partly rotated heads; where configured with a norm for each head, or with
//! attention and feed-forward layer side by side.
//!
//! A quarter of each head is rotated by default. Norms of heads have no biases even where the others have.

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

/// Bellagente et al., "Stable LM 2 1.6B Technical Report", 2024.
pub const STABLELM: Architecture = Architecture { model_types: &["stablelm"], build };

fn build(json: &Section<'_>, mut net: Net<'_>) -> Result<Decoder> {
    let sizes = Sizes::read(json, &Defaults { kv_heads: Some(32), context: 4096, ..Defaults::LLAMA })?;
    let norm = Norm::layer(json, "layer_norm_eps", 1e-5)?;
    let of_heads = norm.clone().without_bias();
    let heads = QueryKeyNorm::of_heads(["q_layernorm", "k_layernorm"], &of_heads, HeadWeights::Listed);
    let attention = SelfAttention {
        bias: json.flag_or("use_qkv_bias", false)?,
        norm: json.flag_or("qk_layernorm", false)?.then_some(heads),
        ..SelfAttention::new(&sizes)
    };
    let mlp = Mlp::llama(&sizes, ActivationOp::read(json, "hidden_act", "silu")?);
    let layer = if json.flag_or("use_parallel_residual", false)? { Layer {
            before: Some(["input_layernorm"; 2]),
            order: Order::Parallel,
            ..Layer::new(sizes.hidden, &norm)
        } } else { Layer::new(sizes.hidden, &norm) };
    let angles = rope::partial_angles(json, &Partial::share(0.25), sizes.head_dim, sizes.context)?;
    let angles = net.node(&Path::new("model.rotary_emb"), angles, &[])?;
    ModelFrame::llama(json, &norm, false)?.uniform(net, &sizes, &layer, &attention, &mlp, Some(angles))
}
