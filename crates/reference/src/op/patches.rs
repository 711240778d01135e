//! `patches`, evaluated: the pixels of each patch, channel by channel and line by line. Nothing is rounded.

use super::{Patches, single_output};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::{Value, reserve};
use tapml_graph::{Error, Result, Symbols};

impl Evaluate for Patches {
    const MOVES_ONLY: bool = true;

    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let x = inputs[0].as_float()?;
        let [channels, lines, width] = *x.shape() else {
            return Err(Error::bug(format!("images must have three sizes, found {x:?}")));
        };
        let [patch, images, lead] = [self.patch, self.images, self.lead].map(|size| size as usize);
        let height = lines / images;
        let (down, across, columns) = (height / patch, width / patch, channels * patch * patch);
        let rows = images * (lead + down * across);
        let mut values = reserve(rows, columns)?;
        for image in 0..images {
            // Leading rows of an image are places for learned ones.
            values.extend(std::iter::repeat_n(T::ZERO, lead * columns));
            for (row, column) in (0..down).flat_map(|row| (0..across).map(move |column| (row, column))) {
                for line in 0..channels * patch {
                    let (channel, line) = (line / patch, image * height + row * patch + line % patch);
                    let start = (channel * lines + line) * width + column * patch;
                    values.extend_from_slice(&x.values()[start..start + patch]);
                }
            }
        }
        single_output(rows, columns, values)
    }
}
