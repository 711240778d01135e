//! `patches`, evaluated.

use super::{Patches, one};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::{Value, reserve};
use tapml_graph::{Error, Result, Symbols};

impl Evaluate for Patches {
    const MOVES_ONLY: bool = true;

    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let image = inputs[0].as_float()?;
        let [channels, height, width] = *image.shape() else {
            return Err(Error::bug(format!("an image must have three sizes, found {image:?}")));
        };
        let patch = self.patch as usize;
        let (down, across, columns) = (height / patch, width / patch, channels * patch * patch);
        let mut values = reserve(down * across, columns)?;
        for (row, column) in (0..down).flat_map(|row| (0..across).map(move |column| (row, column))) {
            for line in 0..channels * patch {
                let (channel, line) = (line / patch, row * patch + line % patch);
                let start = (channel * height + line) * width + column * patch;
                values.extend_from_slice(&image.values()[start..start + patch]);
            }
        }
        one(down * across, columns, values)
    }
}
