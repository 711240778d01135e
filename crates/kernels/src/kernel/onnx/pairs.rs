//! What computes each element from two operands that stretch to the sizes of the output:
//! <https://github.com/onnx/onnx/blob/main/docs/Broadcasting.md>. One invocation for each element.

use super::{OnnxNode, broadcast_strides, launch, plan_with, variadic, whole, words};
use crate::kernel::Request;
use crate::kernel::source::KernelSource;
use crate::plan::{Arg, NodePlan};
use tapml_graph::{DType, Dim, Result};

/// The text is put together for the operator and its dtype.
const KERNEL: KernelSource =
    KernelSource { math: true, ..KernelSource::flat("onnx/pairs", "onnx/pairs.wgsl", "") };

/// The formulas of an operator, by the numbers that it computes with. Those of unsigned integers are those of signed ones where
/// the same text does for both.
struct Formulas {
    /// The operator's name, without domain and version.
    name: &'static str,
    /// For f32 and f16, which compute in f32.
    floats: Option<&'static str>,
    /// `None` where the operator has no such integers.
    i32: Option<&'static str>,
    /// As `i32`.
    u32: Option<&'static str>,
    /// Integers of 64 bits are pairs of words: WGSL has none.
    i64: Option<&'static str>,
    /// As `i64`.
    u64: Option<&'static str>,
}

impl Formulas {
    /// Of floats alone.
    const fn floats(name: &'static str, text: &'static str) -> Formulas {
        Formulas { floats: Some(text), ..Formulas::bits(name, None, None) }
    }

    /// Of integers as bits, of one word and of two.
    const fn bits(name: &'static str, one: Option<&'static str>, two: Option<&'static str>) -> Formulas {
        Formulas { name, floats: None, i32: one, u32: one, i64: two, u64: two }
    }

    /// The text that declares numbers of this dtype, and the formula.
    fn for_dtype(&self, dtype: DType) -> Option<(&'static str, &'static str)> {
        let (numbers, text) = match dtype {
            DType::F32 | DType::F16 => (include_str!("numbers_float.wgsl"), self.floats),
            DType::I32 => (include_str!("numbers_i32.wgsl"), self.i32),
            DType::U32 => (include_str!("numbers_u32.wgsl"), self.u32),
            DType::I64 => (include_str!("numbers_i64.wgsl"), self.i64),
            DType::U64 => (include_str!("numbers_i64.wgsl"), self.u64),
            _ => return None,
        };
        Some((numbers, text?))
    }
}

/// A formula that is an expression of `a` and `b`.
macro_rules! formula {
    ($value:literal) => {
        concat!("fn formula(a: val, b: val) -> val { return ", $value, "; }")
    };
    ($file:literal, $value:literal) => {
        concat!(include_str!($file), formula!($value))
    };
}

/// A row for each operator.
const FORMULAS: &[Formulas] = &[
    Formulas {
        floats: Some(formula!("a + b")),
        ..Formulas::bits("Add", Some(formula!("a + b")), Some(formula!("sum64(a, b)")))
    },
    Formulas {
        floats: Some(formula!("a - b")),
        ..Formulas::bits("Sub", Some(formula!("a - b")), Some(formula!("difference64(a, b)")))
    },
    Formulas {
        floats: Some(formula!("a * b")),
        ..Formulas::bits("Mul", Some(formula!("a * b")), Some(formula!("product64(a, b)")))
    },
    Formulas {
        // Towards zero; a zero divisor has no result.
        // WGSL makes no promise for a zero divisor; `select` evaluates both sides, so that the divisor is replaced
        // too.
        i32: Some(formula!("select(a / select(b, 1, b == 0), 0, b == 0)")),
        u32: Some(formula!("select(a / max(b, 1u), 0u, b == 0u)")),
        i64: Some(include_str!("divide_i64.wgsl")),
        ..Formulas::floats("Div", formula!("a / b"))
    },
    Formulas {
        i32: Some(include_str!("modulo_i32.wgsl")),
        u32: Some(concat!("override FMOD: u32;\n", formula!("select(a % max(b, 1u), 0u, b == 0u)"))),
        i64: Some(include_str!("modulo_i64.wgsl")),
        ..Formulas::floats("Mod", include_str!("modulo.wgsl"))
    },
    Formulas::floats("Pow", include_str!("pow.wgsl")),
    Formulas::floats("PRelu", formula!("select(a, a * b, a < 0.0)")),
    Formulas {
        // What is not a number stays so.
        floats: Some(formula!("order.wgsl", "larger(a, b)")),
        i64: Some(formula!("select(a, b, less64(a, b))")),
        u64: None,
        ..Formulas::bits("Max", Some(formula!("max(a, b)")), None)
    },
    Formulas {
        floats: Some(formula!("order.wgsl", "smaller(a, b)")),
        i64: Some(formula!("select(a, b, less64(b, a))")),
        u64: None,
        ..Formulas::bits("Min", Some(formula!("min(a, b)")), None)
    },
    Formulas::bits("BitwiseAnd", Some(formula!("a & b")), Some(formula!("a & b"))),
    Formulas::bits("BitwiseOr", Some(formula!("a | b")), Some(formula!("a | b"))),
    Formulas::bits("BitwiseXor", Some(formula!("a ^ b")), Some(formula!("a ^ b"))),
    Formulas {
        i32: None,
        i64: None,
        u32: Some(concat!(
            "override LEFT: u32;\n",
            formula!("select(select(a >> (b & 31u), a << (b & 31u), LEFT == 1u), 0u, b >= 32u)")
        )),
        ..Formulas::bits("BitShift", None, Some(include_str!("shift_u64.wgsl")))
    },
];

/// The numbers and the formula of an operator of two of these, or of more that are taken together two by two.
pub fn formula(name: &str, dtype: DType) -> Option<(&'static str, &'static str)> {
    FORMULAS.iter().find(|row| row.name == name)?.for_dtype(dtype)
}

/// The formula of two floats of the operator of this name.
pub(super) fn formula_of_floats(name: &str) -> Option<&'static str> {
    formula(name, DType::F32).map(|(_, text)| text)
}

/// Fails unless a node has two operands that stretch to each other, and no attributes.
pub(super) fn expect_pair(node: &OnnxNode) -> Result<()> {
    node.reads(&[])?;
    node.input(1)?;
    if node.version() < 7 || node.optional(2).is_some() {
        return Err(node.unserved_error("such operands"));
    }
    Ok(())
}

/// The plan of an operator of two operands.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    // These take any number of operands.
    if matches!(node.op.name(), "Max" | "Min") && node.inputs.len() != 2 {
        return variadic::plan_node(&node, "");
    }
    let constant = match node.op.name() {
        "Mod" => Some(("FMOD", u32::from(node.int("fmod", 0)? != 0))),
        "BitShift" => match node.text("direction", "")? {
            "LEFT" => Some(("LEFT", 1)),
            "RIGHT" => Some(("LEFT", 0)),
            other => return Err(node.unserved_error(&format!("the direction `{other}`"))),
        },
        _ => None,
    };
    node.reads(match node.op.name() {
        "Mod" => &["fmod"],
        "BitShift" => &["direction"],
        _ => &[],
    })?;
    let (a, b, y) = (node.input(0)?, node.input(1)?, node.output(0)?);
    // Early versions stretch the second operand by an attribute.
    if node.version() < 7 || node.optional(2).is_some() {
        return Err(node.unserved_error("such operands"));
    }
    let found = formula(node.op.name(), y.dtype());
    let (numbers, formula) = found.ok_or_else(|| node.unserved_error(&format!("{}", y.dtype())))?;
    if a.dtype() != y.dtype() || b.dtype() != y.dtype() {
        return Err(node.unserved_error("operands of several dtypes"));
    }
    let walk = OperandWalk::from_operands(&y.sizes()?, &[&a.sizes()?, &b.sizes()?])?;
    if y.count()? == 0 {
        return Ok(plan_with(&KERNEL, Vec::new(), Vec::new(), 0));
    }
    let dtype = if y.dtype() == DType::F16 { DType::F16 } else { DType::F32 };
    let text = format!("{numbers}{}{formula}\n", include_str!("pairs.wgsl"));
    let launch = launch(&KERNEL, dtype, text)?.read(whole(a)).read(whole(b)).read(Arg::Constant(0));
    let launch = launch.output(y.index).set("COUNT", y.count()?).set("RANK", walk.rank());
    let launch = launch.set("A_FORM", walk.form(0)).set("B_FORM", walk.form(1));
    let launch = constant.into_iter().fold(launch, |launch, (name, value)| launch.set(name, value));
    let launches = vec![launch.flat(Dim::from(u64::from(y.count()?)))];
    Ok(plan_with(&KERNEL, launches, vec![walk.words()], 1))
}

/// How operands are walked along the elements of an output: dimensions that all walk alike are one.
pub struct OperandWalk {
    /// Sizes of the dimensions that are left.
    sizes: Vec<u32>,
    /// Of each operand, one for each of these dimensions.
    strides: Vec<Vec<u32>>,
}

impl OperandWalk {
    /// Of operands that stretch to these sizes.
    pub fn from_operands(to: &[u32], operands: &[&[u32]]) -> Result<OperandWalk> {
        let strides = operands.iter().map(|from| broadcast_strides(from, to)).collect::<Result<_>>()?;
        Ok(OperandWalk::from_strides(to, strides))
    }

    /// Of operands with these strides, one for each dimension.
    pub fn from_strides(to: &[u32], strides: Vec<Vec<u32>>) -> OperandWalk {
        let mut walk = OperandWalk { sizes: Vec::new(), strides: vec![Vec::new(); strides.len()] };
        // Dimensions of size 1 are never walked. Two neighbours are one where every operand steps over both alike.
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

    /// Dimensions that are left.
    pub fn rank(&self) -> u32 {
        self.sizes.len() as u32
    }

    /// How an operand is walked: 0 as the output, 1 if it has one element, 2 by its strides.
    /// The kernel divides by sizes only in the last form.
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
    use super::OperandWalk;

    #[test]
    fn dimensions_that_walk_alike_are_one() {
        let walk = OperandWalk::from_operands(&[2, 3, 4, 5], &[&[2, 3, 4, 5], &[3, 1, 1], &[]]).unwrap();
        assert_eq!(walk.sizes, [2, 3, 20]);
        assert_eq!(walk.strides, [vec![60, 20, 1], vec![0, 1, 0], vec![0, 0, 0]]);
        assert_eq!([walk.form(0), walk.form(1), walk.form(2)], [2, 2, 1]);
        let same = OperandWalk::from_operands(&[2, 1, 7], &[&[2, 1, 7], &[2, 1, 7]]).unwrap();
        assert_eq!((same.rank(), same.form(0), same.form(1)), (1, 0, 0));
        assert!(OperandWalk::from_operands(&[2, 3], &[&[2]]).is_err());
    }
}
