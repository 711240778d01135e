//! What an explanation asks for as data, and what it got.
//!
//! Explanations are pure functions of what was observed and of [`Outcomes`]. They run nothing. Where one needs an outcome that is
//! not there, it ends with the [`Experiment`] that gives it; [`crate::perform::conclude`] runs that and asks again.

use tapml_exec::Call;
use tapml_graph::{Error, Tensor};
use tapml_migrate::verdict::Exact;

/// Something that has to be run before an explanation can go on.
#[derive(Debug)]
pub(crate) enum Experiment {
    /// The call alone on the target, as often as the options say.
    Repeat(Call),
    /// The exact result of a call that is no case of the suite.
    Evaluate(Call),
    /// The second call on the target right behind the first one, which the source runs, too.
    RunBehind(Box<[Call; 2]>),
    /// Which of these calls give on the target what was observed.
    Match(Guesses),
}

/// Calls that may give what a call gave within a program.
#[derive(Debug)]
pub(crate) struct Guesses {
    /// The guesses, each with one thing changed.
    pub calls: Vec<Call>,
    /// The call as it was found. If it gives the same bits alone, no guess tells anything.
    pub unchanged: Call,
    /// What was observed.
    pub outputs: Vec<Tensor>,
}

/// What a call gives right behind another.
#[derive(Clone, Debug)]
pub(crate) struct RunBehind {
    /// What the source gives for the first call.
    pub recorded: Vec<Tensor>,
    /// What the target gives for the second one.
    pub outputs: Vec<Tensor>,
}

/// Why a line of reasoning ends without a result.
#[derive(Debug)]
pub(crate) enum Pause {
    /// It goes on with the outcome of this.
    Needs(Box<Experiment>),
    /// It cannot go on.
    Failed(Error),
}

impl From<Error> for Pause {
    fn from(error: Error) -> Pause {
        Pause::Failed(error)
    }
}

/// A result, or what is needed for it.
pub(crate) type Reasoned<T> = std::result::Result<T, Pause>;

/// The outcomes of the experiments about one question so far.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    repeats: Vec<(Call, Vec<Vec<Tensor>>)>,
    exact: Vec<(Call, Vec<Exact>)>,
    behind: Vec<([Call; 2], Option<RunBehind>)>,
    matches: Vec<(Guesses, Vec<bool>)>,
}

impl Outcomes {
    /// The outputs of each repeat of a call; a repeat that could not be run is left out.
    pub fn repeats(&self, call: &Call) -> Reasoned<&[Vec<Tensor>]> {
        let found = self.repeats.iter().find(|(known, _)| are_same_calls(known, call));
        found.map(|(_, outputs)| outputs.as_slice()).ok_or_else(|| needs(Experiment::Repeat(call.clone())))
    }

    /// The exact result of a call.
    pub fn exact(&self, call: &Call) -> Reasoned<&[Exact]> {
        let found = self.exact.iter().find(|(known, _)| are_same_calls(known, call));
        found.map(|(_, exact)| exact.as_slice()).ok_or_else(|| needs(Experiment::Evaluate(call.clone())))
    }

    /// What the second call gives right behind the first; `None` if one of them could not be run.
    pub fn run_behind(&self, calls: &[Call; 2]) -> Reasoned<Option<&RunBehind>> {
        let same = |known: &[Call; 2]| known.iter().zip(calls).all(|(a, b)| are_same_calls(a, b));
        let found = self.behind.iter().find(|(known, _)| same(known));
        found
            .map(|(_, outcome)| outcome.as_ref())
            .ok_or_else(|| needs(Experiment::RunBehind(Box::new(calls.clone()))))
    }

    /// For each guess whether it gives what was observed, bit by bit, each time it is run. None does if the unchanged call
    /// gives it, too: then it depends on more than what it computes with.
    pub fn matches(&self, guesses: Guesses) -> Reasoned<&[bool]> {
        let found = self.matches.iter().find(|(known, _)| known.is_same(&guesses));
        found.map(|(_, same)| same.as_slice()).ok_or_else(|| needs(Experiment::Match(guesses)))
    }

    /// Adds the outputs of each repeat of a call.
    pub fn add_repeats(&mut self, call: Call, outputs: Vec<Vec<Tensor>>) {
        self.repeats.push((call, outputs));
    }

    /// Adds the exact result of a call.
    pub fn add_exact(&mut self, call: Call, exact: Vec<Exact>) {
        self.exact.push((call, exact));
    }

    /// Adds what a call gives behind another.
    pub fn add_behind(&mut self, calls: [Call; 2], outcome: Option<RunBehind>) {
        self.behind.push((calls, outcome));
    }

    /// Adds which guesses give what was observed.
    pub fn add_matches(&mut self, guesses: Guesses, same: Vec<bool>) {
        self.matches.push((guesses, same));
    }
}

impl Guesses {
    /// Whether the same is asked.
    fn is_same(&self, other: &Guesses) -> bool {
        self.calls.len() == other.calls.len()
            && self.calls.iter().zip(&other.calls).all(|(a, b)| are_same_calls(a, b))
            && are_same_calls(&self.unchanged, &other.unchanged)
            && are_same(&self.outputs, &other.outputs)
    }
}

fn needs(experiment: Experiment) -> Pause {
    Pause::Needs(Box::new(experiment))
}

/// Whether two outputs have the same bits.
/// NaNs of different payloads differ, and so do zeros of different signs.
pub(crate) fn are_same(a: &[Tensor], b: &[Tensor]) -> bool {
    let same = |(a, b): (&Tensor, &Tensor)| {
        let (a, b) = (&a.bytes()[..], &b.bytes()[..]);
        // Shared bytes are not read: weights may be large.
        std::ptr::eq(a, b) || a == b
    };
    a.len() == b.len() && a.iter().zip(b).all(same)
}

/// Whether two calls compute the same. Attributes are compared as JSON, where a NaN equals itself.
fn are_same_calls(a: &Call, b: &Call) -> bool {
    let shapes =
        |call: &Call| call.inputs.iter().map(|t| (t.dtype(), t.shape().to_vec())).collect::<Vec<_>>();
    (&a.node, &a.symbols, &a.weights) == (&b.node, &b.symbols, &b.weights)
        && a.op.name() == b.op.name()
        && shapes(a) == shapes(b)
        && are_same(&a.inputs, &b.inputs)
        && a.op.attributes() == b.op.attributes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers::{TestGraph, numbers, run_right};
    use tapml_graph::Symbols;

    /// Calls of one node on other numbers.
    fn calls() -> [Call; 2] {
        let subject = TestGraph::new("graph test\ninput x: f32[n,4]\ny: f32[n,4] = silu(x)\noutput y = y\n");
        [1, 2].map(|seed| subject.call(subject.node("y"), &Symbols::np(2, 0), vec![numbers(&[2, 4], seed)]))
    }

    #[test]
    fn an_outcome_answers_for_the_very_call_alone() {
        let [call, other] = calls();
        let mut outcomes = Outcomes::default();
        let Err(Pause::Needs(experiment)) = outcomes.repeats(&call) else { panic!("nothing was run") };
        assert!(matches!(*experiment, Experiment::Repeat(asked) if are_same_calls(&asked, &call)));
        outcomes.add_repeats(call.clone(), vec![run_right(&call)]);
        assert_eq!(outcomes.repeats(&call).unwrap().len(), 1);
        let at_another_position = Call { symbols: Symbols::np(2, 7), ..call.clone() };
        for other in [other, at_another_position, Call { node: "z".into(), ..call.clone() }] {
            assert!(matches!(outcomes.repeats(&other), Err(Pause::Needs(_))));
        }
        assert!(matches!(outcomes.exact(&call), Err(Pause::Needs(_))), "another question");
    }

    #[test]
    fn guesses_are_answered_together() {
        let [call, other] = calls();
        let guesses = |calls: &[&Call]| Guesses {
            calls: calls.iter().copied().cloned().collect(),
            unchanged: call.clone(),
            outputs: run_right(&other),
        };
        let mut outcomes = Outcomes::default();
        outcomes.add_matches(guesses(&[&other, &call]), vec![true, false]);
        assert_eq!(outcomes.matches(guesses(&[&other, &call])).unwrap(), [true, false]);
        assert!(matches!(outcomes.matches(guesses(&[&other])), Err(Pause::Needs(_))));
        assert!(matches!(outcomes.run_behind(&[call.clone(), other.clone()]), Err(Pause::Needs(_))));
    }
}
