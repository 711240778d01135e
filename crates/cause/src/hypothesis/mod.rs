//! The hypotheses: one row each in the table below, in files by family. One that predicts values tests its predictions
//! through [`Trials`]; what it names and how it is scored is the same for all.

use crate::Evidence;
use crate::trials::Trials;
use tapml_graph::Op;

mod attribute;
mod findings;
mod foreign;
mod formula;
mod input;
mod lanes;
mod likely;
mod mask;
mod output;
mod overflow;
mod place;
mod position;
mod precision;
mod rivals;
mod solve;
mod stale;
mod written;

/// What it is called if an attribute of the operator, its name joined by dots, is left out.
pub fn of_left_out(op: &tapml_graph::Op, attribute: &str) -> crate::Cause {
    let path: Vec<String> = attribute.split('.').map(String::from).collect();
    attribute::meaning(op, &path).0
}

/// One hypothesis, or a family of them that differ in a place or a number.
pub(crate) struct Hypothesis {
    /// What is assumed, for people who read the table.
    // Rows are easier to read with it, though no code does.
    #[allow(dead_code)]
    pub name: &'static str,
    /// Whether it looks at more than wrong values, so that it is tested on a call that passes, too.
    pub without_values: bool,
    /// Which operators it is about.
    operators: Operators,
    /// Tests it.
    pub test: fn(&mut Trials<'_, '_>),
}

/// The operators that a hypothesis is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operators {
    /// TapML's own.
    Own,
    /// Those of others.
    Foreign,
    /// Those of others that ran with others as one model.
    Region,
    /// All: it looks at results alone.
    All,
}

impl Hypothesis {
    /// Whether it is about the operator of this call.
    pub fn applies(&self, evidence: &Evidence<'_>) -> bool {
        let foreign = matches!(evidence.call.op, Op::Foreign(_));
        match self.operators {
            Operators::Own => !foreign,
            Operators::Foreign => foreign,
            Operators::Region => foreign && evidence.after.is_some(),
            Operators::All => true,
        }
    }
}

/// One about TapML's own operators that predicts values.
const fn of_values(name: &'static str, test: fn(&mut Trials<'_, '_>)) -> Hypothesis {
    Hypothesis { name, without_values: false, operators: Operators::Own, test }
}

/// One that looks at results alone.
const fn of_results(name: &'static str, test: fn(&mut Trials<'_, '_>)) -> Hypothesis {
    Hypothesis { name, without_values: false, operators: Operators::All, test }
}

/// One about operators of others.
const fn of_foreign(name: &'static str, test: fn(&mut Trials<'_, '_>)) -> Hypothesis {
    Hypothesis { name, without_values: false, operators: Operators::Foreign, test }
}

/// One about operators of others in a region.
const fn of_region(name: &'static str, test: fn(&mut Trials<'_, '_>)) -> Hypothesis {
    Hypothesis { name, without_values: false, operators: Operators::Region, test }
}

/// All hypotheses. Of two that fit equally well and assume equally much the earlier one is named first.
/// What device reports and repeats say comes first, searches and descriptions come last.
pub(crate) const HYPOTHESES: &[Hypothesis] = &[
    Hypothesis {
        name: "a checking device saw it",
        without_values: true,
        operators: Operators::All,
        test: findings::try_findings,
    },
    of_results("an earlier call's results", stale::results),
    Hypothesis {
        name: "repeats differ",
        without_values: true,
        operators: Operators::All,
        test: findings::repeats_differ,
    },
    of_foreign("an attribute ignored or misread", foreign::try_changed),
    of_foreign("an absent attribute taken for another value", foreign::try_assumed),
    of_foreign("an input ignored, or taken for another", foreign::left_out),
    of_foreign("a parameter that is an input, misread", foreign::misread),
    of_foreign("inputs in another type, special numbers, rounding", foreign::cast),
    of_foreign("inputs in another layout", foreign::try_arranged),
    of_foreign("the end of the results is not written", foreign::tails),
    of_foreign("an intermediate result overflows", foreign::overflowing),
    of_region("a node left out, replaced, or given another operand", foreign::try_fused),
    of_values("an earlier call's inputs", stale::inputs),
    of_values("sizes and positions of an earlier call", position::of_earlier),
    of_values("positions off by a constant", position::try_shifted),
    of_values("mask ignored or shifted", mask::tests),
    of_values("another key/value head", mask::heads),
    of_values("sums of all terms one after the other", precision::one_chain),
    of_values("an attribute left out or another", attribute::try_changed),
    of_values("an input left out", input::left_out),
    of_values("inputs exchanged", input::try_exchanged),
    of_values("an input's elements from elsewhere", input::try_moved),
    of_values("the last elements of an input left out", input::tails),
    of_values("some lanes of an input left out, negative or whole", lanes::try_treated),
    of_values("an input in another type", input::cast),
    of_results("the result's sign, or a constant factor", output::try_scaled),
    of_results("results from elsewhere", place::try_moved),
    of_results("results written with another stride", place::try_strided),
    of_results("results not written", written::try_left),
    of_values("another formula", formula::try_other),
    of_values("a step of a fused operator left out", formula::steps),
    of_results("results cut off instead of rounded", precision::try_truncated),
    of_results("results through another type", precision::try_narrowed),
    of_values("small numbers taken for zero", precision::try_flushed),
    of_values("rounded before a weight is applied", precision::try_early_rounding),
    of_values("an intermediate result overflows", overflow::try_overflow),
    of_values("sums in 16 bits", precision::try_accumulated),
    of_values("a number of an attribute found by search", solve::attributes),
    of_values("a factor on an input found by search", solve::inputs),
    of_values("each row by a factor of its own", output::rows_scaled),
    of_results("a choice between near ones", findings::near_tie),
    of_values("what errors of this size and kind may mean", likely::try_guesses),
];
