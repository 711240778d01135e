//! Weights of few bits unpacked wrongly: the order of elements in a word, of conversions, of zero point and scale, and
//! which group an element belongs to. The places are those of the preludes that all such kernels share.

use super::kernel::{FoundEdit, MutatedKernel};
use crate::source::{Binary, NumberClass};
use naga::BinaryOperator as Op;

/// Each place of `old` in code that runs becomes each of `new`.
fn replace_each(kernel: &MutatedKernel<'_>, old: &str, new: &[&str]) -> Vec<FoundEdit> {
    let places: Vec<usize> = kernel.source.find(old).collect();
    let each = |&at: &usize| new.iter().map(move |new| kernel.text(at..at + old.len(), *new));
    places.iter().flat_map(each).collect()
}

/// Neighbouring elements of a word exchanged, as where the high nibble of a byte comes first; the last element first.
pub fn element_order(kernel: &MutatedKernel<'_>) -> Vec<FoundEdit> {
    replace_each(
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
pub fn conversion_order(kernel: &MutatedKernel<'_>) -> Vec<FoundEdit> {
    let value = "vec4<f32>((words >> shift) & vec4<u32>(0xffffffffu >> (32u - BITS)))";
    let mut found = replace_each(
        kernel,
        value,
        &[
            "vec4<f32>((words & vec4<u32>(0xffffffffu >> (32u - BITS))) >> shift)",
            "vec4<f32>(bitcast<vec4<i32>>((words >> shift) << vec4<u32>(32u - BITS)) >> vec4<u32>(32u - BITS))",
        ],
    );
    found.extend(find_scaled(kernel).into_iter().map(|product| {
        let (difference, scale) = (kernel.text_at(&product.difference), kernel.text_at(&product.scale));
        kernel.text(product.whole, format!("quantizeToF16({difference} * {scale})"))
    }));
    found
}

/// The zero point subtracted after the scale was applied, and the middle of the range off by one.
pub fn zero_after_scale(kernel: &MutatedKernel<'_>) -> Vec<FoundEdit> {
    let mut found = Vec::new();
    for ScaledProduct { whole, difference, scale } in find_scaled(kernel) {
        let difference = kernel.text_at(&difference);
        // The brackets around the difference are cut off.
        let Some((stored, zero)) = difference[1..difference.len() - 1].rsplit_once(" - ") else { continue };
        found.push(kernel.text(whole, format!("({stored} * {} - {zero})", kernel.text_at(&scale))));
    }
    found.extend(replace_each(kernel, "f32(1u << (BITS - 1u))", &["f32((1u << (BITS - 1u)) - 1u)"]));
    found
}

/// The scale of another group: the one behind, one that begins an element too early, the other half of a word.
pub fn neighbouring_group(kernel: &MutatedKernel<'_>) -> Vec<FoundEdit> {
    let mut found = replace_each(
        kernel,
        "e / vec4<u32>(GROUP)",
        &[
            "e / vec4<u32>(GROUP) + vec4<u32>(1u)",
            "(e + vec4<u32>(1u)) / vec4<u32>(GROUP)",
            "e / vec4<u32>(2u * GROUP)",
        ],
    );
    found.extend(replace_each(
        kernel,
        "(i & vec4<u32>(1u)) == vec4<u32>(1u)",
        &["(i & vec4<u32>(1u)) == vec4<u32>(0u)"],
    ));
    found
}

/// Bytes of the source.
type Range = std::ops::Range<usize>;

/// A product of a difference of what is stored and its zero point with a scale.
struct ScaledProduct {
    whole: Range,
    /// With its brackets.
    difference: Range,
    scale: Range,
}

fn find_scaled(kernel: &MutatedKernel<'_>) -> Vec<ScaledProduct> {
    let products =
        kernel.source.binaries.iter().filter(|b| b.class == NumberClass::Float && b.op == Op::Multiply);
    let unpacked = products.filter(|b| {
        let left = kernel.text_at(&b.left);
        // The form in which the shared preludes write it.
        left.starts_with("(packed_values(") && left.ends_with(')') && left.contains(" - ")
    });
    let product = |b: &Binary| ScaledProduct {
        whole: b.whole.clone(),
        difference: b.left.clone(),
        scale: b.right.clone(),
    };
    unpacked.map(product).collect()
}
