//! Random weights of the types that a graph asks for, the same on every machine.

use rayon::prelude::*;
use std::collections::HashMap;
use tapml_graph::{Bytes, DType, Error, ErrorKind, Graph, Result, Symbols, Tensor, byte_len};

/// Elements that one task makes.
const CHUNK: usize = 1 << 16;
/// Standard deviation of matrices and biases; the usual initialisation of language models.
const DEVIATION: f64 = 0.02;

/// A value for every weight of the graph: matrices and biases uniform with mean 0, other vectors 1.
pub fn weights(graph: &Graph, seed: u64) -> Result<HashMap<String, Tensor>> {
    let values = graph.weights().enumerate();
    let made = values.map(|(index, (_, value))| {
        let shape = value.ty.sizes(&Symbols::new())?;
        let ones = shape.len() == 1 && !value.name.ends_with("bias");
        let key = mix(seed ^ mix(index as u64));
        Ok((value.name.clone(), tensor(value.ty.dtype, shape, key, ones)?))
    });
    made.collect()
}

fn tensor(dtype: DType, shape: Vec<usize>, key: u64, ones: bool) -> Result<Tensor> {
    let mut bytes = zeros(dtype, &shape)?;
    bytes.par_chunks_mut(CHUNK * dtype.size()).enumerate().try_for_each(|(chunk, out)| {
        let count = out.len() / dtype.size();
        let value = |i: usize| if ones { 1.0 } else { uniform(key, (chunk * CHUNK + i) as u64) };
        let values: Vec<f32> = (0..count).map(value).collect();
        out.copy_from_slice(Tensor::from_f32_as(dtype, vec![count], values)?.bytes());
        Ok(())
    })?;
    Tensor::new(dtype, shape, Bytes::new(bytes))
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

    #[test]
    fn a_weight_that_memory_cannot_hold_is_an_error() {
        let error = tensor(DType::F32, vec![1 << 24, 1 << 30], 1, false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    }

    #[test]
    fn has_the_stated_moments_and_is_reproducible() {
        let make = || tensor(DType::F32, vec![300, 500], 7, false).unwrap();
        let values = make().to_f64();
        assert_eq!(values, make().to_f64());
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let deviation = (values.iter().map(|v| v * v).sum::<f64>() / n).sqrt();
        assert!(mean.abs() < 2e-4 && (deviation - DEVIATION).abs() < 2e-4, "{mean} {deviation}");
        assert!(tensor(DType::BF16, vec![9], 1, true).unwrap().to_f64().iter().all(|&v| v == 1.0));
    }
}
