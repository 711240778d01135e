//! Linear biases on attention scores instead of rotated positions (ALiBi).

/// The slope of each head: `2^(−8(h+1)/heads)` if `heads` is a power of two, else those of the next lower power `k`,
/// followed by every other slope of `2k` heads. Press et al., "Train Short, Test Long", 2021, section 3.
pub fn slopes(heads: u32) -> Vec<f32> {
    // The largest power of two that is no larger than `heads`.
    let power = 1 << heads.max(1).ilog2();
    let slope = |index: u32, count: u32| (-8.0 * f64::from(index + 1) / f64::from(count)).exp2() as f32;
    let first = (0..power).map(|index| slope(index, power));
    let rest = (0..heads - power).map(|index| slope(2 * index, 2 * power));
    first.chain(rest).collect()
}

#[cfg(test)]
mod tests {
    use super::slopes;

    #[test]
    fn powers_of_two_and_others() {
        assert_eq!(slopes(8)[..3], [0.5, 0.25, 0.125]);
        let six = slopes(6);
        assert_eq!(six[..4], slopes(4)[..]);
        assert_eq!(six[4..], [slopes(8)[0], slopes(8)[2]]);
    }
}
