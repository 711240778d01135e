//! The sum of a sparse layer and a dense one beside it, for many rows: `mix.cu`.

use super::{COPIES, bindings, desc};
use crate::kernel::source::affine;
use crate::kernel::source::one;
use tapml_device::{DeviceInfo, Grid, KernelDesc};
use tapml_graph::{Dim, Extent};

const TEXT: &str = include_str!("mix.cu");
const THREADS: u32 = 256;

/// The kernel and its grid for so many rows of f16, of this width, with so many slots; `None` if it does not serve these, or the device
/// cannot run it.
///
/// It binds what the experts give, the slots' weights, what the dense layer gives, its gate, and, written, the sum.
pub fn kernel(rows: &Dim, width: u32, slots: u32, info: &DeviceInfo) -> Option<(KernelDesc, Grid)> {
    let [n, p, c] = affine(rows).ok()?;
    if width == 0 || !width.is_multiple_of(8) || slots == 0 || info.features.cuda < Some(COPIES) {
        return None;
    }
    let mut desc = desc(info, "mix/cuda", "cuda/mix.cu", TEXT, THREADS, 0);
    desc.bindings = bindings(4, 1);
    desc.constants = [("WIDTH", width), ("SLOTS", slots), ("ROWS_N", n), ("ROWS_P", p), ("ROWS_C", c)]
        .map(|(name, value)| (name.to_string(), f64::from(value)))
        .to_vec();
    desc.check_limits(info).ok()?;
    let eights = rows.checked_mul(u64::from(width / 8))?;
    Some((desc, [Extent::ceil_div(eights, THREADS), one(), one()]))
}
