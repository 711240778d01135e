//! `selective_scan`: the recurrence of Mamba-2, a state space whose matrices depend on the token.

use super::shape::{expect_dim, expect_inputs, expect_same, expect_state, expect_vector, matrix};
use super::{Extreme, Fill, Operator, Sample};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// Each head holds a matrix `H: [state, head_dim]`. Row by row, with `δ = dt[t, head]` and the group `g` of the head,
///
/// ```text
/// H[s, j] ← exp(−exp(a_log[head]) · δ) · H[s, j] + δ · b[t, g, s] · x[t, head, j]
/// y[t, head, j] = Σ_s c[t, g, s] · H[s, j] + d[head] · x[t, head, j]
/// ```
///
/// Inputs `x: [n, heads·head_dim]`, `dt: [n, heads]` (0 or above), `a_log: [heads]`, `b, c: [n, groups·state]`,
/// `d: [heads]` and `states: f32[heads·state, head_dim]`, whose row `h·state + s` is row `s` of head `h`; head `h` reads
/// group `h / (heads/groups)`. Outputs `y: [n, heads·head_dim]` and the states after the rows.
///
/// Dao and Gu, "Transformers are SSMs: Generalized Models and Efficient Algorithms Through Structured State Space
/// Duality", 2024, equation 1 in its scalar-times-identity form, and section 7.1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SelectiveScan {
    /// Heads.
    pub heads: u32,
    /// Elements of one head.
    pub head_dim: u32,
    /// Groups of heads that share `b` and `c`; divides `heads`.
    pub groups: u32,
    /// Rows of a head's state.
    pub state: u32,
}

impl Operator for SelectiveScan {
    const NAME: &'static str = "selective_scan";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[7])?;
        let SelectiveScan { heads, head_dim, groups, state } = *self;
        if heads == 0 || head_dim == 0 || groups == 0 || state == 0 || !heads.is_multiple_of(groups) {
            return Err(Error::invalid(format!("`groups` {groups} must divide `heads` {heads}, sizes above 0")));
        }
        // As 64 bits, so that the product does not overflow.
        let size = |count: u32, each: u32| Dim::from(u64::from(count) * u64::from(each));
        let (rows, columns) = matrix("x", &inputs[0])?;
        expect_dim("the second size of `x`", columns, &size(heads, head_dim))?;
        let of = |name: &str, ty: &TensorType, columns: Dim| {
            let expected = TensorType::new(inputs[0].dtype, [rows.clone(), columns]);
            if *ty == expected { Ok(()) } else { Err(Error::invalid(format!("`{name}` must be {expected}, found {ty}"))) }
        };
        of("dt", &inputs[1], size(heads, 1))?;
        expect_vector("a_log", &inputs[2], &size(heads, 1))?;
        of("b", &inputs[3], size(groups, state))?;
        expect_same("b", &inputs[3], "c", &inputs[4])?;
        expect_vector("d", &inputs[5], &size(heads, 1))?;
        expect_state(&inputs[6], u64::from(heads) * u64::from(state), &size(head_dim, 1))?;
        Ok(vec![inputs[0].clone(), inputs[6].clone()])
    }

    fn samples() -> Vec<Sample> {
        let case = |name: &str, n, [heads, head_dim, groups, state]: [u32; 4], x, a, d| {
            let shared = format!("n,{}", groups * state);
            Sample::new(name, SelectiveScan { heads, head_dim, groups, state }, n, 0)
                .input(x, &format!("n,{}", heads * head_dim), Fill::Normal(1.0))
                // Steps stay above 0, as the decay is above 1 for negative ones.
                .input(x, &format!("n,{heads}"), Fill::Around(0.3, 0.05))
                .input(a, &format!("{heads}"), Fill::Normal(1.0))
                .input(x, &shared, Fill::Normal(1.0))
                .input(x, &shared, Fill::Normal(1.0))
                .input(d, &format!("{heads}"), Fill::Around(1.0, 0.2))
                .input(DType::F32, &format!("{},{head_dim}", heads * state), Fill::Normal(0.5))
        };
        let (f32, f16, bf16) = (DType::F32, DType::F16, DType::BF16);
        vec![
            case("prefill", 9, [4, 64, 1, 128], f32, f32, f32),
            case("decode", 1, [6, 32, 2, 64], f32, bf16, f16),
            case("as many groups as heads", 3, [3, 16, 3, 16], f32, f16, bf16),
            case("odd sizes", 5, [5, 7, 1, 9], f32, f32, f32),
            case("more columns than a workgroup, large state", 2, [2, 65, 1, 250], f32, f32, f32),
            case("one of everything", 4, [1, 1, 1, 1], f32, f32, f32),
            case("f16", 4, [4, 16, 2, 8], f16, f16, f16),
        ]
    }

    /// Large rows would grow from step to step.
    fn extremes(&self) -> &'static [Extreme] {
        Extreme::BOUNDED
    }
}
