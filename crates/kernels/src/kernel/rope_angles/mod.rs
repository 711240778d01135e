//! `rope_angles`: launch planner, and the frequencies as exact fractions of a turn. One invocation per pair;
//! workgroup `x` treats pairs `1024·x` to `1024·x + 1023`.

use super::Request;
use super::source::{Kernel, elements, plan as planned, wrong_op};
use crate::plan::{Arg, NodePlan};
use tapml_graph::op::RopeAngles;
use tapml_graph::{DType, Error, Op, Result};

const KERNEL: Kernel =
    Kernel::flat("rope_angles/portable", "rope_angles/portable.wgsl", include_str!("portable.wgsl"));

pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::RopeAngles(op) = request.op else { return Err(wrong_op(request)) };
    if *op != RopeAngles::new(op.inv_freq.clone(), op.scale) || !request.inputs.is_empty() {
        return Err(Error::unsupported(
            "frequencies that depend on the length of the text, and positions that are given",
        ));
    }
    let pairs =
        u32::try_from(op.inv_freq.len()).map_err(|_| Error::unsupported("more than 2^32 frequencies"))?;
    let rows = &request.outputs[0].shape[0];
    let launch = KERNEL.launch(DType::F32, DType::F32)?.output(0).read(Arg::Constant(0)).rows(rows)?;
    let launch = launch.set("D", pairs).set("SCALE", op.scale);
    let launches = vec![launch.flat(elements(rows, pairs)?)];
    let words = op.inv_freq.iter().map(|&f| turns(f)).flat_map(|t| [(t >> 32) as u32, t as u32]);
    let constants = vec![words.flat_map(u32::to_le_bytes).collect()];
    Ok(NodePlan { constants, ..planned(&KERNEL, launches, 0) })
}

/// `f / 2π` modulo 1 as a fixed-point fraction of 64 bits, rounded to nearest, for `|f| ≤ 1`.
fn turns(f: f32) -> u64 {
    /// `2^104 / 2π`, rounded down.
    const PER_RADIAN: u128 = 0x28_BE60_DB93_9105_4A7F_09D5_F47D;
    let bits = f.abs().to_bits();
    let (exponent, fraction) = ((bits >> 23).max(1), bits & 0x7f_ffff);
    let mantissa = u128::from(if bits >> 23 == 0 { fraction } else { fraction | 0x80_0000 });
    // f = mantissa · 2^(exponent − 150); the product has 128 bits at most.
    let shift = 150 - exponent + 40;
    let product = mantissa * PER_RADIAN;
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
        for f in [1.0f32, 0.5, 0.1, 1e-4, 3.3e-7, -0.75, 0.0, 1e-30] {
            let exact = (f64::from(f) / std::f64::consts::TAU).rem_euclid(1.0);
            let found = turns(f) as f64 * (-64f64).exp2();
            let distance = (exact - found).abs().min(1.0 - (exact - found).abs());
            assert!(distance < 1e-16, "{f}: {exact} {found}");
        }
    }

    #[test]
    fn one_radian_to_the_last_bit() {
        assert_eq!(turns(1.0), 0x28BE_60DB_9391_054A);
        assert_eq!(turns(-1.0), 0x28BE_60DB_9391_054A_u64.wrapping_neg());
    }
}
