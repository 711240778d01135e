//! What tells one packed dtype from another: the code of its elements, and the elements that share a scale.

/// What the bits of an element mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Code {
    /// Integers of 4 bits.
    Int4,
    /// Integers of 8 bits.
    Int8,
    /// Numbers of 8 bits as [`float8`](super::float8) reads them.
    E4m3,
    /// Numbers of 4 bits as [`float4`](super::float4) reads them, with scales that are powers of two: MXFP4 of the OCP Microscaling Formats
    /// (MX) Specification, version 1.0, section 5.3.
    Mxfp4,
}

/// How a packed weight is stored.
///
/// A weight `[…, o, k]` is a section of words `u32[…, o, k·bits/32]`, one of scales `[…, o, k/group]` and, with `zeros`, one
/// of zero points `f16[…, o, k/group]` (whole numbers). A word holds its elements low bits first. Sections begin at multiples
/// of [`Packing::ALIGN`] bytes, and the whole is a multiple of 4. Element `j` of a row is
/// `(element(code[j]) − zero[j / group]) · scale[j / group]`; without `zeros` the zero point is [`CodeInfo::middle`](super::CodeInfo::middle).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Packing {
    /// What the bits of an element mean.
    pub code: Code,
    /// Neighbouring elements of a row that share a scale: a multiple of [`Packing::per_word`].
    pub group: u32,
    /// Whether each group has a zero point of its own.
    pub zeros: bool,
}
