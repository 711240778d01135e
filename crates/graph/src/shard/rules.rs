//! What each operator needs of its inputs to give a part of its columns, and the operator that gives this part.

use super::columns::ColumnSet;
use crate::error::{Error, Result};
use crate::graph::{Graph, Node, TensorType};
use crate::op::{Attention, Broadcast, Columns, Concat, Op, PagedAttention};

/// What the ranks need of an input.
#[derive(Clone, Debug)]
pub enum PartNeed {
    /// Each all of it.
    Whole,
    /// Each some of its columns.
    Columns(Vec<ColumnSet>),
    /// Each a slice of a weight: its rows, or its only size.
    Rows(Vec<ColumnSet>),
    /// Likewise its columns.
    WeightColumns(Vec<ColumnSet>),
}

/// What a node needs of each input so that each rank can compute the columns `parts` of its only output.
///
/// # Errors
/// If the columns depend on others, or are no whole heads or blocks.
pub fn needs(graph: &Graph, node: &Node, parts: &[ColumnSet]) -> Result<Vec<PartNeed>> {
    let types = graph.input_types(node);
    let own = || PartNeed::Columns(parts.to_vec());
    Ok(match &node.op {
        op if is_elementwise(op) => vec![own()],
        Op::Add(_) | Op::Mul(_) => match Broadcast::from_types(&types[0], &types[1])? {
            Broadcast::Whole => vec![own(), own()],
            Broadcast::Row => vec![own(), PartNeed::Rows(parts.to_vec())],
            Broadcast::Column => vec![own(), PartNeed::Whole],
        },
        Op::Rope(op) => {
            unit_sets(parts, "heads", |part| part.units(op.head_dim.into()))?;
            vec![own(), PartNeed::Whole]
        }
        Op::RmsNorm(crate::op::RmsNorm { group: Some(group), .. })
        | Op::LayerNorm(crate::op::LayerNorm { group: Some(group), .. }) => {
            norm_needs(parts, u64::from(*group), &types)?
        }
        Op::Columns(op) => {
            vec![PartNeed::Columns(parts.iter().map(|part| columns_taken(op, part)).collect())]
        }
        Op::Concat(op) => concat_needs(op, parts, &types)?,
        Op::Append(_) => vec![own(), own()],
        Op::PagedAppend(_) => vec![own(), own(), PartNeed::Whole],
        Op::Attention(op) => attention_needs(op, parts, 0)?,
        Op::PagedAttention(op) => attention_needs(&op.attention, parts, PagedAttention::SINKS - 3)?,
        Op::Linear(_) | Op::GatedLinear(_) => {
            let weights = types[1..].iter().map(|_| PartNeed::Rows(parts.to_vec()));
            std::iter::once(PartNeed::Whole).chain(weights).collect()
        }
        Op::ExpertLinear(_) => expert_needs(parts, (&types[0], &types[1]), &types[2], 1)?,
        Op::ExpertGatedLinear(_) => expert_needs(parts, (&types[0], &types[1]), &types[3], 2)?,
        op => {
            return Err(Error::unsupported(format!("no rule says what a part of `{}` needs", op.name())));
        }
    })
}

/// The operator by which a rank computes the columns `part` of a node's only output, if it has the columns `first` of the
/// first input.
///
/// # Errors
/// If the columns of a rank lie in no pattern that the operator has.
pub fn part_of_op(graph: &Graph, node: &Node, part: &ColumnSet, first: &ColumnSet) -> Result<Op> {
    Ok(match &node.op {
        Op::Attention(op) => part_of_attention(op, part)?.into(),
        Op::PagedAttention(op) => {
            PagedAttention { attention: part_of_attention(&op.attention, part)?, page: op.page }.into()
        }
        Op::Columns(op) => part_of_columns(op, part, first)?.into(),
        Op::Concat(op) => {
            let types = graph.input_types(node);
            let [a, b] = op.parts(&types[0], &types[1])?;
            Concat { groups: to_u32(part.count() / (a + b).max(1))?, shared: op.shared }.into()
        }
        op => op.clone(),
    })
}

/// Whether an operator computes each element from the same element of its only input.
pub fn is_elementwise(op: &Op) -> bool {
    matches!(
        op,
        Op::Silu(_)
            | Op::Gelu(_)
            | Op::Relu(_)
            | Op::ReluSquared(_)
            | Op::Sigmoid(_)
            | Op::Tanh(_)
            | Op::Softplus(_)
            | Op::Scale(_)
            | Op::Softcap(_)
            | Op::Clamp(_)
    )
}

/// The set that `make` gives for each rank.
///
/// # Errors
/// If there is none for some rank: its columns are no whole `units`.
fn unit_sets(
    parts: &[ColumnSet],
    units: &str,
    make: impl Fn(&ColumnSet) -> Option<ColumnSet>,
) -> Result<Vec<ColumnSet>> {
    let sets = parts.iter().map(|part| make(part).ok_or(part));
    sets.collect::<std::result::Result<_, _>>().map_err(|part| {
        let ranges: Vec<String> =
            part.ranges().iter().map(|r| format!("{} to {}", r.start, r.end - 1)).collect();
        Error::unsupported(format!(
            "a rank would have columns {}, which are no whole {units}",
            ranges.join(" and ")
        ))
    })
}

fn to_u32(count: u64) -> Result<u32> {
    u32::try_from(count).map_err(|_| Error::invalid(format!("{count} is beyond 32 bits")))
}

/// The constant columns of a matrix.
fn constant_width(ty: &TensorType) -> Result<u64> {
    let width = ty.shape.last().and_then(|size| size.as_const());
    width.ok_or_else(|| Error::unsupported(format!("the columns of {ty} are no constant number")))
}

/// Of a norm of groups: its weight serves all groups, or has a part for each.
fn norm_needs(parts: &[ColumnSet], group: u64, types: &[TensorType]) -> Result<Vec<PartNeed>> {
    let groups = unit_sets(parts, "groups", |part| part.units(group))?;
    let weight = |ty: &TensorType| match ty.shape.as_slice() {
        [len] if len.as_const() == Some(group) => PartNeed::Whole,
        [_] => PartNeed::Rows(parts.to_vec()),
        _ => PartNeed::Rows(groups.clone()),
    };
    let x = PartNeed::Columns(parts.to_vec());
    Ok(std::iter::once(x).chain(types[1..].iter().map(weight)).collect())
}

/// The column that becomes this one.
fn column_taken(op: &Columns, column: u64) -> u64 {
    let count = u64::from(op.count);
    column / count * u64::from(op.group) + u64::from(op.first) + column % count
}

/// The columns that become these ones.
fn columns_taken(op: &Columns, part: &ColumnSet) -> ColumnSet {
    ColumnSet::from_ranges(part.columns().map(|column| column_taken(op, column)).map(|at| at..at + 1))
}

/// The `columns` that takes the columns `part` of the whole result out of what a rank has of the input, `from`.
fn part_of_columns(op: &Columns, part: &ColumnSet, from: &ColumnSet) -> Result<Columns> {
    let places: Option<Vec<u64>> =
        part.columns().map(|column| from.place(column_taken(op, column))).collect();
    let places = places.ok_or_else(|| Error::bug("a rank lacks columns that it takes"))?;
    let pairs = places.iter().zip(places.iter().skip(1));
    let run = pairs.take_while(|(a, b)| **b == **a + 1).count() as u64 + 1;
    let first = places.first().copied().unwrap_or(0);
    // Runs repeat at one distance, or there is one.
    let group = places.get(run as usize).map_or(from.count(), |&next| next.saturating_sub(first));
    let expected = (0..part.count()).map(|at| at / run * group + first + at % run);
    if group == 0 || !expected.eq(places.iter().copied()) || from.count() != part.count() / run * group {
        return Err(Error::unsupported("the columns that a rank takes lie at unequal distances"));
    }
    // The first run may lie anywhere within its group, but within it.
    if first + run > group {
        return Err(Error::unsupported("the columns that a rank takes lie across groups"));
    }
    Ok(Columns { group: to_u32(group)?, first: to_u32(first)?, count: to_u32(run)? })
}

/// Groups of `concat` are taken whole; what all groups share is there for each rank.
fn concat_needs(op: &Concat, parts: &[ColumnSet], types: &[TensorType]) -> Result<Vec<PartNeed>> {
    let [a, b] = op.parts(&types[0], &types[1])?;
    let groups = unit_sets(parts, "groups", |part| part.units(a + b))?;
    let of = |size: u64| PartNeed::Columns(groups.iter().map(|part| part.columns_of_units(size)).collect());
    Ok(vec![of(a), if op.shared { PartNeed::Whole } else { of(b) }])
}

/// Whole heads of queries need the heads of keys and values that they read. `between` inputs stand before the sinks.
fn attention_needs(op: &Attention, parts: &[ColumnSet], between: usize) -> Result<Vec<PartNeed>> {
    let heads = unit_sets(parts, "heads", |part| part.units(op.value_size().into()))?;
    let keys = heads.iter().map(|heads| key_heads(op, heads)).collect::<Result<Vec<_>>>()?;
    let of = |heads: &[ColumnSet], size: u32| {
        PartNeed::Columns(heads.iter().map(|heads| heads.columns_of_units(size.into())).collect())
    };
    let mut needs = vec![of(&heads, op.head_dim), of(&keys, op.head_dim), of(&keys, op.value_size())];
    needs.extend((0..between).map(|_| PartNeed::Whole));
    needs.push(PartNeed::Rows(heads));
    Ok(needs)
}

/// The heads of keys and values that these heads of queries read.
///
/// # Errors
/// If some are read by more of these heads than others: there is no such attention.
fn key_heads(op: &Attention, heads: &ColumnSet) -> Result<ColumnSet> {
    let group = u64::from(op.heads / op.kv_heads);
    let keys = ColumnSet::from_ranges(heads.columns().map(|head| head / group..head / group + 1));
    let own = heads.count() / keys.count().max(1);
    let even = |(at, head): (u64, u64)| own > 0 && keys.place(head / group) == Some(at / own);
    if (0..).zip(heads.columns()).all(even) {
        return Ok(keys);
    }
    Err(Error::unsupported(format!(
        "{} heads of queries on {} heads of keys and values: a rank with {} of the former would read {} of the latter \
         unevenly",
        op.heads,
        op.kv_heads,
        heads.count(),
        keys.count()
    )))
}

/// Attention over the heads of one rank.
fn part_of_attention(op: &Attention, part: &ColumnSet) -> Result<Attention> {
    let heads = part.units(op.value_size().into()).ok_or_else(|| Error::bug("a rank has no whole heads"))?;
    let keys = key_heads(op, &heads)?;
    let slope =
        |slopes: &Vec<f32>| heads.columns().filter_map(|head| slopes.get(head as usize).copied()).collect();
    Ok(Attention {
        heads: to_u32(heads.count())?,
        kv_heads: to_u32(keys.count())?,
        alibi: op.alibi.as_ref().map(slope),
        ..op.clone()
    })
}

/// Columns of the results of experts: the same ones of every expert that a row has, hence rows of all their matrices.
fn expert_needs(
    parts: &[ColumnSet],
    (x, weight): (&TensorType, &TensorType),
    experts: &TensorType,
    weights: usize,
) -> Result<Vec<PartNeed>> {
    let outputs = weight.shape.get(1).and_then(|size| size.as_const()).unwrap_or(0);
    let slots = constant_width(experts)?;
    if Some(constant_width(x)?) != weight.shape.last().and_then(|size| size.as_const()) {
        return Err(Error::unsupported("each expert has an input of its own"));
    }
    let rows = unit_sets(parts, "columns of all experts of a row", |part| part.block(outputs, slots))?;
    let mut needs = vec![PartNeed::Whole];
    needs.extend((0..weights).map(|_| PartNeed::Rows(rows.clone())));
    needs.push(PartNeed::Whole);
    // A bias has a row for each expert.
    if weights == 1 {
        needs.push(PartNeed::WeightColumns(rows));
    }
    Ok(needs)
}
