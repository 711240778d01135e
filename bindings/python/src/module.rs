//! What can be compiled, and checkpoints.

use crate::array::HostArray;
use crate::error::{self, result};
use pyo3::prelude::*;
use std::collections::HashMap;
use std::path::PathBuf;
use tapml::engine::Tokenizer;
use tapml::graph::{Bytes, Graph, Tensor, TensorType};
use tapml::import::{Checkpoint, LogitRows};
use tapml::model::GraphOptions;
use tapml::runtime::{Module, OwnKernel, parse_groups};
use tapml::{Error, Result};

/// Something to compile.
#[pyclass(frozen, name = "Module")]
pub struct NativeModule(pub Module);

fn types(texts: &[String]) -> Result<Vec<TensorType>> {
    texts.iter().map(|text| text.parse()).collect()
}

#[pymethods]
impl NativeModule {
    /// One operator; `attributes` is a JSON object.
    #[staticmethod]
    fn op(py: Python<'_>, name: &str, attributes: &str, inputs: Vec<String>) -> PyResult<NativeModule> {
        let made = || -> Result<Module> {
            let attributes = serde_json::from_str(attributes)
                .map_err(|e| Error::invalid(format!("attributes of `{name}`: {e}")))?;
            Module::op(name, attributes, &types(&inputs)?)
        };
        result(py, made()).map(NativeModule)
    }

    /// A graph in its text form, with its weights by name, which are copied.
    #[staticmethod]
    fn graph(
        py: Python<'_>,
        text: &str,
        weights: HashMap<String, Bound<'_, PyAny>>,
    ) -> PyResult<NativeModule> {
        let mut tensors = HashMap::new();
        for (name, array) in weights {
            let array = HostArray::from_object(&array)?;
            let bytes = Bytes::new(array.bytes().to_vec());
            let tensor = result(py, Tensor::new(array.dtype, array.shape.clone(), bytes))?;
            tensors.insert(name, tensor);
        }
        let graph = result(py, Graph::parse(text))?;
        result(py, Module::graph(graph, tensors)).map(NativeModule)
    }

    /// A kernel of one's own in WGSL.
    #[staticmethod]
    fn kernel(
        py: Python<'_>,
        file: &str,
        text: &str,
        entry: Option<&str>,
        constants: Vec<(String, f64)>,
        arguments: Vec<String>,
        groups: Option<Vec<String>>,
    ) -> PyResult<NativeModule> {
        let made = || -> Result<Module> {
            let groups = groups.map(|groups| parse_groups(&groups)).transpose()?;
            let kernel = OwnKernel::new(file, text, entry, &constants, &types(&arguments)?, groups)?;
            Ok(Module::kernel(kernel))
        };
        result(py, made()).map(NativeModule)
    }

    fn with_name(&self, py: Python<'_>, name: &str) -> PyResult<NativeModule> {
        result(py, self.0.clone().with_name(name)).map(NativeModule)
    }

    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// The graph's text form; `None` for a kernel of one's own.
    fn text(&self) -> Option<String> {
        self.0.as_graph().map(Graph::to_text)
    }

    /// Names of operator kinds with their numbers of nodes.
    fn ops(&self) -> Vec<(&'static str, usize)> {
        self.0.as_graph().map(Graph::op_kinds).unwrap_or_default()
    }
}

/// A checkpoint with its tokenizer.
#[pyclass(frozen, name = "Model")]
pub struct NativeModel {
    checkpoint: Checkpoint,
    module: Module,
    tokenizer: Option<Tokenizer>,
}

#[pymethods]
impl NativeModel {
    /// Opens a folder in Hugging Face layout or a GGUF file; `options` as JSON.
    #[new]
    fn open(py: Python<'_>, path: PathBuf, options: &str, last: bool) -> PyResult<NativeModel> {
        error::run(py, || {
            let options: GraphOptions =
                serde_json::from_str(options).map_err(|e| Error::invalid(format!("options: {e}")))?;
            let (checkpoint, model) =
                options.open(&path, if last { LogitRows::Last } else { LogitRows::All })?;
            let module = Module::model(model, Some(checkpoint.context()));
            let tokenizer = Tokenizer::open(checkpoint.dir()).ok();
            Ok(NativeModel { checkpoint, module, tokenizer })
        })
    }

    fn module(&self) -> NativeModule {
        NativeModule(self.module.clone())
    }

    #[getter]
    fn path(&self) -> String {
        self.checkpoint.dir().display().to_string()
    }

    #[getter]
    fn architecture(&self) -> &'static str {
        self.checkpoint.model_type()
    }

    #[getter]
    fn vocab(&self) -> usize {
        self.checkpoint.vocab()
    }

    #[getter]
    fn context(&self) -> usize {
        self.checkpoint.context()
    }

    #[getter]
    fn eos(&self) -> Vec<u32> {
        self.checkpoint.eos().to_vec()
    }

    #[getter]
    fn notes(&self) -> Vec<String> {
        self.checkpoint.notes()
    }

    fn encode(&self, py: Python<'_>, text: &str) -> PyResult<Vec<u32>> {
        result(py, self.tokenizer().and_then(|t| t.encode(text)))
    }

    fn decode(&self, py: Python<'_>, ids: Vec<u32>) -> PyResult<String> {
        result(py, self.tokenizer().and_then(|t| t.decode(&ids)))
    }
}

impl NativeModel {
    fn tokenizer(&self) -> Result<&Tokenizer> {
        self.tokenizer.as_ref().ok_or_else(|| {
            Error::unsupported(format!("{} has no tokenizer", self.checkpoint.dir().display()))
                .with_hint("give token ids")
        })
    }
}
