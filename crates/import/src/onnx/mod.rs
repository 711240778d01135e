//! ONNX models: a memory-mapped reader that checks every claim of the file before anything is made of it.
//!
//! A model is one protobuf message. It is walked first, so that neither its depth nor the number of its parts can exhaust the
//! stack or memory; then it is decoded, tensors sharing the map; then names, domains, sizes and external files are checked.
//! Format: <https://github.com/onnx/onnx/blob/main/docs/IR.md>, <https://github.com/onnx/onnx/blob/main/docs/ExternalData.md>.

mod attribute;
mod check;
mod messages;
mod outline;
mod tensor;
mod trace;
mod walk;
mod write;

pub use outline::{InputType, OperatorOutline, OpsetOutline, Outline, ValueOutline, WeightOutline};
pub use trace::{OperatorRunner, Traced};
pub use write::{NewModel, NewNode};

use crate::mapped::map;
use prost::Message;
use std::path::{Path, PathBuf};
use tapml_graph::{Bytes, Context, Error, Result, Tensor};

/// Whether a path is that of an ONNX model, by its name.
pub fn is_onnx(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("onnx"))
}

/// An open model whose names, types and sizes hold.
///
/// Cheap to clone as far as tensors go: their bytes are shared.
#[derive(Clone, Debug)]
pub struct File {
    model: messages::Model,
    /// Where external data lies.
    folder: PathBuf,
}

impl File {
    /// Maps a model and checks it. External data is looked for in the model's folder, and only its size is read.
    ///
    /// # Errors
    /// Name the file, the node or tensor, what was expected and what was found.
    pub fn open(path: &Path) -> Result<File> {
        let model = decode(&map(path)?).context(|| path.display().to_string())?;
        check::model(&model, &tensor::Around::from_path(path)).context(|| path.display().to_string())?;
        Ok(File { model, folder: folder(path).into() })
    }

    /// What the model consists of.
    pub fn outline(&self) -> Outline {
        Outline::from_model(&self.model)
    }

    /// What the model says of its inputs, those of initialisers, which are defaults, among them.
    pub fn input_types(&self) -> Vec<InputType> {
        let inputs = self.model.graph.iter().flat_map(|graph| &graph.input);
        inputs.map(outline::input_type).collect()
    }

    /// What the model says of the input of this name.
    ///
    /// # Errors
    /// If it has none; says which it has.
    pub fn input_type(&self, name: &str) -> Result<InputType> {
        let none = messages::Graph::default();
        let graph = self.model.graph.as_ref().unwrap_or(&none);
        let found = graph.input.iter().find(|value| value.name == name);
        found.map(outline::input_type).ok_or_else(|| outline::unknown_input(graph, name))
    }
}

/// A tensor in a file of its own (`.pb`), as the node tests of ONNX hold inputs and outputs: its name and its elements.
///
/// # Errors
/// If the file holds no tensor, one that claims what it has not, or one whose elements no graph holds.
pub fn read_tensor(path: &Path) -> Result<(String, Tensor)> {
    let read = || {
        let bytes = map(path)?;
        let no_tensor = |reason: String| Error::invalid(format!("this is no ONNX tensor: {reason}"));
        // Walked before it is decoded, like a model.
        walk::tensor(&bytes).map_err(no_tensor)?;
        let shared = prost::bytes::Bytes::from_owner(Mapped(bytes));
        let decoded = messages::TensorProto::decode(shared).map_err(|e| no_tensor(e.to_string()))?;
        tensor::check(&decoded, &tensor::Around::from_path(path))?;
        let elements = tensor::read(&decoded, folder(path))?;
        Ok((decoded.name, elements))
    };
    read().context(|| path.display().to_string())
}

/// The folder of a file; the current one for a bare name.
fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Keeps the map alive for the tensors that share it.
struct Mapped(Bytes);

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Walks, then decodes. Bytes of tensors are views of the map.
fn decode(bytes: &Bytes) -> Result<messages::Model> {
    let not_onnx = |reason: String| {
        Error::invalid(format!("this is no ONNX model: {reason}")).with_hint(
            "give a file that an exporter of ONNX wrote; if its copy or download was cut off, fetch it again",
        )
    };
    walk::model(bytes).map_err(not_onnx)?;
    let shared = prost::bytes::Bytes::from_owner(Mapped(bytes.clone()));
    messages::Model::decode(shared).map_err(|e| not_onnx(e.to_string()))
}

#[cfg(test)]
mod tests;
