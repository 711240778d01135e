//! Operators of others, of which nothing is known but how to evaluate them: attributes ignored or misread, inputs left out, in
//! another type, or in another order. Each hypothesis is the exact result of a changed call.
//!
//! Inputs are floats in `f64` or integers. A changed call that the oracles refuse is skipped.

mod attributes;
mod inputs;
mod known;
mod subject;
mod together;
mod values;

pub(super) use attributes::{try_assumed, try_changed};
pub(super) use inputs::{left_out, misread};
pub(super) use together::try_fused;
pub(super) use values::{cast, overflowing, tails, try_arranged};
