//! `merge_squares`, evaluated: the rows of a square one after the other. Nothing is rounded.

use super::{MergeSquares, rows, single_output};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::{Value, reserve};
use tapml_graph::{Result, Symbols};

impl Evaluate for MergeSquares {
    const MOVES_ONLY: bool = true;

    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let x = rows(inputs, 0)?;
        let [down, across, side, lead] = [self.down, self.across, self.side, self.lead].map(|v| v as usize);
        let per_image = lead + down * across;
        let images = x.rows / per_image;
        let (squares, columns) = (images * (down / side) * (across / side), side * side * x.columns);
        let mut values = reserve(squares, columns)?;
        for square in 0..squares {
            // Squares count along a row of squares, then down an image, then over the images.
            let (row, column) = (square / (across / side), square % (across / side));
            let (image, row) = (row / (down / side), row % (down / side));
            for cell in 0..side * side {
                let at = (row * side + cell / side) * across + column * side + cell % side;
                values.extend_from_slice(x.part(image * per_image + lead + at, 0, x.columns));
            }
        }
        single_output(squares, columns, values)
    }
}
