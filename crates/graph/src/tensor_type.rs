//! The type of a value: dtype and sizes.

use crate::dim::{Dim, Symbols};
use crate::dtype::DType;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Dtype and sizes of a value; sizes may name symbols.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TensorType {
    /// Element type.
    pub dtype: DType,
    /// Sizes, outermost first.
    pub shape: Vec<Dim>,
}

impl TensorType {
    /// A type of this dtype and shape.
    pub fn new(dtype: DType, shape: impl IntoIterator<Item = impl Into<Dim>>) -> TensorType {
        TensorType { dtype, shape: shape.into_iter().map(Into::into).collect() }
    }

    /// The sizes under these bindings.
    pub fn sizes(&self, symbols: &Symbols) -> Result<Vec<usize>> {
        self.shape
            .iter()
            .map(|d| {
                usize::try_from(d.eval(symbols)?)
                    .map_err(|_| Error::invalid(format!("size `{d}` is too large")))
            })
            .collect()
    }

    /// The same type with every size constant.
    pub fn bind(&self, symbols: &Symbols) -> Result<TensorType> {
        Ok(TensorType::new(self.dtype, self.sizes(symbols)?))
    }

    /// The number of bytes as an expression, if at most one size names symbols, and none of a packed one.
    pub fn bytes(&self) -> Option<Dim> {
        match self.dtype {
            DType::Packed(packing) => {
                let sizes = self.sizes(&Symbols::new()).ok()?;
                packing.byte_len(&sizes).map(|len| Dim::from(len as u64))
            }
            dtype => self.elements()?.checked_mul(dtype.size() as u64),
        }
    }

    /// The number of elements as an expression, if at most one size names symbols.
    pub fn elements(&self) -> Option<Dim> {
        let mut product = Dim::from(1u64);
        for dim in &self.shape {
            // One factor at most names symbols, so that the product stays affine.
            product = match (product.as_const(), dim.as_const()) {
                (Some(a), _) => dim.checked_mul(a)?,
                (None, Some(b)) => product.checked_mul(b)?,
                // A product of two symbols is not affine.
                (None, None) => return None,
            };
        }
        Some(product)
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[", self.dtype)?;
        for (i, dim) in self.shape.iter().enumerate() {
            write!(f, "{}{dim}", if i == 0 { "" } else { "," })?;
        }
        f.write_str("]")
    }
}
