//! A made call: what it is made for, and its verdict.

use crate::judged::check_types;
use crate::oracle::Oracles;
use crate::suite::Case;
use crate::verdict::{Criterion, Exact, Judgement, Precision, VerdictConstants, judge_with};
use std::fmt;
use tapml_exec::Call;
use tapml_graph::{Result, Symbol, Tensor};

/// What a call is made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A regime that no recorded call reaches.
    Regime(String),
    /// The same with inputs near zero, for operators that [rest on few rows](tapml_graph::op::Operator::is_row_dominated) of
    /// others.
    Spread(String),
    /// Rows that no prompt gives.
    Extremes,
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Purpose::Regime(regime) => f.write_str(regime),
            Purpose::Spread(regime) => write!(f, "{regime}, small numbers"),
            Purpose::Extremes => {
                f.write_str("rows of zeros, tiny and large numbers, ties, one dominant element")
            }
        }
    }
}

/// A call of a recorded node with values that no run had.
#[derive(Clone, Debug)]
pub struct MadeCall {
    /// The recorded call that it was made of.
    pub case: Case,
    /// Name of its kernel.
    pub kernel: String,
    /// What it was made for.
    pub purpose: Purpose,
    /// The call.
    pub call: Call,
}

impl MadeCall {
    /// Its name: sizes and node.
    pub fn id(&self) -> String {
        let size = |symbol| self.call.symbols.get(symbol).unwrap_or(0);
        let kind = match self.purpose {
            Purpose::Regime(_) => "made",
            Purpose::Spread(_) => "spread",
            Purpose::Extremes => "extremes",
        };
        format!("{kind}.n{}.p{}.{}", size(Symbol::N), size(Symbol::P), self.call.node)
    }

    /// The exact results.
    pub fn exact(&self, oracles: &Oracles) -> Result<Vec<Exact>> {
        // Sizes decide the disturbances.
        let size = |symbol| self.call.symbols.get(symbol).unwrap_or(0);
        oracles.exact(&self.call, size(Symbol::N) << 32 | size(Symbol::P))
    }

    /// The verdict of a kernel's outputs.
    pub fn judge(&self, exact: &[Exact], outputs: &[Tensor], target: Precision) -> Result<Judgement> {
        check_types(&self.call, outputs)?;
        // Tests on the distribution of errors take elements for independent, and rows that no prompt gives have ties.
        let constants = match self.purpose {
            Purpose::Regime(_) | Purpose::Spread(_) => &VerdictConstants::DECIDING,
            Purpose::Extremes => &VerdictConstants::ELEMENTS,
        };
        judge_with(constants, exact, outputs, target, None)
    }

    /// Whether the call is right by its verdict. Of rows that no prompt gives another choice than the exact one is wrong if no
    /// rounding reaches it.
    pub fn passes(&self, judged: &Judgement) -> bool {
        let undecided = judged.criterion == Criterion::Choice && judged.worst.allowed > 0.0;
        judged.passes() || self.purpose == Purpose::Extremes && undecided
    }
}

/// The call with other values in its inputs that are no weights, where `change` gives some; `None` if it gives none.
pub(crate) fn with_inputs(
    call: &Call,
    mut change: impl FnMut(usize, &Tensor) -> Result<Option<Tensor>>,
) -> Result<Option<Call>> {
    let mut inputs = call.inputs.clone();
    let mut changed = false;
    let own = call.inputs.iter().zip(&call.weights).enumerate().filter(|(_, (_, weight))| weight.is_none());
    for (at, (input, _)) in own {
        if let Some(other) = change(at, input)? {
            inputs[at] = other;
            changed = true;
        }
    }
    Ok(changed.then(|| Call { inputs, ..call.clone() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapml_graph::op::Argmax;
    use tapml_graph::{DType, Dim, NodeId, Symbols, TensorType};

    #[test]
    fn the_greatest_of_a_row_of_ties_is_the_first() {
        let vector = |rows: &str| TensorType::new(DType::U32, [rows.parse::<Dim>().unwrap()]);
        let logits = TensorType::new(DType::F32, [Dim::from(1usize), Dim::from(3usize)]);
        let call = Call {
            node: "next_token".into(),
            op: Argmax {}.into(),
            symbols: Symbols::np(1, 0),
            inputs: vec![
                Tensor::from_u32(vec![0], Vec::new()).unwrap(),
                Tensor::from_f32(vec![1, 3], vec![2.0; 3]).unwrap(),
            ],
            input_types: vec![vector("p"), logits],
            weights: vec![None, None],
            output_types: vec![vector("n+p"), vector("1")],
        };
        let case = Case { frame: 0, node: NodeId(0) };
        let made = MadeCall { case, kernel: "argmax/portable".into(), purpose: Purpose::Extremes, call };
        let exact = made.exact(&Oracles::new(0)).unwrap();
        let passes = |index: u32| {
            let chosen = Tensor::from_u32(vec![1], vec![index]).unwrap();
            let target = Precision { accumulate: DType::F32, terms: 0 };
            made.passes(&made.judge(&exact, &[chosen.clone(), chosen], target).unwrap())
        };
        assert_eq!([0, 1, 2].map(passes), [true, false, false]);
    }
}
