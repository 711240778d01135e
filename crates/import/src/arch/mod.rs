//! The architectures: one file each, listed once below.
//!
//! A file holds one constant row and a `build`, which reads `config.json`, fills in parts of `block/` and
//! hands a closure for the layers to the frame. Defaults of absent keys are those of the family's
//! configuration class in Transformers. Names of weights are those of the published checkpoints.

use crate::block::sizes::Sizes;
use crate::config::Section;
use crate::image::ImageTokens;
use crate::net::{Finished, Net};
use crate::source::Source;
use std::collections::HashMap;
use tapml_graph::{Graph, Result, ValueId};

/// One architecture.
///
/// The row names no class: several classes of Transformers may share a `model_type`.
#[derive(Clone, Copy)]
pub struct Architecture {
    /// The values of `model_type` that mean it.
    pub model_types: &'static [&'static str],
    /// Builds the graph that a configuration describes.
    pub(crate) build: fn(&Section<'_>, Net<'_>) -> Result<Decoder>,
}

// One list makes both the modules and the table, so that no architecture can be left out.
macro_rules! architectures {
    ($($module:ident::$row:ident),+ $(,)?) => {
        $(mod $module;)+

        /// All architectures.
        pub const ARCHITECTURES: &[Architecture] = &[$($module::$row),+];
    };
}

architectures! {
    baichuan::BAICHUAN,
    bert::BERT,
    chatglm::CHATGLM,
    cohere::COHERE,
    cohere2::COHERE2,
    deepseek::DEEPSEEK,
    deepseek_v2::DEEPSEEK_V2,
    deepseek_v3::DEEPSEEK_V3,
    gemma::GEMMA,
    gemma2::GEMMA2,
    gemma3::GEMMA3,
    glm::GLM,
    glm4::GLM4,
    gpt2::GPT2,
    gpt_bigcode::GPT_BIGCODE,
    gpt_neox::GPT_NEOX,
    gpt_oss::GPT_OSS,
    gptj::GPTJ,
    granite::GRANITE,
    internlm::INTERNLM,
    internlm2::INTERNLM2,
    llama::LLAMA,
    llama4::LLAMA4,
    mamba2::MAMBA2,
    llava::LLAVA,
    minicpm::MINICPM,
    ministral3::MINISTRAL3,
    mistral::MISTRAL,
    mixtral::MIXTRAL,
    nemotron::NEMOTRON,
    olmo::OLMO,
    olmo2::OLMO2,
    orion::ORION,
    phi::PHI,
    phi3::PHI3,
    phi3_v::PHI3_V,
    qwen::QWEN,
    qwen2::QWEN2,
    qwen2_moe::QWEN2_MOE,
    qwen3::QWEN3,
    qwen3_moe::QWEN3_MOE,
    rwkv5::RWKV5,
    rwkv6::RWKV6,
    rwkv7::RWKV7,
    smollm3::SMOLLM3,
    stablelm::STABLELM,
    starcoder2::STARCODER2,
}

/// What a configuration describes: a decoder-only language model, which may see an image, or an encoder of text.
///
/// What a `build` hands back; the importer adds weights and special tokens.
#[derive(Debug)]
pub struct Decoder {
    /// `ids: u32[n]` to `logits: f32[n, vocab]` (or `f32[1, vocab]`), with the caches as states. A model that sees also
    /// takes `pixels` and `slots`; an encoder gives `hidden` and `pooled`, and has no states.
    pub graph: Graph,
    /// The weights that are made from tensors of other names or shapes.
    pub sources: HashMap<String, Source>,
    /// Names of the values that enter the first layer and leave each layer.
    pub hidden: Vec<String>,
    /// Token ids lie below this.
    pub vocab: u32,
    /// Most positions the model was made for.
    pub context: u32,
    /// How a prompt names its image, if the model sees.
    pub image: Option<ImageTokens>,
}

impl Decoder {
    /// The decoder whose result is `logits`.
    ///
    /// # Errors
    /// If the graph does not verify.
    pub fn finish(mut net: Net<'_>, logits: ValueId, sizes: &Sizes) -> Result<Decoder> {
        net.output("logits", logits);
        Decoder::from_net(net, sizes)
    }

    /// The model whose results have been named.
    pub fn from_net(net: Net<'_>, sizes: &Sizes) -> Result<Decoder> {
        let Finished { graph, sources, hidden } = net.finish()?;
        Ok(Decoder { graph, sources, hidden, vocab: sizes.vocab, context: sizes.context, image: None })
    }
}

/// The architecture that a configuration names. Fails with the list of known ones.
/// The row, and the spelling of `model_type` that the configuration has.
pub fn find(root: &Section) -> Result<(&'static Architecture, &'static str)> {
    let wanted = root.text("model_type")?;
    let rows = ARCHITECTURES.iter().flat_map(|a| a.model_types.iter().map(move |&name| (a, name)));
    rows.clone().find(|(_, name)| *name == wanted).ok_or_else(|| {
        let known: Vec<&str> = rows.map(|(_, name)| name).collect();
        root.unsupported("model_type", &format!("architecture `{wanted}` is not supported"))
            .with_hint(format!("supported: {}", known.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn model_types_are_listed_once() {
        let names: Vec<&str> = ARCHITECTURES.iter().flat_map(|a| a.model_types).copied().collect();
        let unique: HashSet<&str> = names.iter().copied().collect();
        assert_eq!(names.len(), unique.len());
        assert!(ARCHITECTURES.iter().all(|a| !a.model_types.is_empty()));
    }
}
