//! `quantized_embedding`: rows of a table, which is stored quantised, chosen by token ids.

use super::packing::Packed;
use super::{Embedding, Fill, Operator, Packing, Sample};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::{Graph, TensorType};
use serde::{Deserialize, Serialize};

/// [`Embedding`] whose table is given as [`super::Dequantize`] takes it: inputs `ids`, `words`, `scale` and, if `zeros`,
/// `zero`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuantizedEmbedding {
    /// Bits of one element: 4 or 8.
    pub bits: u32,
    /// Neighbouring elements of a row that share a scale.
    pub group: u32,
    /// Whether each group has a zero point of its own.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub zeros: bool,
    /// Whether elements are numbers of 8 bits instead of integers.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub float: bool,
    /// Dtype of the output.
    pub dtype: DType,
}

impl QuantizedEmbedding {
    /// `embedding` of a table packed like this.
    pub fn of(packing: Packing, embedding: &Embedding) -> QuantizedEmbedding {
        let Packing { bits, group, zeros, float } = packing;
        QuantizedEmbedding { bits, group, zeros, float, dtype: embedding.dtype }
    }

    /// How its table is packed.
    pub fn packing(&self) -> Packing {
        Packing { bits: self.bits, group: self.group, zeros: self.zeros, float: self.float }
    }

    fn packed(&self) -> Packed {
        Packed { packing: self.packing(), plain: Embedding { dtype: self.dtype }.into(), weights: 1..2 }
    }
}

impl Operator for QuantizedEmbedding {
    const NAME: &'static str = "quantized_embedding";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        self.packed().infer(inputs)
    }

    fn definition(&self, inputs: &[TensorType]) -> Option<Result<Graph>> {
        Some(self.packed().definition(Self::NAME, inputs))
    }

    fn samples() -> Vec<Sample> {
        let of = |name: &str, n, width, packing: Packing, dtype| {
            Sample::new(name, QuantizedEmbedding::of(packing, &Embedding { dtype }), n, 0)
                .input(DType::U32, "n", Fill::Below(37))
                .packed(packing, "37", width)
        };
        let case = |name: &str, n, width, [bits, group]: [u32; 2], zeros, dtype| {
            of(name, n, width, Packing::integers(bits, group, zeros), dtype)
        };
        vec![
            case("prefill", 9, 64, [4, 32], false, DType::F32),
            case("decode", 1, 1024, [8, 32], false, DType::F32),
            case("zeros", 3, 40, [4, 8], true, DType::F32),
            case("f16 output", 5, 96, [8, 32], true, DType::F16),
            of("fp8", 7, 96, Packing::floats(32), DType::F32),
            of("fp8, f16 output", 4, 64, Packing::floats(64), DType::F16),
        ]
    }
}
