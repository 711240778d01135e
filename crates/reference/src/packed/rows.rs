//! Rows of quantised weights in the order in which the processor's vectors want them.

use rayon::prelude::*;
use tapml_graph::packing::{Code, float8};
use tapml_graph::{Error, Packing, Result, Tensor};

/// Rows that lie side by side: word `i` of each, then word `i + 1` of each.
pub const BLOCK: usize = 16;

/// What is given of quantised rows; see [`PackedRows::new`].
#[derive(Clone, Copy)]
pub struct Quantized<'a> {
    /// `[rows, k · bits / 32]`, the low bits of a word first.
    pub q: &'a [u32],
    /// `[rows, k / group]`.
    pub scale: &'a [f32],
    /// `[rows, k / group]`; 2^(bits − 1) everywhere if absent, 0 for numbers.
    pub zero: Option<&'a [f32]>,
    /// Length of a row, a multiple of `group`.
    pub k: usize,
    /// 4 or 8.
    pub bits: usize,
    /// Weights that share a scale; a multiple of a word's.
    pub group: usize,
    /// Whether weights are numbers of 8 bits, as [`float8`] reads them, without zeros.
    pub float: bool,
}

/// Quantised rows: element `e` of row `o` is `(q − zero) · scale`, with the scale and zero of its group.
pub struct PackedRows {
    /// `[blocks, k · bits / 32, 16]`.
    pub(super) words: Vec<u32>,
    /// `[blocks, k / group, 16]`.
    pub(super) scales: Vec<f32>,
    /// Empty if every zero is `middle`.
    pub(super) zeros: Vec<f32>,
    /// The zero of all groups, if they share it.
    pub(super) middle: f32,
    /// Rows, without those that fill the last block.
    pub(super) rows: usize,
    pub(super) k: usize,
    pub(super) bits: usize,
    pub(super) group: usize,
    pub(super) float: bool,
}

impl PackedRows {
    /// Whether rows that are packed so are multiplied as they are.
    ///
    /// Other codes are converted to numbers before they are multiplied.
    pub fn serves(packing: Packing) -> bool {
        matches!(packing.code, Code::Int4 | Code::Int8 | Code::E4m3)
    }

    /// The rows of a packed matrix, or of each of a stack of them. Fails on any other tensor.
    pub fn from_tensor(tensor: &Tensor) -> Result<Vec<PackedRows>> {
        let packing = tensor.dtype().packing().filter(|packing| PackedRows::serves(*packing));
        let packing = packing.ok_or_else(|| Error::bug(format!("rows packed as {}", tensor.dtype())))?;
        let sections = tensor.sections()?;
        // Scales and zero points are stored as `f16`.
        let halves = |bytes: &[u8]| -> Vec<f32> {
            bytes.as_chunks::<2>().0.iter().map(|&b| half::f16::from_le_bytes(b).to_f32()).collect()
        };
        let words: Vec<u32> = sections[0].as_chunks::<4>().0.iter().map(|&b| u32::from_le_bytes(b)).collect();
        let (scales, zeros) = (halves(&sections[1]), sections.get(2).map(|bytes| halves(bytes)));
        let &[.., rows, k] = tensor.shape() else { return Err(Error::bug("packed rows of rank 1")) };
        let (bits, group, float) =
            (packing.bits() as usize, packing.group as usize, packing.code == Code::E4m3);
        let (each, groups) = ((rows * k * bits / 32).max(1), (rows * (k / group)).max(1));
        let matrix = |(i, q): (usize, &[u32])| {
            let part = |of: &'_ [f32]| of.get(i * groups..(i + 1) * groups).map(<[f32]>::to_vec);
            let missing = || Error::bug("fewer scales than rows");
            let scale = part(&scales).ok_or_else(missing)?;
            let zero = zeros.as_deref().map(|zeros| part(zeros).ok_or_else(missing)).transpose()?;
            PackedRows::new(Quantized { q, scale: &scale, zero: zero.as_deref(), k, bits, group, float })
        };
        words.chunks_exact(each).enumerate().map(matrix).collect()
    }

    /// Takes rows over into the order of vectors. Fails if the sizes contradict each other.
    pub fn new(from: Quantized) -> Result<PackedRows> {
        let Quantized { q, scale, zero, k, bits, group, float } = from;
        if !matches!(bits, 4 | 8) || group == 0 || group % (32 / bits) != 0 || k == 0 || k % group != 0 {
            return Err(Error::invalid(format!("rows of {k} weights of {bits} bits in groups of {group}")));
        }
        // Floats have a sign of their own and need no zero points.
        if float && (bits != 8 || zero.is_some()) {
            return Err(Error::invalid(format!("numbers of {bits} bits, or with zero points")));
        }
        let (words, groups) = (k * bits / 32, k / group);
        let rows = q.len() / words;
        let fits = q.len() == rows * words && scale.len() == rows * groups;
        if !fits || zero.is_some_and(|zero| zero.len() != scale.len()) {
            let (q, scale) = (q.len(), scale.len());
            return Err(Error::invalid(format!("{q} words and {scale} scales for rows of {k} weights")));
        }
        Ok(PackedRows {
            words: side_by_side(q, words),
            scales: side_by_side(scale, groups),
            zeros: zero.map(|zero| side_by_side(zero, groups)).unwrap_or_default(),
            middle: if float { 0.0 } else { (1u32 << (bits - 1)) as f32 },
            rows,
            k,
            bits,
            group,
            float,
        })
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Length of a row.
    pub fn k(&self) -> usize {
        self.k
    }

    /// The numbers of one row, each rounded once; zeros beyond the last row. `to` is as long as a row.
    pub fn unpack(&self, row: usize, to: &mut [f32]) {
        let (block, lane) = (row / BLOCK, row % BLOCK);
        let (per_word, mask) = (32 / self.bits, u32::MAX >> (32 - self.bits));
        let groups = self.k / self.group;
        for (g, values) in to.chunks_exact_mut(self.group).enumerate() {
            let at = (block * groups + g) * BLOCK + lane;
            let (scale, zero) = (self.scales[at], self.zeros.get(at).copied().unwrap_or(self.middle));
            let first = block * self.k / per_word + g * self.group / per_word;
            for (i, values) in values.chunks_exact_mut(per_word).enumerate() {
                let word = self.words[(first + i) * BLOCK + lane];
                for (e, value) in values.iter_mut().enumerate() {
                    // The first weight has the low bits.
                    let stored = word >> (e * self.bits) & mask;
                    *value = (if self.float { float8(stored) } else { stored as f32 } - zero) * scale;
                }
            }
        }
    }
}

/// Rows of `width` elements, 16 rows side by side; zeros where the last block has no row.
fn side_by_side<T: Copy + Default + Send + Sync>(rows: &[T], width: usize) -> Vec<T> {
    let blocks = rows.len().div_ceil(width * BLOCK);
    let mut out = vec![T::default(); blocks * BLOCK * width];
    out.par_chunks_exact_mut(BLOCK * width).zip(rows.par_chunks(BLOCK * width)).for_each(|(to, from)| {
        for (lane, row) in from.chunks_exact(width).enumerate() {
            for (i, &value) in row.iter().enumerate() {
                to[i * BLOCK + lane] = value;
            }
        }
    });
    out
}
