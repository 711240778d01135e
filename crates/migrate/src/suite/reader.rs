//! Reads a suite: sums and small files are verified when it is opened, each tensor when it is first used.

use super::index::{self, TensorRecord};
use super::manifest::{FRAMES, FileEntry, Frame, INDEX, MANIFEST, Manifest, Slot, TENSORS};
use super::validate::{self, Known, growing_output};
use crate::hash::Hash;
use crate::identity;
use rayon::prelude::*;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tapml_exec::{Call, Phase};
use tapml_graph::{
    Bytes, Context, DType, Error, Graph, Model, Node, NodeId, Op, Origin, Result, Symbol, Tensor, ValueId,
};
use tapml_reference::run_node;

/// The manifest, the runs and the index may be this large; more is taken for a broken file.
const MAX_TEXT: u64 = 2 << 30;

/// One node call of a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Case {
    /// Index of the run.
    pub frame: usize,
    /// The node.
    pub node: NodeId,
}

/// An open suite. Cheap to share between threads.
#[derive(Debug)]
pub struct Suite {
    path: PathBuf,
    hash: Hash,
    manifest: Manifest,
    graph: Graph,
    /// See [`Graph::loop_invariant_nodes`].
    once: Vec<bool>,
    /// The calls that it holds, if not whole runs.
    pub(super) only: Option<HashSet<Case>>,
    frames: Vec<Frame>,
    records: Arc<Vec<TensorRecord>>,
    tensors: Arc<File>,
    /// By tensor; views of the same suite share it.
    verified: Arc<Vec<AtomicBool>>,
    /// All rows of a growing state up to a prompt's last run, by prompt and state.
    grown: Mutex<HashMap<(u32, usize), Tensor>>,
    /// What a composed graph computes beside what was recorded, by run and value.
    chosen: HashMap<(usize, ValueId), Tensor>,
}

impl Suite {
    /// Opens a suite. Fails if a file is missing, shorter or longer than the manifest says, or changed, or if anything
    /// refers to what is not there; the tensors' bytes are not read yet.
    pub fn open(path: &Path) -> Result<Suite> {
        Suite::read(path).context(|| format!("suite {}", path.display()))
    }

    /// Whether a folder looks like a suite.
    pub fn is_at(path: &Path) -> bool {
        path.join(MANIFEST).is_file()
    }

    fn read(path: &Path) -> Result<Suite> {
        let text = match small(&path.join(MANIFEST)) {
            Err(_) if !path.join(MANIFEST).is_file() => {
                return Err(Error::invalid(format!("no `{MANIFEST}` here"))
                    .with_hint("give a folder written by `tapml carve`"));
            }
            other => other?,
        };
        let manifest: Manifest = serde_json::from_slice(&text)
            .map_err(|e| Error::invalid(format!("{MANIFEST}: {e}")).with_hint("carve the model again"))?;
        let graph = validate::manifest(&manifest).context(|| MANIFEST.to_string())?;
        let index = read_verified(path, entry(&manifest, INDEX)?)?;
        let lines = read_verified(path, entry(&manifest, FRAMES)?)?;
        let bin = entry(&manifest, TENSORS)?;
        let tensors = tapml_files::open(&path.join(TENSORS))?;
        expect_len(&tensors, bin)?;
        let records = index::decode(&index, &manifest.types, bin.bytes).context(|| INDEX.to_string())?;
        let frames = lines.split(|&b| b == b'\n').filter(|l| !l.is_empty()).enumerate().map(|(i, line)| {
            serde_json::from_slice(line).map_err(|e| Error::invalid(format!("{FRAMES}: line {}: {e}", i + 1)))
        });
        let frames: Vec<Frame> = frames.collect::<Result<_>>()?;
        let known = Known { graph: &graph, manifest: &manifest, records: &records };
        known.frames(&frames).context(|| FRAMES.to_string())?;
        let only = manifest.cases.as_ref().map(|ids| find_cases(ids, &graph, &frames)).transpose()?;
        Ok(Suite {
            path: path.to_path_buf(),
            // The manifest names the hashes of all other files, so that its own stands for them.
            hash: Hash::compute(&text),
            verified: Arc::new(records.iter().map(|_| AtomicBool::new(false)).collect()),
            grown: Mutex::default(),
            manifest,
            once: graph.loop_invariant_nodes(),
            only,
            graph,
            frames,
            records: Arc::new(records),
            tensors: Arc::new(tensors),
            chosen: HashMap::new(),
        })
    }

    /// The same recorded values as calls of another graph whose values have the same names, in the runs of one phase: of its
    /// operators that this suite's graph does not have. These are fused ones and what fusing leaves of operators that it
    /// takes apart, whose inputs and outputs are values of this suite's graph, and the choice of the next token, which
    /// follows from the recorded logits. A suite of single calls has those of which it has every call that they stand for.
    pub fn compose_phase(&self, graph: Graph, phase: Phase) -> Result<Suite> {
        let places: Vec<Option<ValueId>> =
            graph.values().iter().map(|value| self.graph.find_value(&value.name)).collect();
        let states: Vec<Option<usize>> = graph
            .states()
            .iter()
            .map(|state| self.graph.states().iter().position(|own| own.name == state.name))
            .collect();
        let mut frames = self.frames.clone();
        for frame in &mut frames {
            let slot = |at: &Option<ValueId>| at.map_or(Slot::None, |at| frame.values[at.0 as usize]);
            let held = |at: &Option<usize>| at.map_or(Slot::None, |at| frame.states[at]);
            let (values, held) = (places.iter().map(slot).collect(), states.iter().map(held).collect());
            (frame.values, frame.states) = (values, held);
        }
        let chosen = if self.only.is_none() { self.choices(&graph)? } else { HashMap::new() };
        let recorded = |frame: usize, value: ValueId| {
            let origin = graph.value(value).origin;
            let given = matches!(origin, Origin::Weight | Origin::State(_));
            let slot = frames[frame].values[value.0 as usize];
            given || slot != Slot::None || chosen.contains_key(&(frame, value))
        };
        let mut only = HashSet::new();
        // Operators of both graphs have recorded calls already.
        let own: HashSet<&str> = self.graph.op_kinds().into_iter().map(|(op, _)| op).collect();
        let added = (0u32..).map(NodeId).zip(graph.nodes()).filter(|(_, n)| !own.contains(n.op.name()));
        for (node, of) in added {
            let inner = if self.only.is_some() { self.inner(&graph, of) } else { Some(Vec::new()) };
            let Some(inner) = inner else { continue };
            let runs = (0..frames.len()).filter(|&at| Phase::of_run(&frames[at].symbols) == phase);
            let called = |&frame: &usize| inner.iter().all(|&node| self.ran(Case { frame, node }));
            let whole = |&frame: &usize| of.inputs.iter().chain(&of.outputs).all(|&v| recorded(frame, v));
            only.extend(runs.filter(called).filter(whole).map(|frame| Case { frame, node }));
        }
        Ok(Suite {
            path: self.path.clone(),
            hash: self.hash,
            manifest: self.manifest.clone(),
            once: graph.loop_invariant_nodes(),
            only: Some(only),
            graph,
            frames,
            records: self.records.clone(),
            tensors: self.tensors.clone(),
            verified: self.verified.clone(),
            grown: Mutex::default(),
            chosen,
        })
    }

    /// The nodes of this suite's graph between the inputs and the outputs of a node of a lowered one; `None` if the graph
    /// does not have these outputs.
    pub fn inner(&self, lowered: &Graph, node: &Node) -> Option<Vec<NodeId>> {
        let own = |id: &ValueId| self.graph.find_value(&lowered.value(*id).name);
        let border: HashSet<ValueId> = node.inputs.iter().filter_map(own).collect();
        let mut open = node.outputs.iter().map(own).collect::<Option<Vec<ValueId>>>()?;
        let mut inner: Vec<NodeId> = Vec::new();
        // The lowered graph has no names for values within: the walk back is through this suite's graph.
        while let Some(value) = open.pop() {
            let Origin::Node { node, .. } = self.graph.value(value).origin else { continue };
            if !border.contains(&value) && !inner.contains(&node) {
                inner.push(node);
                open.extend(&self.graph.node(node).inputs);
            }
        }
        inner.sort_unstable();
        Some(inner)
    }

    /// What the nodes of another graph that choose tokens take and give, run by run: the logits were recorded, and what was
    /// found before follows from those of the runs before.
    fn choices(&self, graph: &Graph) -> Result<HashMap<(usize, ValueId), Tensor>> {
        let mut chosen = HashMap::new();
        for node in graph.nodes().iter().filter(|node| matches!(node.op, Op::Argmax(_))) {
            let [before, logits] = node.inputs[..] else { continue };
            let Some(logits) = self.graph.find_value(&graph.value(logits).name) else { continue };
            let mut found = Tensor::from_u32(vec![0], Vec::new())?;
            for (at, frame) in self.frames.iter().enumerate() {
                if frame.step == 0 {
                    found = Tensor::from_u32(vec![0], Vec::new())?;
                }
                let inputs = [found.clone(), self.value(at, logits)?];
                chosen.insert((at, before), found);
                let outputs = run_node(&node.op, &frame.symbols, &inputs, &[DType::U32, DType::U32])?;
                found = outputs[0].clone();
                chosen.extend(node.outputs.iter().zip(outputs).map(|(&value, tensor)| ((at, value), tensor)));
            }
        }
        Ok(chosen)
    }

    /// Where it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The hash of the manifest, and with it of everything.
    pub fn hash(&self) -> Hash {
        self.hash
    }

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Reads every tensor and compares its hash.
    pub fn verify(&self) -> Result<()> {
        let all = (0..self.records.len() as u32).into_par_iter();
        all.try_for_each(|index| self.tensor(index).map(|_| ()))
            .context(|| format!("suite {}", self.path.display()))
    }

    /// The graph that was carved.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The runs: for each prompt the prefill, then the decode steps.
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// All node calls, in the order in which they ran.
    pub fn cases(&self) -> impl Iterator<Item = Case> + '_ {
        let nodes = self.graph.nodes().len() as u32;
        let all = move |frame| (0..nodes).map(move |i| Case { frame, node: NodeId(i) });
        (0..self.frames.len()).flat_map(all).filter(|&case| self.ran(case))
    }

    /// Whether this node's call of this run is here: all are but those of an image's encoder, which runs when an image is
    /// given, and in a suite of single calls those that it does not name.
    pub fn ran(&self, case: Case) -> bool {
        if let Some(only) = &self.only {
            return only.contains(&case);
        }
        !self.once[case.node.0 as usize] || validate::encodes(&self.graph, &self.frames[case.frame])
    }

    /// The phase in which a case runs.
    pub fn phase(&self, case: Case) -> Phase {
        Phase::of_run(&self.frames[case.frame].symbols)
    }

    /// Whether some run ran this node.
    pub fn covers(&self, node: NodeId) -> bool {
        (0..self.frames.len()).any(|frame| self.ran(Case { frame, node }))
    }

    /// The inputs of a run, by name.
    pub fn inputs(&self, frame: usize) -> Result<HashMap<String, Tensor>> {
        let recorded = |id: &ValueId| self.frames[frame].values[id.0 as usize] != Slot::None;
        let inputs = self.graph.inputs().filter(|(id, _)| recorded(id));
        inputs.map(|(id, value)| Ok((value.name.clone(), self.value(frame, id)?))).collect()
    }

    /// The call's name: `p0.s3.NODE` is node NODE in decode step 3 of prompt 0 (step 0 is the prefill).
    pub fn case_id(&self, case: Case) -> String {
        let frame = &self.frames[case.frame];
        format!("p{}.s{}.{}", frame.prompt, frame.step, self.graph.node(case.node).name)
    }

    /// The call of this name.
    pub fn find_case(&self, id: &str) -> Result<Case> {
        let found = find_case(id, &self.graph, &self.frames).filter(|&case| self.ran(case));
        found.ok_or_else(|| {
            let example = self.cases().next().map(|c| self.case_id(c)).unwrap_or_default();
            Error::invalid(format!("the suite has no case `{id}`"))
                .with_hint(format!("cases are named like `{example}`: prompt, step (0 is the prefill), node"))
        })
    }

    /// The suite's graph with weights: the given model's, after their hashes were compared, or the suite's own if it is
    /// self-contained.
    pub fn model(&self, checkpoint: Option<&Model>) -> Result<Model> {
        if let Some(model) = checkpoint {
            identity::expect_weights(model, &self.manifest.weights, &self.manifest.model)?;
            return model.with_graph(self.graph.clone());
        }
        let by_hash: HashMap<Hash, u32> = self.records.iter().zip(0u32..).map(|(r, i)| (r.hash, i)).collect();
        let mut weights = HashMap::new();
        for entry in &self.manifest.weights {
            let index = by_hash.get(&entry.blake3).ok_or_else(|| {
                Error::invalid(format!("weight `{}` is not in the suite", entry.name)).with_hint(format!(
                    "give the model too (it was carved from {}), or carve with `--self-contained`",
                    self.manifest.model.path
                ))
            })?;
            weights.insert(entry.name.clone(), self.tensor(*index)?);
        }
        Model::new(self.graph.clone(), weights)
    }

    /// The node call with its recorded outputs. `model` is what [`Suite::model`] gave.
    pub fn call(&self, case: Case, model: &Model) -> Result<(Call, Vec<Tensor>)> {
        self.resolve(case, model).context(|| format!("case {}", self.case_id(case)))
    }

    fn resolve(&self, case: Case, model: &Model) -> Result<(Call, Vec<Tensor>)> {
        let node = self.graph.node(case.node);
        let mut inputs = Vec::with_capacity(node.inputs.len());
        let mut weights = Vec::with_capacity(node.inputs.len());
        for &input in &node.inputs {
            let value = self.graph.value(input);
            // Weights are the checkpoint's, whose hashes were compared when the model was made.
            let weight = value.origin == Origin::Weight;
            inputs.push(if weight { model.weight(&value.name)? } else { self.value(case.frame, input)? });
            weights.push(weight.then(|| value.name.clone()));
        }
        let outputs = node.outputs.iter().map(|&v| self.value(case.frame, v)).collect::<Result<_>>()?;
        let call = Call {
            node: node.name.clone(),
            op: node.op.clone(),
            symbols: self.frames[case.frame].symbols.clone(),
            inputs,
            input_types: self.graph.input_types(node),
            weights,
            output_types: node.outputs.iter().map(|&v| self.graph.value(v).ty.clone()).collect(),
        };
        Ok((call, outputs))
    }

    /// What a value held in a run. Fails for weights and for values that were not recorded.
    pub fn value(&self, frame: usize, value: ValueId) -> Result<Tensor> {
        if let Some(chosen) = self.chosen.get(&(frame, value)) {
            return Ok(chosen.clone());
        }
        let run = &self.frames[frame];
        let missing = || {
            let error = Error::invalid(format!("value `{}` was not recorded", self.graph.value(value).name));
            match self.only {
                Some(_) => error.with_hint("the suite holds single calls, which `tapml check` replays; whole runs are in the suite that they were taken from"),
                None => error,
            }
        };
        match run.values[value.0 as usize] {
            Slot::Stored(index) => self.tensor(index),
            // Stored once, as the state that it grows: every run adds rows to the same tensor.
            Slot::Rows([rows]) => {
                let state = growing_output(&self.graph, value.0).ok_or_else(missing)?;
                self.grow_state(run.prompt, state)?.rows(0, rows as usize).ok_or_else(missing)
            }
            Slot::None => match self.graph.value(value).origin {
                // Before this run it held the rows of the runs before.
                Origin::State(i) if self.graph.states()[i as usize].grows(&self.graph) => {
                    let p = run.symbols.get(Symbol::P).unwrap_or(0);
                    self.grow_state(run.prompt, i as usize)?.rows(0, p as usize).ok_or_else(missing)
                }
                Origin::State(i) => match run.states[i as usize] {
                    Slot::Stored(index) => self.tensor(index),
                    _ => Err(missing()),
                },
                _ => Err(missing()),
            },
        }
    }

    /// Keeps the joined rows: every run of the prompt takes a part of them.
    fn grow_state(&self, prompt: u32, state: usize) -> Result<Tensor> {
        let mut grown = self.grown.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tensor) = grown.get(&(prompt, state)) {
            return Ok(tensor.clone());
        }
        let frames = self.frames.iter().filter(|f| f.prompt == prompt);
        let parts = frames.map(|f| match f.states[state] {
            Slot::Stored(index) => self.tensor(index),
            _ => Err(Error::invalid(format!("state `{}` was not recorded", self.graph.states()[state].name))),
        });
        let all = Tensor::concat_rows(&parts.collect::<Result<Vec<_>>>()?)?;
        grown.insert((prompt, state), all.clone());
        Ok(all)
    }

    pub(super) fn tensor(&self, index: u32) -> Result<Tensor> {
        let record = &self.records[index as usize];
        let ty = &self.manifest.types[record.ty as usize];
        let len = index::type_bytes(ty)? as usize;
        let bytes = read_at(&self.tensors, record.offset, len)
            .map_err(|e| Error::io("read", &self.path.join(TENSORS), &e))?;
        let seen = &self.verified[index as usize];
        // Two threads may both hash a tensor; that is only slower.
        if !seen.load(Ordering::Relaxed) {
            if Hash::of_typed(ty, bytes.as_ref()) != record.hash {
                return Err(self.changed_error(index, record));
            }
            seen.store(true, Ordering::Relaxed);
        }
        Tensor::new(ty.dtype, ty.sizes(&tapml_graph::Symbols::new())?, Bytes::new(bytes))
    }

    fn changed_error(&self, index: u32, record: &TensorRecord) -> Error {
        let users = self.frames.iter().enumerate().find_map(|(i, f)| {
            let value = f.values.iter().position(|&s| s == Slot::Stored(index))?;
            Some(format!(" (`{}` in run {i})", self.graph.values()[value].name))
        });
        let file = self.path.join(TENSORS);
        Error::invalid(format!(
            "{}: the bytes of tensor {index}{} at offset {} changed since they were written",
            file.display(),
            users.unwrap_or_default(),
            record.offset
        ))
        .with_detail("expected", record.hash.to_string())
        .with_hint("the file is damaged: carve the model again, or restore the suite from a copy")
    }
}

/// The call of this name, see [`Suite::case_id`].
fn find_case(id: &str, graph: &Graph, frames: &[Frame]) -> Option<Case> {
    let (prompt, rest) = id.strip_prefix('p')?.split_once(".s")?;
    let (step, node) = rest.split_once('.')?;
    let (prompt, step): (u32, u32) = (prompt.parse().ok()?, step.parse().ok()?);
    let frame = frames.iter().position(|f| (f.prompt, f.step) == (prompt, step))?;
    Some(Case { frame, node: graph.find_node(node)? })
}

/// The calls of these names. Fails unless each is one of the runs, and none is named twice.
fn find_cases(ids: &[String], graph: &Graph, frames: &[Frame]) -> Result<HashSet<Case>> {
    let mut found = HashSet::new();
    for id in ids {
        let case = find_case(id, graph, frames).filter(|&case| found.insert(case));
        case.ok_or_else(|| {
            Error::invalid(format!("{MANIFEST}: `{id}` is no call of the runs, or named twice"))
        })?;
    }
    Ok(found)
}

fn entry<'a>(manifest: &'a Manifest, name: &str) -> Result<&'a FileEntry> {
    let found = manifest.files.iter().find(|f| f.name == name);
    found.ok_or_else(|| Error::invalid(format!("{MANIFEST} does not list `{name}`")))
}

fn expect_len(file: &File, entry: &FileEntry) -> Result<()> {
    let found = file.metadata().map_err(|e| Error::io("read", Path::new(&entry.name), &e))?.len();
    if found == entry.bytes {
        return Ok(());
    }
    let (name, expected) = (&entry.name, entry.bytes);
    Err(Error::invalid(format!("{name}: expected {expected} bytes, found {found}"))
        .with_hint("the file was cut or replaced: carve the model again, or restore the suite from a copy"))
}

fn small(path: &Path) -> Result<Vec<u8>> {
    tapml_files::read(path, MAX_TEXT, "a part of a suite")
}

/// The contents of a listed file. Fails if its length or hash is another.
fn read_verified(folder: &Path, entry: &FileEntry) -> Result<Vec<u8>> {
    let path = folder.join(&entry.name);
    let file = tapml_files::open(&path)?;
    expect_len(&file, entry)?;
    let bytes = small(&path)?;
    if entry.blake3 != Some(Hash::compute(&bytes)) {
        return Err(Error::invalid(format!("{} changed since it was written", entry.name))
            .with_hint("the file is damaged: carve the model again, or restore the suite from a copy"));
    }
    Ok(bytes)
}

/// Bytes that start at an address fit for every dtype.
struct Aligned {
    words: Vec<u64>,
    len: usize,
}

impl AsRef<[u8]> for Aligned {
    fn as_ref(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.len]
    }
}

fn read_at(file: &File, offset: u64, len: usize) -> io::Result<Aligned> {
    let mut words = vec![0u64; len.div_ceil(8)];
    let out = &mut bytemuck::cast_slice_mut(&mut words)[..len];
    #[cfg(unix)]
    std::os::unix::fs::FileExt::read_exact_at(file, out, offset)?;
    #[cfg(windows)]
    {
        let mut done = 0;
        while done < len {
            match std::os::windows::fs::FileExt::seek_read(file, &mut out[done..], offset + done as u64)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => done += count,
            }
        }
    }
    Ok(Aligned { words, len })
}
