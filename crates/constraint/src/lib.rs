//! Answers of a form that is enforced: JSON of a schema, a regular expression, a grammar. At each step the tokens that would
//! leave the form get no probability.
//!
//! [`read_form`] finds the form that a request asks for, a [`GrammarCompiler`] makes it ready for a [`Vocabulary`], and a
//! [`GrammarMask`] says for one text which tokens may follow. `tapml serve` and the pages of sites run the same code: for the
//! latter it is built for WebAssembly, where [`module`] is what the page calls.
//!
//! Requests, schemas and grammars are hostile here: their sizes and the work on them are bounded.
#![warn(missing_docs)]

mod compiler;
#[cfg(target_arch = "wasm32")]
mod exports;
mod gbnf;
mod grammar;
mod lark;
pub mod module;
pub mod panics;
mod request;
mod vocabulary;

pub use compiler::{CompiledGrammar, GrammarCompiler, GrammarMask};
pub use grammar::Grammar;
pub use request::{FORM_FIELDS, FormFault, FormFaultKind, RequestedForm, read_form};
pub use vocabulary::{TokenBytes, Vocabulary};
