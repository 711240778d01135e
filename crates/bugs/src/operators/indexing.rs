//! Wrong elements: bounds, offsets, strides, rows, axes, positions.
//!
//! Places are expressions of integers. Headers of loops are left out where a change could make a loop endless.

use super::kernel::{FoundEdit, MutatedKernel};
use crate::source::{Binary, NumberClass};
use naga::BinaryOperator as Op;

/// Integer expressions of these operators.
fn ints<'a>(kernel: &'a MutatedKernel<'_>, ops: &'a [Op]) -> impl Iterator<Item = &'a Binary> {
    kernel.source.binaries.iter().filter(move |b| b.class == NumberClass::Int && ops.contains(&b.op))
}

/// Whether nothing is below the right operand, so that `>=` would always hold.
fn never_below(kernel: &MutatedKernel<'_>, b: &Binary) -> bool {
    matches!(kernel.text_at(&b.right), "0u" | "0")
}

/// Comparisons with and without equality exchanged.
pub fn bound(kernel: &MutatedKernel<'_>) -> Vec<FoundEdit> {
    let found = ints(kernel, &[Op::Less, Op::LessEqual, Op::Greater, Op::GreaterEqual]);
    found
        // A comparison that always holds would change nothing, or end nothing.
        .filter(|b| !never_below(kernel, b))
        .map(|b| {
            let new = match b.op {
                Op::Less => "<=",
                Op::LessEqual => "<",
                Op::Greater => ">=",
                _ => ">",
            };
            kernel.text(b.sign.clone(), new)
        })
        .collect()
}

/// The last four elements before a bound are left out.
pub fn tail_dropped(kernel: &MutatedKernel<'_>) -> Vec<FoundEdit> {
    // The left side grows, so that the bound is reached four elements early.
    let found = ints(kernel, &[Op::Less, Op::LessEqual]);
    let more =
        |left: &str| if kernel.source.is_cuda() { format!("({left}) + 4") } else { format!("{left} + 4u") };
    found.map(|b| kernel.text(b.left.clone(), more(kernel.text_at(&b.left)))).collect()
}

/// Loops that begin at the second element.
pub fn first_skipped(kernel: &MutatedKernel<'_>) -> Vec<FoundEdit> {
    let headers = kernel.source.loops().into_iter();
    headers
        .filter_map(|header| {
            let first = &kernel.source.code[header.clone()];
            let end = first.find(';')?;
            let (zero, one) = if kernel.source.is_cuda() { ("= 0", "1") } else { ("= 0u", "1u") };
            let at =
                first[..end].find(zero).filter(|at| at + zero.len() == end || !kernel.source.is_cuda())?;
            Some(kernel.text(header.start + at + 2..header.start + at + zero.len(), one))
        })
        .collect()
}

/// Sums and differences one too large.
pub fn offset(kernel: &MutatedKernel<'_>) -> Vec<FoundEdit> {
    let found = ints(kernel, &[Op::Add, Op::Subtract]);
    found
        .filter(|b| !kernel.source.in_loop_header(&b.whole))
        .map(|b| {
            let step = step(kernel, b);
            kernel.text(b.whole.clone(), format!("({} + {step}u)", kernel.text_at(&b.whole)))
        })
        .collect()
}

/// Functions of CUDA C++ that take 16 bytes from a place, which must be a multiple of 16.
const CHUNKS: [&str; 6] = ["cp_async_16(", "load16(", "read16(", "read_chunk(", "ldmatrix", "read_mine("];

/// How far a place is off: by one element; by 16 bytes where a chunk of them is read, because anything else would end the
/// kernel.
fn step(kernel: &MutatedKernel<'_>, b: &Binary) -> u32 {
    let statement = kernel.source.statement_around(&b.whole);
    let chunk = CHUNKS.iter().any(|name| kernel.text_at(&statement).contains(name));
    if kernel.source.is_cuda() && chunk { 16 } else { 1 }
}

/// The stage of a ring behind the one that is meant.
pub fn stage(kernel: &MutatedKernel<'_>) -> Vec<FoundEdit> {
    let stages = ["DEPTH", "STAGES"].iter().find_map(|name| kernel.constant(name)).unwrap_or(2.0);
    let of =
        |b: &&Binary| matches!(kernel.text_at(&b.left).rsplit(['.', '>']).next(), Some("slot" | "ask_slot"));
    let slots = ints(kernel, &[Op::Multiply]).filter(|_| kernel.source.is_cuda());
    slots
        .filter(of)
        .map(|b| kernel.text(b.left.clone(), format!("(({} + 1u) % {stages}u)", kernel.text_at(&b.left))))
        .collect()
}

/// One of two summands is forgotten.
pub fn offset_ignored(kernel: &MutatedKernel<'_>) -> Vec<FoundEdit> {
    let found = ints(kernel, &[Op::Add]).filter(|b| !kernel.source.in_loop_header(&b.whole));
    found
        .flat_map(|b| [&b.left, &b.right].map(|kept| kernel.text(b.whole.clone(), kernel.text_at(kept))))
        .collect()
}

/// Products with a factor one too large.
pub fn stride(kernel: &MutatedKernel<'_>) -> Vec<FoundEdit> {
    let found = ints(kernel, &[Op::Multiply]);
    found.map(|b| kernel.text(b.right.clone(), format!("({} + 1u)", kernel.text_at(&b.right)))).collect()
}

/// Quotient for remainder and the reverse.
pub fn division(kernel: &MutatedKernel<'_>) -> Vec<FoundEdit> {
    let found = ints(kernel, &[Op::Divide, Op::Modulo]);
    found
        .filter(|b| !kernel.source.in_loop_header(&b.whole))
        .map(|b| kernel.text(b.sign.clone(), if b.op == Op::Divide { "%" } else { "/" }))
        .collect()
}

/// Names of variables that say where something is.
const PLACES: [&str; 14] = [
    "row", "first", "column", "head", "kv_head", "at", "e", "id", "expert", "output", "run", "angle", "pair",
    "position",
];

/// Neighbours are exchanged: 0 and 1, 2 and 3, and so on.
pub fn swapped_rows(kernel: &MutatedKernel<'_>) -> Vec<FoundEdit> {
    let places = kernel.source.inits.iter().filter(|(name, _)| PLACES.contains(&name.as_str()));
    places.map(|(_, value)| kernel.text(value.clone(), format!("({}) ^ 1u", kernel.text_at(value)))).collect()
}

/// x and y of the workgroup exchanged.
pub fn swapped_axes(kernel: &MutatedKernel<'_>) -> Vec<FoundEdit> {
    let swap = |from: &'static str, to: &'static str| {
        kernel.source.find(from).map(move |at| kernel.text(at..at + from.len(), to)).collect::<Vec<_>>()
    };
    // Each place is a mutant of its own.
    let [x, y] = kernel.axes();
    // A grid of one axis has nothing to exchange.
    match kernel.source.find(y).next() {
        Some(_) => [swap(x, y), swap(y, x)].concat(),
        None => Vec::new(),
    }
}

/// The number of cached tokens is one too large, or taken for 0.
pub fn position(kernel: &MutatedKernel<'_>) -> Vec<FoundEdit> {
    let name = if kernel.source.is_cuda() { "symbols[1]" } else { "symbols.p" };
    let field = |c: char| c.is_ascii_alphanumeric() || "_.".contains(c);
    let mut found = Vec::new();
    for at in kernel.source.find(name) {
        // With the structure that it is a field of, if any.
        let start = kernel.source.code[..at].trim_end_matches(field).len();
        let range = start..at + name.len();
        let more = format!("({} + 1u)", kernel.text_at(&range));
        found.extend([more, "0u".into()].map(|new| kernel.text(range.clone(), new)));
    }
    found
}
