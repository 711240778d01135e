//! Axes of constant length: least sets of sizes and attributes that inference accepts when they shrink together.

use crate::axis::{Attribute, Axis, AxisPlace};
use crate::specimen::Specimen;
use serde_json::Value as Json;
use tapml_graph::{Dim, Op, TensorType};

/// Most sizes and attributes that are multiples of one length; more would take too many questions.
/// Their subsets are asked for one by one: 2^13 at most.
const MOST_MEMBERS: usize = 13;
/// Most members of a set that shrinks together.
/// It bounds the number of questions.
const MOST_TOGETHER: u32 = 9;

/// The least sets of at most so many members that are accepted: none holds another. Small ones are asked for first.
/// Subsets are bit masks, ordered by their number of members.
pub(super) fn least_sets(
    members: &[usize],
    together: u32,
    mut accepts: impl FnMut(&[usize]) -> bool,
) -> Vec<Vec<usize>> {
    let mut masks: Vec<u32> = (1..1u32 << members.len()).collect();
    masks.retain(|mask| mask.count_ones() <= together);
    // By the number of members, so that a set is asked for after all sets that it holds.
    masks.sort_unstable_by_key(|mask| mask.count_ones());
    let (mut accepted, mut sets): (Vec<u32>, _) = (Vec::new(), Vec::new());
    for mask in masks {
        // It holds a smaller set that is accepted, so it would be two axes at once.
        if accepted.iter().any(|a| a & mask == *a) {
            continue;
        }
        let set: Vec<usize> = (0..members.len()).filter(|i| mask >> i & 1 == 1).map(|i| members[i]).collect();
        if accepts(&set) {
            accepted.push(mask);
            sets.push(set);
        }
    }
    sets
}

/// A constant size or an attribute that could be a part of an axis.
///
/// It belongs to an axis of length `L` if its value is a multiple of `L`.
#[derive(Clone, Debug)]
pub(super) struct Member {
    /// Where it stands.
    pub(super) what: AxisRole,
    /// The size, the number, or the length of the list.
    pub(super) value: usize,
}

/// What shrinks: a size of an input, an attribute by its JSON pointer, the length of a list, or an element of an input.
#[derive(Clone, Debug)]
pub(super) enum AxisRole {
    Size { tensor: usize, dim: usize },
    Number(String),
    List(String),
    Value { tensor: usize, at: usize },
}

impl Member {
    /// It does not change when the call gets smaller, so that an axis can be found again.
    fn name(&self) -> String {
        match &self.what {
            AxisRole::Size { tensor, dim } => format!("input {tensor} size {dim}"),
            AxisRole::Number(pointer) | AxisRole::List(pointer) => pointer[1..].replace('/', "."),
            AxisRole::Value { tensor, at } => format!("input {tensor} value {at}"),
        }
    }
}

/// The search for axes of constant length.
pub(super) struct ConstantSearch<'a> {
    /// The call whose axes are sought.
    pub(super) specimen: &'a Specimen,
    /// Attributes of its operator, or of all operators of others in it.
    pub(super) attributes: Json,
    /// Everything above 1 that may shrink.
    pub(super) members: Vec<Member>,
}

impl<'a> ConstantSearch<'a> {
    /// The members of a call of TapML's own operators.
    pub(super) fn from_specimen(specimen: &'a Specimen) -> ConstantSearch<'a> {
        let call = &specimen.call;
        let mut members = Vec::new();
        for (tensor, ty) in call.input_types.iter().enumerate() {
            for (dim, size) in ty.shape.iter().enumerate() {
                if let Some(value) = size.as_const() {
                    members.push(Member { what: AxisRole::Size { tensor, dim }, value: value as usize });
                }
            }
        }
        let attributes = call.op.attributes();
        // Numbers that JSON cannot hold would be lost on the way.
        if Op::parse(call.op.name(), attributes.clone()).is_ok_and(|op| op == call.op) {
            leaves(&attributes, "", &mut members);
        }
        // A size of 1 cannot shrink.
        members.retain(|m| m.value > 1);
        ConstantSearch { specimen, attributes, members }
    }

    /// Longer axes first, because they make a call smaller in larger steps.
    pub(super) fn axes(&self) -> Vec<Axis> {
        let mut found: Vec<(usize, Vec<usize>)> = Vec::new();
        let mut axes = Vec::new();
        for len in self.lengths() {
            for set in self.sets(len) {
                // A longer axis of the same members does all that this one could.
                // `longer` is a multiple: lengths come in falling order.
                if found.iter().any(|(longer, members)| longer.is_multiple_of(len) && *members == set) {
                    continue;
                }
                axes.extend(self.variants(len, &set));
                found.push((len, set));
            }
        }
        axes
    }

    /// Lengths that an axis could have, longest first: sizes, attributes, quotients of two, halves, and groups of packed rows.
    fn lengths(&self) -> Vec<usize> {
        let values: Vec<usize> = self.members.iter().map(|m| m.value).collect();
        let mut lengths = values.clone();
        for &a in &values {
            let divisors = values.iter().copied().chain([2]);
            lengths.extend(divisors.filter(|&b| a.is_multiple_of(b)).map(|b| a / b));
        }
        // Of a packed row whole groups go.
        lengths.extend(self.specimen.call.input_types.iter().filter_map(|ty| {
            let group = ty.dtype.packing()?.group as usize;
            Some(ty.shape.last()?.as_const()? as usize / group)
        }));
        lengths.retain(|&l| l > 1);
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        lengths.dedup();
        lengths
    }

    /// The least sets of members that may shrink together, and then shrink an input or an output.
    fn sets(&self, len: usize) -> Vec<Vec<usize>> {
        let members: Vec<usize> =
            (0..self.members.len()).filter(|&m| self.members[m].value.is_multiple_of(len)).collect();
        // Such a length is common to nearly everything; longer ones have been tried.
        if members.len() > MOST_MEMBERS {
            return Vec::new();
        }
        least_sets(&members, MOST_TOGETHER, |set| {
            self.outputs(len, set).is_some_and(|outputs| self.shrinks(set, &outputs))
        })
    }

    /// Whether an input or an output shrinks with these members, if these are the outputs then.
    pub(super) fn shrinks(&self, set: &[usize], outputs: &[TensorType]) -> bool {
        let sized = set.iter().any(|&m| matches!(self.members[m].what, AxisRole::Size { .. }));
        sized || outputs != &self.specimen.call.output_types[..]
    }

    /// Types of the outputs if these members shrink by one index; `None` if the operator refuses.
    fn outputs(&self, len: usize, set: &[usize]) -> Option<Vec<TensorType>> {
        let call = &self.specimen.call;
        let mut types = call.input_types.clone();
        let mut attributes = None;
        let kept: Vec<usize> = (0..len - 1).collect();
        for member in set.iter().map(|&m| &self.members[m]) {
            match &member.what {
                AxisRole::Size { tensor, dim } => {
                    types[*tensor].shape[*dim] = Dim::from(member.value / len * (len - 1));
                }
                AxisRole::Number(pointer) | AxisRole::List(pointer) => {
                    let attributes = attributes.get_or_insert_with(|| self.attributes.clone());
                    let outer = matches!(member.what, AxisRole::List(_)).then_some(1);
                    Attribute { pointer: pointer.clone(), outer }.keep(attributes, len, &kept);
                }
                // Elements of inputs are asked for by evaluation only: see `foreign`.
                AxisRole::Value { .. } => return None,
            }
        }
        match attributes {
            Some(attributes) => Op::parse(call.op.name(), attributes).ok()?.infer(&types).ok(),
            None => call.op.infer(&types).ok(),
        }
    }

    /// The axis of these members with every order of the factors of sizes that makes a difference.
    fn variants(&self, len: usize, set: &[usize]) -> Vec<Axis> {
        let Some(outputs) = self.outputs(len, set) else { return Vec::new() };
        let largest = set.iter().map(|&m| self.members[m].value / len).max().unwrap_or(1);
        let numbers = self.members.iter().filter(|m| matches!(m.what, AxisRole::Number(_))).map(|m| m.value);
        let mut outers = vec![1, largest];
        outers.extend(numbers.filter(|a| *a < largest && largest.is_multiple_of(*a)));
        // Orders are tried as they stand: axis outermost, innermost, then after each attribute's number.
        let mut unique = Vec::new();
        outers.into_iter().for_each(|o| {
            if !unique.contains(&o) {
                unique.push(o)
            }
        });
        let axes = unique.into_iter().map(|outer| self.axis(len, set, outer, outer == largest, &outputs));
        axes.filter(|axis| axis.inputs.iter().all(|place| self.keeps_groups(place))).collect()
    }

    /// Whether each index has whole groups, if the axis runs along the rows of a packed weight.
    fn keeps_groups(&self, place: &AxisPlace) -> bool {
        let ty = &self.specimen.call.input_types[place.tensor];
        let along = place.dim + 1 == ty.shape.len();
        ty.dtype.packing().is_none_or(|packing| !along || place.inner.is_multiple_of(packing.group as usize))
    }

    /// The axis with one order of factors: after `outer` repetitions, or innermost.
    pub(super) fn axis(
        &self,
        len: usize,
        set: &[usize],
        outer: usize,
        innermost: bool,
        outputs: &[TensorType],
    ) -> Axis {
        let call = &self.specimen.call;
        let place = |tensor, dim, size: usize| {
            let rest = size / len;
            let outer = if innermost {
                rest
            } else if rest.is_multiple_of(outer) {
                outer
            } else {
                1
            };
            AxisPlace { tensor, dim, start: 0, outer, inner: rest / outer }
        };
        let (mut inputs, mut attributes, mut names) = (Vec::new(), Vec::new(), Vec::new());
        let mut values = Vec::new();
        for member in set.iter().map(|&m| &self.members[m]) {
            names.push(member.name());
            match &member.what {
                AxisRole::Size { tensor, dim } => inputs.push(place(*tensor, *dim, member.value)),
                AxisRole::Number(pointer) => {
                    attributes.push(Attribute { pointer: pointer.clone(), outer: None });
                }
                AxisRole::List(pointer) => {
                    let outer = place(0, 0, member.value).outer;
                    attributes.push(Attribute { pointer: pointer.clone(), outer: Some(outer) });
                }
                AxisRole::Value { tensor, at } => values.push((*tensor, *at)),
            }
        }
        // Sizes of outputs that change when the axis shrinks by one.
        let mut of_outputs = Vec::new();
        for (tensor, (before, after)) in call.output_types.iter().zip(outputs).enumerate() {
            for (dim, (before, after)) in before.shape.iter().zip(&after.shape).enumerate() {
                if let (Some(before), Some(after)) = (before.as_const(), after.as_const())
                    && before != after
                    && (before as usize).is_multiple_of(len)
                {
                    of_outputs.push(place(tensor, dim, before as usize));
                }
            }
        }
        let order = if innermost && outer > 1 { "innermost".into() } else { format!("after {outer}") };
        // The order is part of the name, so that axes of the same members differ.
        let name = if outer == 1 { names.join(", ") } else { format!("{} ({order})", names.join(", ")) };
        Axis { name, len, least: 1, symbol: None, inputs, outputs: of_outputs, attributes, values }
    }
}

/// Integers above 0 and lists of numbers among the attributes.
fn leaves(value: &Json, pointer: &str, members: &mut Vec<Member>) {
    match value {
        Json::Object(map) => {
            map.iter().for_each(|(key, value)| leaves(value, &format!("{pointer}/{key}"), members));
        }
        // A list has one element per index, or a whole number of them.
        Json::Array(list) if list.iter().all(Json::is_number) => {
            members.push(Member { what: AxisRole::List(pointer.into()), value: list.len() });
        }
        Json::Number(number) => {
            if let Some(value) = number.as_u64() {
                members.push(Member { what: AxisRole::Number(pointer.into()), value: value as usize });
            }
        }
        _ => {}
    }
}
