//! What a node of a program did in the place of what it should: the same call with one thing changed, run alone, gives the
//! very bits that the node left in the program.
//!
//! Equal bits are strong evidence, because a wrong guess changes nearly every element. The guesses are few and are tried on the target.

use super::scene::Scene;
use super::traced::TracedValues;
use crate::context::Facts;
use crate::experiment::{Guesses, Outcomes, Reasoned};
use std::collections::HashSet;
use tapml_exec::Call;
use tapml_graph::{Bytes, NodeId, Origin, Symbol, Symbols, Tensor, TensorType, ValueId};

/// Most calls that are tried for one node.
/// The likeliest come first, so that the bound cuts unlikely ones.
const TRIED: usize = 96;

/// Outputs of fewer elements are too easily alike.
/// A single number may be equal by chance.
const CLEAR_COUNT: usize = 6;

/// What was computed with in the place of what should be.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Substitute {
    /// An input as memory was before anyone wrote it.
    Nothing(ValueId),
    /// An input as it was in the step before.
    Before(ValueId),
    /// Another value in the place of an input.
    Other { input: ValueId, other: ValueId },
}

/// The sizes and positions that a uniform block may still hold or be counted on to: `n` and `p` of the step before, each
/// alone and both, and the position behind it.
/// Sets of symbols that equal the current ones, or each other, are left out.
fn stale(now: &Symbols, before: Option<&Symbols>) -> Vec<Symbols> {
    let value = |symbols: &Symbols, symbol| symbols.get(symbol).unwrap_or(0);
    let Some(before) = before else { return Vec::new() };
    let (n, p) = (value(now, Symbol::N), value(now, Symbol::P));
    let (old_n, old_p) = (value(before, Symbol::N), value(before, Symbol::P));
    let mut all: Vec<Symbols> = [(old_n, old_p), (n, old_p), (old_n, p), (n, old_p.saturating_add(old_n))]
        .into_iter()
        .filter(|&other| other != (n, p))
        .map(|(n, p)| Symbols::np(n, p))
        .collect();
    let mut seen = HashSet::new();
    all.retain(|s| seen.insert((s.get(Symbol::N), s.get(Symbol::P))));
    all
}

/// The symbols with which the node gives what it left in the program; `None` if they do not explain it.
pub(super) fn symbols(
    facts: Facts<'_>,
    node: NodeId,
    (call, observed): (&Call, &[Tensor]),
    Scene { values, before, .. }: &Scene,
    outcomes: &Outcomes,
) -> Reasoned<Option<Symbols>> {
    let ids = &facts.graph.node(node).inputs;
    let old = |k: usize| ids.get(k).and_then(|id| before.read.get(id));
    let mut tries = Vec::new();
    for symbols in stale(&call.symbols, before.symbols.as_ref()) {
        // Rows behind those that were found hold zeros or the fill, as memory was before.
        let words = [Some(0), values.fill].into_iter().flatten();
        let calls = words.filter_map(|word| with_other_sizes(call, &symbols, &old, word));
        tries.extend(calls.map(|call| (symbols.clone(), call)));
    }
    Ok(fitting_calls((call, observed), tries, outcomes)?.into_iter().next())
}

/// The call as it is with other sizes and positions; `None` if outputs would have other shapes. Inputs with more rows
/// than were found go on with what lies behind these in memory: what the step before left there, then what memory was
/// filled with.
/// A call that would compute the same, or that is not valid, is `None` too.
fn with_other_sizes<'t>(
    call: &Call,
    symbols: &Symbols,
    old: &dyn Fn(usize) -> Option<&'t Tensor>,
    word: u32,
) -> Option<Call> {
    let same = |ty: &TensorType| ty.sizes(symbols).ok() == ty.sizes(&call.symbols).ok();
    if !call.output_types.iter().all(same) {
        return None;
    }
    // Operators that work row by row do not see positions.
    if call.op.row_wise() && call.input_types.iter().all(same) {
        // Rows of the same inputs: it computes the same.
        return None;
    }
    let mut counted = Call { symbols: symbols.clone(), ..call.clone() };
    for (k, ty) in call.input_types.iter().enumerate() {
        let (shape, found) = (ty.sizes(symbols).ok()?, &call.inputs[k]);
        let len = tapml_graph::byte_len(ty.dtype, &shape)?;
        if len == found.bytes().len() {
            continue;
        }
        let mut bytes = found.bytes()[..len.min(found.bytes().len())].to_vec();
        let behind = old(k).map(|t| &t.bytes()[..]).unwrap_or_default();
        bytes.extend(behind.iter().take(len).skip(bytes.len()));
        let filled = (bytes.len()..len).map(|at| word.to_le_bytes()[at % 4]);
        bytes.extend(filled.collect::<Vec<u8>>());
        counted.inputs[k] = Tensor::new(ty.dtype, shape, Bytes::new(bytes)).ok()?;
    }
    counted.check().is_ok().then_some(counted)
}

/// The value with which, in the place of one of its inputs, the node gives what it left in the program; and whether no
/// other explains it as well.
///
/// # Errors
///
/// The experiment that tells, if it is not made yet.
pub(super) fn value(
    facts: Facts<'_>,
    node: NodeId,
    (call, observed): (&Call, &[Tensor]),
    Scene { values, before, .. }: &Scene,
    outcomes: &Outcomes,
) -> Reasoned<Option<(Substitute, bool)>> {
    if observed.iter().map(Tensor::len).sum::<usize>() < CLEAR_COUNT {
        return Ok(None);
    }
    let graph = facts.graph;
    let mut tries = Vec::new();
    for (k, &input) in graph.node(node).inputs.iter().enumerate() {
        // Weights are uploaded once, and no step writes them.
        if graph.value(input).origin == Origin::Weight {
            continue;
        }
        let found = &call.inputs[k];
        let mut add = |rank: u32, instead: Substitute, tensor: &Tensor| {
            // An equal tensor would explain nothing.
            if tensor.shape() == found.shape() && tensor.bytes()[..] != found.bytes()[..] {
                let mut call = call.clone();
                call.inputs[k] = tensor.clone();
                tries.push((rank, (instead, call)));
            }
        };
        if let Some(tensor) = values.fill.and_then(|fill| fill_with(found, fill)) {
            add(0, Substitute::Nothing(input), &tensor);
        }
        if let Some(old) = before.read.get(&input) {
            add(0, Substitute::Before(input), old);
        }
        for other in other_values(facts, node, k, values) {
            if other.tensor.dtype() == found.dtype() {
                add(other.rank, Substitute::Other { input, other: other.value }, other.tensor);
            }
        }
    }
    // The likeliest of all inputs come before the unlikely ones of the first.
    tries.sort_by_key(|(rank, _)| *rank);
    let tries = tries.into_iter().take(TRIED).map(|(_, tried)| tried).collect();
    let fits = fitting_calls((call, observed), tries, outcomes)?;
    let alike = |a: &Substitute, b: &Substitute| std::mem::discriminant(a) == std::mem::discriminant(b);
    // Any index that points nowhere gives the same.
    let index = |instead: &Substitute| match instead {
        Substitute::Nothing(input) => !graph.value(*input).ty.dtype.is_float(),
        _ => false,
    };
    let alone = fits.iter().all(|other| alike(other, &fits[0]) && !index(other));
    Ok(fits.into_iter().next().map(|first| (first, alone)))
}

/// A tensor like this one that holds nothing but a word.
/// Types narrower than a word take its first bytes.
fn fill_with(like: &Tensor, word: u32) -> Option<Tensor> {
    let words = like.bytes().len().div_ceil(4);
    let mut bytes = word.to_le_bytes().repeat(words);
    bytes.truncate(like.bytes().len());
    Tensor::new(like.dtype(), like.shape().to_vec(), Bytes::new(bytes)).ok()
}

/// A value of the step that a node may read in the place of an input.
struct OtherValue<'v> {
    /// The likeliest has the lowest.
    rank: u32,
    value: ValueId,
    tensor: &'v Tensor,
}

/// The values of the step that a node may read in the place of its input `k`, the likeliest first: what
/// other nodes of its operator find there, then what other nodes left; of these the nearest first.
fn other_values<'v>(
    facts: Facts<'_>,
    node: NodeId,
    k: usize,
    values: &'v TracedValues,
) -> Vec<OtherValue<'v>> {
    let graph = facts.graph;
    let (op, far) = (graph.node(node).op.name(), graph.nodes().len() as u32);
    let mut found = Vec::new();
    let all = values.nodes.iter().filter_map(|t| Some((graph.find_node(&t.node)?, t)));
    for (id, traced) in all.filter(|(id, _)| *id != node) {
        // The distance in the graph; outputs of other nodes rank behind all inputs.
        let rank = 1 + id.0.abs_diff(node.0);
        if graph.node(id).op.name() == op
            && let Some(tensor) = traced.inputs.get(k).and_then(Option::as_ref)
        {
            found.push(OtherValue { rank, value: graph.node(id).inputs[k], tensor });
        }
        for (&value, tensor) in graph.node(id).outputs.iter().zip(&traced.outputs) {
            found.push(OtherValue { rank: far + rank, value, tensor });
        }
    }
    found.sort_by_key(|other: &OtherValue<'_>| other.rank);
    let mut seen = HashSet::new();
    found.retain(|other| seen.insert(other.value));
    found
}

/// Which of these calls give what was observed, bit by bit; none if the call as it is gives it beside them, too.
fn fitting_calls<T>(
    (call, observed): (&Call, &[Tensor]),
    tries: Vec<(T, Call)>,
    outcomes: &Outcomes,
) -> Reasoned<Vec<T>> {
    if tries.is_empty() {
        return Ok(Vec::new());
    }
    let (guesses, calls): (Vec<T>, Vec<Call>) = tries.into_iter().unzip();
    let same = outcomes.matches(Guesses { calls, unchanged: call.clone(), outputs: observed.to_vec() })?;
    Ok(guesses.into_iter().zip(same).filter(|(_, same)| **same).map(|(guess, _)| guess).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(now: (u64, u64), before: (u64, u64)) -> Vec<(u64, u64)> {
        let all = stale(&Symbols::np(now.0, now.1), Some(&Symbols::np(before.0, before.1)));
        all.iter().map(|s| (s.get(Symbol::N).unwrap(), s.get(Symbol::P).unwrap())).collect()
    }

    #[test]
    fn sizes_that_a_block_may_hold_are_those_of_the_step_before_and_the_position_behind_it() {
        assert_eq!(pairs((7, 0), (1, 13)), [(1, 13), (7, 13), (1, 0), (7, 14)]);
        assert_eq!(pairs((1, 12), (12, 0)), [(12, 0), (1, 0), (12, 12)]);
        assert!(stale(&Symbols::np(3, 0), None).is_empty());
    }

    #[test]
    fn memory_that_nobody_wrote_has_the_size_of_what_belongs_there() {
        let like = Tensor::from_f32_as(tapml_graph::DType::F16, vec![3], vec![1.0, 2.0, 3.0]).unwrap();
        let filled = fill_with(&like, 0x4b3c_614e).unwrap();
        assert_eq!(filled.bytes()[..], [0x4e, 0x61, 0x3c, 0x4b, 0x4e, 0x61]);
    }
}
