//! Bounds that messages have in common.
//!
//! Each function fails with `InvalidInput` and a text of what was found and what is allowed; `what` names the value.

use crate::wire::limits::{MAX_BINDINGS, MAX_INTEGER, MAX_LABEL, MAX_NAME};
use crate::wire::{Read, Symbol};
use tapml_graph::{Error, Result};

/// What JavaScript holds in a number.
pub fn integer(what: &str, value: u64) -> Result<()> {
    if value > MAX_INTEGER {
        return Err(Error::invalid(format!("`{what}` is {value}, at most {MAX_INTEGER}")));
    }
    Ok(())
}

/// A name, a label, or the name of a file.
pub fn name(what: &str, value: &str) -> Result<()> {
    if value.len() > MAX_NAME {
        return Err(Error::invalid(format!("`{what}` has {} bytes, at most {MAX_NAME}", value.len())));
    }
    Ok(())
}

/// What is shown to people: short, and without signs that command a terminal.
/// Such texts come from other machines and end in terminals and pages.
pub fn label(what: &str, value: &str) -> Result<()> {
    if value.len() > MAX_LABEL || value.chars().any(char::is_control) {
        let text = format!("`{what}` is longer than {MAX_LABEL} bytes or holds control characters");
        return Err(Error::invalid(text));
    }
    Ok(())
}

/// A list of things that a kernel or a call has few of.
pub fn bounded_list(what: &str, count: usize) -> Result<()> {
    at_most(what, count, MAX_BINDINGS)
}

/// A list or a text of at most so many.
pub fn at_most(what: &str, count: usize, most: usize) -> Result<()> {
    if count > most {
        return Err(Error::invalid(format!("{count} {what}, at most {most}")));
    }
    Ok(())
}

/// A BLAKE3 hash.
/// Only the length can be wrong.
pub fn hash(hash: &[u8]) -> Result<()> {
    if hash.len() != 32 {
        return Err(Error::invalid(format!("a hash of {} bytes, expected 32", hash.len())));
    }
    Ok(())
}

/// Values of symbols.
/// There are few: a program has two.
pub fn symbols(symbols: &[Symbol]) -> Result<()> {
    bounded_list("symbols", symbols.len())?;
    symbols.iter().try_for_each(|s| name("symbol", &s.name).and(integer("value", s.value)))
}

/// Places of buffers that are read.
pub fn reads(reads: &[Read]) -> Result<()> {
    bounded_list("reads", reads.len())?;
    reads.iter().try_for_each(|r| integer("offset", r.offset).and(integer("size", r.size)))
}
