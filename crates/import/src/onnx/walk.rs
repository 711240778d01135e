//! A walk over the wire format before anything is decoded: an empty message of two bytes takes a hundred in memory, and messages
//! within each other take the stack.

use prost::encoding::{WireType, decode_key, decode_varint};

/// Messages and texts of a model at most; the largest published ones have some ten thousand nodes.
const PARTS: usize = 1 << 21;
/// Graphs within graphs at most.
const DEPTH: usize = 16;

/// A message of which parts are counted.
#[derive(Clone, Copy)]
enum Kind {
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

impl Kind {
    fn field(self, tag: u32) -> Kind {
        match (self, tag) {
            (Kind::Model, 7) | (Kind::Attribute, 6 | 11) => Kind::Graph,
            (Kind::Model, 25) => Kind::Function,
            (Kind::Graph, 1) | (Kind::Function, 7) => Kind::Node,
            (Kind::Node, 5) | (Kind::Function, 11) => Kind::Attribute,
            (Kind::Graph, 5) | (Kind::Attribute, 5 | 10) | (Kind::SparseTensor, 1) => Kind::Tensor,
            (Kind::Graph, 15) => Kind::SparseTensor,
            (Kind::Graph, 11 | 12) => Kind::Type,
            _ => Kind::Leaf,
        }
    }
}

/// Checks the parts of a model; says what is wrong.
pub fn model(bytes: &[u8]) -> Result<(), String> {
    if bytes.is_empty() {
        return Err("the file is empty".into());
    }
    message(bytes, Kind::Model, 0, &mut 0)
}

/// Checks the parts of a tensor in a file of its own; says what is wrong.
pub fn tensor(bytes: &[u8]) -> Result<(), String> {
    message(bytes, Kind::Tensor, 0, &mut 0)
}

fn message(mut bytes: &[u8], kind: Kind, graphs: usize, parts: &mut usize) -> Result<(), String> {
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
        *parts += if matches!(inner, Kind::Type) { part.len() / 2 + 1 } else { 1 };
        if *parts > PARTS {
            return Err(format!("it has more than {PARTS} parts"));
        }
        let graphs = graphs + usize::from(matches!(inner, Kind::Graph));
        if graphs > DEPTH {
            return Err(format!("it has graphs more than {DEPTH} deep within each other"));
        }
        match inner {
            Kind::Leaf | Kind::Type => {}
            _ => message(part, inner, graphs, parts)?,
        }
    }
    Ok(())
}
