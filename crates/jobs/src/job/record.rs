//! Programs that somebody else has run: operators, what they were given and what they gave, written as a suite.
//!
//! The other side writes plain files: JSON and `.npy`. Everything in them is hostile: sizes are bounded,
//! names checked, types compared by the graph's verifier.

use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use tapml_exec::PlatformInfo;
use tapml_graph::op::{DeclaredType, Foreign};
use tapml_graph::{Builder, Context, Error, Model, Op, Result, Tensor, ValueId};
use tapml_import::npy;
use tapml_migrate::{RecordedRun, identity_of_file, record, tensor_type};

/// The largest description that is read.
const MAX_BYTES: u64 = 256 << 20;
/// The version of the description.
const SCHEMA: u32 = 1;

/// Writes the suite of a program that was recorded elsewhere, such as by `tapml.torch.export`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordJob {
    /// A folder with `program.json`, a [`Program`], and `N.npy` for each value `N`.
    pub program: PathBuf,
    /// The suite's folder; must not exist unless `overwrite`.
    pub out: PathBuf,
    /// Whether an existing suite is replaced.
    #[serde(default)]
    pub overwrite: bool,
}

/// What was run, and where.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Program {
    /// See [`SCHEMA`].
    schema: u32,
    name: String,
    /// What the program was run on.
    source: PlatformInfo,
    inputs: Vec<Named>,
    weights: Vec<Named>,
    /// In the order of execution.
    nodes: Vec<Recorded>,
    outputs: Vec<Named>,
}

/// A value with a name.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    name: String,
    /// Its number: `N.npy` holds it.
    value: u32,
}

/// An operator that was run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Recorded {
    name: String,
    /// Such as `aten.convolution.default`.
    op: String,
    attributes: serde_json::Map<String, serde_json::Value>,
    /// Values at the places of inputs; nothing where an optional one is absent.
    inputs: Vec<Option<u32>>,
    outputs: Vec<Option<u32>>,
}

/// The report of a recording.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RecordReport {
    /// Version of the fields.
    pub schema: u32,
    /// The suite's folder.
    pub suite: String,
    /// Nodes of the graph.
    pub nodes: usize,
    /// Operator kinds with the number of their nodes, in graph order.
    pub kinds: Vec<(String, usize)>,
    /// Calls, tensors and bytes.
    pub totals: tapml_migrate::suite::Totals,
}

impl RecordJob {
    /// Writes the suite. Nothing is left at `out` unless all of it is.
    ///
    /// # Errors
    /// The description is none, names a value that nothing makes, or an array is missing.
    pub fn run(&self) -> Result<RecordReport> {
        let path = self.program.join("program.json");
        let text = tapml_files::read(&path, MAX_BYTES, "a recorded program")?;
        let program: Program = serde_json::from_slice(text.as_ref())
            .map_err(|e| Error::invalid(format!("{}: {e}", path.display())))?;
        if program.schema != SCHEMA {
            let text = format!("a recorded program of version {}, expected {SCHEMA}", program.schema);
            return Err(Error::invalid(text));
        }
        let (model, values) = model(&self.program, &program)?;
        let mut identity = identity_of_file(&self.out, &model);
        identity.name.clone_from(&program.name);
        let run = RecordedRun { label: "args".into(), values: &values };
        let manifest = record((&self.out, self.overwrite), &model, identity, program.source, &[run])?;
        let kinds = model.graph().op_kinds().into_iter();
        Ok(RecordReport {
            schema: 1,
            suite: self.out.display().to_string(),
            nodes: model.graph().nodes().len(),
            kinds: kinds.map(|(op, nodes)| (op.to_string(), nodes)).collect(),
            totals: manifest.totals,
        })
    }
}

/// The graph of a program with its weights, and the value of each of its values.
///
/// Values are numbered by the recorder; the graph numbers them anew in the order of execution.
fn model(folder: &Path, program: &Program) -> Result<(Model, Vec<Tensor>)> {
    let read = |value: u32| npy::read(&folder.join(format!("{value}.npy")));
    let mut builder = Builder::new(&program.name);
    let (mut known, mut values, mut weights) = (HashMap::new(), Vec::new(), HashMap::new());
    // The order of values here is the order of their ids in the graph.
    for (given, is_weight) in
        program.inputs.iter().map(|v| (v, false)).chain(program.weights.iter().map(|v| (v, true)))
    {
        let tensor = read(given.value).context(|| format!("`{}`", given.name))?;
        let id = if is_weight {
            builder.weight(&given.name, tensor_type(&tensor))?
        } else {
            builder.input(&given.name, tensor_type(&tensor))?
        };
        if is_weight {
            weights.insert(given.name.clone(), tensor.clone());
        }
        known.insert(given.value, id);
        values.push(tensor);
    }
    let find = |known: &HashMap<u32, ValueId>, value: u32| {
        let missing = || Error::invalid(format!("nothing makes the value {value}"));
        known.get(&value).copied().ok_or_else(missing)
    };
    for node in &program.nodes {
        // A closure, so that every error gets the node's name.
        let made: Result<()> = (|| {
            let ids = node.inputs.iter().flatten().map(|&value| find(&known, value));
            let ids: Vec<ValueId> = ids.collect::<Result<_>>()?;
            let gave = node.outputs.iter().map(|value| value.map(read).transpose());
            let gave: Vec<Option<Tensor>> = gave.collect::<Result<_>>()?;
            let declare = |tensor: &Option<Tensor>| match tensor {
                Some(tensor) => DeclaredType::As(tensor_type(tensor)),
                None => DeclaredType::Absent,
            };
            let places = node.inputs.iter().map(Option::is_some).collect();
            let op =
                Foreign::new(&node.op, node.attributes.clone(), places, gave.iter().map(declare).collect())?;
            let several = node.outputs.iter().flatten().count() > 1;
            // Values are named by their node; several outputs by place too.
            let name = |(place, value): (usize, &Option<u32>)| {
                value.map(|_| if several { format!("{}.{place}", node.name) } else { node.name.clone() })
            };
            let names: Vec<String> = node.outputs.iter().enumerate().filter_map(name).collect();
            let made = builder.node_multi(node.name.clone(), Op::Foreign(op), &ids, &names)?;
            known.extend(node.outputs.iter().flatten().copied().zip(made));
            // In the order of the ids that the builder gave.
            values.extend(gave.into_iter().flatten());
            Ok(())
        })();
        made.context(|| format!("node `{}` ({})", node.name, node.op))?;
    }
    for output in &program.outputs {
        let value = find(&known, output.value).context(|| format!("output `{}`", output.name))?;
        builder.output(&output.name, value);
    }
    Ok((Model::new(builder.finish()?, weights)?, values))
}
