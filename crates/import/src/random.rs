//! Random weights of the types that a graph asks for, the same on every machine.

use crate::quantize::packings;
use rayon::prelude::*;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use tapml_graph::op::Packing;
use tapml_graph::{Bytes, DType, Error, ErrorKind, Graph, Result, Symbols, Tensor, Value, byte_len};

/// Elements that one task makes.
const CHUNK: usize = 1 << 16;
/// Standard deviation of matrices and biases; the usual initialisation of language models.
const DEVIATION: f64 = 0.02;

/// Weights of more elements in all are parts of one sequence that repeats, so that a model of any size is made in seconds and
/// takes no more memory than its largest weight.
const LARGE: usize = 1 << 27;
/// Elements after which that sequence repeats: a prime, so that no two rows of a matrix are the same.
const PERIOD: usize = 33_554_393;

/// A value for every weight of the graph: matrices and biases uniform with mean 0, other vectors 1. The words of quantised
/// weights are random bits, and their scales make values of the same deviation. Numbers of 4 bits are never 0, so that their
/// mean is that of the range's middle: a mean besides, in every matrix, would grow from layer to layer.
pub fn weights(graph: &Graph, seed: u64) -> Result<HashMap<String, Tensor>> {
    let all = graph.weights().map(|(_, value)| Ok((value, value.ty.sizes(&Symbols::new())?)));
    let all: Vec<(&Value, Vec<usize>)> = all.collect::<Result<_>>()?;
    let count = |shape: &[usize]| shape.iter().fold(1usize, |all, &n| all.saturating_mul(n));
    let large = all.iter().map(|(_, shape)| count(shape)).fold(0, usize::saturating_add) > LARGE;
    let mut blocks: HashMap<(DType, bool), Bytes> = HashMap::new();
    let packed = packings(graph);
    let mut made = HashMap::new();
    for (index, (value, shape)) in all.iter().enumerate() {
        let (dtype, key) = (value.ty.dtype, mix(seed ^ mix(index as u64)));
        let fill = Fill::of(&value.name, shape, &packed);
        let repeats = matches!(fill, Fill::Random | Fill::Nibbles);
        let tensor = if large && repeats && count(shape) > CHUNK {
            let same = all.iter().filter(|(other, _)| other.ty.dtype == dtype);
            let most = same.map(|(_, shape)| count(shape)).max().unwrap_or(0);
            let block = match blocks.entry((dtype, fill == Fill::Nibbles)) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => entry.insert(block(dtype, most, mix(seed), fill)?),
            };
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

/// What a weight is filled with.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fill {
    Random,
    /// Words of eight numbers of 4 bits, from 1 to 15.
    Nibbles,
    Value(f32),
}

impl Fill {
    fn of(name: &str, shape: &[usize], packed: &HashMap<String, Packing>) -> Fill {
        let part = name.rsplit_once('.').and_then(|(weight, part)| Some((part, *packed.get(weight)?)));
        match part {
            Some(("q", Packing { bits: 4, .. })) => Fill::Nibbles,
            // Numbers of 8 bits have the deviation 0.42, the integers 0 to 15 and 0 to 255 4.6 and 73.9.
            Some(("scale", Packing { float: true, .. })) => Fill::Value((DEVIATION / 0.42) as f32),
            Some(("scale", Packing { bits: 4, .. })) => Fill::Value((DEVIATION / 4.6) as f32),
            Some(("scale", _)) => Fill::Value((DEVIATION / 73.9) as f32),
            Some(("zero", _)) => Fill::Value(8.0),
            _ if shape.len() == 1 && !name.ends_with("bias") => Fill::Value(1.0),
            _ => Fill::Random,
        }
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

fn tensor(dtype: DType, shape: Vec<usize>, key: u64, with: Fill) -> Result<Tensor> {
    let mut bytes = zeros(dtype, &shape)?;
    fill(dtype, &mut bytes, key, with)?;
    Tensor::new(dtype, shape, Bytes::new(bytes))
}

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
    use tapml_graph::op::float8;

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
        let text = "graph g\nweight w.q: u32[64,8]\nweight w.scale: f16[64,2]\nweight b.q: u32[64,16]\n\
                    weight b.scale: f16[64,2]\nweight norm.scale: f32[64]\n\
                    weight f.q: u32[64,16]\nweight f.scale: f16[64,2]\n\
                    f: f32[64,64] = dequantize(f.q, f.scale) {\"bits\":8,\"group\":32,\"float\":true}\n\
                    w: f32[64,64] = dequantize(w.q, w.scale) {\"bits\":4,\"group\":32}\n\
                    b: f32[64,64] = dequantize(b.q, b.scale) {\"bits\":8,\"group\":32}\n\
                    y: f32[64,64] = rms_norm(w, norm.scale) {\"eps\":0.1}\noutput y = y\noutput b = b\noutput f = f\n";
        let graph = Graph::parse(text).unwrap();
        let made = weights(&graph, 1).unwrap();
        let scale = |name: &str| made[name].to_f64()[0];
        assert!(
            (scale("w.scale") - 0.02 / 4.6).abs() < 1e-5 && (scale("b.scale") - 0.02 / 73.9).abs() < 1e-6
        );
        assert_eq!(scale("norm.scale"), 1.0);
        let numbers =
            made["f.q"].bytes().iter().map(|&code| f64::from(float8(u32::from(code))) * scale("f.scale"));
        let deviation = (numbers.map(|x| x * x).sum::<f64>() / 4096.0).sqrt();
        assert!((deviation - DEVIATION).abs() < 0.1 * DEVIATION, "{deviation}");
        let words = made["w.q"].to_u32().unwrap();
        assert_ne!(words[..8], words[8..16]);
        let numbers = words.iter().flat_map(|word| (0..8).map(move |i| f64::from(word >> (4 * i) & 15)));
        let (least, sum) = numbers.fold((15.0f64, 0.0), |(least, sum), n| (least.min(n), sum + n));
        assert!(least == 1.0 && (sum / (words.len() * 8) as f64 - 8.0).abs() < 0.3);
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
