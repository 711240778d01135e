//! The text form of graphs: one line per input, weight, state, node and output, in the order of values. Printing and
//! parsing are exact inverses.
//!
//! ```text
//! graph example
//! input ids: u32[n]
//! weight embed.weight: bf16[4096,320]
//! embed: f32[n,320] = embedding(ids, embed.weight) {"dtype":"f32"}
//! state layers.0.k: f32[p,320] -> layers.0.k_cache
//! layers.0.k_cache: f32[n+p,320] = append(layers.0.k, embed)
//! act: f32[n,320] = silu(embed)
//! weight norm.weight: bf16[320]
//! sum: f32[n,320], "y 1": f32[n,320] = add_rms_norm(embed, act, norm.weight) {"eps":0.00001} as norm
//! output hidden = "y 1"
//! ```
//!
//! Operators of others, `onnx.Conv@11`, declare the types of their outputs. `_` stands in the place of an optional input or
//! output of theirs that is not there.
//!
//! A node is named as its only output unless `as NAME` says otherwise; with several outputs `as` is required. A name
//! is written bare if it consists of ASCII letters, digits and `_ . / - @`, is no keyword and not `_`, else as a JSON string.
//! Attributes are a JSON object, left out when empty. `#` starts a comment; blank lines are ignored.

mod cursor;
mod parse;
mod print;
mod words;

use crate::error::Result;
use crate::graph::{Graph, Node, TensorType};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::str::FromStr;

impl Graph {
    /// The text form; see the module `text` for the grammar. [`Graph::parse`] gives back an equal graph.
    pub fn to_text(&self) -> String {
        self.to_string()
    }

    /// The text form with a comment behind each node for which `note` gives one. [`Graph::parse`] gives back an equal graph.
    pub fn to_text_with(&self, note: &dyn Fn(&Node) -> Option<String>) -> String {
        print::Noted { graph: self, note }.to_string()
    }

    /// Reads the text form and verifies the graph.
    ///
    /// A syntax error names line and column, what was expected and what was found; an error of the graph itself
    /// (see [`crate::violations`]) names the node.
    pub fn parse(text: &str) -> Result<Graph> {
        parse::graph(text)
    }
}

impl FromStr for Graph {
    type Err = crate::Error;

    fn from_str(text: &str) -> Result<Graph> {
        Graph::parse(text)
    }
}

impl FromStr for TensorType {
    type Err = crate::Error;

    /// Reads what `Display` writes, such as `f32[n,320]`.
    fn from_str(text: &str) -> Result<TensorType> {
        let mut cursor = cursor::Cursor::new(text, 1);
        let ty = cursor.ty()?;
        cursor.end("the end of the type")?;
        Ok(ty)
    }
}

/// Serialises as the text form.
impl Serialize for Graph {
    fn serialize<S: Serializer>(&self, s: S) -> std::result::Result<S::Ok, S::Error> {
        // A graph within JSON is a text as well.
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Graph {
    fn deserialize<D: Deserializer<'de>>(d: D) -> std::result::Result<Graph, D::Error> {
        Graph::parse(&String::deserialize(d)?).map_err(serde::de::Error::custom)
    }
}
