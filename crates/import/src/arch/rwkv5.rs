//! RWKV-5 (Eagle): a recurrence with a matrix of state for each head instead of attention; each channel forgets at a rate
//! of its own.
//!
//! The names are those of the authors' checkpoints for Transformers. The mix takes `time_mix` of the token
//! and the rest of the one before.

use super::{Architecture, Decoder};
use crate::block::rwkv::{Older, previous_rows, mix_rows, project, vector};
use crate::config::Section;
use crate::net::{Net, Path};
use tapml_graph::{Result, ValueId};

/// Peng et al., "Eagle and Finch: RWKV with Matrix-Valued States and Dynamic Recurrence", 2024, section 4.1.
pub const RWKV5: Architecture = Architecture { model_types: &["rwkv5"], build };

fn build(json: &Section<'_>, net: Net<'_>) -> Result<Decoder> {
    let version = json.text_or("model_version", "5_2")?;
    // Other versions have parameters of other shapes.
    if version != "5_2" {
        let text = format!("version `{version}` of RWKV-5 is not supported");
        return Err(json.unsupported("model_version", &text).with_hint("supported: 5_2"));
    }
    Older::build(json, net, attention, channels)
}

/// Time mixing of `x: [n, width]`.
fn attention(of: &Older, net: &mut Net, at: &Path, x: ValueId) -> Result<ValueId> {
    let width = of.width;
    let last = previous_rows(net, at, x, width)?;
    let mut mix = |name: &str| {
        // From the row before to this one: a share of 1 is this row alone.
        let x = mix_rows(net, &at.child(format!("time_mix_{name}")), [last, x], width)?;
        project(net, &at.child(name), x, [width, width])
    };
    let (r, k, v) = (mix("receptance")?, mix("key")?, mix("value")?);
    let gate = mix("gate")?;
    let decay = vector(net, &at.child("time_decay"), width)?;
    of.recur(net, at, [r, k, v], decay, gate)
}

/// Channel mixing of `x: [n, width]`.
fn channels(of: &Older, net: &mut Net, at: &Path, x: ValueId) -> Result<ValueId> {
    let last = previous_rows(net, at, x, of.width)?;
    let k = mix_rows(net, &at.child("time_mix_key"), [last, x], of.width)?;
    let r = mix_rows(net, &at.child("time_mix_receptance"), [last, x], of.width)?;
    of.mix_channels(net, at, k, r)
}
