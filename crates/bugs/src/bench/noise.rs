//! How far results are from the exact ones, over all calls of an operator: what tells a fault from another correct way to
//! compute the same.

use std::iter::Sum;
use std::ops::Add;
use tapml_graph::Tensor;
use tapml_migrate::verdict::Exact;

/// Errors relative to the root mean square of the exact values of each output.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Noise {
    /// Sum over outputs of the mean squared error.
    pub squares: f64,
    /// The largest error.
    pub worst: f64,
}

impl Noise {
    /// The errors of the outputs of one call.
    pub fn from_outputs(exact: &[Exact], outputs: &[Tensor]) -> Noise {
        exact.iter().zip(outputs).map(|(exact, found)| Noise::of_output(&exact.values, &found.to_f64())).sum()
    }

    /// The errors of one output. An output of zeros is measured by 1.
    fn of_output(exact: &[f64], found: &[f64]) -> Noise {
        let count = exact.len().max(1) as f64;
        let size = (exact.iter().filter(|y| y.is_finite()).map(|y| y * y).sum::<f64>() / count).sqrt();
        // Otherwise every error of an output of zeros would be infinite.
        let size = if size > 0.0 { size } else { 1.0 };
        let mut noise = Noise::default();
        for (&y, &v) in exact.iter().zip(found) {
            let error = if y == v || (y.is_nan() && v.is_nan()) { 0.0 } else { (y - v).abs() / size };
            // A NaN where a number should be is as wrong as can be.
            let error = if error.is_nan() { f64::INFINITY } else { error };
            noise.squares += error * error / count;
            noise.worst = noise.worst.max(error);
        }
        noise
    }

    /// Whether errors like `correct` explain these: at most twice the root mean square and four times the worst element.
    /// A sum formed in another order, or a softmax shifted by another number, is explained; a fault hides only if it errs
    /// no more than correct code does.
    pub fn explained_by(self, correct: Noise) -> bool {
        self.squares <= 4.0 * correct.squares && self.worst <= 4.0 * correct.worst
    }
}

impl Add for Noise {
    type Output = Noise;

    fn add(self, other: Noise) -> Noise {
        Noise { squares: self.squares + other.squares, worst: self.worst.max(other.worst) }
    }
}

impl Sum for Noise {
    fn sum<I: Iterator<Item = Noise>>(all: I) -> Noise {
        all.fold(Noise::default(), Noise::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn correct_variants_are_explained_and_faults_are_not() {
        let exact = [1.0, -2.0, 3.0, 0.5];
        let moved = |by: f64| Noise::of_output(&exact, &exact.map(|y| y * (1.0 + by)));
        let correct = moved(1e-7);
        assert!(moved(1.9e-7).explained_by(correct));
        assert!(!moved(2.1e-7).explained_by(correct));
        assert!(!Noise::of_output(&exact, &[1.0, f64::NAN, 3.0, 0.5]).explained_by(correct));
        let copies = Noise::of_output(&exact, &exact);
        assert!(copies.explained_by(copies), "what only moves data errs by nothing");
        assert!(!moved(1e-15).explained_by(copies));
    }
}
