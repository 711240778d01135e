//! What is read of a source, in any language.

use naga::BinaryOperator;
use std::ops::Range;

/// Numbers of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NumberClass {
    /// Floats: values.
    Float,
    /// Integers and pointers: places.
    Int,
}

/// An expression of two operands. Ranges are bytes of the full source, parentheses around operands not included.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Binary {
    /// The operator.
    pub op: BinaryOperator,
    /// What it works on.
    pub class: NumberClass,
    /// The whole.
    pub whole: Range<usize>,
    /// The left operand with its parentheses.
    pub left: Range<usize>,
    /// The operator's characters.
    pub sign: Range<usize>,
    /// The right operand with its parentheses.
    pub right: Range<usize>,
}

/// A statement that adds to a float.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FloatSum {
    /// The statement with its semicolon.
    pub statement: Range<usize>,
    /// The variable.
    pub target: Range<usize>,
    /// What is added, if it stands behind `+=`.
    pub added: Option<Range<usize>>,
}

/// What was read of a source.
/// The fields are those of [`KernelSource`].
#[derive(Default)]
pub(super) struct Parsed {
    /// The source with comments blanked: positions are equal.
    pub(super) code: String,
    pub(super) live: Vec<(String, Range<usize>)>,
    pub(super) dead: Vec<Range<usize>>,
    pub(super) binaries: Vec<Binary>,
    pub(super) statements: Vec<Range<usize>>,
    pub(super) sums: Vec<FloatSum>,
    pub(super) inits: Vec<(String, Range<usize>)>,
    pub(super) floats: Vec<Range<usize>>,
}

/// Whether two ranges have a byte in common.
pub(super) fn overlaps(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

/// The place of the bracket that closes the one at `open`.
/// Brackets of all kinds count together: texts of kernels are balanced.
pub fn closing_bracket(code: &str, open: usize) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in code.bytes().enumerate().skip(open) {
        match c {
            b'(' | b'{' | b'[' => depth += 1,
            b')' | b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}
