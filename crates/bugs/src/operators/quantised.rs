//! Weights of few bits unpacked wrongly: the order of elements in a word, of conversions, of zero point and scale, and
//! which group an element belongs to. The places are those of the preludes that all such kernels share.

use super::{Found, Kernel};
use crate::source::Class;
use naga::BinaryOperator as Op;

/// Each place of `old` in code that runs becomes each of `new`.
fn replaced(kernel: &Kernel<'_>, old: &str, new: &[&str]) -> Vec<Found> {
    let places: Vec<usize> = kernel.source.find(old).collect();
    let each = |&at: &usize| new.iter().map(move |new| kernel.text(at..at + old.len(), *new));
    places.iter().flat_map(each).collect()
}

/// Neighbouring elements of a word exchanged, as where the high nibble of a byte comes first; the last element first.
pub fn element_order(kernel: &Kernel<'_>) -> Vec<Found> {
    replaced(
        kernel,
        "(e * vec4<u32>(BITS)) & vec4<u32>(31u)",
        &[
            "((e ^ vec4<u32>(1u)) * vec4<u32>(BITS)) & vec4<u32>(31u)",
            "vec4<u32>(32u - BITS) - ((e * vec4<u32>(BITS)) & vec4<u32>(31u))",
        ],
    )
}

/// Words become numbers in the wrong order of steps: masked before they are shifted, taken for signed, and what is unpacked
/// rounded to f16 on the way.
pub fn conversion_order(kernel: &Kernel<'_>) -> Vec<Found> {
    let value = "vec4<f32>((words >> shift) & vec4<u32>(0xffffffffu >> (32u - BITS)))";
    let mut found = replaced(
        kernel,
        value,
        &[
            "vec4<f32>((words & vec4<u32>(0xffffffffu >> (32u - BITS))) >> shift)",
            "vec4<f32>(bitcast<vec4<i32>>((words >> shift) << vec4<u32>(32u - BITS)) >> vec4<u32>(32u - BITS))",
        ],
    );
    found.extend(scaled(kernel).into_iter().map(|(range, value, scale)| {
        let (value, scale) = (kernel.at(&value), kernel.at(&scale));
        kernel.text(range, format!("quantizeToF16({value} * {scale})"))
    }));
    found
}

/// The zero point subtracted after the scale was applied, and the middle of the range off by one.
pub fn zero_after_scale(kernel: &Kernel<'_>) -> Vec<Found> {
    let mut found = Vec::new();
    for (range, value, scale) in scaled(kernel) {
        let difference = kernel.at(&value);
        let Some((stored, zero)) = difference[1..difference.len() - 1].rsplit_once(" - ") else { continue };
        found.push(kernel.text(range, format!("({stored} * {} - {zero})", kernel.at(&scale))));
    }
    found.extend(replaced(kernel, "f32(1u << (BITS - 1u))", &["f32((1u << (BITS - 1u)) - 1u)"]));
    found
}

/// The scale of another group: the one behind, one that begins an element too early, the other half of a word.
pub fn neighbouring_group(kernel: &Kernel<'_>) -> Vec<Found> {
    let mut found = replaced(
        kernel,
        "e / vec4<u32>(GROUP)",
        &[
            "e / vec4<u32>(GROUP) + vec4<u32>(1u)",
            "(e + vec4<u32>(1u)) / vec4<u32>(GROUP)",
            "e / vec4<u32>(2u * GROUP)",
        ],
    );
    found.extend(replaced(
        kernel,
        "(i & vec4<u32>(1u)) == vec4<u32>(1u)",
        &["(i & vec4<u32>(1u)) == vec4<u32>(0u)"],
    ));
    found
}

type Range = std::ops::Range<usize>;

/// Products of a difference of what is stored and its zero point with a scale: the whole, the difference with its brackets,
/// the scale.
fn scaled(kernel: &Kernel<'_>) -> Vec<(Range, Range, Range)> {
    let products = kernel.source.binaries.iter().filter(|b| b.class == Class::Float && b.op == Op::Multiply);
    let unpacked = products.filter(|b| {
        let left = kernel.at(&b.left);
        left.starts_with("(packed_values(") && left.ends_with(')') && left.contains(" - ")
    });
    unpacked.map(|b| (b.whole.clone(), b.left.clone(), b.right.clone())).collect()
}
