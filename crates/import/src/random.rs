//! Random weights of the types that a graph asks for, the same on every machine.
//!
//! Values depend on the seed and on the graph alone, not on threads or on the machine.

use half::f16;
use rayon::prelude::*;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use tapml_graph::packing::{Code, Packing};
use tapml_graph::{Bytes, DType, Error, ErrorKind, Graph, Result, Symbols, Tensor, Value, byte_len};

/// Elements that one task makes.
const CHUNK: usize = 1 << 16;
/// Standard deviation of matrices and biases; the usual initialisation of language models.
const DEVIATION: f64 = 0.02;

/// Weights of more elements in all are parts of one sequence that repeats, and packed ones of one shape share their bytes, so
/// that a model of any size is made in seconds and takes little more memory than a layer.
const LARGE: usize = 1 << 27;
/// Elements after which that sequence repeats: a prime, so that no two rows of a matrix are the same.
const PERIOD: usize = 33_554_393;

/// A value for every weight of the graph: matrices and biases uniform with mean 0, other vectors 1. The words of packed
/// weights are random bits, and their scales make values of the same deviation. Numbers of 4 bits are never 0, so that their
/// mean is that of the range's middle: a mean besides, in every matrix, would grow from layer to layer.
pub fn weights(graph: &Graph, seed: u64) -> Result<HashMap<String, Tensor>> {
    let all = graph.weights().map(|(_, value)| Ok((value, value.ty.sizes(&Symbols::new())?)));
    let all: Vec<(&Value, Vec<usize>)> = all.collect::<Result<_>>()?;
    let count = |shape: &[usize]| shape.iter().fold(1usize, |all, &n| all.saturating_mul(n));
    // Below this bound every weight has numbers of its own.
    let large = all.iter().map(|(_, shape)| count(shape)).fold(0, usize::saturating_add) > LARGE;
    let mut blocks: HashMap<DType, Bytes> = HashMap::new();
    let mut shared: HashMap<(DType, &[usize]), Tensor> = HashMap::new();
    let mut made = HashMap::new();
    for (index, (value, shape)) in all.iter().enumerate() {
        let (dtype, key) = (value.ty.dtype, mix(seed ^ mix(index as u64)));
        let fill = Fill::for_tensor(&value.name, shape);
        let tensor = if let DType::Packed(packing) = dtype {
            match shared.entry((dtype, shape.as_slice())) {
                Entry::Occupied(entry) if large => entry.get().clone(),
                entry => entry.insert_entry(random_packed(packing, shape, key)?).get().clone(),
            }
        } else if large && fill == Fill::Random && count(shape) > CHUNK {
            let same = all.iter().filter(|(other, _)| other.ty.dtype == dtype);
            let most = same.map(|(_, shape)| count(shape)).max().unwrap_or(0);
            let block = match blocks.entry(dtype) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => entry.insert(block(dtype, most, mix(seed), fill)?),
            };
            // At a multiple of 64 elements, so that slices stay aligned for vector loads.
            let start = key as usize % PERIOD / 64 * 64 * dtype.size();
            let bytes = byte_len(dtype, shape).and_then(|len| block.slice(start, len));
            let bytes = bytes.ok_or_else(|| Error::bug("the random sequence is too short"))?;
            Tensor::new(dtype, shape.clone(), bytes)?
        } else {
            tensor(dtype, shape.clone(), key, fill)?
        };
        made.insert(value.name.clone(), tensor);
    }
    Ok(made)
}

/// Random codes, with scales that make numbers of [`DEVIATION`].
/// Section 0 holds words, section 1 scales, section 2 zero points, where the packing has them.
fn random_packed(packing: Packing, shape: &[usize], key: u64) -> Result<Tensor> {
    let sections = packing.sections(shape)?;
    let mut bytes = Vec::new();
    for (i, section) in sections.iter().enumerate() {
        let mut part = zeros(DType::U8, &[section.len])?;
        match (i, packing.code) {
            (0, Code::Int4) => fill(DType::U32, &mut part, key, Fill::Nibbles)?,
            (0, _) => fill(DType::U32, &mut part, key, Fill::Random)?,
            (1, _) => repeat(&mut part, &packing.scale_of(DEVIATION as f32)),
            // The middle of codes from 1 to 15, so that the numbers have the mean 0.
            (_, _) => repeat(&mut part, &f16::from_f32(8.0).to_le_bytes()),
        }
        bytes.push(part);
    }
    let parts: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
    Tensor::from_packed(packing, shape.to_vec(), &parts)
}

/// Fills `bytes` with this element, over and over.
fn repeat(bytes: &mut [u8], element: &[u8]) {
    bytes.chunks_exact_mut(element.len()).for_each(|to| to.copy_from_slice(element));
}

/// What a weight is filled with.
/// Norm weights must not be random around 0: they would erase the activations.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fill {
    Random,
    /// Words of eight numbers of 4 bits, from 1 to 15.
    Nibbles,
    Value(f32),
}

impl Fill {
    /// Vectors that are no biases are factors of norms, and are 1.
    fn for_tensor(name: &str, shape: &[usize]) -> Fill {
        if shape.len() == 1 && !name.ends_with("bias") { Fill::Value(1.0) } else { Fill::Random }
    }
}

/// The sequence that repeats, with room for a weight of `most` elements at any place of its first turn.
fn block(dtype: DType, most: usize, key: u64, with: Fill) -> Result<Bytes> {
    let mut bytes = zeros(dtype, &[PERIOD.saturating_add(most)])?;
    let (first, rest) = bytes.split_at_mut(PERIOD * dtype.size());
    fill(dtype, first, key, with)?;
    rest.par_chunks_mut(first.len()).for_each(|part| part.copy_from_slice(&first[..part.len()]));
    Ok(Bytes::new(bytes))
}

/// A tensor of its own numbers.
fn tensor(dtype: DType, shape: Vec<usize>, key: u64, with: Fill) -> Result<Tensor> {
    let mut bytes = zeros(dtype, &shape)?;
    fill(dtype, &mut bytes, key, with)?;
    Tensor::new(dtype, shape, Bytes::new(bytes))
}

/// Fills whole elements, in parallel. U32 is for words of packed codes and takes raw bits, all others take
/// numbers.
fn fill(dtype: DType, bytes: &mut [u8], key: u64, with: Fill) -> Result<()> {
    bytes.par_chunks_mut(CHUNK * dtype.size()).enumerate().try_for_each(|(chunk, out)| {
        let (first, count) = ((chunk * CHUNK) as u64, out.len() / dtype.size());
        if dtype == DType::U32 {
            let word = |i: u64| {
                let word = mix(key.wrapping_add(first + i)) as u32;
                // The lowest bit of each number that is 0.
                let zeros = !(word | word >> 1 | word >> 2 | word >> 3) & 0x1111_1111;
                word | if with == Fill::Nibbles { zeros << 3 } else { 0 }
            };
            let words = (0..count as u64).flat_map(|i| word(i).to_le_bytes());
            out.iter_mut().zip(words).for_each(|(place, byte)| *place = byte);
            return Ok(());
        }
        let value = |i: u64| match with {
            Fill::Random | Fill::Nibbles => uniform(key, first + i),
            Fill::Value(value) => value,
        };
        let values: Vec<f32> = (0..count as u64).map(value).collect();
        out.copy_from_slice(Tensor::from_f32_as(dtype, vec![count], values)?.bytes());
        Ok(())
    })
}

/// Room for a tensor. Fails if memory does not suffice, so that a configuration cannot abort the process.
fn zeros(dtype: DType, shape: &[usize]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let room = byte_len(dtype, shape).filter(|&len| bytes.try_reserve_exact(len).is_ok());
    let len = room.ok_or_else(|| {
        Error::new(ErrorKind::OutOfMemory, format!("no memory for a weight {dtype}{shape:?}"))
            .with_hint("random weights need as much memory as the model's own")
    })?;
    bytes.resize(len, 0);
    Ok(bytes)
}

/// Number `index` of the stream `key`, uniform with mean 0 and standard deviation [`DEVIATION`].
///
/// A uniform distribution on −a..a has the deviation a/√3, hence the factor √3. The upper 53 bits are all
/// that an f64 holds.
fn uniform(key: u64, index: u64) -> f32 {
    let unit = (mix(key.wrapping_add(index)) >> 11) as f64 * (-52f64).exp2() - 1.0;
    (unit * 3f64.sqrt() * DEVIATION) as f32
}

/// The output function of SplitMix64. Steele, Lea, Flood 2014, doi:10.1145/2660193.2660195.
fn mix(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_that_memory_cannot_hold_is_an_error() {
        let error = tensor(DType::F32, vec![1 << 24, 1 << 30], 1, Fill::Random).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    }

    #[test]
    fn has_the_stated_moments_and_is_reproducible() {
        let make = || tensor(DType::F32, vec![300, 500], 7, Fill::Random).unwrap();
        let values = make().to_f64();
        assert_eq!(values, make().to_f64());
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let deviation = (values.iter().map(|v| v * v).sum::<f64>() / n).sqrt();
        assert!(mean.abs() < 2e-4 && (deviation - DEVIATION).abs() < 2e-4, "{mean} {deviation}");
        let ones = tensor(DType::BF16, vec![9], 1, Fill::Value(1.0)).unwrap();
        assert!(ones.to_f64().iter().all(|&v| v == 1.0));
    }

    #[test]
    fn quantised_weights_have_the_deviation_too() {
        let text = "graph g\nweight w: int4g32[64,64]\nweight b: int8g32[64,64]\nweight f: e4m3g32[64,64]\n\
                    weight m: mxfp4[64,64]\nweight norm.scale: f32[64]\n\
                    fy: f32[64,64] = dequantize(f)\nwy: f32[64,64] = dequantize(w)\nby: f32[64,64] = dequantize(b)\n\
                    my: f32[64,64] = dequantize(m)\ny: f32[64,64] = rms_norm(wy, norm.scale) {\"eps\":0.1}\n\
                    output y = y\noutput b = by\noutput f = fy\noutput m = my\n";
        let graph = Graph::parse(text).unwrap();
        let made = weights(&graph, 1).unwrap();
        assert_eq!(made["norm.scale"].to_f64()[0], 1.0);
        for (name, off) in [("w", 0.1), ("b", 0.1), ("f", 0.1), ("m", 0.25)] {
            let numbers = made[name].to_f64();
            let mean = numbers.iter().sum::<f64>() / 4096.0;
            let deviation = (numbers.iter().map(|x| x * x).sum::<f64>() / 4096.0).sqrt();
            assert!((deviation - DEVIATION).abs() < off * DEVIATION, "{name}: {deviation}");
            assert!(mean.abs() < 0.08 * DEVIATION, "{name}: {mean}");
            assert_ne!(numbers[..64], numbers[64..128], "{name}");
        }
    }

    #[test]
    fn large_models_share_one_sequence_whose_rows_differ() {
        let text = "graph g\nweight a: f16[16384,4096]\nweight b: f16[20000,4096]\nc: f16[16384,4096] = silu(a)\n\
                    d: f16[20000,4096] = silu(b)\noutput c = c\noutput d = d\n";
        let graph = Graph::parse(text).unwrap();
        let made = weights(&graph, 1).unwrap();
        let row = |name: &str, at: usize| made[name].rows(at, 1).unwrap().bytes().to_vec();
        assert_ne!(row("a", 0), row("b", 0));
        assert_ne!(row("b", 0), row("b", 8192));
        assert_ne!(row("b", 1), row("b", 8193));
        assert_eq!(made["b"].bytes().len(), 20_000 * 4096 * 2);
    }
}
