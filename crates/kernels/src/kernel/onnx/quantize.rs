//! `QuantizeLinear`, `DequantizeLinear` and `DynamicQuantizeLinear`: one invocation for each word of integers, or each float.
//!
//! Integers of 8 and 16 bits lie several to a word. A quantising invocation writes a whole word, so that no two write
//! one word.

use super::joining::{CopyCell, Runs, words_of};
use super::{OnnxNode, Placed, count, plan_with, strides, whole};
use crate::kernel::Request;
use crate::kernel::source::{KernelSource, LaunchBuilder, single_workgroup};
use crate::plan::{Arg, Launch, NodePlan, Scratch};
use tapml_device::BindingKind;
use tapml_graph::{DType, Dim, Error, Extent, Result};

/// A kernel of integers in words.
macro_rules! integers {
    ($name:literal, $memory:literal, $($file:literal),+) => {
        KernelSource {
            workgroup_memory: $memory,
            ..KernelSource::flat(
                concat!("onnx/", $name),
                concat!("onnx/order.wgsl+onnx/bits.wgsl", $("+onnx/", $file),+),
                concat!(include_str!("order.wgsl"), include_str!("bits.wgsl"), $(include_str!($file)),+),
            )
        }
    };
}
pub(super) use integers;

/// Floats to integers.
const QUANTIZE: KernelSource = integers!("quantize", 0, "scales.wgsl", "quantize.wgsl");
/// Integers to floats.
const DEQUANTIZE: KernelSource = integers!("dequantize", 0, "scales.wgsl", "dequantize.wgsl");
/// The least and the greatest element of each workgroup's share.
const EXTREMES: KernelSource = integers!("extremes", 2048, "extremes.wgsl");
/// The scale and the zero point that follow from the extremes.
const DYNAMIC: KernelSource = integers!("dynamic_scale", 0, "dynamic_scale.wgsl");

/// Workgroups that look for the least and the greatest element.
const MOST_GROUPS: u32 = 64;

/// Bits of an integer, and whether it has a sign.
pub fn bits(node: &OnnxNode, dtype: DType) -> Result<[(&'static str, u32); 2]> {
    let (bits, signed) = match dtype {
        DType::U8 => (8, 0),
        DType::I8 => (8, 1),
        DType::U16 => (16, 0),
        DType::I16 => (16, 1),
        DType::I32 => (32, 1),
        other => return Err(node.unserved_error(&format!("integers of {other}"))),
    };
    Ok([("BITS", bits), ("SIGNED", signed)])
}

/// Sets constants.
pub fn set(launch: LaunchBuilder, constants: impl IntoIterator<Item = (&'static str, u32)>) -> LaunchBuilder {
    constants.into_iter().fold(launch, |launch, (name, value)| launch.set(name, value))
}

/// Which scale is that of an element.
///
/// There are three forms: one scale for all, one for each index of an axis, and one for each block along an axis.
fn scales(node: &OnnxNode, x: &Placed, scale: &Placed) -> Result<Vec<(&'static str, u32)>> {
    let (sizes, given) = (x.sizes()?, scale.sizes()?);
    if given.len() <= 1 && scale.count()? == 1 {
        return Ok(Vec::new());
    }
    let axis = node.axis(node.int("axis", 1)?, sizes.len())?;
    let place = [("SIZE", sizes[axis].max(1)), ("INNER", strides(&sizes)[axis].max(1))];
    // 0 means that the operator has no blocks.
    let block = node.int("block_size", 0)?;
    if block == 0 && given == [sizes[axis]] {
        return Ok([&[("FORM", 1)], &place[..]].concat());
    }
    let block = u32::try_from(block).ok().filter(|&block| block > 0);
    let mut expected = sizes.clone();
    expected[axis] = block.map_or(0, |block| sizes[axis].div_ceil(block));
    match block.filter(|_| given == expected) {
        Some(block) => Ok([&[("FORM", 2), ("BLOCK", block)], &place[..]].concat()),
        None => Err(Error::invalid(format!("scales {given:?} for {} along axis {axis}", x.ty))),
    }
}

/// The plan of `QuantizeLinear` or `DequantizeLinear`.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    node.reads(&["axis", "saturate", "block_size", "output_dtype", "precision"])?;
    // The attributes of dtypes repeat what the declared output says.
    let (x, scale) = (node.input(0)?, node.input(1)?);
    let quantizes = node.op.name() == "QuantizeLinear";
    let floats = if quantizes { x.dtype() } else { scale.dtype() };
    let integers = if quantizes { node.output(0)?.dtype() } else { x.dtype() };
    let y = node.gives(0, if quantizes { integers } else { floats }, &x.sizes()?)?;
    if scale.dtype() != floats || (quantizes && integers == DType::I32) {
        return Err(node.unserved_error(&format!("{} with a scale of {} to {}", x.ty, scale.ty, y.ty)));
    }
    let zero = node.may_take(2, integers, &scale.sizes()?)?;
    let constants = scales(&node, &x, &scale)?.into_iter().chain(bits(&node, integers)?);
    // A lane writes a word of integers, or one float.
    let (kernel, elements) = if quantizes { (&QUANTIZE, words_of(&y)?) } else { (&DEQUANTIZE, y.count()?) };
    let launch = kernel.launch(floats, floats)?.read(whole(x)).read(whole(scale));
    let launch = launch.read(zero.map_or(Arg::Constant(0), whole)).output(y.index);
    let launch = set(launch, constants).set("COUNT", y.count()?).set("HAS_ZERO", u32::from(zero.is_some()));
    let launch = if quantizes { launch.set("WORDS", elements) } else { launch };
    Ok(plan_with(kernel, vec![launch.flat(Dim::from(u64::from(elements)))], vec![vec![0; 4]], 1))
}

/// Numbers that are quantised with a scale and a zero point of their own.
pub struct Dynamic {
    /// Where they are.
    pub x: Arg,
    /// Their dtype.
    pub dtype: DType,
    /// How many there are.
    pub count: u32,
}

impl Dynamic {
    /// Groups that look for the extremes.
    /// The bound keeps the parts few enough for the one workgroup that brings them together.
    fn groups(&self) -> u32 {
        self.count.div_ceil(1024).clamp(1, MOST_GROUPS)
    }

    /// What the launches need: parts, the scale, the zero point.
    pub fn scratch(&self) -> [Scratch; 3] {
        let bytes = |bytes: u64| Scratch::Temporary(Extent::from_dim(bytes));
        [bytes(8 * u64::from(self.groups())), bytes(4), bytes(4)]
    }

    /// The launches that leave the scale and the zero point in scratch `first + 1` and `first + 2`, and put the integers where
    /// `bind` binds.
    pub fn launches(
        &self,
        first: usize,
        bind: impl FnOnce(LaunchBuilder) -> LaunchBuilder,
    ) -> Result<Vec<Launch>> {
        let groups = self.groups();
        let parts = EXTREMES.launch(self.dtype, self.dtype)?.read(self.x);
        let parts = parts.scratch(first, BindingKind::ReadWrite).set("COUNT", self.count);
        let parts = parts.set("GROUPS", groups).groups([
            Extent::from_dim(u64::from(groups)),
            single_workgroup(),
            single_workgroup(),
        ]);
        let scale = DYNAMIC.launch(DType::F32, DType::F32)?.scratch(first, BindingKind::Read);
        let scale = scale.scratch(first + 1, BindingKind::ReadWrite);
        let scale = scale.scratch(first + 2, BindingKind::ReadWrite).set("GROUPS", groups);
        let words = self.count.div_ceil(4);
        let integers = QUANTIZE.launch(self.dtype, self.dtype)?.read(self.x);
        let integers = integers.scratch(first + 1, BindingKind::Read).scratch(first + 2, BindingKind::Read);
        let integers = bind(integers).set("COUNT", self.count).set("WORDS", words).set("HAS_ZERO", 1u32);
        let integers = integers.flat(Dim::from(u64::from(words)));
        Ok(vec![parts, scale.groups([single_workgroup(), single_workgroup(), single_workgroup()]), integers])
    }
}

/// `DynamicQuantizeLinear`: <https://onnx.ai/onnx/operators/onnx__DynamicQuantizeLinear.html>.
pub fn plan_dynamic(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    node.reads(&[])?;
    let x = node.input(0)?;
    if x.dtype() != DType::F32 {
        return Err(node.unserved_error(&format!("{}", x.dtype())));
    }
    let y = node.gives(0, DType::U8, &x.sizes()?)?;
    let (scale, zero) = (node.gives(1, DType::F32, &[])?, node.gives(2, DType::U8, &[])?);
    let dynamic = Dynamic { x: whole(x), dtype: DType::F32, count: count(&x.sizes()?)? };
    let mut launches = dynamic.launches(0, |launch| launch.output(y.index))?;
    // The launch that quantises reads both from scratch; these copies give them to the outputs.
    for (scratch, output) in [(1, scale), (2, zero)] {
        let bind = |launch: LaunchBuilder| launch.scratch(scratch, BindingKind::Read).output(output.index);
        launches.push(Runs::single(1, 0).launch(CopyCell::Word, bind)?);
    }
    let plan = plan_with(&QUANTIZE, launches, Vec::new(), 1);
    Ok(NodePlan { scratch: dynamic.scratch().into(), ..plan })
}
