//! A look at a message before it is decoded: nothing is allocated for what claims too much. The table of nested messages
//! is that of the schema; a test holds both together.

use super::limits::MAX_FIELDS;
use tapml_graph::{Error, Result};

/// The fields of a message that hold messages, or several numbers, by tag.
#[derive(Debug)]
pub struct Shape(pub &'static [(u64, &'static Shape)]);

/// A message without messages in it.
static LEAF: Shape = Shape(&[]);
/// No message but numbers one after the other, each of which counts as a field.
static PACKED: Shape = Shape(&[]);
pub static TO_AGENT: Shape = Shape(&[
    (2, &LEAF),
    (3, &LEAF),
    (4, &LEAF),
    (5, &LEAF),
    (6, &LEAF),
    (7, &LEAF),
    (8, &LEAF),
    (9, &CREATE_KERNEL),
    (10, &LEAF),
    (11, &RECORD),
    (12, &REPLAY),
    (13, &LEAF),
    (14, &LEAF),
    (15, &LEAF),
    (16, &LEAF),
    (17, &LEAF),
    (18, &LEAF),
    (19, &LOAD_PROGRAM),
    (20, &RUN_PROGRAM),
    (21, &LEAF),
    (22, &STEP),
    (23, &TURNS),
    (30, &PUT_TENSOR),
    (31, &LEAF),
    (32, &CALL_NODE),
    (33, &CALL_GRAPH),
]);
pub static TO_CLIENT: Shape = Shape(&[
    (2, &WELCOME),
    (3, &FAILED),
    (4, &LEAF),
    (5, &LEAF),
    (6, &LEAF),
    (7, &LEAF),
    (8, &FINDINGS),
    (9, &HELD_BLOBS),
    (10, &POST_MORTEM),
    (11, &LEAF),
    (12, &LEAF),
    (20, &NODE_RESULT),
]);
pub static AGENT_TO_HUB: Shape = Shape(&[(1, &REGISTER), (2, &LEAF), (3, &LEAF)]);
pub static HUB_TO_AGENT: Shape = Shape(&[(1, &LEAF), (2, &LEAF), (3, &LEAF), (4, &LEAF), (5, &FAILED)]);
static REGISTER: Shape = Shape(&[(7, &OFFER)]);
static WELCOME: Shape = Shape(&[(3, &DEVICE_INFO), (4, &OFFER), (5, &LEAF)]);
static OFFER: Shape = Shape(&[(2, &DEVICE_INFO)]);
static DEVICE_INFO: Shape = Shape(&[(5, &LEAF), (9, &LEAF), (13, &LEAF)]);
static CREATE_KERNEL: Shape = Shape(&[(8, &LEAF)]);
static RECORD: Shape = Shape(&[(2, &COMMAND)]);
static COMMAND: Shape = Shape(&[(1, &DISPATCH), (2, &COPY), (3, &LEAF)]);
static DISPATCH: Shape = Shape(&[(3, &LEAF), (4, &SIZE), (5, &SIZE), (6, &SIZE)]);
static SIZE: Shape = Shape(&[(2, &LEAF)]);
static COPY: Shape = Shape(&[(2, &SIZE), (4, &SIZE), (5, &SIZE)]);
static REPLAY: Shape = Shape(&[(2, &LEAF)]);
static STEP: Shape = Shape(&[(1, &LEAF), (3, &LEAF), (4, &LEAF)]);
static TURNS: Shape = Shape(&[(2, &TURN), (3, &LEAF)]);
static TURN: Shape = Shape(&[(1, &LEAF), (2, &LEAF)]);
static FINDINGS: Shape = Shape(&[(1, &LEAF)]);
static LOAD_PROGRAM: Shape = Shape(&[(3, &LEAF)]);
static RUN_PROGRAM: Shape = Shape(&[(2, &LEAF), (3, &LEAF)]);
static HELD_BLOBS: Shape = Shape(&[(1, &PACKED)]);
static TENSOR: Shape = Shape(&[(3, &PACKED)]);
static PUT_TENSOR: Shape = Shape(&[(1, &TENSOR)]);
static CALL_NODE: Shape = Shape(&[(4, &LEAF), (5, &TENSOR), (6, &PACKED), (7, &TENSOR)]);
static CALL_GRAPH: Shape = Shape(&[(2, &LEAF), (4, &TENSOR), (6, &TENSOR), (7, &PACKED), (8, &LEAF)]);
static NODE_RESULT: Shape = Shape(&[(1, &TENSOR)]);
static FAILED: Shape = Shape(&[(4, &LEAF)]);
static POST_MORTEM: Shape = Shape(&[(7, &LEAF)]);

/// Fails unless these bytes are well-formed, are not nested deeper than the schema, and hold at most [`MAX_FIELDS`] fields.
pub fn scan(bytes: &[u8], shape: &Shape) -> Result<()> {
    let mut left = MAX_FIELDS;
    walk(bytes, shape, &mut left)
}

fn one(left: &mut usize) -> Result<()> {
    let many = || Error::invalid(format!("the message has more than {MAX_FIELDS} fields"));
    *left = left.checked_sub(1).ok_or_else(many)?;
    Ok(())
}

fn numbers(mut bytes: &[u8], left: &mut usize) -> Result<()> {
    while !bytes.is_empty() {
        one(left)?;
        varint(&mut bytes)?;
    }
    Ok(())
}

fn walk(mut bytes: &[u8], shape: &Shape, left: &mut usize) -> Result<()> {
    while !bytes.is_empty() {
        one(left)?;
        let key = varint(&mut bytes)?;
        match key & 7 {
            0 => drop(varint(&mut bytes)?),
            1 => drop(take(&mut bytes, 8)?),
            2 => {
                let len = varint(&mut bytes)?;
                let inner = take(&mut bytes, len)?;
                if let Some((_, nested)) = shape.0.iter().find(|(tag, _)| *tag == key >> 3) {
                    match std::ptr::eq(*nested, &PACKED) {
                        true => numbers(inner, left)?,
                        false => walk(inner, nested, left)?,
                    }
                }
            }
            5 => drop(take(&mut bytes, 4)?),
            other => return Err(Error::invalid(format!("the message has a field of wire type {other}"))),
        }
    }
    Ok(())
}

fn varint(bytes: &mut &[u8]) -> Result<u64> {
    let mut value = 0u64;
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

fn take<'a>(bytes: &mut &'a [u8], len: u64) -> Result<&'a [u8]> {
    let len = usize::try_from(len).ok().filter(|&len| len <= bytes.len()).ok_or_else(|| {
        let have = bytes.len();
        Error::invalid(format!("the message claims a field of {len} bytes where {have} are left"))
    })?;
    let (taken, rest) = bytes.split_at(len);
    *bytes = rest;
    Ok(taken)
}

fn cut() -> Error {
    Error::invalid("the message ends within a number")
}
