//! `positions`: the positions of this step's tokens, to look up learned ones.

use super::shape::{expect_indices, expect_inputs};
use super::{Fill, Operator, Sample, is_default};
use crate::dim::Symbol;
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// `y[i] = p + i + offset`, output `u32[n]`; or, of the optional input `positions: u32[n]`, `y[i] = positions[i] + offset`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Positions {
    /// Number of the first position.
    #[serde(default, skip_serializing_if = "is_default")]
    pub offset: u32,
}

impl Operator for Positions {
    const NAME: &'static str = "positions";

    /// `u32[n]`, which depends on the run alone unless positions are given.
    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[0, 1])?;
        match inputs.first() {
            Some(given) => expect_indices("positions", given).map(|_| vec![given.clone()]),
            None => Ok(vec![TensorType::new(DType::U32, [Symbol::N])]),
        }
    }

    fn samples() -> Vec<Sample> {
        let case = |name: &str, n, p, offset| Sample::new(name, Positions { offset }, n, p);
        vec![
            case("prefill", 9, 0, 0),
            // Above the number of invocations of a workgroup.
            case("more than a tile", 1027, 3, 0),
            case("decode", 1, 2047, 0),
            case("numbers from 2", 5, 6, 2),
            case("given, numbers from 2", 1030, 6, 2).input(DType::U32, "n", Fill::Below(5000)),
        ]
    }
}
