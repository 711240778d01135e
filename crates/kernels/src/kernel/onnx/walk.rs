//! How operands that stretch to the sizes of an output are walked along its elements.

use super::{broadcast_strides, words};
use tapml_graph::Result;

/// How operands are walked along the elements of an output: dimensions that all walk alike are one.
pub struct OperandWalk {
    /// Sizes of the dimensions that are left.
    sizes: Vec<u32>,
    /// Of each operand, one for each of these dimensions.
    strides: Vec<Vec<u32>>,
}

impl OperandWalk {
    /// Of operands that stretch to these sizes.
    pub fn from_operands(to: &[u32], operands: &[&[u32]]) -> Result<OperandWalk> {
        let strides = operands.iter().map(|from| broadcast_strides(from, to)).collect::<Result<_>>()?;
        Ok(OperandWalk::from_strides(to, strides))
    }

    /// Of operands with these strides, one for each dimension.
    pub fn from_strides(to: &[u32], strides: Vec<Vec<u32>>) -> OperandWalk {
        let mut walk = OperandWalk { sizes: Vec::new(), strides: vec![Vec::new(); strides.len()] };
        // Dimensions of size 1 are never walked. Two neighbours are one where every operand steps over both alike.
        for (d, &size) in to.iter().enumerate().filter(|(_, size)| **size != 1) {
            let joins = |(kept, own): (&Vec<u32>, &Vec<u32>)| {
                kept.last().is_some_and(|&outer| Some(outer) == own[d].checked_mul(size))
            };
            if !walk.sizes.is_empty() && walk.strides.iter().zip(&strides).all(joins) {
                walk.sizes.last_mut().into_iter().for_each(|outer| *outer = outer.wrapping_mul(size));
                let innermost = walk.strides.iter_mut().zip(&strides);
                innermost.for_each(|(kept, own)| kept.last_mut().into_iter().for_each(|last| *last = own[d]));
            } else {
                walk.sizes.push(size);
                walk.strides.iter_mut().zip(&strides).for_each(|(kept, own)| kept.push(own[d]));
            }
        }
        walk
    }

    /// Dimensions that are left.
    pub fn rank(&self) -> u32 {
        self.sizes.len() as u32
    }

    /// How an operand is walked: 0 as the output, 1 if it has one element, 2 by its strides.
    /// The kernel divides by sizes only in the last form.
    pub fn form(&self, operand: usize) -> u32 {
        match self.strides[operand].as_slice() {
            [1] => 0,
            strides if strides.iter().all(|&stride| stride == 0) => 1,
            _ => 2,
        }
    }

    /// Sizes, then the strides of each operand, as a constant.
    pub fn words(&self) -> Vec<u8> {
        words(self.sizes.iter().chain(self.strides.iter().flatten()).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::OperandWalk;

    #[test]
    fn dimensions_that_walk_alike_are_one() {
        let walk = OperandWalk::from_operands(&[2, 3, 4, 5], &[&[2, 3, 4, 5], &[3, 1, 1], &[]]).unwrap();
        assert_eq!(walk.sizes, [2, 3, 20]);
        assert_eq!(walk.strides, [vec![60, 20, 1], vec![0, 1, 0], vec![0, 0, 0]]);
        assert_eq!([walk.form(0), walk.form(1), walk.form(2)], [2, 2, 1]);
        let same = OperandWalk::from_operands(&[2, 1, 7], &[&[2, 1, 7], &[2, 1, 7]]).unwrap();
        assert_eq!((same.rank(), same.form(0), same.form(1)), (1, 0, 0));
        assert!(OperandWalk::from_operands(&[2, 3], &[&[2]]).is_err());
    }
}
