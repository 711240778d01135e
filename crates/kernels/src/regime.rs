//! Regimes: the ways in which a kernel works, told apart by the sizes of a call. A kernel that is right on calls of twenty
//! rows may be wrong behind its first tile, so that checks count the regimes that calls have reached.
//!
//! Sizes that are constant in a graph, such as the length of a row, are the same in every call that will ever be made of
//! a node; regimes are told apart by those that differ from call to call, `n` and `p`.

use crate::axis::{Axis, Border, BorderSide};
use crate::plan::{NodePlan, Phase};
use std::fmt;
use tapml_graph::{Dim, Symbol, Symbols, TensorType};

/// One way in which a kernel works: each axis that it names on one side of its border.
///
/// Axes are met together: a call belongs to the regime if each of its sizes is on the named side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Regime(Vec<(Axis, BorderSide)>);

impl Axis {
    /// A regime for each side of the border.
    pub fn regimes(&self) -> Vec<Regime> {
        self.sides().iter().map(|side| Regime(vec![(self.clone(), *side)])).collect()
    }
}

impl fmt::Display for Regime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (Axis { what, border, above, .. }, side)) in self.0.iter().enumerate() {
            f.write_str(if at > 0 { ", " } else { "" })?;
            match (border, side) {
                (Border::Steps(length), BorderSide::Whole) if *above > 0 => {
                    write!(f, "{what} > {above} in whole {length}s")?;
                }
                (Border::Steps(length), _) if *above > 0 => {
                    write!(f, "{what} > {above} with a rest of {length}s")?;
                }
                (Border::Limit(0), BorderSide::Below) => write!(f, "no {what}")?,
                (Border::Limit(0), _) => write!(f, "{what}")?,
                (Border::Limit(most), BorderSide::Below) => write!(f, "{what} <= {most}")?,
                (Border::Limit(most), _) => write!(f, "{what} > {most}")?,
                (Border::Steps(length), BorderSide::Below) => write!(f, "{what} < {length}")?,
                (Border::Steps(length), BorderSide::Whole) => write!(f, "{what} in whole {length}s")?,
                (Border::Steps(length), BorderSide::Above) => write!(f, "{what} > {length} with a rest")?,
            }
        }
        Ok(())
    }
}

impl Regime {
    /// Whether a call with these symbols is of this regime.
    pub fn holds(&self, symbols: &Symbols) -> bool {
        self.0.iter().all(|(axis, side)| axis.side(symbols) == Some(*side))
    }

    /// Whether what is wrong in this regime weighs enough in a call with these symbols to be seen: no rest is less than
    /// half a step.
    pub fn shows(&self, symbols: &Symbols) -> bool {
        self.0.iter().all(|(axis, _)| axis.shows(symbols))
    }

    /// The smallest sizes at which a run of one of these phases is of this regime, with no more than `context` rows in
    /// all, a rest of half a step at least if there are such sizes; `None` if no run is.
    ///
    /// Of each total only few splits into new and cached rows are tried: one new row, two, and all of them new.
    pub fn representative(&self, phases: &[Phase], context: u64) -> Option<Symbols> {
        let enough = self.0.iter().map(|(axis, _)| axis.covering_size()).max().unwrap_or(0);
        let found = |(n, p): (u64, u64)| {
            let symbols = Symbols::np(n, p);
            (phases.contains(&Phase::of_run(&symbols)) && self.holds(&symbols)).then_some(symbols)
        };
        // Two passes need the same sequence twice: sizes that show the regime come first.
        let runs = || {
            (1..=context.min(enough)).flat_map(|total| {
                let new = if total > 1 { [1, 2, total] } else { [1; 3] };
                new.into_iter().map(move |n| (n, total - n))
            })
        };
        runs().filter_map(found).find(|symbols| self.shows(symbols)).or_else(|| runs().find_map(found))
    }
}

/// The regimes of a plan for inputs of these types.
///
/// Steps follow from the grids of the launches: a workgroup treats so many rows or elements. Planners declare what their
/// kernels do inside, such as tiles of keys. Beside these, runs of one row and of several, with rows in the cache and
/// without, are told apart wherever sizes depend on it.
///
/// A size counts a single time, however many launches have steps of the same length along it.
pub fn regimes(plan: &NodePlan, inputs: &[TensorType]) -> Vec<Regime> {
    let mut axes: Vec<Axis> = Vec::new();
    let grids = plan.launches.iter().flat_map(|launch| &launch.groups);
    // What is padded is not told apart by its size.
    // A dividend that is above zero without any rows has a constant part.
    let padded = |size: &Dim| size.eval(&Symbols::np(0, 0)).map_or(true, |constant| constant > 0);
    let of_grids = grids.filter(|extent| extent.divisor > 1 && !padded(&extent.dim));
    let of_grids =
        of_grids.map(|extent| Axis::steps(noun(&extent.dim), extent.dim.clone(), u64::from(extent.divisor)));
    for axis in of_grids.chain(plan.axes.iter().cloned()) {
        if axis.size.as_const().is_none() && !axes.contains(&axis) {
            axes.push(axis);
        }
    }
    let mentions = |symbol: Symbol| {
        let sizes = inputs.iter().flat_map(|ty| &ty.shape).chain(axes.iter().map(|axis| &axis.size));
        sizes.into_iter().any(|dim| dim.symbols().any(|s| s == symbol))
    };
    let rows = mentions(Symbol::N).then(Axis::rows);
    let cached = mentions(Symbol::P).then(Axis::cached_axis);
    // They are in each regime that is told apart by both, so that they need none of their own.
    axes.retain(|axis| *axis != Axis::rows() && *axis != Axis::cached_axis());
    // One row or several, times cached or not: every combination is a regime.
    let mut regimes = vec![Regime(Vec::new())];
    for axis in rows.into_iter().chain(cached) {
        let sided = |regime: &Regime| -> Vec<Regime> {
            let more =
                |side: &BorderSide| Regime(regime.0.iter().cloned().chain([(axis.clone(), *side)]).collect());
            axis.sides().iter().map(more).collect()
        };
        regimes = regimes.iter().flat_map(sided).collect();
    }
    regimes.retain(|regime| !regime.0.is_empty());
    regimes.extend(axes.iter().flat_map(Axis::regimes));
    regimes
}

/// What a size of a grid counts.
/// The words are those of reports; a size that is neither counts elements.
fn noun(size: &Dim) -> &'static str {
    let plain = [(Symbol::N, "rows"), (Symbol::P, "cached rows")];
    let all = Dim::symbol(Symbol::N).checked_add(&Dim::symbol(Symbol::P));
    match plain.into_iter().find(|(symbol, _)| *size == Dim::symbol(*symbol)) {
        Some((_, noun)) => noun,
        None if all.as_ref() == Some(size) => "keys",
        None => "elements",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: [Phase; 2] = Phase::ALL;

    fn keys() -> Dim {
        "n+p".parse().unwrap()
    }

    fn texts(regimes: &[Regime]) -> Vec<String> {
        regimes.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_size_is_on_one_side_of_a_border() {
        for axis in [Axis::steps("keys", keys(), 64), Axis::limit("keys", keys(), 100)] {
            for (n, p) in [(1, 0), (2, 62), (64, 0), (1, 64), (1, 99), (1, 100), (64, 64), (64, 65)] {
                let symbols = Symbols::np(n, p);
                assert_eq!(
                    axis.regimes().iter().filter(|r| r.holds(&symbols)).count(),
                    1,
                    "{axis:?} {n} {p}"
                );
            }
        }
    }

    #[test]
    fn the_smallest_run_of_a_regime_is_found_within_the_context() {
        let regimes = Axis::steps("keys", keys(), 64).regimes();
        assert_eq!(texts(&regimes), ["keys < 64", "keys in whole 64s", "keys > 64 with a rest"]);
        let found = |phases: &[Phase], context| -> Vec<Option<Symbols>> {
            regimes.iter().map(|regime| regime.representative(phases, context)).collect()
        };
        let np = |n, p| Some(Symbols::np(n, p));
        assert_eq!(found(&BOTH, 512), [np(1, 0), np(1, 63), np(1, 95)]);
        assert_eq!(found(&[Phase::Prefill], 512), [np(2, 0), np(2, 62), np(2, 94)]);
        assert_eq!(found(&BOTH, 64), [np(1, 0), np(1, 63), None], "a context of 64");
        let rows = Axis::steps("rows", Dim::symbol(Symbol::N), 32).regimes();
        assert_eq!(rows[1].representative(&[Phase::Decode], 512), None, "one row is less than 32");
        assert_eq!(rows[1].representative(&BOTH, 512), np(32, 0));
        let elements = Axis::steps("elements", "320*n".parse().unwrap(), 256).regimes();
        assert_eq!(elements[1].representative(&BOTH, 512), np(4, 0));
        assert_eq!(elements[0].representative(&BOTH, 512), None, "a row is longer");
    }

    #[test]
    fn a_border_may_be_there_for_large_sizes_only() {
        let regimes = Axis::steps("keys", keys(), 128).only_above(256).regimes();
        assert_eq!(texts(&regimes), ["keys > 256 in whole 128s", "keys > 256 with a rest of 128s"]);
        let of = |p| regimes.iter().filter(|regime| regime.holds(&Symbols::np(1, p))).count();
        assert_eq!([100, 200, 255, 256, 383].map(of), [0, 0, 0, 1, 1]);
        let found = regimes.iter().map(|regime| regime.representative(&[Phase::Decode], 4096));
        assert_eq!(found.collect::<Vec<_>>(), [383, 319].map(|p| Some(Symbols::np(1, p))));
    }

    #[test]
    fn a_window_has_two_sides() {
        let regimes = Axis::limit("keys", keys(), 512).regimes();
        assert_eq!(texts(&regimes), ["keys <= 512", "keys > 512"]);
        assert_eq!(regimes[1].representative(&[Phase::Decode], 4096), Some(Symbols::np(1, 512)));
    }
}
