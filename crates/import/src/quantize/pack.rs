//! Numbers to words and scales. A scale is searched that makes the squared error of its group small, among those that
//! f16 holds, so that the words are the best for the scale as it is stored.

mod e4m3;
mod mxfp4;
mod scale;

use half::f16;
use rayon::prelude::*;
use scale::{best_scale, inverse};
use tapml_graph::packing::Code;
use tapml_graph::{Error, Packing, Result, Tensor};

/// Elements that one task quantises, about.
const CHUNK: usize = 1 << 16;
// 0 puts the largest number exactly on the last code.
/// How far the largest element of a group may lie beyond the last step, or before it, in steps: the scales tried.
const REACH: [f32; 7] = [-0.9, -0.6, -0.3, 0.0, 0.3, 0.6, 0.9];
/// Shares of a group's range that are tried where there are zero points.
const RANGES: [f32; 6] = [1.0, 0.95, 0.9, 0.85, 0.8, 0.7];

/// A weight, whose rows are whole groups, packed. Fails if a group's range is beyond its scale.
pub fn pack(weight: &Tensor, packing: Packing) -> Result<Tensor> {
    let sections = packing.sections(weight.shape())?;
    let (group, per_word, bits) = (packing.group as usize, packing.per_word() as usize, packing.bits());
    let room = |i: usize| vec![0u8; sections.get(i).map_or(0, |section| section.len)];
    let (mut words, mut scales, mut zeros) = (room(0), room(1), room(2));
    // Bytes of a group in each section.
    let [word_bytes, scale_bytes] = [group / per_word * 4, sections[1].dtype.size()];
    // Tasks hold whole groups, so that no two write to the same word.
    let task = (CHUNK / group).max(1);
    // Without zero points there is nothing to write them to.
    let mut none = vec![0u8; if packing.zeros { 0 } else { scales.len() / scale_bytes * 2 }];
    let zeros_to = if packing.zeros { &mut zeros } else { &mut none };
    let parts = words.par_chunks_mut(task * word_bytes).zip(scales.par_chunks_mut(task * scale_bytes));
    let parts = parts.zip(zeros_to.par_chunks_mut(task * 2)).enumerate();
    parts.try_for_each(|(index, ((words, scales), zeros))| {
        let numbers = numbers(weight, index * task * group, scales.len() / scale_bytes * group)?;
        let mut codes = vec![0u8; group];
        let groups = numbers.chunks_exact(group).zip(words.chunks_exact_mut(word_bytes));
        let scales = scales.chunks_exact_mut(scale_bytes).zip(zeros.chunks_exact_mut(2));
        for ((numbers, words), (scale, zero)) in groups.zip(scales) {
            let encoded = encode(numbers, packing, &mut codes);
            let (of_scale, of_zero) = encoded.ok_or_else(|| out_of_range(numbers))?;
            scale.copy_from_slice(&of_scale[..scale_bytes]);
            zero.copy_from_slice(&of_zero);
            for (word, codes) in words.as_chunks_mut::<4>().0.iter_mut().zip(codes.chunks_exact(per_word)) {
                // Low bits first: the last code is put in first.
                let packed = codes.iter().rev().fold(0u32, |word, &code| (word << bits) | u32::from(code));
                *word = packed.to_le_bytes();
            }
        }
        Ok(())
    })?;
    let parts = [&words[..], &scales, &zeros];
    Tensor::from_packed(packing, weight.shape().to_vec(), &parts[..sections.len()])
}

/// Scale and zero point of a group as they are stored, and its codes; `None` if no scale is large enough.
/// Dispatches by the code of the packing.
fn encode(numbers: &[f32], packing: Packing, codes: &mut [u8]) -> Option<([u8; 2], [u8; 2])> {
    let (scale, zero) = match packing.code {
        Code::Mxfp4 => return Some(([mxfp4::encode(numbers, codes), 0], [0; 2])),
        Code::E4m3 => (e4m3::encode(numbers, codes), f16::ZERO),
        Code::Int4 | Code::Int8 if packing.zeros => with_zero(numbers, packing, codes),
        Code::Int4 | Code::Int8 => (symmetric(numbers, packing, codes), f16::ZERO),
    };
    (!scale.is_infinite()).then(|| (scale.to_le_bytes(), zero.to_le_bytes()))
}

fn out_of_range(numbers: &[f32]) -> Error {
    let most = numbers.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    Error::unsupported(format!("a group of weights ranges to {most}, beyond the scales of f16"))
        .with_hint("keep the checkpoint's own weights")
}

/// Elements `start..start+len` as f32.
fn numbers(weight: &Tensor, start: usize, len: usize) -> Result<Vec<f32>> {
    let size = weight.dtype().size();
    let bytes = weight.bytes().slice(start * size, len * size);
    let bytes = bytes.ok_or_else(|| Error::bug("a weight has fewer bytes than its shape says"))?;
    Ok(Tensor::new(weight.dtype(), vec![len], bytes)?.to_f32().into_owned())
}

/// The scale of a group whose zero point is the middle of the range, and its codes; an infinite one if f16 holds none that
/// is large enough. The range reaches one step further
/// below the middle than above it; the largest number, whatever its sign, is put on that side, as in ggml's `Q4_0`.
fn symmetric(numbers: &[f32], packing: Packing, codes: &mut [u8]) -> f16 {
    let middle = packing.middle() as f32;
    let largest = numbers.iter().fold(0.0f32, |most, &x| if x.abs() > most.abs() { x } else { most });
    let finite = numbers.iter().all(|x| x.is_finite());
    if largest == 0.0 || !finite {
        // A code beside the middle, so that what is not finite stays so.
        codes.fill(packing.middle() as u8 + u8::from(!finite));
        return f16::from_f32(if finite { 0.0 } else { f32::NAN });
    }
    // With 8 bits a step is so small that the first scale is as good as any.
    let reach = if packing.bits() == 8 { &REACH[3..4] } else { &REACH[..] };
    let scales = reach.iter().map(|reach| -largest / (middle + reach));
    let best = best_scale(numbers, scales, |x| step(x, middle));
    if best.is_infinite() {
        return best;
    }
    // Where every scale is too small for f16 the numbers count as zeros.
    let inverse = inverse(best.to_f32());
    for (code, &x) in codes.iter_mut().zip(numbers) {
        *code = (step(x * inverse, middle) + middle) as u8;
    }
    best
}

/// The nearest step from the middle that there is.
fn step(x: f32, middle: f32) -> f32 {
    nearest(x.clamp(-middle, middle - 1.0))
}

/// The nearest whole number of one below 2²², ties to even: beyond 2²³ the numbers of f32 are whole. Unlike the function of
/// the library this becomes vector code everywhere.
fn nearest(x: f32) -> f32 {
    const FAR: f32 = 12_582_912.0;
    (x + FAR) - FAR
}

/// Scale and zero point of a group, and its codes. The range holds 0, which is exact. The scale is infinite if f16 holds
/// none that is large enough.
fn with_zero(numbers: &[f32], packing: Packing, codes: &mut [u8]) -> (f16, f16) {
    let last = (2 * packing.middle() - 1) as f32;
    let (low, high) = numbers.iter().fold((0.0f32, 0.0f32), |(low, high), &x| (low.min(x), high.max(x)));
    let finite = numbers.iter().all(|x| x.is_finite());
    if low == high || !finite {
        codes.fill(u8::from(!finite));
        return (f16::from_f32(if finite { 0.0 } else { f32::NAN }), f16::ZERO);
    }
    let mut best = (f32::INFINITY, f16::ZERO, 0.0);
    for share in RANGES {
        let scale = f16::from_f32((high - low) * share / last);
        let inverse = inverse(scale.to_f32());
        // The zero point is a whole number, so that 0 is one of the steps.
        let zero = nearest((-low * share * inverse).clamp(0.0, last));
        let code = |x: f32| nearest((x * inverse + zero).clamp(0.0, last));
        let error: f32 = numbers.iter().map(|&x| (x - (code(x) - zero) * scale.to_f32()).powi(2)).sum();
        if error < best.0 {
            best = (error, scale, zero);
        }
    }
    let (error, scale, zero) = best;
    if error.is_infinite() {
        return (f16::INFINITY, f16::ZERO);
    }
    let inverse = inverse(scale.to_f32());
    for (code, &x) in codes.iter_mut().zip(numbers) {
        *code = nearest((x * inverse + zero).clamp(0.0, last)) as u8;
    }
    (scale, f16::from_f32(zero))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapml_graph::DType;

    const FORMS: [Packing; 6] = [
        Packing::integers(4, 32, false),
        Packing::integers(4, 128, true),
        Packing::integers(8, 32, false),
        Packing::integers(8, 64, true),
        Packing::floats(32),
        Packing::MXFP4,
    ];

    /// Numbers with heavy tails, the same each time.
    fn sample(count: usize) -> Vec<f32> {
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / 8_388_608.0 - 1.0
        };
        (0..count).map(|_| (next() + next() + next()) * 0.02 * (1.0 + 2.0 * next().powi(8))).collect()
    }

    fn restore(weight: &Tensor, packing: Packing) -> Vec<f64> {
        let packed = pack(weight, packing).unwrap();
        assert_eq!((packed.shape(), packed.dtype()), (weight.shape(), DType::Packed(packing)));
        packed.to_f64()
    }

    fn error(weight: &Tensor, restored: &[f64]) -> f64 {
        weight.to_f64().iter().zip(restored).map(|(a, b)| (a - b).powi(2)).sum()
    }

    #[test]
    fn errors_are_within_half_a_step_of_the_range() {
        for packing in FORMS.into_iter().filter(|packing| packing.middle() > 0) {
            for dtype in [DType::F32, DType::BF16] {
                let weight = Tensor::from_f32_as(dtype, vec![3, 5, 256], sample(3 * 5 * 256)).unwrap();
                let found = restore(&weight, packing);
                let (numbers, levels) = (weight.to_f64(), f64::from(2 * packing.middle() - 1));
                for (x, y) in numbers.chunks(packing.group as usize).zip(found.chunks(packing.group as usize))
                {
                    let most = x.iter().fold(0.0f64, |m, v| m.max(v.abs()));
                    // Twice the largest number over all steps is a step of any form; a scale may give up the ends.
                    let allowed = 2.0 * most / levels * if packing.bits() == 4 { 2.2 } else { 1.1 };
                    assert!(x.iter().zip(y).all(|(x, y)| (x - y).abs() <= allowed), "{packing:?} {dtype}");
                }
            }
        }
    }

    #[test]
    fn errors_of_numbers_are_within_half_of_their_last_bit() {
        let weight = Tensor::from_f32(vec![15, 256], sample(15 * 256)).unwrap();
        let found = restore(&weight, Packing::floats(32));
        for (x, y) in weight.to_f64().chunks(32).zip(found.chunks(32)) {
            let most = x.iter().fold(0.0f64, |m, v| m.max(v.abs()));
            // 3 bits of mantissa; below 2^-6 of 448 a step of 2^-9, of whatever the largest becomes.
            let allowed = |x: f64| (x.abs() / 16.0).max(most / 448.0 * 2f64.powi(-9)) * 1.02;
            // The scale that errs least may leave the largest beyond the largest code.
            let within =
                |(x, y): (&f64, &f64)| (x - y).abs() <= allowed(*x).max((x.abs() - 0.93 * most) * 1.02);
            assert!(x.iter().zip(y).all(within), "{x:?} {y:?}");
        }
        let (ours, eight) = (error(&weight, &found), error(&weight, &restore(&weight, FORMS[2])));
        assert!(ours < 30.0 * eight && ours > eight, "{ours} {eight}");
    }

    #[test]
    fn mxfp4_errs_by_half_a_step_and_its_scales_reach_far() {
        let weight = Tensor::from_f32(vec![15, 256], sample(15 * 256)).unwrap();
        let found = restore(&weight, Packing::MXFP4);
        for (x, y) in weight.to_f64().chunks(32).zip(found.chunks(32)) {
            let most = x.iter().fold(0.0f64, |m, v| m.max(v.abs()));
            // The largest lies between 4 and 8 scales, where steps are 2, or is cut to 6; with the next scale a step is 2 of it.
            assert!(x.iter().zip(y).all(|(x, y)| (x - y).abs() <= most / 4.0), "{x:?} {y:?}");
        }
        let four = error(&weight, &restore(&weight, FORMS[0]));
        let ours = error(&weight, &found);
        assert!(ours > 0.5 * four && ours < 4.0 * four, "{ours} {four}");
        let huge = Tensor::from_f32(vec![1, 32], vec![1e30; 32]).unwrap();
        assert!(restore(&huge, Packing::MXFP4).iter().all(|x| (x / 1e30 - 1.0).abs() < 0.3));
    }

    #[test]
    fn four_bits_are_no_worse_than_the_blocks_of_ggml() {
        let numbers = sample(1 << 15);
        let weight = Tensor::from_f32(vec![1 << 7, 1 << 8], numbers.clone()).unwrap();
        let ours = error(&weight, &restore(&weight, FORMS[0]));
        // quantize_row_q4_0_ref of ggml-quants.c.
        let theirs: Vec<f64> = numbers
            .chunks(32)
            .flat_map(|block| {
                let most = block.iter().fold(0.0f32, |m, &x| if x.abs() > m.abs() { x } else { m });
                let d = most / -8.0;
                let (inverse, stored) = (if d == 0.0 { 0.0 } else { 1.0 / d }, f16::from_f32(d).to_f64());
                let code = move |x: &f32| f64::from((x * inverse + 8.5).floor().min(15.0)) - 8.0;
                block.iter().map(move |x| code(x) * stored).collect::<Vec<f64>>()
            })
            .collect();
        let theirs = error(&weight, &theirs);
        assert!(ours < 0.95 * theirs, "{ours} {theirs}");
    }

    #[test]
    fn zeros_and_steps_of_the_scale_are_exact_and_what_is_not_finite_stays_so() {
        for packing in FORMS {
            let zeros = Tensor::from_f32(vec![1, 128], vec![0.0; 128]).unwrap();
            assert!(restore(&zeros, packing).iter().all(|&x| x == 0.0), "{packing:?}");
            let mut numbers = sample(256);
            numbers[5] = f32::NAN;
            numbers[200] = f32::INFINITY;
            let ill = Tensor::from_f32(vec![1, 256], numbers).unwrap();
            let found = restore(&ill, packing);
            assert!(found[5].is_nan() && !found[200].is_finite(), "{packing:?}");
        }
        let steps: Vec<f32> = (0..32).map(|i| 0.25 * (i % 16 - 8) as f32).collect();
        let weight = Tensor::from_f32(vec![1, 32], steps).unwrap();
        assert_eq!(restore(&weight, FORMS[0]), weight.to_f64());
    }

    #[test]
    fn odd_rows_and_numbers_beyond_f16_are_refused() {
        let odd = Tensor::from_f32(vec![2, 33], vec![0.0; 66]).unwrap();
        assert!(pack(&odd, FORMS[0]).unwrap_err().to_string().contains("whole groups of 32"));
        let huge = Tensor::from_f32(vec![1, 128], vec![1e9; 128]).unwrap();
        for packing in FORMS.into_iter().filter(|packing| *packing != Packing::MXFP4) {
            let error = pack(&huge, packing).unwrap_err().to_string();
            assert!(error.contains("beyond the scales of f16"), "{packing:?}: {error}");
        }
    }
}
