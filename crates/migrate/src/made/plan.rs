//! Which calls are made: for each kernel variant those of the regimes that no recorded call reaches, and those with rows
//! that no prompt gives.
//!
//! A plan follows from suite and kernels alone: the same ones give the same calls.

use super::call::{MadeCall, Purpose};
use super::sizes::resize_call;
use crate::choices::KernelChoices;
use crate::extremes;
use crate::suite::{Case, Suite};
use std::collections::HashMap;
use tapml_exec::{Phase, Regime};
use tapml_graph::{Model, Result, Symbol, Symbols};

/// Rows of a run at most: regimes beyond are told as not reached.
const LONGEST: u64 = 1 << 14;

/// What numbers near zero are of recorded ones: a product of three is a 500th.
const SMALL: f64 = 0.125;

/// What made calls are made of.
#[derive(Clone, Copy)]
pub(super) struct CallSource<'a> {
    pub suite: &'a Suite,
    pub model: &'a Model,
    pub choices: &'a KernelChoices,
}

/// One variant of a kernel: the same code and constants.
pub(super) struct Variant {
    pub kernel: String,
    /// As the kernel tells them.
    regimes: Vec<Regime>,
    /// In which it runs among the cases.
    phases: Vec<Phase>,
    /// That it ran.
    cases: Vec<Case>,
}

/// The calls to make for a variant.
#[derive(Default)]
pub(super) struct CallPlan {
    /// The variant's regimes, with what reaches each.
    pub regimes: Vec<(Regime, Reach)>,
    /// The calls.
    pub calls: Vec<PlannedCall>,
}

/// What reaches a regime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    Recorded,
    /// The call at this place of the plan.
    Made(usize),
}

/// A call to make.
pub(super) struct PlannedCall {
    /// The recorded call that it is made of.
    case: Case,
    purpose: Purpose,
    change: CallChange,
}

/// What is other than in the recorded call.
enum CallChange {
    Sizes(Symbols),
    /// Sizes, and numbers near zero.
    Small(Symbols),
    /// The first of the extreme rows.
    Extremes(usize),
}

impl CallSource<'_> {
    /// The variants of kernels among these cases, in their order.
    pub fn variants(&self, cases: &[Case]) -> Vec<Variant> {
        let mut order: Vec<Variant> = Vec::new();
        let mut index: HashMap<&str, usize> = HashMap::new();
        for &case in cases {
            let phase = self.suite.phase(case);
            let Ok(choice) = self.choices.kernel_at(case.node, phase) else { continue };
            let at = *index.entry(&choice.hash).or_insert_with(|| {
                let (kernel, regimes) = (choice.name.clone(), choice.regimes.clone());
                order.push(Variant { kernel, regimes, phases: Vec::new(), cases: Vec::new() });
                order.len() - 1
            });
            let variant = &mut order[at];
            if !variant.phases.contains(&phase) {
                variant.phases.push(phase);
            }
            variant.cases.push(case);
        }
        order
    }

    /// The calls to make for a variant.
    pub fn plan(&self, variant: &Variant) -> CallPlan {
        let mut plan = CallPlan::default();
        for regime in &variant.regimes {
            // No run of these phases can be in this regime.
            let Some(sizes) = regime.representative(&variant.phases, LONGEST) else { continue };
            let reach = if variant.cases.iter().any(|&case| regime.holds(self.symbols(case))) {
                Reach::Recorded
            } else if let Some(at) = plan.calls.iter().position(|call| call.reaches(regime)) {
                // One call may serve several regimes.
                Reach::Made(at)
            } else {
                let case = self.base(&variant.cases, &sizes);
                let (at, text) = (plan.calls.len(), regime.to_string());
                let (purpose, change) = (Purpose::Regime(text.clone()), CallChange::Sizes(sizes.clone()));
                plan.calls.push(PlannedCall { case, purpose, change });
                if self.suite.graph().node(case.node).op.is_row_dominated() {
                    let (purpose, change) = (Purpose::Spread(text), CallChange::Small(sizes));
                    plan.calls.push(PlannedCall { case, purpose, change });
                }
                Reach::Made(at)
            };
            plan.regimes.push((regime.clone(), reach));
        }
        // Of the recorded call with the most rows.
        let rows = |case: &&Case| self.symbols(**case).get(Symbol::N);
        if let Some(&case) = variant.cases.iter().max_by_key(rows) {
            let op = &self.suite.graph().node(case.node).op;
            let calls = 0..extremes::count(op, self.symbols(case));
            let of =
                |first| PlannedCall { case, purpose: Purpose::Extremes, change: CallChange::Extremes(first) };
            plan.calls.extend(calls.map(of));
        }
        plan
    }

    /// Makes a planned call; why not, if it cannot be made.
    pub fn make(
        &self,
        variant: &Variant,
        planned: &PlannedCall,
    ) -> Result<std::result::Result<MadeCall, String>> {
        let (recorded, outputs) = self.suite.call(planned.case, self.model)?;
        let call = match &planned.change {
            CallChange::Sizes(sizes) => resize_call(&recorded, &outputs, sizes, 1.0)?,
            CallChange::Small(sizes) => resize_call(&recorded, &outputs, sizes, SMALL)?,
            CallChange::Extremes(first) => extremes::extreme_call(&recorded, *first)?
                .ok_or_else(|| "no input has rows of numbers".to_string()),
        };
        let (case, kernel, purpose) = (planned.case, variant.kernel.clone(), planned.purpose.clone());
        Ok(call.map(|call| MadeCall { case, kernel, purpose, call }))
    }

    /// Sizes of a recorded call.
    fn symbols(&self, case: Case) -> &Symbols {
        &self.suite.frames()[case.frame].symbols
    }

    /// The recorded call to make one of these sizes of: with rows in its cache if there shall be some, of many rows.
    fn base(&self, cases: &[Case], sizes: &Symbols) -> Case {
        let size = |symbols: &Symbols, symbol| symbols.get(symbol).unwrap_or(0);
        let cached = size(sizes, Symbol::P) > 0;
        let score = |case: &&Case| {
            let own = self.symbols(**case);
            let (n, p) = (size(own, Symbol::N), size(own, Symbol::P));
            ((p > 0) == cached, n, p)
        };
        *cases.iter().max_by_key(score).unwrap_or(&cases[0])
    }
}

impl PlannedCall {
    /// Whether the call is in this regime and would show a fault there.
    fn reaches(&self, regime: &Regime) -> bool {
        matches!(&self.change, CallChange::Sizes(sizes) if regime.holds(sizes) && regime.shows(sizes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapml_graph::{Dim, NodeId};
    use tapml_kernels::Axis;

    #[test]
    fn a_call_for_another_regime_reaches_a_rest_only_if_it_is_half_a_step() {
        let call = |p| PlannedCall {
            case: Case { frame: 0, node: NodeId(0) },
            purpose: Purpose::Extremes,
            change: CallChange::Sizes(Symbols::np(1, p)),
        };
        let rest = Axis::steps("keys", Dim::symbol(Symbol::P), 128).only_above(256);
        let rest = &rest.regimes()[1];
        assert_eq!([257, 384, 319, 320].map(|p| call(p).reaches(rest)), [false, false, false, true]);
    }
}
