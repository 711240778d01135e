//! What a page holds answers to a form with: the module of `tapml_constraint`, and the bytes of the model's tokens. Both are loaded
//! when a request asks for a form.

use super::file::{SiteFile, write};
use super::pages::unpack;
use serde::Serialize;
use std::path::Path;
use tapml_engine::Tokenizer;
use tapml_exec::Interface;
use tapml_graph::{Error, Model, Result};
use tapml_import::Checkpoint;

/// Built and packed by `cargo xtask wasm`.
const MODULE: &[u8] = include_bytes!("../../../../web/dist/form.wasm.zst");

/// `form` of the manifest.
#[derive(Serialize)]
pub(super) struct SiteForm {
    module: SiteFile,
    vocabulary: SiteFile,
}

impl SiteForm {
    /// Writes both files.
    pub(super) fn write(
        folder: &Path,
        tokenizer: &Tokenizer,
        checkpoint: &Checkpoint,
        model: &Model,
    ) -> Result<SiteForm> {
        // As `tapml serve` counts them.
        let count = Interface::from_graph(model.graph())?.vocab();
        let count = count.and_then(|count| usize::try_from(count).ok());
        let count = count.ok_or_else(|| Error::bug("a site of a model without logits"))?;
        let vocabulary = tokenizer.vocabulary(count, checkpoint.eos()).to_bytes();
        Ok(SiteForm {
            module: write(folder, "form.wasm", &unpack(MODULE)?)?,
            vocabulary: write(folder, "vocabulary.bin", &vocabulary)?,
        })
    }

    /// Bytes of both.
    pub(super) fn bytes(&self) -> u64 {
        self.module.bytes + self.vocabulary.bytes
    }
}
