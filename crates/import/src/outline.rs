//! What a configuration alone describes: the graph of a model whose weights are not at hand.

use crate::checkpoint::build;
use crate::config::Config;
use crate::options::ImportOptions;
use crate::packed::Method;
use tapml_graph::{DType, Graph, Result};

/// A model without weights.
#[derive(Clone, Debug)]
pub struct Outline {
    /// The architecture's `model_type`.
    pub model_type: &'static str,
    /// The graph, as [`crate::Checkpoint::graph`] gives it for the same configuration and weights of this dtype.
    pub graph: Graph,
    /// Token ids lie below this.
    pub vocab: usize,
    /// Most positions that one sequence may have.
    pub context: usize,
}

impl Outline {
    /// The model that a configuration describes, as if all weights were stored in the dtype `weights`. Takes no more
    /// memory than the graph does, however large the model is.
    pub fn new(config: &Config, weights: DType, options: &ImportOptions) -> Result<Outline> {
        Method::refuse(&config.root())?;
        let (decoder, model_type) = build(config, &|_| Some(weights), options)?;
        let context = decoder.context as usize;
        Ok(Outline {
            model_type,
            graph: decoder.graph,
            vocab: decoder.vocab as usize,
            context: options.max_context.map_or(context, |most| most.min(context)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_model_that_no_memory_holds_has_an_outline() {
        let text = br#"{"model_type": "llama", "vocab_size": 128256, "hidden_size": 16384,
            "intermediate_size": 53248, "num_hidden_layers": 126, "num_attention_heads": 128,
            "num_key_value_heads": 8, "max_position_embeddings": 131072}"#;
        let config = Config::parse(Path::new("config.json"), text).unwrap();
        let options = ImportOptions { max_context: Some(4096), ..ImportOptions::default() };
        let outline = Outline::new(&config, DType::F16, &options).unwrap();
        let summary = outline.graph.summary().unwrap();
        assert_eq!(summary.parameters, 405_853_388_800);
        assert_eq!(summary.weight_bytes, 2 * summary.parameters);
        assert_eq!((outline.model_type, outline.vocab, outline.context), ("llama", 128_256, 4096));
    }
}
