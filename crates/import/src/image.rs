//! Which tokens of a prompt stand for which rows of what an encoder makes of an image.
//!
//! The layouts are those of the authors' code for LLaVA (`Whole`) and Phi-3-vision (`Crops`). The graph is
//! the same for all images; only the order of rows in the prompt depends on the image.

use tapml_graph::{Error, Result};

/// How a prompt names its image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageTokens {
    /// The token that stands for one row of the image.
    pub id: u32,
    /// What the rows are.
    pub layout: Layout,
}

/// What the rows of an image are, and in which order a prompt takes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// One picture, whose rows stand in the prompt as they are.
    Whole {
        /// Rows.
        rows: u32,
    },
    /// Crops of one size below each other in `pixels`: first the whole image at their size, then its parts row by row,
    /// zeros where there are fewer parts. Each becomes `side` by `side` rows; behind the rows of all crops are one that
    /// ends a line and one that stands between parts and whole.
    ///
    /// In the prompt come the parts, put together, line by line, each ended; the one between; the whole image likewise.
    Crops {
        /// Crops, the whole image among them.
        most: u32,
        /// Height and width of a crop, pixels.
        pixels: u32,
        /// Rows along a side of a crop.
        side: u32,
    },
}

impl ImageTokens {
    /// The rows that the tokens of an image stand for, in order; `[down, across]` are the parts that it is cut in, which
    /// count only for [`Layout::Crops`]. Fails if there are no parts, or not fewer than its `most`.
    pub fn rows(&self, [down, across]: [u32; 2]) -> Result<Vec<u32>> {
        let (most, side) = match self.layout {
            Layout::Whole { rows } => return Ok((0..rows).collect()),
            Layout::Crops { most, side, .. } => (most, side),
        };
        let parts = u64::from(down) * u64::from(across);
        if !(1..u64::from(most)).contains(&parts) {
            // One of the crops is the whole image, so parts have one place less.
            let most = most - 1;
            return Err(Error::invalid(format!(
                "an image cut in {down} by {across} parts, expected 1 to {most}"
            )));
        }
        // Rows are numbered crop by crop. The two rows behind all crops are the end of a line and the
        // separator.
        let end = most * side * side;
        let lines = |first: u32, down: u32, across: u32| {
            let of_line = move |line: u32| {
                let cell = move |column: u32| {
                    let crop = first + line / side * across + column / side;
                    (crop * side + line % side) * side + column % side
                };
                (0..across * side).map(cell).chain([end])
            };
            (0..down * side).flat_map(of_line)
        };
        Ok(lines(1, down, across).chain([end + 1]).chain(lines(0, 1, 1)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_line_by_line_then_the_whole() {
        let tokens = ImageTokens { id: 0, layout: Layout::Crops { most: 4, pixels: 8, side: 2 } };
        // Two parts beside each other: rows 4 to 7 and 8 to 11; the whole: 0 to 3; 16 ends a line, 17 stands between.
        let expected = [4, 5, 8, 9, 16, 6, 7, 10, 11, 16, 17, 0, 1, 16, 2, 3, 16];
        assert_eq!(tokens.rows([1, 2]).unwrap(), expected);
        assert_eq!(tokens.rows([3, 1]).unwrap()[..9], [4, 5, 16, 6, 7, 16, 8, 9, 16]);
        let real = ImageTokens { id: 0, layout: Layout::Crops { most: 17, pixels: 336, side: 12 } };
        assert_eq!(
            real.rows([3, 5]).unwrap().len(),
            (3 * 5 + 1) * 144 + 1 + (3 + 1) * 12,
            "as its authors count"
        );
        let whole = ImageTokens { id: 0, layout: Layout::Whole { rows: 3 } };
        assert_eq!(whole.rows([1, 1]).unwrap(), [0, 1, 2]);
        for parts in [[2, 2], [0, 1], [u32::MAX, u32::MAX]] {
            assert!(tokens.rows(parts).unwrap_err().to_string().contains("expected 1 to 3"), "{parts:?}");
        }
    }
}
