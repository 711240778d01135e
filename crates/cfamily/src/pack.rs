//! Packing and unpacking of small numbers in words: WGSL's "Data packing built-in functions" and the unpacking ones.
//!
//! The first component stands in the low bits.

use crate::math::parts;
use crate::scalar::Operand;
use crate::types::{Kind, ValueShape};
use crate::writer::{WriteResult, Writer};
use naga::MathFunction as M;

/// How one component becomes bits of the word, or bits of the word `$a` at `$b` become a component.
struct PackRow {
    /// The function of WGSL.
    fun: M,
    /// Bits of a component.
    bits: u32,
    /// What is written for one component.
    template: &'static str,
    /// What is unpacked; `None` for packing.
    unpacked: Option<Kind>,
}

/// Every function.
const ROWS: &[PackRow] = &[
    row(M::Pack4x8snorm, 8, "((u32)pack_norm($a, -1.0f, 127.0f) & 0xffu)", None),
    row(M::Pack4x8unorm, 8, "(u32)pack_norm($a, 0.0f, 255.0f)", None),
    row(M::Pack2x16snorm, 16, "((u32)pack_norm($a, -1.0f, 32767.0f) & 0xffffu)", None),
    row(M::Pack2x16unorm, 16, "(u32)pack_norm($a, 0.0f, 65535.0f)", None),
    row(M::Pack2x16float, 16, "(u32)float_to_half($a)", None),
    row(M::Pack4xI8, 8, "((u32)$a & 0xffu)", None),
    row(M::Pack4xU8, 8, "($a & 0xffu)", None),
    row(M::Pack4xI8Clamp, 8, "((u32)min_i(max_i($a, -128), 127) & 0xffu)", None),
    row(M::Pack4xU8Clamp, 8, "min_u($a, 255u)", None),
    row(M::Unpack4x8snorm, 8, "max_f((f32)extract_i((i32)$a, $b, 8u) / 127.0f, -1.0f)", Some(Kind::F32)),
    row(M::Unpack4x8unorm, 8, "((f32)extract_u($a, $b, 8u) / 255.0f)", Some(Kind::F32)),
    row(M::Unpack2x16snorm, 16, "max_f((f32)extract_i((i32)$a, $b, 16u) / 32767.0f, -1.0f)", Some(Kind::F32)),
    row(M::Unpack2x16unorm, 16, "((f32)extract_u($a, $b, 16u) / 65535.0f)", Some(Kind::F32)),
    row(M::Unpack2x16float, 16, "half_to_float((h16)($a >> $b))", Some(Kind::F32)),
    row(M::Unpack4xI8, 8, "extract_i((i32)$a, $b, 8u)", Some(Kind::I32)),
    row(M::Unpack4xU8, 8, "extract_u($a, $b, 8u)", Some(Kind::U32)),
];

/// One function.
const fn row(fun: M, bits: u32, template: &'static str, unpacked: Option<Kind>) -> PackRow {
    PackRow { fun, bits, template, unpacked }
}

impl Writer<'_> {
    /// Packing functions and packed dot products' helpers; `None` for any other function.
    pub fn packing(&mut self, fun: M, a: &Operand) -> WriteResult<Option<String>> {
        let Some(row) = ROWS.iter().find(|row| row.fun == fun) else { return Ok(None) };
        let name = format!("{fun:?}").to_lowercase();
        let parameter = self.types.shape(a.shape);
        match row.unpacked {
            None => self.helper(&name, |_| {
                let own = Operand { text: "a".into(), shape: a.shape };
                let words = parts(&own).into_iter().zip(0..).map(|(part, i)| {
                    let word = row.template.replace("$a", &part);
                    // A shift by 0 is left out.
                    if i == 0 { word } else { format!("({word} << {}u)", i * row.bits) }
                });
                let sum = words.collect::<Vec<_>>().join(" | ");
                Ok(format!("DEV u32 {name}({parameter} a) {{ return {sum}; }}\n"))
            })?,
            Some(kind) => self.helper(&name, |writer| {
                let count = 32 / row.bits;
                // Bits are taken from the place of each component on.
                let part =
                    |i: u32| row.template.replace("$a", "a").replace("$b", &format!("{}u", i * row.bits));
                let parts: Vec<String> = (0..count).map(part).collect();
                let value = writer.vector_of(kind, &parts)?;
                let ty = writer.types.shape(ValueShape::Vector(count as u8, kind));
                Ok(format!("DEV {ty} {name}(u32 a) {{ return {value}; }}\n"))
            })?,
        }
        Ok(Some(format!("{name}({})", crate::text::bare(&a.text))))
    }
}
