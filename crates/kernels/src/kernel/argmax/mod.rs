//! The greatest logit's place as the next token, for generation that stays on the device. No operator of graphs: it stands
//! behind a program's own launches; see [`crate::Instance::follow`].

use super::cuda;
use super::source::{Kernel, one};
use crate::plan::Arg;
use tapml_device::{DeviceInfo, Grid, KernelDesc};
use tapml_graph::{DType, Extent, Result};

/// Numbers of a workgroup.
const SHARE: u32 = 1024;

const PARTS: Kernel = Kernel {
    name: "argmax/parts",
    file: "argmax/parts.wgsl",
    text: include_str!("parts.wgsl"),
    weights: false,
    norm: false,
    formula: "",
    math: false,
    lanes: 256,
    workgroup_memory: 8 * 256,
};

const KERNEL: Kernel = Kernel {
    name: "argmax/portable",
    file: "argmax/portable.wgsl",
    text: include_str!("portable.wgsl"),
    ..PARTS
};

/// The texts.
pub const TEXTS: [&str; 2] = [PARTS.text, KERNEL.text];

/// What a launch binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The logits.
    Logits,
    /// What the launches have among themselves.
    Between,
    /// The token.
    Token,
    /// What was found at each position.
    Found,
    /// The values of the symbols.
    Symbols,
}

/// A launch.
pub struct Launch {
    /// The kernel.
    pub desc: KernelDesc,
    /// Its grid.
    pub groups: Grid,
    /// What it binds.
    pub bound: Vec<Bound>,
}

/// The launches for so many f32 logits, and the bytes that they have among themselves.
pub fn launches(width: u32, info: &DeviceInfo) -> Result<(Vec<Launch>, u64)> {
    use Bound::{Between, Found, Logits, Symbols, Token};
    if let Some((desc, groups)) = cuda::argmax::kernel(width, info) {
        return Ok((vec![Launch { desc, groups, bound: vec![Logits, Token, Found, Symbols] }], 4));
    }
    let count = width.div_ceil(SHARE);
    let parts = PARTS.launch(DType::F32, DType::F32)?.read(Arg::Constant(0)).output(0);
    let parts = parts.set("WIDTH", width).set("SHARE", SHARE);
    let parts = parts.groups([Extent::of(u64::from(count)), one(), one()]);
    let last = KERNEL.launch(DType::F32, DType::F32)?.read(Arg::Constant(0)).output(0).output(1);
    let last = last.set("COUNT", count).groups([one(), one(), one()]);
    let all = [(parts, vec![Logits, Between, Symbols]), (last, vec![Between, Token, Found, Symbols])];
    let all = all.map(|(launch, bound)| Launch { desc: launch.desc, groups: launch.groups, bound });
    Ok((all.into(), 8 * u64::from(count)))
}
