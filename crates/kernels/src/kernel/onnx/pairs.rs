//! What computes each element from two operands that stretch to the sizes of the output:
//! <https://github.com/onnx/onnx/blob/main/docs/Broadcasting.md>. One invocation for each element.

use super::{Node, launch, plan_with, stretched, whole, words};
use crate::kernel::Request;
use crate::kernel::source::Kernel;
use crate::plan::{Arg, NodePlan};
use tapml_graph::{DType, Dim, Result};

const KERNEL: Kernel = Kernel { math: true, ..Kernel::flat("onnx/pairs", "onnx/pairs.wgsl", "") };

/// The formulas: operator, of floats, of integers of 32 bits.
const FORMULAS: &[(&str, &str, Option<&str>)] = &[
    ("Add", "fn formula(a: val, b: val) -> val { return a + b; }", Some("")),
    ("Sub", "fn formula(a: val, b: val) -> val { return a - b; }", Some("")),
    ("Mul", "fn formula(a: val, b: val) -> val { return a * b; }", Some("")),
    ("Div", "fn formula(a: val, b: val) -> val { return a / b; }", Some(DIVIDE)),
    ("Pow", include_str!("pow.wgsl"), None),
    ("PRelu", "fn formula(a: val, b: val) -> val { return select(a, a * b, a < 0.0); }", None),
    ("Max", MOST, Some("fn formula(a: val, b: val) -> val { return max(a, b); }")),
    ("Min", LEAST, Some("fn formula(a: val, b: val) -> val { return min(a, b); }")),
];

/// The formulas of integers of 64 bits.
const LONG: &[(&str, &str)] = &[
    ("Add", "fn formula(a: val, b: val) -> val { return sum64(a, b); }"),
    ("Sub", "fn formula(a: val, b: val) -> val { return difference64(a, b); }"),
    ("Mul", "fn formula(a: val, b: val) -> val { return product64(a, b); }"),
];

/// Towards zero; a zero divisor has no result.
const DIVIDE: &str =
    "fn formula(a: val, b: val) -> val { return select(a / select(b, 1, b == 0), 0, b == 0); }";
/// What is not a number stays so.
const MOST: &str =
    concat!(include_str!("order.wgsl"), "fn formula(a: val, b: val) -> val { return larger(a, b); }");
const LEAST: &str =
    concat!(include_str!("order.wgsl"), "fn formula(a: val, b: val) -> val { return smaller(a, b); }");

pub fn plan(request: &Request) -> Result<NodePlan> {
    let node = Node::of(request)?;
    node.reads(&[])?;
    let (a, b, y) = (node.input(0)?, node.input(1)?, node.output(0)?);
    if node.version() < 7 || node.optional(2).is_some() {
        return Err(node.unserved("such operands"));
    }
    let row = FORMULAS.iter().find(|row| row.0 == node.op.name());
    let &(_, floats, integers) = row.ok_or_else(|| node.unserved("it"))?;
    let (numbers, formula) = match (y.dtype(), integers) {
        (DType::F32 | DType::F16, _) => (include_str!("numbers_float.wgsl"), floats),
        (DType::I32, Some("")) => (include_str!("numbers_i32.wgsl"), floats),
        (DType::I32, Some(own)) => (include_str!("numbers_i32.wgsl"), own),
        (DType::I64, _) => {
            let formula = LONG.iter().find(|row| row.0 == node.op.name());
            (include_str!("numbers_i64.wgsl"), formula.ok_or_else(|| node.unserved("i64"))?.1)
        }
        (dtype, _) => return Err(node.unserved(&format!("{dtype}"))),
    };
    if a.dtype() != y.dtype() || b.dtype() != y.dtype() {
        return Err(node.unserved("operands of several dtypes"));
    }
    let walk = Walk::of(&y.sizes()?, &[&a.sizes()?, &b.sizes()?])?;
    if y.count()? == 0 {
        return Ok(plan_with(&KERNEL, Vec::new(), Vec::new(), 0));
    }
    let dtype = if y.dtype() == DType::F16 { DType::F16 } else { DType::F32 };
    let text = format!("{numbers}{}{formula}\n", include_str!("pairs.wgsl"));
    let launch = launch(&KERNEL, dtype, text)?.read(whole(a)).read(whole(b)).read(Arg::Constant(0));
    let launch = launch.output(y.index).set("COUNT", y.count()?).set("RANK", walk.rank());
    let launch = launch.set("A_FORM", walk.form(0)).set("B_FORM", walk.form(1));
    let launches = vec![launch.flat(Dim::from(u64::from(y.count()?)))];
    Ok(plan_with(&KERNEL, launches, vec![walk.words()], 1))
}

/// How operands are walked along the elements of an output: dimensions that all walk alike are one.
pub struct Walk {
    sizes: Vec<u32>,
    strides: Vec<Vec<u32>>,
}

impl Walk {
    /// Of operands that stretch to these sizes.
    pub fn of(to: &[u32], operands: &[&[u32]]) -> Result<Walk> {
        let strides = operands.iter().map(|from| stretched(from, to)).collect::<Result<_>>()?;
        Ok(Walk::by(to, strides))
    }

    /// Of operands with these strides, one for each dimension.
    pub fn by(to: &[u32], strides: Vec<Vec<u32>>) -> Walk {
        let mut walk = Walk { sizes: Vec::new(), strides: vec![Vec::new(); strides.len()] };
        for (d, &size) in to.iter().enumerate().filter(|(_, size)| **size != 1) {
            let joins = |(kept, own): (&Vec<u32>, &Vec<u32>)| {
                kept.last().is_some_and(|&outer| Some(outer) == own[d].checked_mul(size))
            };
            if !walk.sizes.is_empty() && walk.strides.iter().zip(&strides).all(joins) {
                walk.sizes.last_mut().into_iter().for_each(|outer| *outer = outer.wrapping_mul(size));
                let innermost = walk.strides.iter_mut().zip(&strides);
                innermost.for_each(|(kept, own)| kept.last_mut().into_iter().for_each(|last| *last = own[d]));
            } else {
                walk.sizes.push(size);
                walk.strides.iter_mut().zip(&strides).for_each(|(kept, own)| kept.push(own[d]));
            }
        }
        walk
    }

    pub fn rank(&self) -> u32 {
        self.sizes.len() as u32
    }

    /// How an operand is walked: 0 as the output, 1 if it has one element, 2 by its strides.
    pub fn form(&self, operand: usize) -> u32 {
        match self.strides[operand].as_slice() {
            [1] => 0,
            strides if strides.iter().all(|&stride| stride == 0) => 1,
            _ => 2,
        }
    }

    /// Sizes, then the strides of each operand, as a constant.
    pub fn words(&self) -> Vec<u8> {
        words(self.sizes.iter().chain(self.strides.iter().flatten()).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::Walk;

    #[test]
    fn dimensions_that_walk_alike_are_one() {
        let walk = Walk::of(&[2, 3, 4, 5], &[&[2, 3, 4, 5], &[3, 1, 1], &[]]).unwrap();
        assert_eq!(walk.sizes, [2, 3, 20]);
        assert_eq!(walk.strides, [vec![60, 20, 1], vec![0, 1, 0], vec![0, 0, 0]]);
        assert_eq!([walk.form(0), walk.form(1), walk.form(2)], [2, 2, 1]);
        let same = Walk::of(&[2, 1, 7], &[&[2, 1, 7], &[2, 1, 7]]).unwrap();
        assert_eq!((same.rank(), same.form(0), same.form(1)), (1, 0, 0));
        assert!(Walk::of(&[2, 3], &[&[2]]).is_err());
    }
}
