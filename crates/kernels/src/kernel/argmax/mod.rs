//! The greatest logit's place as the next token, for generation that stays on the device. No operator of graphs: it stands
//! behind a program's own launches; see [`crate::Instance::follow`].

use super::cuda;
use super::source::{Kernel, one};
use crate::plan::Arg;
use tapml_device::{DeviceInfo, Grid, KernelDesc};
use tapml_graph::{DType, Result};

const KERNEL: Kernel = Kernel {
    name: "argmax/portable",
    file: "argmax/portable.wgsl",
    text: include_str!("portable.wgsl"),
    weights: false,
    norm: false,
    formula: "",
    math: false,
    lanes: 256,
    workgroup_memory: 2 * 256 * 4,
};

/// The kernel for so many f32 logits, and its grid. It binds the logits, the token, what was found at each position, and
/// the symbols.
pub fn kernel(width: u32, info: &DeviceInfo) -> Result<(KernelDesc, Grid)> {
    if let Some(found) = cuda::argmax::kernel(width, info) {
        return Ok(found);
    }
    let launch = KERNEL.launch(DType::F32, DType::F32)?.read(Arg::Constant(0)).output(0).output(1);
    let launch = launch.set("WIDTH", width).groups([one(), one(), one()]);
    Ok((launch.desc, launch.groups))
}
