//! A look at a message before it is decoded: nothing is allocated for what claims too much. The shapes of messages are
//! generated from the schema.
//!
//! It follows the wire format of Protocol Buffers: a field is a key, whose lower three bits are the wire type, and a
//! value. Of wire types, 0 is a varint, 1 and 5 have 8 and 4 bytes, and 2 is prefixed by its length. Groups (3 and 4)
//! are refused.

use super::limits::MAX_FIELDS;
use tapml_graph::{Error, Result};

/// What a field that is prefixed by its length holds.
///
/// Fields that are not listed are counted and passed over without a look at their inside.
#[derive(Debug)]
pub enum Shape {
    /// A message. Those of its fields that hold messages, or several numbers, by tag.
    Message(&'static [(u64, &'static Shape)]),
    /// Numbers one after the other, each of which counts as a field.
    Numbers,
}

/// Fails unless these bytes are well-formed, are not nested deeper than the schema, and hold at most [`MAX_FIELDS`] fields.
pub fn scan(bytes: &[u8], shape: &Shape) -> Result<()> {
    // One count for the whole message: nesting does not give a sender more fields.
    let mut left = MAX_FIELDS;
    look(bytes, shape, &mut left)
}

/// Takes one from what is left of the fields; fails if nothing is.
fn count_one(left: &mut usize) -> Result<()> {
    let many = || Error::invalid(format!("the message has more than {MAX_FIELDS} fields"));
    *left = left.checked_sub(1).ok_or_else(many)?;
    Ok(())
}

/// Looks through a packed list of varints.
fn numbers(mut bytes: &[u8], left: &mut usize) -> Result<()> {
    while !bytes.is_empty() {
        count_one(left)?;
        varint(&mut bytes)?;
    }
    Ok(())
}

/// Looks through a field's bytes by their shape. The depth is that of the schema, which nests finitely.
fn look(bytes: &[u8], shape: &Shape, left: &mut usize) -> Result<()> {
    match shape {
        Shape::Message(nested) => walk(bytes, nested, left),
        Shape::Numbers => numbers(bytes, left),
    }
}

/// Looks through the fields of a message.
fn walk(mut bytes: &[u8], nested: &[(u64, &Shape)], left: &mut usize) -> Result<()> {
    while !bytes.is_empty() {
        count_one(left)?;
        let key = varint(&mut bytes)?;
        match key & 7 {
            0 => drop(varint(&mut bytes)?),
            1 => drop(take(&mut bytes, 8)?),
            2 => {
                // A length is believed only as far as there are bytes.
                let len = varint(&mut bytes)?;
                let inner = take(&mut bytes, len)?;
                // Texts and bytes have no shape.
                if let Some((_, shape)) = nested.iter().find(|(tag, _)| *tag == key >> 3) {
                    look(inner, shape, left)?;
                }
            }
            5 => drop(take(&mut bytes, 4)?),
            other => return Err(Error::invalid(format!("the message has a field of wire type {other}"))),
        }
    }
    Ok(())
}

/// The number in front, of up to ten bytes. Bits beyond 64 are dropped.
fn varint(bytes: &mut &[u8]) -> Result<u64> {
    let mut value = 0u64;
    // Ten bytes of seven bits each hold 64 bits.
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or_else(cut)?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(Error::invalid("the message holds a number of more than 64 bits"))
}

/// So many bytes from the front.
fn take<'a>(bytes: &mut &'a [u8], len: u64) -> Result<&'a [u8]> {
    let len = usize::try_from(len).ok().filter(|&len| len <= bytes.len()).ok_or_else(|| {
        let have = bytes.len();
        Error::invalid(format!("the message claims a field of {len} bytes where {have} are left"))
    })?;
    let (taken, rest) = bytes.split_at(len);
    *bytes = rest;
    Ok(taken)
}

/// The error of a number whose last byte is missing.
fn cut() -> Error {
    Error::invalid("the message ends within a number")
}
