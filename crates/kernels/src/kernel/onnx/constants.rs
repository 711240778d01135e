//! Operators whose results a planner knows: `Shape` and `Size` from the type of their input, `ConstantOfShape` from its
//! attribute and the declared output. `Range` stands here too: it makes numbers of two.
//!
//! Such results are constants of the plan, and a launch copies them to the output.

use super::{OnnxNode, joining, launch, movement, plan_with, whole, words};
use crate::kernel::Request;
use crate::kernel::source::KernelSource;
use crate::plan::{Arg, NodePlan};
use tapml_graph::{DType, Dim, Result, Tensor};

/// An invocation for each element.
const RANGE: KernelSource = KernelSource::flat("onnx/range", "onnx/range.wgsl", "");

/// `Shape` and `Size`.
pub fn plan_sizes(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    node.reads(&["start", "end"])?;
    let sizes = node.input(0)?.sizes()?;
    let found = match node.op.name() {
        "Size" => vec![super::count(&sizes)?],
        _ => {
            let rank = sizes.len() as i64;
            // Negative bounds count from the end, and those beyond it are clamped, as the standard says.
            let place = |at: i64| if at < 0 { at + rank } else { at }.clamp(0, rank) as usize;
            let (start, end) = (place(node.int("start", 0)?), place(node.int("end", rank)?));
            sizes.get(start..end).unwrap_or_default().to_vec()
        }
    };
    let declared = if node.op.name() == "Size" { vec![] } else { vec![found.len() as u32] };
    // Each size is followed by the upper half of its 64 bits.
    let y = node.gives(0, DType::I64, &declared)?;
    joining::plan_words(Arg::Constant(0), &y, vec![words(found.into_iter().flat_map(|size| [size, 0]))])
}

/// `ConstantOfShape`: the attribute holds a tensor of one element; zero is the default.
pub fn plan_filled(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    node.reads(&["value"])?;
    let y = node.output(0)?;
    let number = match node.op.attributes().get("value") {
        None => 0.0,
        Some(value) => {
            let data = value.get("tensor").and_then(|tensor| tensor.get("data"));
            let first = data.and_then(|data| data.as_array()).and_then(|data| data.first());
            let number = first.and_then(|first| {
                first.as_f64().or_else(|| first.as_bool().map(|truth| f64::from(u8::from(truth))))
            });
            // A larger integer would not be this one.
            let number = number.filter(|number| number.abs() <= 9e15);
            number.ok_or_else(|| node.unserved_error(&format!("the value {value}")))?
        }
    };
    let element = Tensor::from_f64(y.dtype(), vec![1], &[number])?;
    let mut bytes = element.bytes().to_vec();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    movement::plan_repeated(&y, bytes)
}

/// `Range`. How many elements there are is told by the declared output, not by the limit.
pub fn plan_range(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    node.reads(&[])?;
    let y = node.output(0)?;
    // Input 1, the limit, is not read.
    let (start, delta) = (node.takes(0, y.dtype(), &[])?, node.takes(2, y.dtype(), &[])?);
    if y.count()? == 0 {
        return Ok(plan_with(&RANGE, Vec::new(), Vec::new(), 0));
    }
    let (numbers, element) = match y.dtype() {
        // One rounding for each element: repeated addition would let errors grow along the range.
        DType::F32 => (include_str!("numbers_float.wgsl"), "return fma(f32(e), delta, start);"),
        DType::I32 => (include_str!("numbers_i32.wgsl"), "return start + i32(e) * delta;"),
        DType::I64 => {
            (include_str!("numbers_i64.wgsl"), "return sum64(start, product64(vec2<u32>(e, 0u), delta));")
        }
        other => return Err(node.unserved_error(&format!("{other}"))),
    };
    let text = format!(
        "{numbers}{}fn element(e: u32, start: val, delta: val) -> val {{ {element} }}\n",
        include_str!("range.wgsl")
    );
    let launch = launch(&RANGE, DType::F32, text)?.read(whole(start)).read(whole(delta)).output(y.index);
    let launches = vec![launch.set("COUNT", y.count()?).flat(Dim::from(u64::from(y.count()?)))];
    Ok(plan_with(&RANGE, launches, Vec::new(), 1))
}
