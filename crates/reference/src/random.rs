//! Reproducible uniform numbers addressed by position, so that they do not depend on the order of evaluation.

/// Uniform numbers of one stream.
#[derive(Clone, Copy)]
pub(crate) struct Uniform(u64);

impl Uniform {
    /// The stream of this seed and these coordinates.
    pub(crate) fn new(seed: u64, coordinates: &[u64]) -> Uniform {
        Uniform(coordinates.iter().fold(mix(seed), |state, &c| mix(state ^ mix(c))))
    }

    /// Number `index` of the stream, in −1..1.
    #[inline(always)]
    pub(crate) fn at(&self, index: u64) -> f64 {
        let bits = mix(self.0.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        (bits as i64) as f64 * (-63f64).exp2()
    }
}

/// The output function of SplitMix64. Steele, Lea, Flood 2014, doi:10.1145/2660193.2660195.
#[inline(always)]
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
    fn numbers_are_reproducible_uniform_and_differ_between_streams() {
        let (a, b) = (Uniform::new(1, &[0, 1]), Uniform::new(1, &[1, 0]));
        assert_eq!(a.at(7), Uniform::new(1, &[0, 1]).at(7));
        let count = 100_000;
        let values: Vec<f64> = (0..count).map(|i| a.at(i)).collect();
        let mean = values.iter().sum::<f64>() / count as f64;
        let square = values.iter().map(|v| v * v).sum::<f64>() / count as f64;
        assert!(mean.abs() < 0.01 && (square - 1.0 / 3.0).abs() < 0.01, "{mean} {square}");
        assert!(values.iter().all(|v| (-1.0..=1.0).contains(v)));
        let product = (0..count).map(|i| a.at(i) * b.at(i)).sum::<f64>() / count as f64;
        assert!(product.abs() < 0.01, "{product}");
    }
}
