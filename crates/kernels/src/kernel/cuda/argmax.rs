//! The greatest logit's place: `argmax.cu`.

use super::{OVERLAP, bindings, desc};
use crate::kernel::source::one;
use tapml_device::{DeviceInfo, Grid, KernelDesc};
use tapml_graph::Extent;

const TEXT: &str = include_str!("argmax.cu");
const THREADS: u32 = 512;
/// Blocks of the cluster.
const CLUSTER: u64 = 8;

/// The kernel for so many f32 logits and its grid; `None` if the device cannot run it.
pub fn kernel(width: u32, info: &DeviceInfo) -> Option<(KernelDesc, Grid)> {
    if info.features.cuda < Some(OVERLAP) {
        return None;
    }
    let mut desc = desc(info, "argmax/cuda", "cuda/argmax.cu", TEXT, THREADS, 0);
    desc.bindings = bindings(1, 2);
    desc.constants = vec![("WIDTH".into(), f64::from(width)), ("THREADS".into(), f64::from(THREADS))];
    Some((desc, [Extent::of(CLUSTER), one(), one()]))
}
