//! A file that is to fill an input, and what it became.

use super::options::Options;
use std::path::Path;
use std::rc::Rc;
use tapml_engine::Tokenizer;
use tapml_graph::{DType, Error, Result, Tensor};
use tapml_import::onnx::InputType;

/// A file that is to fill an input.
pub(super) struct InputSource<'a> {
    /// The file.
    pub path: &'a Path,
    /// Its options.
    pub options: &'a Options,
    /// What the model says of the input.
    pub wanted: &'a InputType,
    /// Opens a tokenizer: of this folder, or of the model's.
    pub tokenizer: &'a dyn Fn(Option<&Path>) -> Result<Rc<Tokenizer>>,
}

/// What a file became.
pub(super) struct Filled {
    /// The array.
    pub tensor: Tensor,
    /// How it was made, in words; empty if it is what the file holds.
    pub how: String,
    /// For a text: how many ids are of it, and not padding.
    pub ids: Option<usize>,
}

impl InputSource<'_> {
    /// An error about the input.
    pub fn unfit(&self, what: &str) -> Error {
        Error::invalid(format!("input `{}` takes {}, which {what}", self.wanted.name, self.wanted.text))
    }

    /// Integers as elements of a type of integers, which must hold them.
    pub fn integers(&self, dtype: DType, shape: Vec<usize>, values: &[i64]) -> Result<Tensor> {
        let made = Tensor::from_i64(dtype, shape, values)?;
        match made.to_i64()?.iter().zip(values).find(|(held, given)| held != given) {
            Some((_, given)) => Err(Error::invalid(format!("{dtype} does not hold {given}"))),
            None => Ok(made),
        }
    }

    /// Values as elements of the input's type.
    ///
    /// # Errors
    /// The model does not say which type, or an integer type does not hold a value.
    pub fn elements(&self, shape: Vec<usize>, values: &[f64]) -> Result<Tensor> {
        let dtype =
            self.wanted.dtype.ok_or_else(|| self.unfit("is no type that files other than arrays fill"))?;
        if dtype.is_float() {
            return Tensor::from_f64(dtype, shape, values);
        }
        let rounded: Vec<f64> = values.iter().map(|value| value.round()).collect();
        let made = Tensor::from_f64(dtype, shape, &rounded)?;
        // Compared after the conversion: saturation and wrap-around both show.
        let found = made.to_f64();
        match rounded.iter().zip(&found).find(|(wanted, held)| wanted != held) {
            Some((value, _)) => Err(Error::invalid(format!("{dtype} does not hold {value}"))
                .with_hint("`scale` multiplies the samples")),
            None => Ok(made),
        }
    }
}
