//! `concat`: puts the columns of two matrices side by side, group by group.

use super::shape::{expect_dim, expect_inputs, matrix};
use super::{Fill, Operator, Sample, is_default};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// Group `g` of the columns of `y` is group `g` of `a` followed by group `g` of `b`: `a: [n, groups·k]` and
/// `b: [n, groups·l]` give `y: [n, groups·(k+l)]`. With `shared`, `b: [n, l]` follows every group of `a`.
///
/// Joins the parts of heads; those of multi-head latent attention share the part that carries the position
/// (DeepSeek-V2 report 2024, section 2.1.3).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Concat {
    /// Groups of columns of `a`.
    #[serde(default = "default_one", skip_serializing_if = "is_one")]
    pub groups: u32,
    /// Whether all of `b` follows every group of `a`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub shared: bool,
}

impl Default for Concat {
    fn default() -> Concat {
        Concat { groups: 1, shared: false }
    }
}

/// The default of [`Concat::groups`], for serde.
fn default_one() -> u32 {
    1
}

fn is_one(groups: &u32) -> bool {
    *groups == 1
}

impl Concat {
    /// Columns of one group of `a` and of `b`, of which these are the types. Fails if `groups` does not divide them.
    pub fn parts(&self, a: &TensorType, b: &TensorType) -> Result<[u64; 2]> {
        let groups = u64::from(self.groups);
        let part = |name: &str, ty: &TensorType, groups: u64| {
            let (_, columns) = matrix(name, ty)?;
            let divisible = columns.as_const().filter(|c| groups > 0 && c.is_multiple_of(groups));
            divisible.map(|c| c / groups).ok_or_else(|| {
                Error::invalid(format!("`groups` {groups} must divide the columns of `{name}`, found {ty}"))
            })
        };
        Ok([part("a", a, groups)?, part("b", b, if self.shared { 1 } else { groups })?])
    }
}

impl Operator for Concat {
    const NAME: &'static str = "concat";

    /// `[n, groups·k]` and `[n, groups·l]`, or `[n, l]` if it is shared, give `[n, groups·(k+l)]`.
    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[2])?;
        let [a, b] = [&inputs[0], &inputs[1]];
        let parts = self.parts(a, b)?;
        expect_dim("the first size of `b`", &b.shape[0], &a.shape[0])?;
        if a.dtype != b.dtype {
            return Err(Error::invalid(format!("`a` is {}, `b` is {}", a.dtype, b.dtype)));
        }
        // Checked, as sizes of a graph may be anything.
        let group = parts[0].checked_add(parts[1]);
        let columns = group.and_then(|group| group.checked_mul(u64::from(self.groups)));
        let columns = columns.ok_or_else(|| Error::invalid("the column count overflows"))?;
        Ok(vec![TensorType::new(a.dtype, [a.shape[0].clone(), Dim::from(columns)])])
    }

    /// One group and several, own and shared parts, rows of a step and cached ones.
    fn samples() -> Vec<Sample> {
        let case = |name: &str, n, p, rows: &str, op: Concat, [k, l]: [u32; 2], dtype| {
            let (a, b) = (op.groups * k, if op.shared { l } else { op.groups * l });
            Sample::new(name, op, n, p)
                .input(dtype, &format!("{rows},{a}"), Fill::Normal(1.0))
                .input(dtype, &format!("{rows},{b}"), Fill::Normal(1.0))
        };
        let groups = |groups, shared| Concat { groups, shared };
        let (f32, f16) = (DType::F32, DType::F16);
        vec![
            case("side by side", 7, 0, "n", groups(1, false), [200, 120], f32),
            case("side by side, decode, odd sizes", 1, 0, "n", groups(1, false), [33, 8], f32),
            case("parts of heads", 5, 0, "n", groups(6, false), [32, 16], f32),
            case("heads share a part", 9, 0, "n", groups(8, true), [24, 16], f32),
            case("heads share a part, cached rows", 2, 11, "n+p", groups(3, true), [7, 9], f32),
            case("f16, odd sizes", 3, 0, "n", groups(3, true), [5, 3], f16),
        ]
    }

    fn row_wise(&self) -> bool {
        true
    }
}
