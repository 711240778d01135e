//! `MatMulNBits` of ONNX Runtime: a product with weights of a few bits, in blocks with a scale and a zero point each. Its
//! definition: <https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.MatMulNBits>.

use super::matmul::multiply_stacks;
use crate::array::Array;
use crate::call::{Call, Outputs};
use crate::facts::{CallFacts, InputSizes, terms};
use crate::real::Real;
use tapml_graph::{DType, Error, Result};

/// The sizes that the attributes give.
struct Blocks {
    /// Rows of the weight, which is the size that is summed over: attribute `K`.
    k: usize,
    /// Columns of the weight: attribute `N`.
    n: usize,
    /// Bits of a number: 2, 4 or 8, so that none lies across two bytes.
    bits: usize,
    /// Numbers along `k` that share a scale: a power of two from 16.
    block: usize,
    /// Blocks of a column of the product.
    count: usize,
}

impl Blocks {
    /// From the attributes.
    ///
    /// # Errors
    /// If a size is missing or not positive, or bits or block size are none of those above.
    fn read(call: &Call<'_>) -> Result<Blocks> {
        let size = |name, default| {
            let value = call.int_or(name, default)?;
            let size = usize::try_from(value).ok().filter(|&size| size > 0 && size < 1 << 31);
            size.ok_or_else(|| {
                Error::invalid(format!("attribute `{name}` is {value}, expected a positive size"))
            })
        };
        let (k, n, bits, block) = (size("K", 0)?, size("N", 0)?, size("bits", 4)?, size("block_size", 0)?);
        if ![2, 4, 8].contains(&bits) {
            return Err(Error::unsupported(format!("weights of {bits} bits are not served")));
        }
        if block < 16 || !block.is_power_of_two() {
            return Err(Error::invalid(format!(
                "attribute `block_size` is {block}, expected a power of two from 16"
            )));
        }
        Ok(Blocks { k, n, bits, block, count: k.div_ceil(block) })
    }

    /// Numbers of `bits` in rows of so many, the first of a byte in its low bits; each row begins a byte.
    ///
    /// # Errors
    /// If there are more or fewer bytes; `place` is the input that the error names.
    fn unpack(&self, place: usize, bytes: &[u8], rows: usize, row: usize) -> Result<Vec<u8>> {
        // Rows begin at whole bytes, also where their numbers do not fill the last one.
        let stride = (row * self.bits).div_ceil(8);
        if bytes.len() != rows * stride {
            let text = format!("input {place}: {} bytes, expected {rows} times {stride}", bytes.len());
            return Err(Error::invalid(text));
        }
        // The low bits of one number.
        let mask = u8::MAX >> (8 - self.bits);
        let number = |row: &[u8], at: usize| row[at * self.bits / 8] >> (at * self.bits % 8) & mask;
        let all = bytes.chunks(stride).flat_map(|bytes| (0..row).map(move |at| number(bytes, at)));
        Ok(all.collect())
    }

    /// Zero points of all blocks: packed as the weights are, or numbers like the scales; the middle by default.
    fn zeros<T: Real>(&self, call: &Call<'_>) -> Result<Vec<T>> {
        let blocks = self.n * self.count;
        let zeros = match call.optional(3) {
            // As ONNX Runtime: `2^(bits − 1)`, so that unsigned numbers stand for signed ones.
            None => return Ok(vec![T::count(1 << (self.bits - 1)); blocks]),
            Some(zeros) if zeros.dtype() == DType::U8 => {
                let packed = self.unpack(3, zeros.bytes(), self.n, self.count)?;
                packed.into_iter().map(|zero| T::count(usize::from(zero))).collect()
            }
            Some(_) => call.array::<T>(3)?.data,
        };
        if zeros.len() == blocks {
            Ok(zeros)
        } else {
            Err(Error::invalid(format!("{} zero points for {blocks} blocks", zeros.len())))
        }
    }

    /// The weights, `[k, n]`.
    fn weights<T: Real>(&self, call: &Call<'_>) -> Result<Array<T>> {
        crate::array::volume(&[self.n, self.count, self.block])?;
        let packed = call.input(1)?;
        if packed.dtype() != DType::U8 {
            return Err(Error::invalid(format!("input 1: expected u8, found {}", packed.dtype())));
        }
        // Rows are padded to whole blocks: numbers behind `k` are there, and are not read.
        let numbers = self.unpack(1, packed.bytes(), self.n, self.count * self.block)?;
        let scales = call.array::<T>(2)?.data;
        if scales.len() != self.n * self.count {
            let text = format!("input 2: {} scales for {} blocks", scales.len(), self.n * self.count);
            return Err(Error::invalid(text));
        }
        let zeros = self.zeros::<T>(call)?;
        let mut weights = Array::<T>::zeros(vec![self.k, self.n])?;
        for (at, weight) in weights.data.iter_mut().enumerate() {
            let (k, n) = (at / self.n, at % self.n);
            let block = n * self.count + k / self.block;
            let number = numbers[n * self.count * self.block + k];
            *weight = (T::count(usize::from(number)) - zeros[block]) * scales[block];
        }
        Ok(weights)
    }
}

/// `MatMulNBits`: `a · wᵀ + bias`. What the attribute `accuracy_level` lets a target do is no part of the exact value.
pub fn matmul<T: Real>(call: &Call<'_>) -> Outputs {
    call.ignore(&["accuracy_level"]);
    if call.optional(4).is_some() || call.int_or("weight_prepacked", 0)? != 0 {
        return Err(Error::unsupported("the input `g_idx` and weights packed for one device are not served"));
    }
    let blocks = Blocks::read(call)?;
    let a = call.array::<T>(0)?;
    if a.shape.last() != Some(&blocks.k) {
        return Err(Error::invalid(format!("input 0: {:?} for sums of {}", a.shape, blocks.k)));
    }
    let mut y = multiply_stacks(&a, &blocks.weights::<T>(call)?)?;
    if let Some(bias) = call.optional_array::<T>(5)? {
        if bias.shape != [blocks.n] {
            return Err(Error::invalid(format!("a bias {:?} for {} columns", bias.shape, blocks.n)));
        }
        y.data
            .chunks_mut(blocks.n)
            .for_each(|row| row.iter_mut().zip(&bias.data).for_each(|(y, &b)| *y += b));
    }
    call.like_first(y)
}

/// The inner size, and the bias.
pub fn terms_of(sizes: &InputSizes<'_>) -> CallFacts {
    terms(sizes.size(0, -1).saturating_add(usize::from(sizes.has(5))))
}
