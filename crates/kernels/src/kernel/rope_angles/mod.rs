//! `rope_angles`: launch planner, and the frequencies as exact fractions of a turn. One invocation per pair;
//! workgroup `x` treats pairs `1024·x` to `1024·x + 1023`. The frequencies are bound in the place of positions and lengths that
//! are not given.
//!
//! An angle is a position times a frequency. As floats, such products lose the fraction of a turn at far positions.
//! Frequencies are therefore turned into fixed-point fractions of a turn here, whose products with integers are exact
//! modulo one turn.

use super::Request;
use super::source::{KernelSource, elements, plan as planned, wrong_op};
use crate::axis::Axis;
use crate::plan::{Arg, NodePlan};
use tapml_graph::op::RopeAngles;
use tapml_graph::{DType, Error, Op, Result};

/// Binds positions, the output, the table of frequencies, then the lengths of texts.
const KERNEL: KernelSource = KernelSource {
    math: true,
    ..KernelSource::flat(
        "rope_angles/portable",
        "rope_angles/turns.wgsl+rope_angles/portable.wgsl",
        concat!(include_str!("turns.wgsl"), include_str!("portable.wgsl")),
    )
};

/// The plan of `rope_angles`.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::RopeAngles(op) = request.op else { return Err(wrong_op(request)) };
    let pairs =
        u32::try_from(op.inv_freq.len()).map_err(|_| Error::unsupported("more than 2^32 frequencies"))?;
    let rows = &request.outputs[0].shape[0];
    let launch = KERNEL.launch(DType::F32, DType::F32)?;
    let (positions, lengths) = (request.inputs.first(), request.inputs.get(1));
    let launch = launch.optional(0, positions).output(0).read(Arg::Constant(0)).optional(1, lengths);
    let launch = launch.rows(rows)?.set("LENGTHS", u32::from(lengths.is_some()));
    let mut launch = launch.set("D", pairs).set("SCALE", op.scale);
    if let Some(long) = &op.long {
        launch = launch.set("LONG", 1u32).set("AFTER", long.after).set("LONG_SCALE", long.scale);
    }
    if let Some(dynamic) = op.dynamic {
        // The quotient is made in f64 and rounded when the constant is set.
        let rate = f64::from(dynamic.factor) / f64::from(dynamic.original);
        launch = launch.set("RATE", rate).set("ORIGINAL", dynamic.original);
    }
    launch =
        launch.set("GIVEN", u32::from(positions.is_some())).set("AXES", u32::from(op.sections.is_some()));
    let launches = vec![launch.flat(elements(rows, pairs)?)];
    let constants = vec![table(op).flat_map(u32::to_le_bytes).collect()];
    Ok(NodePlan { constants, ..planned(&KERNEL, launches, 0).with_axes([Axis::cached_axis()]) })
}

/// What the kernel reads of the attributes, words: see its source.
fn table(op: &RopeAngles) -> impl Iterator<Item = u32> {
    let long = op.long.iter().flat_map(|long| &long.inv_freq);
    let words =
        op.inv_freq.iter().chain(long).map(|&f| turn_fraction(f)).flat_map(|t| [(t >> 32) as u32, t as u32]);
    let sections = (0..).zip(op.sections.as_deref().unwrap_or_default());
    words.chain(sections.flat_map(|(axis, &pairs)| std::iter::repeat_n(axis, pairs as usize)))
}

/// `f / 2π` modulo 1 as a fixed-point fraction of 64 bits, rounded to nearest, for `|f| < 4`.
fn turn_fraction(f: f32) -> u64 {
    /// `2^104 / 2π`, rounded down.
    const PER_RADIAN: u128 = 0x28_BE60_DB93_9105_4A7F_09D5_F47D;
    let bits = f.abs().to_bits();
    // A subnormal number has the exponent of the smallest normal one, without the implied bit.
    let (exponent, fraction) = ((bits >> 23).max(1), bits & 0x7f_ffff);
    let mantissa = u128::from(if bits >> 23 == 0 { fraction } else { fraction | 0x80_0000 });
    // f = mantissa · 2^(exponent − 150); the product has 128 bits at most.
    let shift = 150 - exponent + 40;
    let product = mantissa * PER_RADIAN;
    // Beyond 127 nothing is left. The shift is at least 62, because |f| < 4.
    let rounded = match shift {
        0..=127 => (product >> shift) + (product >> (shift - 1) & 1),
        _ => 0,
    } as u64;
    if f < 0.0 { rounded.wrapping_neg() } else { rounded }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_agree_with_double_precision() {
        for f in [1.0f32, 0.5, 0.1, 1e-4, 3.3e-7, -0.75, 0.0, 1e-30, 1.25, -3.1, RopeAngles::FASTEST] {
            let exact = (f64::from(f) / std::f64::consts::TAU).rem_euclid(1.0);
            let found = turn_fraction(f) as f64 * (-64f64).exp2();
            let distance = (exact - found).abs().min(1.0 - (exact - found).abs());
            // Three roundings of double precision below 1.
            assert!(distance < 3.0 * (-53f64).exp2(), "{f}: {exact} {found}");
        }
    }

    #[test]
    fn one_radian_to_the_last_bit() {
        assert_eq!(turn_fraction(1.0), 0x28BE_60DB_9391_054A);
        assert_eq!(turn_fraction(-1.0), 0x28BE_60DB_9391_054A_u64.wrapping_neg());
    }
}
