//! Quantised blocks to f32, bit for bit as ggml defines them (`dequantize_row_*` of `ggml-quants.c`): the same products
//! and sums in the same order, each rounded to f32.
//!
//! A block begins or ends with its scales in f16; the rest are packed codes. All types pack codes the same way: a run of
//! bytes holds the first codes in its lowest bits, the next ones in the bits above, and so on, run after run. Types
//! differ in bits per code and bytes per run.

use half::f16;

/// Dequantises whole blocks; `out` has room for their elements.
pub type Dequantize = fn(blocks: &[u8], out: &mut [f32]);

/// Values of the 4-bit codes of the non-linear types (`kvalues_iq4nl`).
const NON_LINEAR: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
// Doubled, so that the table holds whole numbers; the scale is halved instead.
/// Twice the values of the codes of E2M1: sign, two bits of exponent, one of mantissa. OCP Microscaling Formats 1.0.
const E2M1: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// 32 codes of 4 bits, `d·(code − 8)`.
///
/// Block: `d: f16`, 16 bytes of codes.
pub fn q4_0(blocks: &[u8], out: &mut [f32]) {
    for_each_block::<18, 32>(blocks, out, |block, out| {
        let codes = unpack::<4, 16, 32>(&block[2..]);
        scale_into(out, half(block, 0), codes.map(|c| c as i8 - 8));
    });
}

/// 32 codes of 4 bits, `d·code + m`.
///
/// Block: `d: f16`, `m: f16`, 16 bytes of codes.
pub fn q4_1(blocks: &[u8], out: &mut [f32]) {
    for_each_block::<20, 32>(blocks, out, |block, out| {
        let codes = unpack::<4, 16, 32>(&block[4..]);
        affine(out, half(block, 0), half(block, 2), &codes);
    });
}

/// 32 codes of 5 bits, the fifth bits apart, `d·(code − 16)`.
pub fn q5_0(blocks: &[u8], out: &mut [f32]) {
    for_each_block::<22, 32>(blocks, out, |block, out| {
        let codes = with_high(unpack::<4, 16, 32>(&block[6..]), unpack::<1, 1, 32>(&block[2..6]), 4);
        scale_into(out, half(block, 0), codes.map(|c| c as i8 - 16));
    });
}

/// 32 codes of 5 bits, the fifth bits apart, `d·code + m`.
pub fn q5_1(blocks: &[u8], out: &mut [f32]) {
    for_each_block::<24, 32>(blocks, out, |block, out| {
        let codes = with_high(unpack::<4, 16, 32>(&block[8..]), unpack::<1, 1, 32>(&block[4..8]), 4);
        affine(out, half(block, 0), half(block, 2), &codes);
    });
}

/// 32 codes of 8 bits, signed, `d·code`.
///
/// Block: `d: f16`, 32 codes.
pub fn q8_0(blocks: &[u8], out: &mut [f32]) {
    for_each_block::<34, 32>(blocks, out, |block, out| {
        let d = half(block, 0);
        for (y, &code) in out.iter_mut().zip(&block[2..]) {
            // The code first, as ggml has it; a product of floats does not depend on the order.
            *y = f32::from(code as i8) * d;
        }
    });
}

/// 16 groups of 16 codes of 2 bits with 4-bit scales and minima, `d·scale·code − dmin·min`.
///
/// Block: 16 bytes of scales and minima, 64 bytes of codes, `d`, `dmin`.
pub fn q2_k(blocks: &[u8], out: &mut [f32]) {
    for_each_block::<84, 256>(blocks, out, |block, out| {
        let (d, dmin) = (half(block, 80), half(block, 82));
        let codes = unpack::<2, 32, 256>(&block[16..80]);
        let groups = out.as_chunks_mut::<16>().0.iter_mut().zip(codes.as_chunks::<16>().0);
        for ((y, codes), &packed) in groups.zip(&block[..16]) {
            let (scale, min) = (d * f32::from(packed & 15), dmin * f32::from(packed >> 4));
            scale_and_offset_into(y, scale, min, codes);
        }
    });
}

/// 16 groups of 16 codes of 3 bits with 6-bit scales, `d·(scale − 32)·(code − 4)`.
///
/// Block: 32 bytes of upper bits, 64 bytes of lower bits, 12 bytes of scales, `d`.
pub fn q3_k(blocks: &[u8], out: &mut [f32]) {
    for_each_block::<110, 256>(blocks, out, |block, out| {
        let d = half(block, 108);
        let low = unpack::<2, 32, 256>(&block[32..96]);
        let codes = with_high(low, unpack::<1, 32, 256>(&block[..32]), 2);
        let scales = with_high(unpack::<4, 8, 16>(&block[96..104]), unpack::<2, 4, 16>(&block[104..108]), 4);
        let groups = out.as_chunks_mut::<16>().0.iter_mut().zip(codes.as_chunks::<16>().0);
        for ((y, codes), scale) in groups.zip(scales) {
            scale_into(y, d * f32::from(scale as i8 - 32), codes.map(|c| c as i8 - 4));
        }
    });
}

/// 8 groups of 32 codes of 4 bits with 6-bit scales and minima, `d·scale·code − dmin·min`.
pub fn q4_k(blocks: &[u8], out: &mut [f32]) {
    for_each_block::<144, 256>(blocks, out, |block, out| {
        let codes = unpack::<4, 32, 256>(&block[16..]);
        scales_and_minima(block, out, &codes);
    });
}

/// As [`q4_k`] with codes of 5 bits, the fifth bits apart.
pub fn q5_k(blocks: &[u8], out: &mut [f32]) {
    for_each_block::<176, 256>(blocks, out, |block, out| {
        let low = unpack::<4, 32, 256>(&block[48..]);
        let codes = with_high(low, unpack::<1, 32, 256>(&block[16..48]), 4);
        scales_and_minima(block, out, &codes);
    });
}

/// 16 groups of 16 codes of 6 bits, the upper two apart, with 8-bit scales, `d·scale·(code − 32)`.
///
/// Block: 128 bytes of lower bits, 64 bytes of upper bits, 16 scales, `d`.
pub fn q6_k(blocks: &[u8], out: &mut [f32]) {
    for_each_block::<210, 256>(blocks, out, |block, out| {
        let d = half(block, 208);
        let low = unpack::<4, 64, 256>(&block[..128]);
        let codes = with_high(low, unpack::<2, 32, 256>(&block[128..192]), 4);
        let groups = out.as_chunks_mut::<16>().0.iter_mut().zip(codes.as_chunks::<16>().0);
        for ((y, codes), &scale) in groups.zip(&block[192..208]) {
            scale_into(y, d * f32::from(scale as i8), codes.map(|c| c as i8 - 32));
        }
    });
}

/// 32 codes of 4 bits, `d·value(code)` with values that lie closer around zero.
pub fn iq4_nl(blocks: &[u8], out: &mut [f32]) {
    for_each_block::<18, 32>(blocks, out, |block, out| {
        let codes = unpack::<4, 16, 32>(&block[2..]);
        scale_into(out, half(block, 0), codes.map(|c| NON_LINEAR[usize::from(c)]));
    });
}

/// 8 groups of 32 codes as in [`iq4_nl`] with 6-bit scales, `d·(scale − 32)·value(code)`.
pub fn iq4_xs(blocks: &[u8], out: &mut [f32]) {
    for_each_block::<136, 256>(blocks, out, |block, out| {
        let d = half(block, 0);
        let scales = with_high(unpack::<4, 1, 8>(&block[4..8]), unpack::<2, 1, 8>(&block[2..4]), 4);
        let codes = unpack::<4, 16, 256>(&block[8..]);
        let groups = out.as_chunks_mut::<32>().0.iter_mut().zip(codes.as_chunks::<32>().0);
        for ((y, codes), scale) in groups.zip(scales) {
            scale_into(y, d * f32::from(scale as i8 - 32), codes.map(|c| NON_LINEAR[usize::from(c)]));
        }
    });
}

/// 32 codes of E2M1 with a power of two as their scale.
///
/// Block: one exponent (e8m0), 16 bytes of codes.
pub fn mxfp4(blocks: &[u8], out: &mut [f32]) {
    for_each_block::<17, 32>(blocks, out, |block, out| {
        // Half of 2^(e − 127), because the values are doubled; the two smallest are subnormal in f32.
        let exponent = u32::from(block[0]);
        let bits = if exponent < 2 { 0x0020_0000 << exponent } else { (exponent - 1) << 23 };
        let codes = unpack::<4, 16, 32>(&block[1..]);
        scale_into(out, f32::from_bits(bits), codes.map(|c| E2M1[usize::from(c)]));
    });
}

/// Calls `one` with each block of `BYTES` and its `ELEMENTS`.
fn for_each_block<const BYTES: usize, const ELEMENTS: usize>(
    blocks: &[u8],
    out: &mut [f32],
    one: impl Fn(&[u8; BYTES], &mut [f32; ELEMENTS]),
) {
    let blocks = blocks.as_chunks::<BYTES>().0;
    for (block, out) in blocks.iter().zip(out.as_chunks_mut::<ELEMENTS>().0) {
        one(block, out);
    }
}

/// The f16 at byte `at`.
fn half(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// `COUNT` codes of `BITS` bits in runs of `RUN` bytes.
fn unpack<const BITS: usize, const RUN: usize, const COUNT: usize>(bytes: &[u8]) -> [u8; COUNT] {
    let mut codes = [0; COUNT];
    let mask = (1u8 << BITS) - 1;
    for (run, bytes) in codes.chunks_exact_mut(RUN * 8 / BITS).zip(bytes.chunks_exact(RUN)) {
        for (level, codes) in run.chunks_exact_mut(RUN).enumerate() {
            for (code, byte) in codes.iter_mut().zip(bytes) {
                *code = byte >> (BITS * level) & mask;
            }
        }
    }
    codes
}

/// The codes with their upper bits, which begin at bit `shift`.
fn with_high<const COUNT: usize>(mut low: [u8; COUNT], high: [u8; COUNT], shift: u32) -> [u8; COUNT] {
    for (low, high) in low.iter_mut().zip(high) {
        *low |= high << shift;
    }
    low
}

/// `d·value`.
fn scale_into<const COUNT: usize>(out: &mut [f32; COUNT], d: f32, values: [i8; COUNT]) {
    for (y, value) in out.iter_mut().zip(values) {
        *y = d * f32::from(value);
    }
}

/// `d·code + m`.
fn affine<const COUNT: usize>(out: &mut [f32; COUNT], d: f32, m: f32, codes: &[u8; COUNT]) {
    for (y, &code) in out.iter_mut().zip(codes) {
        *y = d * f32::from(code) + m;
    }
}

/// `d·code − m`.
fn scale_and_offset_into<const COUNT: usize>(out: &mut [f32; COUNT], d: f32, m: f32, codes: &[u8; COUNT]) {
    for (y, &code) in out.iter_mut().zip(codes) {
        *y = d * f32::from(code) - m;
    }
}

/// The groups of [`q4_k`] and [`q5_k`], whose blocks begin alike: `d`, `dmin` and 12 bytes with 8 scales and 8 minima.
fn scales_and_minima(block: &[u8], out: &mut [f32; 256], codes: &[u8; 256]) {
    let (d, dmin) = (half(block, 0), half(block, 2));
    let packed = &block[4..16];
    let groups = out.as_chunks_mut::<32>().0.iter_mut().zip(codes.as_chunks::<32>().0);
    for (group, (y, codes)) in groups.enumerate() {
        // The first four lie in 6 bits each; the upper bits of the others fill the two bits left there.
        let (scale, min) = match group {
            0..4 => (packed[group] & 63, packed[group + 4] & 63),
            _ => (
                packed[group + 4] & 15 | packed[group - 4] >> 6 << 4,
                packed[group + 4] >> 4 | packed[group] >> 6 << 4,
            ),
        };
        scale_and_offset_into(y, d * f32::from(scale), dmin * f32::from(min), codes);
    }
}
