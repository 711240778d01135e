//! Rows of hidden states become one vector.

/// How the rows of a text become one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolingMode {
    /// The first row, that of `[CLS]`.
    Cls,
    /// The largest value of each column.
    Max,
    /// The mean of all rows.
    Mean,
    /// The sum of all rows, divided by the square root of their number.
    MeanSqrtLen,
    /// The mean of all rows with the weights 1, 2, 3, …
    WeightedMean,
    /// The last row.
    LastToken,
}

impl PoolingMode {
    /// All, in the order in which the vectors of several stand one behind the other.
    pub(super) const ALL: [PoolingMode; 6] = [
        PoolingMode::Cls,
        PoolingMode::Max,
        PoolingMode::Mean,
        PoolingMode::MeanSqrtLen,
        PoolingMode::WeightedMean,
        PoolingMode::LastToken,
    ];

    /// The name that sentence-transformers has for it.
    pub fn name(self) -> &'static str {
        match self {
            PoolingMode::Cls => "cls",
            PoolingMode::Max => "max",
            PoolingMode::Mean => "mean",
            PoolingMode::MeanSqrtLen => "mean_sqrt_len_tokens",
            PoolingMode::WeightedMean => "weightedmean",
            PoolingMode::LastToken => "lasttoken",
        }
    }

    /// The key that turns it on in files of sentence-transformers.
    pub(super) fn key(self) -> &'static str {
        match self {
            PoolingMode::Cls => "pooling_mode_cls_token",
            PoolingMode::Max => "pooling_mode_max_tokens",
            PoolingMode::Mean => "pooling_mode_mean_tokens",
            PoolingMode::MeanSqrtLen => "pooling_mode_mean_sqrt_len_tokens",
            PoolingMode::WeightedMean => "pooling_mode_weightedmean_tokens",
            PoolingMode::LastToken => "pooling_mode_lasttoken",
        }
    }

    /// The vector of `[rows, width]` hidden states with at least one row. Sums run in f64, from the first row on.
    pub(super) fn pool(self, states: &[f32], width: usize) -> Vec<f64> {
        let rows = || states.chunks_exact(width).map(|row| row.iter().map(|&value| f64::from(value)));
        let count = rows().len() as f64;
        let sum = |weight: fn(usize) -> f64| {
            let mut sum = vec![0.0; width];
            for (at, row) in rows().enumerate() {
                sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += weight(at) * value);
            }
            sum
        };
        let divide = |sum: Vec<f64>, by: f64| sum.into_iter().map(|sum| sum / by).collect();
        match self {
            PoolingMode::Cls => rows().next().into_iter().flatten().collect(),
            PoolingMode::LastToken => rows().next_back().into_iter().flatten().collect(),
            PoolingMode::Max => rows().fold(vec![f64::NEG_INFINITY; width], |most, row| {
                // Not through `max`: what is no number stays, so that it is found.
                most.into_iter()
                    .zip(row)
                    .map(|(most, v)| if v > most || v.is_nan() { v } else { most })
                    .collect()
            }),
            PoolingMode::Mean => divide(sum(|_| 1.0), count),
            PoolingMode::MeanSqrtLen => divide(sum(|_| 1.0), count.sqrt()),
            PoolingMode::WeightedMean => divide(sum(|at| (at + 1) as f64), count * (count + 1.0) / 2.0),
        }
    }
}

/// The vector with the length 1.
pub(super) fn normalize(vector: Vec<f64>) -> Vec<f64> {
    let length = vector.iter().map(|value| value * value).sum::<f64>().sqrt();
    // A vector of zeros stays one, as in PyTorch.
    vector.into_iter().map(|value| value / length.max(1e-12)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mode_is_as_sentence_transformers_defines_it() {
        // Three rows of two columns.
        let states = [1.0, -2.0, 4.0, -8.0, 7.0, 1.0];
        for (mode, expected) in [
            (PoolingMode::Cls, [1.0, -2.0]),
            (PoolingMode::Max, [7.0, 1.0]),
            (PoolingMode::Mean, [4.0, -3.0]),
            (PoolingMode::MeanSqrtLen, [12.0 / 3f64.sqrt(), -9.0 / 3f64.sqrt()]),
            (PoolingMode::WeightedMean, [(1.0 + 8.0 + 21.0) / 6.0, (-2.0 - 16.0 + 3.0) / 6.0]),
            (PoolingMode::LastToken, [7.0, 1.0]),
        ] {
            assert_eq!(mode.pool(&states, 2), expected, "{}", mode.name());
        }
        assert_eq!(normalize(vec![3.0, -4.0]), [0.6, -0.8]);
        assert_eq!(normalize(vec![0.0, 0.0]), [0.0, 0.0]);
        assert!(PoolingMode::Max.pool(&[f32::NAN, 1.0, 2.0, 0.0], 2)[0].is_nan());
    }
}
