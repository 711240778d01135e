//! ONNX's own node tests as calls: one model of one operator each, with inputs.
//!
//! They are files of the Python package onnx, `onnx/backend/test/data/node`, last in version 1.21.0.
//!
//! Each test model is run by TapML's own evaluations first. So what is replayed on a platform is a call
//! with known types, like one of a carved suite.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use tapml_exec::Call;
use tapml_graph::op::Foreign;
use tapml_graph::{Error, Graph, Op, Origin, Result, Symbols, Tensor};
use tapml_import::onnx::{File, OperatorRunner, Traced, read_tensor};
use tapml_reference::foreign::evaluate;

/// The calls of all tests, and what has none.
#[derive(Debug, Default)]
pub struct NodeTests {
    /// Calls with the names of their tests, by the operator without its version.
    pub calls: BTreeMap<String, Vec<(String, Call)>>,
    /// Tests without a call, each with the reason: types or operators that TapML does not have.
    pub apart: Vec<(String, String)>,
}

/// Runs operators by TapML's own evaluations.
///
/// The expected results of the package are compared elsewhere; here the runner only gives types.
struct Own;

impl OperatorRunner for Own {
    fn run(&mut self, _: &str, op: &Foreign, inputs: &[(Tensor, bool)]) -> Result<Vec<Tensor>> {
        let inputs: Vec<Tensor> = inputs.iter().map(|(tensor, _)| tensor.clone()).collect();
        evaluate(op, &inputs)
    }
}

impl NodeTests {
    /// Reads the tests in a folder, in the order of their names.
    ///
    /// # Errors
    /// The folder cannot be read, or holds no test.
    pub fn read(folder: &Path) -> Result<NodeTests> {
        let entries = std::fs::read_dir(folder).map_err(|e| Error::io("read", folder, &e))?;
        let paths = entries.map(|entry| Ok(entry.map_err(|e| Error::io("read", folder, &e))?.path()));
        let mut paths: Vec<PathBuf> = paths.collect::<Result<_>>()?;
        paths.retain(|path| path.join("model.onnx").is_file());
        paths.sort();
        if paths.is_empty() {
            let text = format!(
                "{} holds no node test of ONNX: expected folders with `model.onnx`",
                folder.display()
            );
            return Err(Error::invalid(text).with_hint(
                "`pip download onnx==1.21.0 --no-deps` and unpack it: onnx/backend/test/data/node",
            ));
        }
        let mut tests = NodeTests::default();
        for path in paths {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            match trace_model(&path) {
                Ok(traced) => tests.add(&name, &traced),
                Err(error) => tests.apart.push((name, error.to_string())),
            }
        }
        Ok(tests)
    }

    /// Every node of a traced test is a call of its own.
    fn add(&mut self, name: &str, traced: &Traced) {
        let graph = traced.model.graph();
        for node in graph.nodes() {
            let Op::Foreign(op) = &node.op else { continue };
            let kind = op.kind().split('@').next().unwrap_or_default().to_string();
            let call = call(graph, node, &traced.values);
            self.calls.entry(kind).or_default().push((name.into(), call));
        }
    }
}

/// The call of a node with the values of the run.
fn call(graph: &Graph, node: &tapml_graph::Node, values: &[Tensor]) -> Call {
    let weight = |id: &tapml_graph::ValueId| {
        let value = graph.value(*id);
        (value.origin == Origin::Weight).then(|| value.name.clone())
    };
    Call {
        node: node.name.clone(),
        op: node.op.clone(),
        symbols: Symbols::new(),
        inputs: node.inputs.iter().map(|id| values[id.0 as usize].clone()).collect(),
        input_types: graph.input_types(node),
        weights: node.inputs.iter().map(weight).collect(),
        output_types: node.outputs.iter().map(|&id| graph.value(id).ty.clone()).collect(),
    }
}

/// A test's model, run by TapML with the first set of inputs.
fn trace_model(folder: &Path) -> Result<Traced> {
    let file = File::open(&folder.join("model.onnx"))?;
    let path = |at: usize| folder.join(format!("test_data_set_0/input_{at}.pb"));
    // Inputs are numbered without gaps.
    let inputs = (0..).map(path).take_while(|path| path.exists()).map(|path| Ok(read_tensor(&path)?.1));
    let inputs: Vec<Tensor> = inputs.collect::<Result<_>>()?;
    let names = file.outline().inputs.into_iter().map(|input| input.name);
    let inputs: HashMap<String, Tensor> = names.zip(inputs).collect();
    file.trace(&inputs, &mut Own)
}
