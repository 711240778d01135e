//! Wrong elements: bounds, offsets, strides, rows, axes, positions.

use super::{Found, Kernel};
use crate::source::{Binary, Class};
use naga::BinaryOperator as Op;

/// Integer expressions of these operators.
fn ints<'a>(kernel: &'a Kernel<'_>, ops: &'a [Op]) -> impl Iterator<Item = &'a Binary> {
    kernel.source.binaries.iter().filter(move |b| b.class == Class::Int && ops.contains(&b.op))
}

/// Whether nothing is below the right operand, so that `>=` would always hold.
fn never_below(kernel: &Kernel<'_>, b: &Binary) -> bool {
    matches!(kernel.at(&b.right), "0u" | "0")
}

/// Comparisons with and without equality exchanged.
pub fn bound(kernel: &Kernel<'_>) -> Vec<Found> {
    let found = ints(kernel, &[Op::Less, Op::LessEqual, Op::Greater, Op::GreaterEqual]);
    found
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
pub fn tail_dropped(kernel: &Kernel<'_>) -> Vec<Found> {
    let found = ints(kernel, &[Op::Less, Op::LessEqual]);
    found.map(|b| kernel.text(b.left.clone(), format!("{} + 4u", kernel.at(&b.left)))).collect()
}

/// Loops that begin at the second element.
pub fn first_skipped(kernel: &Kernel<'_>) -> Vec<Found> {
    let headers = kernel.source.loops().into_iter();
    headers
        .filter_map(|header| {
            let first = &kernel.source.code[header.clone()];
            let end = first.find(';')?;
            let at = first[..end].find("= 0u")?;
            Some(kernel.text(header.start + at + 2..header.start + at + 4, "1u"))
        })
        .collect()
}

/// Sums and differences one too large.
pub fn offset(kernel: &Kernel<'_>) -> Vec<Found> {
    let found = ints(kernel, &[Op::Add, Op::Subtract]);
    found
        .filter(|b| !kernel.source.in_loop_header(&b.whole))
        .map(|b| kernel.text(b.whole.clone(), format!("({} + 1u)", kernel.at(&b.whole))))
        .collect()
}

/// One of two summands is forgotten.
pub fn offset_ignored(kernel: &Kernel<'_>) -> Vec<Found> {
    let found = ints(kernel, &[Op::Add]).filter(|b| !kernel.source.in_loop_header(&b.whole));
    found
        .flat_map(|b| [&b.left, &b.right].map(|kept| kernel.text(b.whole.clone(), kernel.at(kept))))
        .collect()
}

/// Products with a factor one too large.
pub fn stride(kernel: &Kernel<'_>) -> Vec<Found> {
    let found = ints(kernel, &[Op::Multiply]);
    found.map(|b| kernel.text(b.right.clone(), format!("({} + 1u)", kernel.at(&b.right)))).collect()
}

/// Quotient for remainder and the reverse.
pub fn division(kernel: &Kernel<'_>) -> Vec<Found> {
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
pub fn swapped_rows(kernel: &Kernel<'_>) -> Vec<Found> {
    let mut found = Vec::new();
    for range in kernel.source.statements() {
        let text = &kernel.source.code[range.clone()];
        let Some((name, _)) = text.strip_prefix("let ").and_then(|rest| rest.split_once(" = ")) else {
            continue;
        };
        if PLACES.contains(&name) {
            let value = range.start + "let ".len() + name.len() + " = ".len()..range.end - 1;
            let new = format!("({}) ^ 1u", kernel.at(&value));
            found.push(kernel.text(value, new));
        }
    }
    found
}

/// x and y of the workgroup exchanged.
pub fn swapped_axes(kernel: &Kernel<'_>) -> Vec<Found> {
    let swap = |from: &'static str, to: &'static str| {
        kernel.source.find(from).map(move |at| kernel.text(at..at + from.len(), to)).collect::<Vec<_>>()
    };
    // A grid of one axis has nothing to exchange.
    match kernel.source.find("group.y").next() {
        Some(_) => [swap("group.x", "group.y"), swap("group.y", "group.x")].concat(),
        None => Vec::new(),
    }
}

/// The number of cached tokens is one too large, or taken for 0.
pub fn position(kernel: &Kernel<'_>) -> Vec<Found> {
    let name = "symbols.p";
    let places = kernel.source.find(name).collect::<Vec<_>>().into_iter();
    places
        .flat_map(|at| ["(symbols.p + 1u)", "0u"].map(|new| kernel.text(at..at + name.len(), new)))
        .collect()
}
