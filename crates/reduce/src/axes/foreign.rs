//! Axes of operators of others. They have no inference: an axis is what their evaluation accepts, on the call's own inputs.
//! Beside sizes and attributes, elements of small integer inputs may shrink with it, such as those of a shape.

use super::constant::{AxisRole, ConstantSearch, Member, least_sets};
use crate::axis::Axis;
use crate::body::ForeignBody;
use crate::specimen::Specimen;
use serde_json::Value as Json;
use tapml_graph::{DType, TensorType};
use tapml_migrate::Oracles;

/// Most elements of an integer input whose values may be sizes.
/// Longer inputs hold data or indices.
const MOST_VALUES: usize = 16;
/// Most members of a set that shrinks together: a convolution in groups has four.
/// Each set that is asked for is an evaluation.
const MOST_TOGETHER: u32 = 5;
/// Most members that are multiples of one length.
/// Their subsets are asked for one by one.
const MOST_MEMBERS: usize = 10;

/// The axes of a call along which something can go.
pub fn axes(specimen: &Specimen, body: &ForeignBody, oracles: &Oracles) -> Vec<Axis> {
    let found = ConstantSearch { specimen, attributes: body.attributes(), members: members(specimen, body) };
    let mut sets: Vec<(usize, Vec<usize>)> = Vec::new();
    let mut axes = Vec::new();
    for len in lengths(&found.members) {
        let members: Vec<usize> =
            (0..found.members.len()).filter(|&m| found.members[m].value.is_multiple_of(len)).collect();
        if members.len() > MOST_MEMBERS {
            continue;
        }
        let mut fresh: Vec<(Vec<usize>, Vec<TensorType>)> = Vec::new();
        least_sets(&members, MOST_TOGETHER, |set| {
            // A longer axis of the same members does all that this one could, and asking costs an evaluation.
            // It counts as accepted, so that no larger set is asked for.
            if sets.iter().any(|(longer, known)| longer.is_multiple_of(len) && known == set) {
                return true;
            }
            let outputs = outputs(&found, len, set, oracles).filter(|outputs| found.shrinks(set, outputs));
            fresh.extend(outputs.iter().map(|outputs| (set.to_vec(), outputs.clone())));
            outputs.is_some()
        });
        for (set, outputs) in fresh {
            axes.extend(variants(&found, len, &set, &outputs));
            sets.push((len, set));
        }
    }
    axes
}

/// Sizes of inputs, elements of short integer inputs, and integers among the attributes, each above 1.
fn members(specimen: &Specimen, body: &ForeignBody) -> Vec<Member> {
    let call = &specimen.call;
    let mut members = Vec::new();
    for (tensor, given) in call.inputs.iter().enumerate() {
        let size = |(dim, &value)| Member { what: AxisRole::Size { tensor, dim }, value };
        members.extend(given.shape().iter().enumerate().map(size));
        if !matches!(given.dtype(), DType::I64 | DType::I32) || given.len() > MOST_VALUES {
            continue;
        }
        let values = given.to_i64().unwrap_or_default().into_iter().enumerate();
        let value = |(at, value)| {
            Some(Member { what: AxisRole::Value { tensor, at }, value: usize::try_from(value).ok()? })
        };
        members.extend(values.filter_map(value));
    }
    let integers = |pointer: String, value: &Json| {
        let value = usize::try_from(value.as_u64()?).ok()?;
        Some(Member { what: AxisRole::Number(pointer), value })
    };
    for (at, part) in body.parts.iter().enumerate() {
        let of_part = body.pointer(at);
        for (name, value) in part.op.attributes() {
            members.extend(integers(format!("{of_part}/{name}"), value));
            let list = value.as_array().map(Vec::as_slice).unwrap_or_default().iter().enumerate();
            members.extend(list.filter_map(|(at, value)| integers(format!("{of_part}/{name}/{at}"), value)));
        }
    }
    members.retain(|m| m.value > 1);
    members
}

/// Lengths that an axis could have, longest first: sizes, and what is left of them for each of an attribute.
fn lengths(members: &[Member]) -> Vec<usize> {
    let sizes = || members.iter().filter(|m| matches!(m.what, AxisRole::Size { .. })).map(|m| m.value);
    let numbers = members.iter().filter(|m| matches!(m.what, AxisRole::Number(_))).map(|m| m.value);
    let mut lengths: Vec<usize> = sizes().collect();
    for number in numbers {
        lengths.push(number);
        lengths.extend(sizes().filter(|size| size.is_multiple_of(number)).map(|size| size / number));
    }
    lengths.retain(|&len| len > 1);
    lengths.sort_unstable_by(|a, b| b.cmp(a));
    lengths.dedup();
    lengths
}

/// Types of the outputs if these members shrink together; `None` if the operator refuses. It is asked with two indices, which
/// costs little, and, as a window may be longer than that, with all but one.
fn outputs(
    found: &ConstantSearch<'_>,
    len: usize,
    set: &[usize],
    oracles: &Oracles,
) -> Option<Vec<TensorType>> {
    let axis = found.axis(len, set, 1, false, &[]);
    // A set is accepted if either count is.
    let mut counts = vec![if len > 2 { 2 } else { 1 }, len - 1];
    counts.dedup();
    let cut = |count: usize| {
        let kept: Vec<usize> = (0..count).collect();
        Some(found.specimen.cut(&axis, &kept, oracles).ok()?.call.output_types)
    };
    counts.into_iter().find_map(cut)
}

/// The axis of these members with the orders of the factors of sizes that make a difference.
fn variants(found: &ConstantSearch<'_>, len: usize, set: &[usize], outputs: &[TensorType]) -> Vec<Axis> {
    let largest = set.iter().map(|&m| found.members[m].value / len).max().unwrap_or(1);
    let mut outers = vec![1, largest];
    outers.dedup();
    outers.into_iter().map(|outer| found.axis(len, set, outer, outer == largest, outputs)).collect()
}
