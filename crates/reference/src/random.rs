//! Reproducible uniform numbers addressed by position, so that they do not depend on the order of evaluation.

use std::sync::LazyLock;

/// A prime, so that no row length divides it and rows meet different numbers.
const COUNT: usize = 16_381;

/// Numbers in −1..1. Drawing each anew would cost more than the evaluations that use them.
static TABLE: LazyLock<Vec<f64>> =
    LazyLock::new(|| (0..COUNT as u64).map(|i| (mix(i) as i64) as f64 * (-63f64).exp2()).collect());

/// Uniform numbers of one stream: the table from a place on, again and again.
#[derive(Clone, Copy)]
pub(crate) struct Uniform {
    start: usize,
}

impl Uniform {
    /// The stream of this seed and these coordinates.
    pub(crate) fn new(seed: u64, coordinates: &[u64]) -> Uniform {
        let place = coordinates.iter().fold(mix(seed), |state, &c| mix(state ^ mix(c)));
        Uniform { start: (place % COUNT as u64) as usize }
    }

    /// Number `index` of the stream, in −1..1.
    pub(crate) fn value_at(&self, index: usize) -> f64 {
        TABLE[(self.start + index) % COUNT]
    }

    /// Numbers from `index` on, in pieces that together have `len` numbers.
    pub(crate) fn pieces(&self, index: usize, len: usize) -> impl Iterator<Item = &'static [f64]> {
        let mut place = (self.start + index) % COUNT;
        let mut left = len;
        std::iter::from_fn(move || {
            let count = left.min(COUNT - place);
            let piece = &TABLE[place..place + count];
            (left, place) = (left - count, 0);
            (count > 0).then_some(piece)
        })
    }
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
    fn numbers_are_reproducible_uniform_and_differ_between_streams() {
        let (a, b) = (Uniform::new(1, &[0, 1]), Uniform::new(1, &[1, 0]));
        let of = |stream: &Uniform| (0..COUNT).map(|i| stream.value_at(i)).collect::<Vec<f64>>();
        let (values, others) = (of(&a), of(&b));
        assert_eq!(values, of(&Uniform::new(1, &[0, 1])));
        let mean = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / COUNT as f64;
        assert!(mean(&mut values.iter().copied()).abs() < 0.02);
        assert!((mean(&mut values.iter().map(|v| v * v)) - 1.0 / 3.0).abs() < 0.02);
        assert!(mean(&mut values.iter().zip(&others).map(|(a, b)| a * b)).abs() < 0.02);
        assert!(values.iter().all(|v| (-1.0..=1.0).contains(v)));
    }

    #[test]
    fn pieces_are_the_numbers_in_order() {
        let stream = Uniform::new(5, &[3]);
        let joined: Vec<f64> = stream.pieces(7, 2 * COUNT + 9).flatten().copied().collect();
        assert_eq!(joined, (7..2 * COUNT + 16).map(|i| stream.value_at(i)).collect::<Vec<_>>());
        assert_eq!(stream.pieces(7, 0).count(), 0);
    }
}
