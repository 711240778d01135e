//! How packed weights are stored: the code of their elements, the elements that share a scale, and where words, scales
//! and zero points lie. A code is one row of [`CODES`]; all else is told by it.

mod attributes;

use crate::dtype::DType;
use crate::error::{Error, Result};
use std::fmt;

pub use attributes::{Code, Packing};

/// A code with what is known of it.
pub struct CodeInfo {
    /// The code.
    pub code: Code,
    /// Its name in the names of dtypes.
    pub name: &'static str,
    /// Bits of one element.
    pub bits: u32,
    /// How a scale is stored: f16, or u8 for the exponent of a power of two (e8m0).
    pub scale: DType,
    /// The elements that share a scale, where the code fixes them.
    pub group: Option<u32>,
    /// The zero point where groups have none of their own.
    pub middle: u32,
    /// Whether groups may have zero points of their own.
    pub zeros: bool,
    /// What an element stands for, less its zero point and without its scale. Exact.
    pub element: fn(u32) -> f32,
    /// The standard deviation of what random codes stand for: of integers of 4 bits without 0, whose mean is the middle.
    pub deviation: f32,
}

/// All codes.
pub const CODES: [CodeInfo; 4] = [
    CodeInfo {
        middle: 8,
        zeros: true,
        deviation: 4.6,
        ..CodeInfo::symmetric(Code::Int4, "int4", 4, integer)
    },
    CodeInfo {
        middle: 128,
        zeros: true,
        deviation: 73.9,
        ..CodeInfo::symmetric(Code::Int8, "int8", 8, integer)
    },
    CodeInfo { deviation: 0.42, ..CodeInfo::symmetric(Code::E4m3, "e4m3", 8, float8) },
    CodeInfo {
        scale: DType::U8,
        group: Some(32),
        deviation: 2.9,
        ..CodeInfo::symmetric(Code::Mxfp4, "mxfp4", 4, float4)
    },
];

impl CodeInfo {
    /// Numbers around 0 with scales of f16 for groups of any size.
    const fn symmetric(code: Code, name: &'static str, bits: u32, element: fn(u32) -> f32) -> CodeInfo {
        let (scale, group) = (DType::F16, None);
        CodeInfo { code, name, bits, scale, group, middle: 0, zeros: false, element, deviation: 1.0 }
    }
}

impl Code {
    /// What is known of the code.
    pub fn info(self) -> &'static CodeInfo {
        &CODES[self as usize]
    }
}

/// A part of a packed weight's bytes: words, scales or zero points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// Dtype of its elements.
    pub dtype: DType,
    /// Its elements that belong to a row of the weight.
    pub columns: usize,
    /// First byte.
    pub offset: usize,
    /// Bytes.
    pub len: usize,
}

impl Packing {
    /// Bytes at whose multiples sections begin: devices bind them as buffers of their own.
    pub const ALIGN: usize = 256;

    /// MXFP4.
    pub const MXFP4: Packing = Packing { code: Code::Mxfp4, group: 32, zeros: false };

    /// Integers of 4 or 8 bits.
    pub const fn integers(bits: u32, group: u32, zeros: bool) -> Packing {
        Packing { code: if bits == 4 { Code::Int4 } else { Code::Int8 }, group, zeros }
    }

    /// Numbers of 8 bits.
    pub const fn floats(group: u32) -> Packing {
        Packing { code: Code::E4m3, group, zeros: false }
    }

    /// Bits of one element.
    pub fn bits(&self) -> u32 {
        self.code.info().bits
    }

    /// Elements of one word.
    pub fn per_word(&self) -> u32 {
        32 / self.bits()
    }

    /// The zero point of a weight whose groups have none of their own.
    pub fn middle(&self) -> u32 {
        self.code.info().middle
    }

    /// Sections that make up a weight: 2, or 3 with zero points.
    pub fn section_count(&self) -> usize {
        2 + usize::from(self.zeros)
    }

    /// Fails unless the attributes go together.
    pub fn check(&self) -> Result<()> {
        let CodeInfo { name, group, zeros, .. } = self.code.info();
        if self.zeros && !zeros {
            return Err(Error::invalid(format!("`{name}` has no zero points")));
        }
        let word = self.per_word();
        if group.is_some_and(|group| group != self.group) {
            return Err(Error::invalid(format!("`{name}` has groups of 32, found {}", self.group)));
        }
        if self.group == 0 || !self.group.is_multiple_of(word) {
            let text =
                format!("`{name}` needs groups of a multiple of {word} elements, found {}", self.group);
            return Err(Error::invalid(text));
        }
        Ok(())
    }

    /// The packing of this name, such as `int4g32`, `int4g128z` with zero points, or `mxfp4`.
    pub fn parse(text: &str) -> Option<Packing> {
        let info = CODES.iter().find(|info| text.starts_with(info.name))?;
        // No name of a code begins another one.
        let rest = &text[info.name.len()..];
        let packing = match info.group {
            Some(group) if rest.is_empty() => Packing { code: info.code, group, zeros: false },
            Some(_) => return None,
            None => {
                let rest = rest.strip_prefix('g')?;
                let (digits, zeros) = rest.strip_suffix('z').map_or((rest, false), |digits| (digits, true));
                Packing { code: info.code, group: digits.parse().ok()?, zeros }
            }
        };
        // One name for each packing: no sign, no leading zero.
        (packing.check().is_ok() && packing.to_string() == text).then_some(packing)
    }

    /// The sections of a weight of this shape. Fails unless it is a matrix or a stack of matrices with rows of whole groups.
    pub fn sections(&self, shape: &[usize]) -> Result<Vec<Section>> {
        self.check()?;
        let group = self.group as usize;
        let (rows, k) = match shape {
            [rows @ .., k] if matches!(rows.len(), 1 | 2) && k.is_multiple_of(group) => (rows, *k),
            _ => {
                let text = format!("{self}{shape:?} is no matrix whose rows are whole groups of {group}");
                return Err(Error::invalid(text));
            }
        };
        let too_large = || Error::invalid(format!("{self}{shape:?} overflows the address space"));
        let rows = rows.iter().try_fold(1usize, |all, &size| all.checked_mul(size)).ok_or_else(too_large)?;
        // Rows are whole groups, and groups are whole words.
        let (words, groups) = (k / self.per_word() as usize, k / group);
        let parts = [(DType::U32, words), (self.code.info().scale, groups), (DType::F16, groups)];
        let mut offset = 0usize;
        let mut sections = Vec::with_capacity(3);
        for (dtype, columns) in parts.into_iter().take(self.section_count()) {
            let len = rows.checked_mul(columns).and_then(|count| count.checked_mul(dtype.size()));
            // Three sections and their padding then fit as well.
            let len = len.filter(|&len| len < isize::MAX as usize / 4).ok_or_else(too_large)?;
            sections.push(Section { dtype, columns, offset, len });
            offset = (offset + len).next_multiple_of(Packing::ALIGN);
        }
        Ok(sections)
    }

    /// Bytes of a weight of this shape, if it can be packed so.
    pub fn byte_len(&self, shape: &[usize]) -> Option<usize> {
        let last = self.sections(shape).ok()?.pop()?;
        Some((last.offset + last.len).next_multiple_of(4)).filter(|&len| len <= isize::MAX as usize)
    }

    /// The bytes of a weight of this shape whose sections hold these bytes. Fails if one has another length.
    pub fn assemble(&self, shape: &[usize], parts: &[&[u8]]) -> Result<Vec<u8>> {
        let sections = self.sections(shape)?;
        let len = self.byte_len(shape).unwrap_or(0);
        let lens = sections.iter().map(|section| section.len);
        if !lens.eq(parts.iter().map(|part| part.len())) {
            return Err(Error::invalid(format!("the parts of {self}{shape:?} have other lengths")));
        }
        let mut bytes = vec![0; len];
        for (section, part) in sections.iter().zip(parts) {
            bytes[section.offset..section.offset + section.len].copy_from_slice(part);
        }
        Ok(bytes)
    }

    /// The scale that makes numbers of random codes deviate so much, as it is stored; of those that are powers of two the
    /// nearest.
    pub fn scale_of(&self, deviation: f32) -> Vec<u8> {
        let info = self.code.info();
        let scale = deviation / info.deviation;
        match info.scale {
            // 255 is NaN; the exponent's bias is 127.
            DType::U8 => vec![(scale.log2().round() + 127.0).clamp(0.0, 254.0) as u8],
            _ => half::f16::from_f32(scale).to_le_bytes().to_vec(),
        }
    }

    /// A packing for each code: groups of 32, without zero points.
    pub fn of_each_code() -> impl Iterator<Item = Packing> {
        CODES.iter().map(|info| Packing { code: info.code, group: 32, zeros: false })
    }

    /// The number that a stored scale stands for. Exact.
    pub fn scale(&self, stored: &[u8]) -> f32 {
        match *stored {
            [exponent] => exponent_scale(exponent),
            [low, high] => half::f16::from_le_bytes([low, high]).to_f32(),
            _ => f32::NAN,
        }
    }

    /// The numbers that a weight of this shape stands for. `bytes` are as many as [`Packing::byte_len`] says.
    pub fn numbers(&self, shape: &[usize], bytes: &[u8]) -> Result<Vec<f32>> {
        self.sections(shape)?;
        let mut numbers = vec![0.0; shape.iter().product()];
        self.unpack(shape, bytes, 0, &mut numbers)?;
        Ok(numbers)
    }

    /// As [`Packing::numbers`] from group `first` on, in the order of rows, as many whole groups as `to` has room for.
    pub fn unpack(&self, shape: &[usize], bytes: &[u8], first: usize, to: &mut [f32]) -> Result<()> {
        let info = self.code.info();
        let (group, per_word) = (self.group as usize, self.per_word() as usize);
        let (mask, count) = ((1u32 << info.bits) - 1, to.len() / group);
        // The bytes of these groups in a section whose groups have so many.
        let sections = self.sections(shape)?;
        let part = |i: usize, of_group: usize| -> Result<&[u8]> {
            let Some(section) = sections.get(i) else { return Ok(&[]) };
            let start = section.offset + first * of_group;
            let part = bytes.get(start..start + count * of_group);
            part.ok_or_else(|| Error::invalid(format!("{self}{shape:?} has fewer bytes, or groups")))
        };
        let words = part(0, group / per_word * 4)?.as_chunks::<4>().0;
        let (scales, zeros) = (part(1, info.scale.size())?, part(2, 2)?.as_chunks::<2>().0);
        let groups = words.chunks_exact(group / per_word).zip(scales.chunks_exact(info.scale.size()));
        for (i, ((words, scale), to)) in groups.zip(to.chunks_exact_mut(group)).enumerate() {
            let scale = self.scale(scale);
            let zero = match zeros.get(i) {
                Some(&zero) => half::f16::from_le_bytes(zero).to_f32(),
                // As stored integers are unsigned, their middle stands for 0.
                None => info.middle as f32,
            };
            for (&word, to) in words.iter().zip(to.chunks_exact_mut(per_word)) {
                let word = u32::from_le_bytes(word);
                for (j, to) in to.iter_mut().enumerate() {
                    *to = ((info.element)(word >> (info.bits * j as u32) & mask) - zero) * scale;
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for Packing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let info = self.code.info();
        match info.group {
            Some(_) => f.write_str(info.name),
            None => write!(f, "{}g{}{}", info.name, self.group, if self.zeros { "z" } else { "" }),
        }
    }
}

/// An integer.
fn integer(code: u32) -> f32 {
    code as f32
}

/// The number of a byte with a sign, 4 bits of exponent and 3 of mantissa: what `e4m3fn` (OCP 8-bit Floating Point
/// Specification, revision 1.0) says, over 256, so that scales of f16 reach far enough down. The codes 127 and 255, which
/// are NaN there, are the numbers that their bits say: every word has a meaning. Higher bits of `code` do not count.
pub fn float8(code: u32) -> f32 {
    let magnitude = code & 0x7f;
    let size = match magnitude {
        // Subnormal numbers have steps of 2⁻⁹, of which this takes the 256th part.
        0..8 => magnitude as f32 / 131_072.0,
        // The exponent's bias is 7, that of f32 127; 8 less is the 256th part.
        _ => f32::from_bits((magnitude << 20) + ((127 - 7 - 8) << 23)),
    };
    if code & 0x80 == 0 { size } else { -size }
}

/// The number of 4 bits with a sign, 2 bits of exponent and 1 of mantissa: e2m1 of the OCP Microscaling Formats (MX)
/// Specification, version 1.0, table 5. Higher bits of `code` do not count.
pub fn float4(code: u32) -> f32 {
    const SIZES: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let size = SIZES[(code & 7) as usize];
    if code & 8 == 0 { size } else { -size }
}

/// The power of two that a byte of e8m0 stands for: 2^(byte − 127), NaN for 255 (section 5.4.1 of the specification).
pub fn exponent_scale(byte: u8) -> f32 {
    match byte {
        // 2⁻¹²⁷ is subnormal in `f32`.
        0 => f32::from_bits(0x0040_0000),
        255 => f32::NAN,
        _ => f32::from_bits(u32::from(byte) << 23),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_codes_are_numbers_of_e4m3() {
        for code in 0..256u32 {
            let (exponent, mantissa) = ((code >> 3 & 15) as i32, f64::from(code & 7));
            let size = match exponent {
                0 => mantissa / 8.0 * 2f64.powi(-6),
                _ => (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7),
            };
            let number = if code < 128 { size } else { -size };
            assert_eq!(f64::from(float8(code)) * 256.0, number, "{code:#x}");
            assert_eq!(float8(code).is_sign_negative(), code >= 128, "{code:#x}");
        }
        // Of the specification's table 1: largest, smallest normal, largest and smallest subnormal, one.
        for (code, number) in
            [(0x7e, 448.0), (0x08, 1.0 / 64.0), (0x07, 7.0 / 512.0), (0x01, 1.0 / 512.0), (0x38, 1.0)]
        {
            assert_eq!(float8(code) * 256.0, number, "{code:#x}");
        }
    }

    #[test]
    fn all_codes_are_numbers_of_e2m1_and_e8m0() {
        for code in 0..16u32 {
            let (exponent, mantissa) = ((code >> 1 & 3) as i32, f64::from(code & 1));
            let size = match exponent {
                0 => mantissa / 2.0,
                _ => (1.0 + mantissa / 2.0) * 2f64.powi(exponent - 1),
            };
            assert_eq!(f64::from(float4(code)), if code < 8 { size } else { -size }, "{code:#x}");
        }
        for byte in 0..255u8 {
            assert_eq!(f64::from(exponent_scale(byte)), 2f64.powi(i32::from(byte) - 127), "{byte}");
        }
        assert!(exponent_scale(255).is_nan());
    }

    #[test]
    fn rows_stand_in_the_order_of_codes() {
        for info in &CODES {
            assert_eq!(info.code.info().name, info.name);
            assert!(info.zeros || (info.element)(info.middle) == 0.0, "{}", info.name);
        }
    }

    #[test]
    fn names_round_trip_and_others_are_refused() {
        let packings = [
            Packing::integers(4, 32, false),
            Packing::integers(4, 128, true),
            Packing::integers(8, 4, true),
            Packing::floats(32),
            Packing::MXFP4,
        ];
        for packing in packings {
            assert_eq!(Packing::parse(&packing.to_string()), Some(packing));
        }
        assert_eq!(Packing::integers(4, 128, true).to_string(), "int4g128z");
        for text in
            ["int4", "int4g", "int4g0", "int4g12", "int4g032", "e4m3g32z", "mxfp4g32", "int4g+8", "int5g8"]
        {
            assert_eq!(Packing::parse(text), None, "{text}");
        }
    }

    #[test]
    fn sections_lie_apart_and_stand_for_numbers() {
        let packing = Packing::integers(4, 8, true);
        let sections = packing.sections(&[3, 16]).unwrap();
        let places: Vec<(usize, usize)> = sections.iter().map(|s| (s.offset, s.len)).collect();
        assert_eq!(places, [(0, 24), (256, 12), (512, 12)]);
        assert_eq!(packing.byte_len(&[3, 16]), Some(524));
        let words: Vec<u8> = (0..6u32).flat_map(|i| (0x7654_3210u32 + i).to_le_bytes()).collect();
        let half = |x: f32| half::f16::from_f32(x).to_le_bytes();
        let scales: Vec<u8> = (0..6).flat_map(|i| half(1.0 + i as f32)).collect();
        let zeros: Vec<u8> = (0..6).flat_map(|i| half(i as f32)).collect();
        let bytes = packing.assemble(&[3, 16], &[&words, &scales, &zeros]).unwrap();
        let numbers = packing.numbers(&[3, 16], &bytes).unwrap();
        assert_eq!(numbers.len(), 48);
        // Element 2 of the group 1 of row 1: code 2, zero point 3, scale 4.
        assert_eq!(numbers[16 + 8 + 2], (2.0 - 3.0) * 4.0);
        assert!(packing.assemble(&[3, 16], &[&words, &scales]).is_err());
        assert!(packing.sections(&[3, 12]).is_err() && packing.sections(&[16]).is_err());
        assert_eq!(packing.byte_len(&[usize::MAX, 16]), None);
    }

    #[test]
    fn scales_of_mxfp4_are_bytes() {
        let words = [0x9u8, 0, 0, 0].repeat(8);
        let bytes = Packing::MXFP4.assemble(&[2, 32], &[&words, &[126, 129]]).unwrap();
        let numbers = Packing::MXFP4.numbers(&[2, 32], &bytes).unwrap();
        // Code 9 is −0.5, the scales are 0.5 and 4.
        assert_eq!((numbers[0], numbers[1], numbers[32]), (-0.25, 0.0, -2.0));
    }

    #[test]
    fn attributes_go_together() {
        assert!(Packing::floats(32).check().is_ok());
        assert!(Packing { zeros: true, ..Packing::floats(32) }.check().is_err());
        assert!(Packing { group: 64, ..Packing::MXFP4 }.check().is_err());
    }
}
