//! Axes: along what a call can be made smaller. They are found by asking the operator's shape inference, so that no
//! operator has to be known here.
//!
//! A symbol is an axis: all sizes that name it shrink together. Otherwise an axis of length `L` is a least set of
//! constant sizes and integer attributes, all multiples of `L`, that inference accepts when `L − 1` takes the place of
//! `L` in each: `K` of a matrix product in both its inputs, `kv_heads` in the columns of queries, keys and values and in
//! two attributes. Which of a size's factors is the axis (heads, or the elements of a head) inference does not tell;
//! every order is offered. A wrong one mixes values, which harms nothing: what a smaller call should give is computed
//! anew from the values it has.

mod foreign;

use crate::specimen::Specimen;
use serde_json::Value as Json;
use tapml_graph::{Dim, Op, Result, Symbol, Symbols, TensorType};
use tapml_migrate::Oracles;

/// Most sizes and attributes that are multiples of one length; more would take too many questions.
/// Their subsets are asked for one by one: 2^13 at most.
const MOST_MEMBERS: usize = 13;
/// Most members of a set that shrinks together.
/// It bounds the number of questions.
const MOST_TOGETHER: u32 = 9;

/// Where an axis runs along one dimension of an input or output: over `outer · len · inner` positions from `start` on.
///
/// Position `start + (o * len + k) * inner + i` belongs to index `k`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AxisPlace {
    /// Which input or output.
    pub tensor: usize,
    /// Which of its dimensions.
    pub dim: usize,
    /// First position.
    pub start: usize,
    /// Repetitions of the axis.
    pub outer: usize,
    /// Neighbouring positions of each index.
    pub inner: usize,
}

impl AxisPlace {
    /// The index along the axis of this position; `None` if the axis does not run there.
    pub fn index(&self, len: usize, position: usize) -> Option<usize> {
        let at = position.checked_sub(self.start)?;
        (at < self.outer * len * self.inner).then(|| at / self.inner % len)
    }

    /// Where this position is when only `kept` remains; `None` if it is gone.
    pub fn moved_position(&self, len: usize, kept: &[usize], position: usize) -> Option<usize> {
        let Some(k) = self.index(len, position) else {
            let before = position >= self.start;
            let gone = self.outer * self.inner * (len - kept.len());
            return Some(if before { position - gone } else { position });
        };
        let at = position - self.start;
        let (outer, inner) = (at / (len * self.inner), at % self.inner);
        // `kept` rises, as all lists of indices here do.
        let rank = kept.binary_search(&k).ok()?;
        Some(self.start + (outer * kept.len() + rank) * self.inner + inner)
    }
}

/// An attribute that shrinks with an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Attribute {
    /// Its place in the JSON object of attributes (RFC 6901).
    pub pointer: String,
    /// For a list, how often the axis runs through it; `None` for a number.
    pub outer: Option<usize>,
}

impl Attribute {
    /// Keeps what belongs to the indices `kept` of `len`.
    pub fn keep(&self, attributes: &mut Json, len: usize, kept: &[usize]) {
        match (attributes.pointer_mut(&self.pointer), self.outer) {
            (Some(Json::Array(list)), Some(outer)) => {
                let inner = (list.len() / (outer * len)).max(1);
                let place = AxisPlace { tensor: 0, dim: 0, start: 0, outer, inner };
                let mut at = 0;
                list.retain(|_| {
                    at += 1;
                    place.index(len, at - 1).is_none_or(|k| kept.contains(&k))
                });
            }
            // A multiple of the length stays one.
            (Some(number), _) => {
                let value = number.as_u64().unwrap_or(0) / len as u64 * kept.len() as u64;
                *number = Json::from(value);
            }
            (None, _) => {}
        }
    }
}

/// Along what a call can be made smaller.
#[derive(Clone, Debug)]
pub struct Axis {
    /// The same for the same axis of a smaller call.
    pub name: String,
    /// Indices now.
    pub len: usize,
    /// Indices that must remain.
    pub least: usize,
    /// The symbol whose value it is.
    pub symbol: Option<Symbol>,
    /// Where it runs in the inputs.
    pub inputs: Vec<AxisPlace>,
    /// Where it runs in the outputs.
    pub outputs: Vec<AxisPlace>,
    /// Attributes that shrink with it.
    pub attributes: Vec<Attribute>,
    /// Elements of integer inputs that shrink with it, such as those of a shape: which input, which element.
    pub values: Vec<(usize, usize)>,
}

/// The least sets of at most so many members that are accepted: none holds another. Small ones are asked for first.
/// Subsets are bit masks, ordered by their number of members.
fn least_sets(
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

/// The axes of a call along which something can go. `oracles` tell of an operator of others what it takes.
///
/// Symbols come first, then constant axes, longest first.
///
/// # Errors
///
/// A size that cannot be evaluated.
pub fn axes(specimen: &Specimen, oracles: &Oracles) -> Result<Vec<Axis>> {
    let call = &specimen.call;
    if let Some(body) = specimen.body() {
        return Ok(foreign::axes(specimen, &body, oracles));
    }
    let mut found: Vec<Axis> = call
        .symbols
        .iter()
        .map(|(symbol, value)| of_symbol(specimen, symbol, value as usize))
        .collect::<Result<_>>()?;
    found.retain(|a| a.len > a.least && !(a.inputs.is_empty() && a.outputs.is_empty()));
    found.extend(ConstantSearch::from_specimen(specimen).axes());
    Ok(found)
}

/// The axis of a symbol. At least one row must remain; cached positions may all go.
fn of_symbol(specimen: &Specimen, symbol: Symbol, len: usize) -> Result<Axis> {
    let call = &specimen.call;
    let places = |types: &[TensorType]| -> Result<Vec<AxisPlace>> {
        let mut places = Vec::new();
        for (tensor, ty) in types.iter().enumerate() {
            for (dim, size) in ty.shape.iter().enumerate().filter(|(_, d)| d.symbols().any(|s| s == symbol)) {
                let (start, inner) = segment(size, symbol, &call.symbols)?;
                places.push(AxisPlace { tensor, dim, start, outer: 1, inner });
            }
        }
        Ok(places)
    };
    Ok(Axis {
        name: symbol.to_string(),
        len,
        least: usize::from(symbol != Symbol::P),
        symbol: Some(symbol),
        inputs: places(&call.input_types)?,
        outputs: places(&call.output_types)?,
        attributes: Vec::new(),
        values: Vec::new(),
    })
}

/// Where a symbol's part of a size begins, and its factor. What was cached comes before what is new.
fn segment(size: &Dim, symbol: Symbol, symbols: &Symbols) -> Result<(usize, usize)> {
    // Cached positions first, new rows last, as states are laid out.
    let order = |s: Symbol| (s == Symbol::N, s != Symbol::P, s);
    let at = |s: Symbol, more: u64| {
        let value = symbols.get(s).unwrap_or(0);
        size.eval(&symbols.clone().with_symbol(s, value + more))
    };
    let factor = |s: Symbol| Ok::<_, tapml_graph::Error>(at(s, 1)? - at(s, 0)?);
    let mut start = 0;
    for s in size.symbols().filter(|&s| order(s) < order(symbol)) {
        start += factor(s)? * symbols.get(s).unwrap_or(0);
    }
    Ok((start as usize, factor(symbol)? as usize))
}

/// A constant size or an attribute that could be a part of an axis.
///
/// It belongs to an axis of length `L` if its value is a multiple of `L`.
#[derive(Clone, Debug)]
struct Member {
    /// Where it stands.
    what: AxisRole,
    /// The size, the number, or the length of the list.
    value: usize,
}

/// What shrinks: a size of an input, an attribute by its JSON pointer, the length of a list, or an element of an input.
#[derive(Clone, Debug)]
enum AxisRole {
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
struct ConstantSearch<'a> {
    /// The call whose axes are sought.
    specimen: &'a Specimen,
    /// Attributes of its operator, or of all operators of others in it.
    attributes: Json,
    /// Everything above 1 that may shrink.
    members: Vec<Member>,
}

impl<'a> ConstantSearch<'a> {
    /// The members of a call of TapML's own operators.
    fn from_specimen(specimen: &'a Specimen) -> ConstantSearch<'a> {
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
    fn axes(&self) -> Vec<Axis> {
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
    fn shrinks(&self, set: &[usize], outputs: &[TensorType]) -> bool {
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
    fn axis(&self, len: usize, set: &[usize], outer: usize, innermost: bool, outputs: &[TensorType]) -> Axis {
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

#[cfg(test)]
mod tests;
