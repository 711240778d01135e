//! A walk over the wire format before anything is decoded: an empty message of two bytes takes a hundred in memory, and messages
//! within each other take the stack.
//!
//! The walk allocates nothing. It bounds what the decoder may allocate, and the depth of its recursion.

use prost::encoding::{WireType, decode_key, decode_varint};

// Each part is a message or a text that the decoder allocates.
/// Messages and texts of a model at most; the largest published ones have some ten thousand nodes.
const PARTS: usize = 1 << 21;
/// Graphs within graphs at most.
const DEPTH: usize = 16;

/// A message of which parts are counted.
#[derive(Clone, Copy)]
enum MessageKind {
    Model,
    Graph,
    Function,
    Node,
    Attribute,
    Tensor,
    SparseTensor,
    /// Types within each other, whose smallest part has two bytes.
    Type,
    /// A text, numbers, or what is not read.
    Leaf,
}

impl MessageKind {
    /// What a field of this message holds, by its number in `onnx.proto`.
    fn field(self, tag: u32) -> MessageKind {
        match (self, tag) {
            (MessageKind::Model, 7) | (MessageKind::Attribute, 6 | 11) => MessageKind::Graph,
            (MessageKind::Model, 25) => MessageKind::Function,
            (MessageKind::Graph, 1) | (MessageKind::Function, 7) => MessageKind::Node,
            (MessageKind::Node, 5) | (MessageKind::Function, 11) => MessageKind::Attribute,
            (MessageKind::Graph, 5) | (MessageKind::Attribute, 5 | 10) | (MessageKind::SparseTensor, 1) => {
                MessageKind::Tensor
            }
            (MessageKind::Graph, 15) => MessageKind::SparseTensor,
            (MessageKind::Graph, 11 | 12) => MessageKind::Type,
            _ => MessageKind::Leaf,
        }
    }
}

/// Checks the parts of a model; says what is wrong.
pub fn model(bytes: &[u8]) -> Result<(), String> {
    if bytes.is_empty() {
        return Err("the file is empty".into());
    }
    message(bytes, MessageKind::Model, 0, &mut 0)
}

/// Checks the parts of a tensor in a file of its own; says what is wrong.
pub fn tensor(bytes: &[u8]) -> Result<(), String> {
    message(bytes, MessageKind::Tensor, 0, &mut 0)
}

/// Counts one message; recursive for those that hold others.
fn message(mut bytes: &[u8], kind: MessageKind, graphs: usize, parts: &mut usize) -> Result<(), String> {
    let failed = |e: prost::DecodeError| e.to_string();
    while !bytes.is_empty() {
        let (tag, wire) = decode_key(&mut bytes).map_err(failed)?;
        let len = match wire {
            WireType::Varint => {
                decode_varint(&mut bytes).map_err(failed)?;
                continue;
            }
            WireType::SixtyFourBit => 8,
            WireType::ThirtyTwoBit => 4,
            WireType::LengthDelimited => decode_varint(&mut bytes).map_err(failed)?,
            WireType::StartGroup | WireType::EndGroup => {
                return Err("it has groups, which ONNX has not".into());
            }
        };
        let held = usize::try_from(len).ok().and_then(|len| bytes.split_at_checked(len));
        let Some((part, rest)) = held else {
            return Err(format!("a part claims {len} bytes, of which {} are there", bytes.len()));
        };
        bytes = rest;
        if !matches!(wire, WireType::LengthDelimited) {
            continue;
        }
        let inner = kind.field(tag);
        // Types are not walked: the least part of one has two bytes, which bounds their number.
        *parts += if matches!(inner, MessageKind::Type) { part.len() / 2 + 1 } else { 1 };
        if *parts > PARTS {
            return Err(format!("it has more than {PARTS} parts"));
        }
        let graphs = graphs + usize::from(matches!(inner, MessageKind::Graph));
        if graphs > DEPTH {
            return Err(format!("it has graphs more than {DEPTH} deep within each other"));
        }
        match inner {
            MessageKind::Leaf | MessageKind::Type => {}
            _ => message(part, inner, graphs, parts)?,
        }
    }
    Ok(())
}
