//! Operators on numbers and booleans, and how what is written for scalars is applied to vectors and matrices.
//!
//! A template is C in which `$a`, `$b`, `$c` and `$d` stand for the operands, each once at most.

use crate::text::{bare, member};
use crate::types::{COMPONENTS, Kind, ValueShape};
use crate::writer::{WriteResult, Writer};
use naga::{BinaryOperator as B, UnaryOperator};

/// A value of numbers or booleans.
#[derive(Clone)]
pub struct Operand {
    /// C that may stand in any expression and before a postfix.
    pub text: String,
    /// Its shape.
    pub shape: ValueShape,
}

impl Operand {
    /// Number of components: 1 for a scalar.
    pub fn components(&self) -> usize {
        match self.shape {
            ValueShape::Vector(n, _) => n as usize,
            _ => 1,
        }
    }

    /// Component `i`; a scalar is its own.
    pub fn component(&self, i: usize) -> String {
        match self.shape {
            ValueShape::Vector(..) => member(&self.text, &COMPONENTS[i.min(3)].to_string()),
            _ => self.text.clone(),
        }
    }

    /// Column `i` of a matrix.
    pub fn column(&self, i: usize) -> Operand {
        let ValueShape::Matrix(_, rows, kind) = self.shape else { return self.clone() };
        let padded = if rows == 3 { ".v" } else { "" };
        Operand { text: format!("{}.c[{i}]{padded}", self.text), shape: ValueShape::Vector(rows, kind) }
    }
}

/// The template of an operator with one operand.
///
/// `None` if WGSL has no such operator on this kind.
pub fn unary(op: UnaryOperator, kind: Kind) -> Option<String> {
    Some(match (op, kind) {
        (UnaryOperator::Negate, Kind::I32) => "((i32)(0u - (u32)$a))".into(),
        (UnaryOperator::Negate, Kind::F32) => "(-$a)".into(),
        // The sign is a bit, so that nothing rounds.
        (UnaryOperator::Negate, Kind::F16) => "((h16)($a ^ 0x8000u))".into(),
        (UnaryOperator::LogicalNot, Kind::Bool) => "(!$a)".into(),
        (UnaryOperator::BitwiseNot, Kind::I32 | Kind::U32) => "(~$a)".into(),
        _ => return None,
    })
}

/// The template of an operator with two operands, and the kind of its result.
///
/// Integers wrap; their quotients and remainders by zero are those of WGSL, by functions of the prelude.
pub fn binary(op: B, kind: Kind) -> Option<(String, Kind)> {
    let compared = match op {
        B::Equal => "==",
        B::NotEqual => "!=",
        B::Less => "<",
        B::LessEqual => "<=",
        B::Greater => ">",
        B::GreaterEqual => ">=",
        _ => "",
    };
    // Comparisons of `f16` are those of the numbers, not of the bits.
    if !compared.is_empty() {
        return Some((halves(kind, &format!("($a {compared} $b)"), Kind::Bool), Kind::Bool));
    }
    let template = match kind {
        Kind::F32 | Kind::F16 => halves(kind, float(op)?, kind),
        Kind::I32 => signed_operator(op)?.into(),
        Kind::U32 => unsigned_operator(op)?.into(),
        Kind::Bool => match op {
            B::And | B::LogicalAnd => "($a && $b)".into(),
            B::InclusiveOr | B::LogicalOr => "($a || $b)".into(),
            B::ExclusiveOr => "($a != $b)".into(),
            _ => return None,
        },
    };
    Some((template, kind))
}

/// Templates of operators on floats, in `f32`.
fn float(op: B) -> Option<&'static str> {
    Some(match op {
        B::Add => "($a + $b)",
        B::Subtract => "($a - $b)",
        B::Multiply => "($a * $b)",
        B::Divide => "($a / $b)",
        B::Modulo => "rem_f($a, $b)",
        _ => return None,
    })
}

/// Templates of operators on `i32`. They go through `u32`, as overflow of signed integers is undefined in C and wraps in WGSL.
fn signed_operator(op: B) -> Option<&'static str> {
    Some(match op {
        B::Add => "((i32)((u32)$a + (u32)$b))",
        B::Subtract => "((i32)((u32)$a - (u32)$b))",
        B::Multiply => "((i32)((u32)$a * (u32)$b))",
        B::Divide => "div_i($a, $b)",
        B::Modulo => "rem_i($a, $b)",
        B::And => "($a & $b)",
        B::InclusiveOr => "($a | $b)",
        B::ExclusiveOr => "($a ^ $b)",
        B::ShiftLeft => "((i32)((u32)$a << ($b & 31u)))",
        B::ShiftRight => "($a >> ($b & 31u))",
        _ => return None,
    })
}

/// Templates of operators on `u32`. Shifts take the count modulo 32, as larger ones are undefined in C.
fn unsigned_operator(op: B) -> Option<&'static str> {
    Some(match op {
        B::Add => "($a + $b)",
        B::Subtract => "($a - $b)",
        B::Multiply => "($a * $b)",
        B::Divide => "div_u($a, $b)",
        B::Modulo => "rem_u($a, $b)",
        B::And => "($a & $b)",
        B::InclusiveOr => "($a | $b)",
        B::ExclusiveOr => "($a ^ $b)",
        B::ShiftLeft => "($a << ($b & 31u))",
        B::ShiftRight => "($a >> ($b & 31u))",
        _ => return None,
    })
}

/// A template for `f32`, or for `f16` by the same operation in `f32` and one rounding.
///
/// `out` is the kind of the result: a comparison of two `f16` is no number that is rounded.
pub fn halves(kind: Kind, template: &str, out: Kind) -> String {
    // `f32` has twice the digits of `f16` and two more: a sum, product, quotient or root rounds as if once.
    if kind != Kind::F16 {
        return template.to_string();
    }
    let mut text = template.to_string();
    for hole in ["$a", "$b", "$c"] {
        text = text.replace(hole, &format!("half_to_float({hole})"));
    }
    if out == Kind::F16 { format!("float_to_half({text})") } else { text }
}

impl Writer<'_> {
    /// Applies a template to scalars, or to each component of vectors and matrices, scalars serving all components.
    /// `name` and the operands' shapes tell one template from all others.
    pub fn apply(
        &mut self,
        name: &str,
        template: &str,
        operands: &[Operand],
        out: Kind,
    ) -> WriteResult<String> {
        // A scalar beside a vector or a matrix serves all of its components.
        let widest = operands.iter().map(|o| o.shape).max_by_key(|s| match s {
            ValueShape::Scalar(_) => 0,
            ValueShape::Vector(..) => 1,
            ValueShape::Matrix(..) => 2,
        });
        let shape = self.need(widest, "an operation on nothing")?.with_kind(out);
        if let ValueShape::Scalar(_) = shape {
            let texts: Vec<String> = operands.iter().map(|o| o.text.clone()).collect();
            return Ok(fill(template, &texts));
        }
        let tags: Vec<String> = operands.iter().map(|o| o.shape.tag()).collect();
        let name = format!("{}_{}", snake(name), tags.join("_"));
        let parameters = self.parameters(operands);
        self.helper(&name, |writer| {
            let ty = writer.types.shape(shape);
            let own: Vec<Operand> = parameters.iter().map(|(_, o)| o.clone()).collect();
            let list: Vec<String> = parameters.iter().map(|(ty, o)| format!("{ty} {}", o.text)).collect();
            let body = writer.write_componentwise(name_of(&name), template, &own, shape)?;
            Ok(format!("DEV {ty} {name}({}) {{ {body} }}\n", list.join(", ")))
        })?;
        let texts: Vec<&str> = operands.iter().map(|o| bare(&o.text)).collect();
        Ok(format!("{name}({})", texts.join(", ")))
    }

    /// The operands as a function's parameters, with their types.
    /// They are called `a`, `b`, `c` and `d`, as the holes of templates are.
    pub fn parameters(&mut self, operands: &[Operand]) -> Vec<(String, Operand)> {
        let named = operands.iter().zip(["a", "b", "c", "d"]);
        named
            .map(|(o, name)| (self.types.shape(o.shape), Operand { text: name.into(), shape: o.shape }))
            .collect()
    }

    /// The body of a function that applies a template to each component, or to each column by another function.
    ///
    /// # Errors
    /// For a scalar, which is no vector to take apart.
    fn write_componentwise(
        &mut self,
        name: &str,
        template: &str,
        own: &[Operand],
        shape: ValueShape,
    ) -> WriteResult<String> {
        match shape {
            ValueShape::Matrix(columns, rows, kind) => {
                let ty = self.types.shape(shape);
                let padded = if rows == 3 { ".v" } else { "" };
                let mut set = String::new();
                for i in 0..columns as usize {
                    // A scalar is its own column.
                    let column: Vec<Operand> = own.iter().map(|o| o.column(i)).collect();
                    let value = self.apply(name, template, &column, kind)?;
                    set.push_str(&format!("m.c[{i}]{padded} = {value}; "));
                }
                Ok(format!("{ty} m; {set}return m;"))
            }
            ValueShape::Vector(n, kind) => {
                let part = |i: usize| {
                    let texts: Vec<String> = own.iter().map(|o| o.component(i)).collect();
                    fill(template, &texts)
                };
                let parts: Vec<String> = (0..n as usize).map(part).collect();
                Ok(format!("return {};", self.vector_of(kind, &parts)?))
            }
            ValueShape::Scalar(_) => self.fail("a scalar taken apart"),
        }
    }
}

/// A function's name without the types it is for.
/// The types of a function on matrices begin with `_m`.
fn name_of(name: &str) -> &str {
    name.split("_m").next().unwrap_or(name)
}

/// `NotEqual` as `not_equal`.
fn snake(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

/// A template with its operands.
///
/// Holes are numbered by letters: `$a` is the first operand.
fn fill(template: &str, operands: &[String]) -> String {
    let mut out = String::with_capacity(template.len() + 32);
    let mut pieces = template.split('$');
    out.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        // The letter behind `$` tells the operand.
        let hole = piece.bytes().next().unwrap_or(b'a').wrapping_sub(b'a');
        let rest = piece.get(1..).unwrap_or_default();
        let text = operands.get(hole as usize).map_or("", String::as_str);
        // As an argument of a function an operand needs no parentheses of its own.
        let before = out.strip_suffix('(').and_then(|o| o.bytes().next_back());
        let first = before.is_some_and(|c| c.is_ascii_alphanumeric() || c == b'_');
        let alone = (first || out.ends_with(", ")) && (rest.starts_with(')') || rest.starts_with(','));
        out.push_str(if alone { bare(text) } else { text });
        out.push_str(rest);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_filled() {
        let operands = ["(x_ + 1u)".to_string(), "y_".to_string()];
        assert_eq!(fill("($a + $b)", &operands), "((x_ + 1u) + y_)");
        assert_eq!(fill("div_u($a, $b)", &operands), "div_u(x_ + 1u, y_)");
        assert_eq!(snake("NotEqual"), "not_equal");
        assert_eq!(
            halves(Kind::F16, "($a + $b)", Kind::F16),
            "float_to_half((half_to_float($a) + half_to_float($b)))"
        );
    }
}
