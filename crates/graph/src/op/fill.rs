//! The inputs of sample cases, and how their values are made: the same on every machine.

use crate::dim::Symbols;
use crate::dtype::DType;
use crate::error::Result;
use crate::packing::Packing;
use crate::tensor::Tensor;
use crate::tensor_type::TensorType;

/// How the values of a sample input are made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fill {
    /// Normal with mean 0 and this standard deviation.
    Normal(f32),
    /// Normal with this mean and standard deviation, such as the weight of a norm.
    Around(f32, f32),
    /// Integers uniform in `0..limit`.
    Below(u32),
    /// Integers below this limit in an order that is none of theirs, each once; 2³²−1 where there are no more.
    Distinct(u32),
    /// Normal with standard deviation 1, and every 7th value multiplied by this factor: outliers as in real activations.
    Spiky(f32),
    /// Normal with standard deviation 1, and one value of every so many NaN, −∞ or +∞ in turn.
    NotFinite(u32),
    /// Random codes and zero points of a packed weight, and scales around a usual one.
    Codes,
    /// These numbers, separated by commas; again from the first where there are more elements.
    Values(&'static str),
}

/// One input of a sample.
#[derive(Clone, Debug)]
pub struct SampleInput {
    /// Dtype and sizes; sizes may name symbols.
    pub ty: TensorType,
    /// Values.
    pub fill: Fill,
}

/// SplitMix64: small, and the same everywhere. Steele, Lea, Flood 2014, doi:10.1145/2660193.2660195.
pub struct Random(u64);

impl Random {
    /// Numbers of this seed.
    pub fn new(seed: u64) -> Random {
        // So the seed 0 begins elsewhere than at the state 0.
        Random(seed ^ 0x9e37_79b9_7f4a_7c15)
    }

    /// The next 64 bits.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In 0..1, without 1.
    fn uniform(&mut self) -> f64 {
        // 53 bits: as many as `f64` has, so that all values are equally far apart.
        (self.next() >> 11) as f64 * (-53f64).exp2()
    }

    /// Normal by the Box-Muller transform.
    fn normal(&mut self) -> f64 {
        // `1 − u` is never 0, of which there is no logarithm.
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// The values of one input.
    pub fn tensor(&mut self, input: &SampleInput, symbols: &Symbols) -> Result<Tensor> {
        let shape = input.ty.sizes(symbols)?;
        if let DType::Packed(packing) = input.ty.dtype {
            return self.draw_packed(packing, shape);
        }
        let count: usize = shape.iter().product();
        if let Fill::Values(text) = input.fill {
            let given: Vec<f64> = text.split(',').filter_map(|value| value.parse().ok()).collect();
            let values: Vec<f64> = given.into_iter().cycle().take(count).collect();
            return Tensor::from_f64(input.ty.dtype, shape, &values);
        }
        let values: Vec<f64> = (0..count)
            .map(|i| match input.fill {
                Fill::Codes | Fill::Values(_) => 0.0,
                Fill::Normal(scale) => self.normal() * f64::from(scale),
                Fill::Around(mean, scale) => f64::from(mean) + self.normal() * f64::from(scale),
                // The remainder prefers low numbers by a negligible part.
                Fill::Below(limit) => (self.next() % u64::from(limit.max(1))) as f64,
                // Any step that has no factor in common with the limit reaches every number once.
                Fill::Distinct(limit) if i < limit as usize => ((i * 7919 + 3) % limit as usize) as f64,
                Fill::Distinct(_) => f64::from(u32::MAX),
                Fill::NotFinite(every) => {
                    let (turn, at) = (i / every.max(1) as usize, i % every.max(1) as usize);
                    // Drawn in any case, so that other elements do not depend on `every`.
                    let normal = self.normal();
                    if at == every as usize / 2 {
                        [f64::NAN, f64::NEG_INFINITY, f64::INFINITY][turn % 3]
                    } else {
                        normal
                    }
                }
                Fill::Spiky(factor) => self.normal() * if i % 7 == 3 { f64::from(factor) } else { 1.0 },
            })
            .collect();
        Tensor::from_f64(input.ty.dtype, shape, &values)
    }

    /// Random codes and zero points, and scales around a usual one.
    fn draw_packed(&mut self, packing: Packing, shape: Vec<usize>) -> Result<Tensor> {
        let half = |x: f64| half::f16::from_f64(x).to_le_bytes();
        let sections = packing.sections(&shape)?;
        let count = |i: usize| sections.get(i).map_or(0, |section| section.len / section.dtype.size());
        let words: Vec<u8> = (0..count(0)).flat_map(|_| (self.next() as u32).to_le_bytes()).collect();
        // Numbers as large as those of usual weights, more or less.
        let scales: Vec<u8> =
            (0..count(1)).flat_map(|_| packing.scale_of(0.1 * (self.normal() / 4.0).exp2() as f32)).collect();
        let limit = 1 << packing.bits();
        let zeros: Vec<u8> = (0..count(2)).flat_map(|_| half((self.next() % limit) as f64)).collect();
        let parts = [&words[..], &scales, &zeros];
        Tensor::from_packed(packing, shape, &parts[..sections.len()])
    }
}
