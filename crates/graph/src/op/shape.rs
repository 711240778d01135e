//! Checks that shape inference of many operators shares.

use super::MAX_RANKS;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::TensorType;

/// Fails unless the count of inputs is one of `counts`.
pub fn expect_inputs(inputs: &[TensorType], counts: &[usize]) -> Result<()> {
    if counts.contains(&inputs.len()) {
        return Ok(());
    }
    // Operators with optional inputs take several counts.
    let counts: Vec<String> = counts.iter().map(usize::to_string).collect();
    Err(Error::invalid(format!("expected {} inputs, found {}", counts.join(" or "), inputs.len())))
}

/// Fails unless a sharded graph can have so many ranks.
pub fn expect_ranks(ranks: u32) -> Result<()> {
    if (2..=MAX_RANKS).contains(&ranks) {
        return Ok(());
    }
    Err(Error::invalid(format!("`ranks` must be 2 to {MAX_RANKS}, found {ranks}")))
}

/// Fails unless the inputs are those of an operator at which ranks meet in the graph of one rank: a matrix, and the memory of
/// each rank, in words.
pub fn expect_meeting(inputs: &[TensorType], ranks: u32, rank: u32) -> Result<()> {
    if rank >= ranks {
        return Err(Error::invalid(format!("expected a rank below {ranks}, found {rank}")));
    }
    expect_inputs(inputs, &[ranks as usize + 1])?;
    matrix("x", &inputs[0])?;
    for (other, memory) in inputs[1..].iter().enumerate() {
        expect_same("the memory of rank 0", &inputs[1], &format!("that of rank {other}"), memory)?;
        if memory.dtype != DType::U32 || memory.shape.len() != 1 {
            return Err(Error::invalid(format!("the memory of rank {other} must be words, found {memory}")));
        }
    }
    Ok(())
}

/// The two sizes of a matrix of floats.
pub fn matrix<'a>(name: &str, ty: &'a TensorType) -> Result<(&'a Dim, &'a Dim)> {
    match ty.shape.as_slice() {
        [rows, columns] if ty.dtype.is_float() => Ok((rows, columns)),
        _ => Err(Error::invalid(format!("`{name}` must be a float matrix, found {ty}"))),
    }
}

/// Fails unless `found` equals `expected`.
pub fn expect_dim(what: &str, found: &Dim, expected: &Dim) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(Error::invalid(format!("{what} must be {expected}, found {found}")))
}

/// Fails unless the type is a float vector of this length.
pub fn expect_vector(name: &str, ty: &TensorType, len: &Dim) -> Result<()> {
    match ty.shape.as_slice() {
        [found] if ty.dtype.is_float() => expect_dim(&format!("the length of `{name}`"), found, len),
        _ => Err(Error::invalid(format!("`{name}` must be a float vector of {len}, found {ty}"))),
    }
}

/// Fails unless both types are equal.
pub fn expect_same(a: &str, left: &TensorType, b: &str, right: &TensorType) -> Result<()> {
    if left == right {
        return Ok(());
    }
    Err(Error::invalid(format!("`{a}` and `{b}` must have one type, found {left} and {right}")))
}

/// Fails unless `group`, the columns that a norm treats together, divides `columns`.
pub fn expect_group(group: Option<u32>, columns: &Dim) -> Result<()> {
    let divides =
        |group: u32| group > 0 && columns.as_const().is_some_and(|c| c.is_multiple_of(u64::from(group)));
    match group {
        Some(group) if !divides(group) => {
            Err(Error::invalid(format!("`group` {group} must be above 0 and divide the columns, {columns}")))
        }
        _ => Ok(()),
    }
}

/// Fails unless the type fits as weight or bias of a norm of rows of `columns`: a vector of them; or if runs of `group`
/// columns are normalised each on its own, also `[group]` for all runs or `[columns/group, group]`.
pub fn expect_norm_weight(name: &str, ty: &TensorType, columns: &Dim, group: Option<u32>) -> Result<()> {
    // Without a group, or with a symbolic width, only a whole vector fits.
    let (Some(group), Some(width)) = (group.map(u64::from), columns.as_const()) else {
        return expect_vector(name, ty, columns);
    };
    let sizes: Option<Vec<u64>> = ty.shape.iter().map(Dim::as_const).collect();
    let fits = match sizes.as_deref() {
        Some([len]) => *len == group || *len == width,
        Some([runs, len]) => *len == group && runs.checked_mul(group) == Some(width),
        _ => false,
    };
    if fits && ty.dtype.is_float() {
        return Ok(());
    }
    let runs = width / group.max(1);
    Err(Error::invalid(format!(
        "`{name}` must be floats of shape [{group}], [{width}] or [{runs},{group}], found {ty}"
    )))
}

/// The length of a vector of indices.
///
/// # Errors
/// If it is none.
pub fn expect_indices<'a>(name: &str, ty: &'a TensorType) -> Result<&'a Dim> {
    match ty.shape.as_slice() {
        [len] if ty.dtype == DType::U32 => Ok(len),
        _ => Err(Error::invalid(format!("`{name}` must be a u32 vector, found {ty}"))),
    }
}

/// The two sizes of a matrix of indices.
pub fn indices<'a>(name: &str, ty: &'a TensorType) -> Result<(&'a Dim, &'a Dim)> {
    match ty.shape.as_slice() {
        [rows, columns] if ty.dtype == DType::U32 => Ok((rows, columns)),
        _ => Err(Error::invalid(format!("`{name}` must be a u32 matrix, found {ty}"))),
    }
}

/// The three sizes of a stack of float matrices.
pub fn stack<'a>(name: &str, ty: &'a TensorType) -> Result<[&'a Dim; 3]> {
    match ty.shape.as_slice() {
        [count, rows, columns] if ty.dtype.is_float() => Ok([count, rows, columns]),
        _ => Err(Error::invalid(format!("`{name}` must be a stack of float matrices, found {ty}"))),
    }
}

/// The constant size of rows of heads of `head_dim` elements each.
pub fn expect_heads(columns: &Dim, head_dim: u32) -> Result<u64> {
    let width = columns.as_const().filter(|w| head_dim > 0 && w.is_multiple_of(u64::from(head_dim)));
    width.ok_or_else(|| Error::invalid(format!("`head_dim` {head_dim} must divide the columns {columns}")))
}

/// Fails unless the type is that of a recurrence's state: `f32[rows, columns]`.
pub fn expect_state(ty: &TensorType, rows: u64, columns: &Dim) -> Result<()> {
    let expected = TensorType::new(DType::F32, [Dim::from(rows), columns.clone()]);
    if *ty == expected {
        return Ok(());
    }
    Err(Error::invalid(format!("the state must be {expected}, found {ty}")))
}
