//! Inputs with which an operator changes nothing that matters. A fused operator that is right with one of its inner
//! operators made neutral, and wrong otherwise, has its fault in that one; one that stays wrong has it in another.

use crate::error::Result;
use crate::tensor::Tensor;

/// Values of an input with which an operator passes on what its other inputs hold, or, for a norm, divides by 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neutral {
    /// Zeros: what is added.
    Zeros,
    /// Ones: what is multiplied by.
    Ones,
    /// Cosines of 1 in the first half of each row, sines of 0 in the second: angles.
    Unturned,
    /// 1 where the number is positive or zero, else −1: rows whose mean square is 1.
    Signs,
}

impl Neutral {
    /// An input of the same dtype and shape with these values.
    pub fn fill_like(self, input: &Tensor) -> Result<Tensor> {
        let width = input.row_len().max(1);
        let values = input.to_f64().into_iter().enumerate().map(|(at, value)| match self {
            Neutral::Zeros => 0.0,
            Neutral::Ones => 1.0,
            // Angles are cosines, then sines.
            Neutral::Unturned => f64::from(u8::from(at % width < width / 2)),
            Neutral::Signs => {
                // −0 counts as positive, as the comparison says.
                if value < 0.0 { -1.0 } else { 1.0 }
            }
        });
        Tensor::from_f64(input.dtype(), input.shape().to_vec(), &values.collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_the_row_and_sign() {
        let input = Tensor::from_f32(vec![1, 4], vec![-3.0, 0.0, 2.0, -0.5]).unwrap();
        let values = |neutral: Neutral| neutral.fill_like(&input).unwrap().to_f64();
        assert_eq!(values(Neutral::Zeros), [0.0; 4]);
        assert_eq!(values(Neutral::Ones), [1.0; 4]);
        assert_eq!(values(Neutral::Unturned), [1.0, 1.0, 0.0, 0.0]);
        assert_eq!(values(Neutral::Signs), [-1.0, 1.0, 1.0, -1.0]);
    }
}
