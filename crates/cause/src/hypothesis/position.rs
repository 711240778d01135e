//! Positions and sizes: `p` or `n` of another step, positions off by a constant.
//!
//! They are tried on operators that see positions: those whose rows depend on others, and those that get positions as an input.

use crate::Cause;
use crate::cut::{like, numbers};
use crate::trials::{Rank, Trials};
use tapml_graph::{Op, Symbol};

/// Constants that positions are often off by.
/// Counting from one, or from the end, gives such errors.
const SHIFTS: [i64; 8] = [1, -1, 2, -2, 3, -3, 4, -4];

/// The position of the first row is off, or that of every row is.
pub(super) fn try_shifted(trials: &mut Trials<'_, '_>) {
    let symbols = trials.context.cut.symbols.clone();
    let (n, p) = (symbols.get(Symbol::N).unwrap_or(0) as i64, symbols.get(Symbol::P).unwrap_or(0) as i64);
    let mut targets: Vec<i64> = SHIFTS.iter().map(|s| p + s).collect();
    // Counted from this step's first row, or from its end.
    targets.extend([0, n, n + p, n + p - 1]);
    // The right position is no hypothesis.
    targets.retain(|&t| t >= 0 && t != p);
    targets.dedup();
    for target in targets {
        let note = format!("positions are off by {:+}: the first is {target}, not {p}", target - p);
        with_symbols(trials, Cause::PositionShifted, note, n as u64, target as u64);
    }
    for i in 0..trials.context.cut.inputs.len() {
        try_given(trials, i);
    }
}

/// Positions that are an input.
fn try_given(trials: &mut Trials<'_, '_>, i: usize) {
    let input = &trials.context.cut.inputs[i];
    let is_positions = matches!(trials.context.cut.op, Op::RopeAngles(_) | Op::Positions(_));
    if !is_positions || input.as_ids().is_err() {
        return;
    }
    for shift in SHIFTS {
        let moved: Vec<f64> = numbers(input).iter().map(|p| (p + shift as f64).max(0.0)).collect();
        let prediction = trials.with_input(i, like(input, moved));
        trials.cut(
            Cause::PositionShifted,
            Rank::Placed,
            format!("positions are off by {shift:+}"),
            prediction,
        );
    }
}

/// `n` or `p` of an earlier call.
/// A block of sizes that was not written again holds those of a step before.
pub(super) fn of_earlier(trials: &mut Trials<'_, '_>) {
    let own = &trials.context.evidence.call.symbols;
    let (Some(n), Some(p)) = (own.get(Symbol::N), own.get(Symbol::P)) else { return };
    let mut tried = vec![(n, p)];
    for earlier in trials.context.evidence.earlier {
        let other = &earlier.call.symbols;
        let (Some(old_n), Some(old_p)) = (other.get(Symbol::N), other.get(Symbol::P)) else { continue };
        // Positions off by one or two are told by themselves; a step before has them as well.
        if tried.contains(&(n, old_p)) || old_p.abs_diff(p) <= 1 {
            continue;
        }
        tried.push((n, old_p));
        let note = format!("p is {old_p}, that of the earlier call {} (n = {old_n}), not {p}", earlier.name);
        with_symbols(trials, Cause::WrongSymbol, note, n, old_p);
    }
}

/// Tests the call with other sizes and positions.
fn with_symbols(trials: &mut Trials<'_, '_>, cause: Cause, note: String, n: u64, p: u64) {
    let cut = &trials.context.cut;
    // Where the sizes of inputs name p the operator refuses another one.
    let symbols = cut.symbols.clone().with_symbol(Symbol::N, n).with_symbol(Symbol::P, p);
    if cut.op.row_wise() || trials.spend().is_none() {
        return;
    }
    let prediction = cut.eval(&cut.op, &symbols, &cut.inputs);
    trials.cut(cause, Rank::Placed, note, prediction);
}
