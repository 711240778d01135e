//! `route`: chooses the experts of each row and weighs them.

use super::shape::{expect_inputs, expect_vector, matrix};
use super::{Fill, Operator, Sample};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// For `logits: [n, experts]` and optionally `bias: [experts]`: `experts: u32[n, k]`, the best first, and their
/// `weights: [n, k]`.
///
/// With `s_e` the score of expert `e` by [`Scores`], the `k` experts with the largest `s_e + bias_e` are chosen, among
/// those of the best groups if there are [`Groups`]; of equal ones the lower index comes first, and NaN counts as the
/// lowest. `w_j = scale·s_j`, or `scale·s_j / (Σ_j s_j + 10⁻²⁰)` over the chosen if `normalize`. Scores to which nothing
/// is added have the order of their logits and are compared as these, exactly.
///
/// Shazeer et al., "Outrageously Large Neural Networks", 2017, section 2.1 (the best `k` of a softmax); DeepSeek-AI,
/// "DeepSeek-V2", 2024, section 2.2.2 (groups), and "DeepSeek-V3", 2024, section 2.1.2 (sigmoid, bias).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// Experts chosen for each row.
    pub k: u32,
    /// What makes scores of logits.
    pub scores: Scores,
    /// Whether the weights of a row are divided by their sum.
    pub normalize: bool,
    /// Factor on the weights.
    #[serde(default = "default_one", skip_serializing_if = "is_one")]
    pub scale: f32,
    /// Limits the choice to some groups of experts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<Groups>,
}

/// What makes scores of logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scores {
    /// `softmax` over all experts.
    Softmax,
    /// `1 / (1 + e^(−logit))`.
    Sigmoid,
    /// The choice is by the logits; then `softmax` over the chosen ones.
    SoftmaxOfTop,
}

/// Experts lie in groups of equal size, one after another; only those of the best groups can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Groups {
    /// Number of groups; divides the experts.
    pub count: u32,
    /// Groups whose experts can be chosen; of equal ones the lower index goes first.
    pub selected: u32,
    /// What a group is worth.
    pub by: GroupScore,
}

/// What a group is worth, by what its experts are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupScore {
    /// As much as its best expert.
    Max,
    /// The sum of its two best experts.
    Top2Sum,
}

fn default_one() -> f32 {
    1.0
}

fn is_one(scale: &f32) -> bool {
    *scale == 1.0
}

impl Route {
    /// Whether experts are compared by their logits, which have the order of the scores.
    pub fn by_logits(&self, biased: bool) -> bool {
        let sums = self.groups.is_some_and(|g| g.by == GroupScore::Top2Sum);
        !(biased || sums)
    }

    /// Fails unless `k` experts can be chosen from the groups that are selected.
    fn check(&self, experts: u64) -> Result<()> {
        let k = u64::from(self.k);
        if self.normalize && self.scores == Scores::SoftmaxOfTop {
            return Err(Error::invalid("the weights of `softmax_of_top` have the sum 1: `normalize` must be false"));
        }
        let Groups { count, selected, by } = self.groups.unwrap_or(Groups { count: 1, selected: 1, by: GroupScore::Max });
        let size = experts.checked_div(u64::from(count)).unwrap_or(0);
        let least = if by == GroupScore::Top2Sum { 2 } else { 1 };
        if size * u64::from(count) != experts || size < least || !(1..=count).contains(&selected) {
            return Err(Error::invalid(format!(
                "{selected} of {count} groups of {experts} experts: groups must be of equal size, at least {least}, and \
                 at least one must be selected"
            )));
        }
        // Only experts of selected groups can be chosen.
        let open = size * u64::from(selected);
        if (1..=open).contains(&k) { Ok(()) } else { Err(Error::invalid(format!("`k` must be from 1 to the {open} experts to choose from, found {k}"))) }
    }
}

impl Operator for Route {
    const NAME: &'static str = "route";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[1, 2])?;
        let (rows, columns) = matrix("logits", &inputs[0])?;
        if let Some(bias) = inputs.get(1) {
            expect_vector("bias", bias, columns)?;
        }
        // Kernels and groups need the number when they are compiled.
        let experts = columns.as_const();
        self.check(experts.ok_or_else(|| Error::invalid(format!("the number of experts must be constant, found {columns}")))?)?;
        let chosen = |dtype| TensorType::new(dtype, [rows.clone(), Dim::from(u64::from(self.k))]);
        Ok(vec![chosen(DType::U32), chosen(inputs[0].dtype)])
    }

    fn chosen_count(&self) -> Option<usize> {
        Some(self.k as usize)
    }

    fn samples() -> Vec<Sample> {
        use Scores::{Sigmoid, Softmax, SoftmaxOfTop};
        let plain = |k, scores, normalize| Route { k, scores, normalize, scale: 1.0, groups: None };
        let grouped = |k, scores, normalize, scale, [count, selected]: [u32; 2], by| {
            Route { scale, groups: Some(Groups { count, selected, by }), ..plain(k, scores, normalize) }
        };
        let case = |name: &str, n, experts: usize, op, dtype| {
            Sample::new(name, op, n, 0).input(dtype, &format!("n,{experts}"), Fill::Normal(2.0))
        };
        let biased = |name: &str, n, experts: usize, op, dtype| {
            case(name, n, experts, op, DType::F32).input(dtype, &experts.to_string(), Fill::Normal(0.2))
        };
        let (max, sum) = (GroupScore::Max, GroupScore::Top2Sum);
        vec![
            case("softmax over all", 9, 8, plain(2, Softmax, false), DType::F32),
            case("normalised, decode", 1, 64, plain(8, Softmax, true), DType::F32),
            case("odd sizes, more experts than lanes", 5, 131, plain(6, Softmax, true), DType::F32),
            case("softmax of the chosen", 7, 32, plain(4, SoftmaxOfTop, false), DType::F32),
            case("all experts", 3, 5, plain(5, SoftmaxOfTop, false), DType::F32),
            case("sigmoid, one expert", 4, 16, plain(1, Sigmoid, false), DType::F32),
            case("groups by their best", 7, 24, grouped(3, Softmax, false, 16.0, [6, 2], max), DType::F32),
            case("groups by two, no bias", 2, 18, grouped(4, Sigmoid, true, 1.0, [3, 2], sum), DType::F32),
            biased("groups by two, bias", 6, 32, grouped(4, Sigmoid, true, 2.5, [8, 4], sum), DType::F32),
            biased("groups of all lanes, bias", 3, 256, grouped(8, Sigmoid, true, 2.5, [64, 9], sum), DType::BF16),
            biased("softmax with bias", 5, 20, plain(6, Softmax, true), DType::F16),
            biased("softmax of the chosen with bias", 3, 12, plain(3, SoftmaxOfTop, false), DType::F32),
            case("f16", 4, 60, plain(4, Softmax, false), DType::F16),
        ]
    }

    fn row_wise(&self) -> bool {
        true
    }
}
