//! RWKV-6 (Finch): RWKV-5 whose mix with the token before and whose decays depend on the token.
//!
//! Shares run the other way round than in RWKV-5: 0 is the token itself, 1 the one before. Decays and mixes
//! get an addition by way of two thin matrices.

use super::{Architecture, Decoder};
use crate::block::rwkv::{Older, previous_rows, mix_rows, project, times, times_plus, vector};
use crate::config::Section;
use crate::net::{Net, Path};
use crate::source::Source;
use tapml_graph::op::{Columns, Lerp, Linear, Tanh};
use tapml_graph::{Result, ValueId};

/// Peng et al., "Eagle and Finch: RWKV with Matrix-Valued States and Dynamic Recurrence", 2024, section 4.2.
pub const RWKV6: Architecture = Architecture { model_types: &["rwkv6"], build };

/// What the token decides the mix of, in the order of `time_maa_w2`: the suffixes of `time_maa_`.
const MIXES: [&str; 5] = ["w", "k", "v", "r", "g"];

fn build(json: &Section<'_>, net: Net<'_>) -> Result<Decoder> {
    Older::build(json, net, attention, channels)
}

/// Columns between the two thin matrices of a mix and of the decays. The configurations do not say; the published models
/// of 7 and 14 billion parameters have twice as many as the others.
fn ranks(width: u32) -> [u32; 2] {
    if width == 4096 { [64, 128] } else { [32, 64] }
}

/// Time mixing of `x: [n, width]`.
fn attention(of: &Older, net: &mut Net, at: &Path, x: ValueId) -> Result<ValueId> {
    let width = of.width;
    let [_, rank] = ranks(width);
    let last = previous_rows(net, at, x, width)?;
    let [xw, xk, xv, xr, xg] = mixes(of, net, at, x, last)?;
    let w = times(net, &at.child("time_decay_w1"), xw, [width, rank])?;
    let w = net.node(&at.child("time_decay_w1.act"), Tanh {}, &[w])?;
    let w = times_plus(net, &at.child("time_decay_w2"), w, [rank, width], &at.child("time_decay"))?;
    let mut of_x = |name: &str, x| project(net, &at.child(name), x, [width, width]);
    let (r, k, v) = (of_x("receptance", xr)?, of_x("key", xk)?, of_x("value", xv)?);
    let gate = of_x("gate", xg)?;
    of.recur(net, at, [r, k, v], w, gate)
}

/// The five mixes of `x` with the row before: by a vector each, to which the token adds by way of a thin projection.
fn mixes(of: &Older, net: &mut Net, at: &Path, x: ValueId, last: ValueId) -> Result<[ValueId; 5]> {
    let width = of.width;
    let ([rank, _], count) = (ranks(width), MIXES.len() as u32);
    let thin = mix_rows(net, &at.child("time_maa_x"), [x, last], width)?;
    let thin = times(net, &at.child("time_maa_w1"), thin, [width, count * rank])?;
    let thin = net.node(&at.child("time_maa_w1.act"), Tanh {}, &[thin])?;
    let mut results = [x; 5];
    for (index, (name, result)) in MIXES.iter().zip(&mut results).enumerate() {
        let own = at.child(format!("time_maa_{name}"));
        // Each mix has its own `rank` columns of the thin product.
        let part = Columns { group: count * rank, first: index as u32 * rank, count: rank };
        let part = net.node(&own.child("thin"), part, &[thin])?;
        let stack = at.child("time_maa_w2").to_string();
        let source = Source::TransposedOf { stack, count: MIXES.len(), index };
        let matrix = net.derive(&own.child("w2"), &[width, rank], source)?;
        let bias = vector(net, &own, width)?;
        let share = net.node(&own.child("share"), Linear::default(), &[part, matrix, bias])?;
        *result = net.node(&own.child("mixed"), Lerp {}, &[x, last, share])?;
    }
    Ok(results)
}

/// Channel mixing of `x: [n, width]`.
fn channels(of: &Older, net: &mut Net, at: &Path, x: ValueId) -> Result<ValueId> {
    let last = previous_rows(net, at, x, of.width)?;
    let k = mix_rows(net, &at.child("time_maa_k"), [x, last], of.width)?;
    let r = mix_rows(net, &at.child("time_maa_r"), [x, last], of.width)?;
    of.mix_channels(net, at, k, r)
}
