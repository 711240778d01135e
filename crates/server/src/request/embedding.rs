//! The body of `/v1/embeddings`.

use super::prompts::{Prompt, Prompts};
use crate::error::ApiError;
use crate::fields::{Fields, Parsed};

const NAMES: &[&str] = &["model", "input", "encoding_format", "dimensions", "user"];

/// Most texts of a request; OpenAI's.
const MAX_INPUTS: usize = 2048;

/// How a vector is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VectorFormat {
    /// As a list of numbers.
    Float,
    /// As base64 of numbers in f32, the lowest byte first.
    Base64,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmbeddingRequest {
    /// The model's name, if it is given.
    pub model: Option<String>,
    /// At least one.
    pub inputs: Vec<Prompt>,
    /// How vectors are written.
    pub format: VectorFormat,
    /// Numbers of a vector, if not all are wanted.
    pub dimensions: Option<usize>,
}

impl EmbeddingRequest {
    /// Reads a body.
    pub fn parse(body: &[u8]) -> Parsed<EmbeddingRequest> {
        let fields = Fields::parse(body, &[NAMES])?;
        // Nothing depends on it, but a client that sends something else is wrong.
        let _user: Option<String> = fields.optional("user")?;
        let format: Option<String> = fields.optional("encoding_format")?;
        let format = match format.as_deref() {
            None | Some("float") => VectorFormat::Float,
            Some("base64") => VectorFormat::Base64,
            Some(other) => {
                let text = format!("`encoding_format` must be `float` or `base64`, found `{other}`");
                return Err(ApiError::bad_field("encoding_format", text).with_code("invalid_value"));
            }
        };
        let Prompts::<MAX_INPUTS>(inputs) = fields.expect_field("input")?;
        Ok(EmbeddingRequest {
            model: fields.optional("model")?,
            inputs,
            format,
            dimensions: fields.count("dimensions", 1)?,
        })
    }
}
