//! A run of the whole model that is not as it must be.

use super::runs::{self, RunStep};
use tapml_graph::Symbols;

/// A run that departs from what it must be.
#[derive(Clone)]
pub(super) struct Departure {
    /// Texts that must run before, for the departure to show.
    pub history: Vec<Vec<RunStep>>,
    /// The text whose last step departs.
    pub steps: Vec<RunStep>,
    /// The step behind it, which may find what this one did, if there is one.
    pub next: Option<RunStep>,
    /// Room for so many rows, in which it shows: what lies behind the rows of a step depends on it.
    pub capacity: Symbols,
    /// What is wrong with it, which decides how further runs are compared.
    pub how: DepartureKind,
}

impl Departure {
    /// A departure that shows in programs with room for its own steps.
    pub fn new(
        history: Vec<Vec<RunStep>>,
        steps: Vec<RunStep>,
        next: Option<RunStep>,
        how: DepartureKind,
    ) -> Departure {
        let all: Vec<RunStep> = history.iter().flatten().chain(&steps).chain(&next).cloned().collect();
        Departure { history, steps, next, capacity: runs::capacity(&all), how }
    }
}

/// How a run departs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum DepartureKind {
    /// The results are so many times farther from the source's than the allowed errors explain.
    Results(f64),
    /// Another run of the same gives other bits.
    Bits,
    /// With other bytes in memory that nobody has written it gives other bits.
    Poison,
}
