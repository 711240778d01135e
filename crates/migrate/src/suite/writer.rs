//! Writes a suite: unique tensors once, runs as they come, the manifest last.
//!
//! All is written into a folder beside the suite's own, which is renamed at the end. Equal tensors are
//! stored one time; equal means the same type and BLAKE3 hash.

use super::index::{ALIGN, TensorRecord};
use super::manifest::{
    FRAMES, FileEntry, Frame, INDEX, MANIFEST, Manifest, Prompt, SCHEMA, Settings, SuiteSource, TENSORS,
    Totals,
};
use super::validate::calls;
use crate::hash::{Hash, tensor_type};
use crate::identity::{self, ModelIdentity, WeightEntry};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use tapml_files::{NewFolder, parent};
use tapml_graph::{Error, Graph, Model, Result, Tensor, TensorType};

/// Makes the file a suite writes to out of a new one; tests put a full disk in between.
pub type Wrap = dyn Fn(File) -> Box<dyn SuiteOutput>;

/// A file, or what stands for one.
pub trait SuiteOutput: Write + Send {
    /// Makes what was written durable.
    fn sync(&mut self) -> io::Result<()>;
}

impl SuiteOutput for File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

/// A suite in the making. Dropped before [`SuiteWriter::finish`], it leaves nothing behind.
pub struct SuiteWriter {
    /// Removed when dropped without being published.
    new: NewFolder,
    manifest: Manifest,
    graph: Graph,
    /// See [`Graph::loop_invariant_nodes`].
    once: Vec<bool>,
    /// The file of tensor bytes.
    tensors: BufWriter<Box<dyn SuiteOutput>>,
    /// Bytes written to it.
    offset: u64,
    records: Vec<TensorRecord>,
    /// Positions in the index.
    known: HashMap<Hash, u32>,
    /// Positions in the manifest's list.
    types: HashMap<TensorType, u32>,
    /// The file of runs, held until the end.
    frames: Vec<u8>,
    /// Bytes of all tensors, as far as they are foreseen.
    expected: u64,
}

impl SuiteWriter {
    /// Begins a suite of `model` at `path`. An existing suite is refused unless `overwrite`.
    /// `identity.weights` is filled in from the weights' hashes.
    pub fn create(
        path: &Path,
        overwrite: bool,
        model: &Model,
        identity: ModelIdentity,
        source: SuiteSource,
        settings: Settings,
    ) -> Result<SuiteWriter> {
        SuiteWriter::create_with(path, overwrite, model, identity, source, settings, &|file| Box::new(file))
    }

    /// [`SuiteWriter::create`] with another way to write the tensors' bytes.
    pub fn create_with(
        path: &Path,
        overwrite: bool,
        model: &Model,
        identity: ModelIdentity,
        source: SuiteSource,
        settings: Settings,
        wrap: &Wrap,
    ) -> Result<SuiteWriter> {
        let mut writer = SuiteWriter::begin(path, overwrite, model, identity, source, settings, wrap)?;
        writer.identify(model, identity::weight_entries(model)?)?;
        Ok(writer)
    }

    /// [`SuiteWriter::create_with`] for weights whose hashes come later, through [`SuiteWriter::identify`].
    pub(crate) fn begin(
        path: &Path,
        overwrite: bool,
        model: &Model,
        identity: ModelIdentity,
        source: SuiteSource,
        settings: Settings,
        wrap: &Wrap,
    ) -> Result<SuiteWriter> {
        let new = NewFolder::create(path, MANIFEST, overwrite)?;
        let file = new.folder().join(TENSORS);
        let tensors = File::create(&file).map_err(|e| Error::io("create", &file, &e))?;
        let graph = model.graph().to_string();
        let manifest = Manifest {
            schema: SCHEMA,
            model: identity,
            graph_hash: Hash::compute(graph.as_bytes()),
            graph,
            source,
            prompts: Vec::new(),
            settings,
            totals: Totals::default(),
            types: Vec::new(),
            weights: Vec::new(),
            cases: None,
            files: Vec::new(),
        };
        Ok(SuiteWriter {
            new,
            manifest,
            graph: model.graph().clone(),
            once: model.graph().loop_invariant_nodes(),
            tensors: BufWriter::with_capacity(1 << 20, wrap(tensors)),
            offset: 0,
            records: Vec::new(),
            known: HashMap::new(),
            types: HashMap::new(),
            frames: Vec::new(),
            expected: 0,
        })
    }

    /// Tells the hashes of `model`'s weights, and stores the weights in a self-contained suite.
    pub(crate) fn identify(&mut self, model: &Model, weights: Vec<WeightEntry>) -> Result<()> {
        self.manifest.model.weights = identity::weights_hash(&weights).to_string();
        self.manifest.weights = weights;
        // A call of a weight finds its bytes by hash, like those of any other tensor.
        if self.manifest.settings.self_contained {
            for entry in self.manifest.weights.clone() {
                self.put(&model.weight(&entry.name)?)?;
            }
        }
        Ok(())
    }

    /// Tells how many bytes will come in all, for the message when the disk is full.
    pub fn expect_bytes(&mut self, bytes: u64) {
        self.expected = bytes;
    }

    /// The weights with their hashes.
    pub fn weights(&self) -> &[WeightEntry] {
        &self.manifest.weights
    }

    /// Stores a tensor unless an equal one is stored; returns its position in the index.
    ///
    /// # Errors
    /// If the disk is full or the file cannot be written.
    pub fn put(&mut self, tensor: &Tensor) -> Result<u32> {
        let ty = tensor_type(tensor);
        let hash = Hash::of_typed(&ty, tensor.bytes());
        // Counted before equal tensors are left out: the totals tell how much that saves.
        self.manifest.totals.recorded_bytes += tensor.bytes().len() as u64;
        // Such as tied weights, and values that a node hands on unchanged.
        if let Some(&index) = self.known.get(&hash) {
            return Ok(index);
        }
        let index =
            u32::try_from(self.records.len()).map_err(|_| Error::unsupported("more than 2^32 tensors"))?;
        let ty = self.type_id(ty);
        // Readers map the file and look at numbers where they lie, which wants them aligned.
        let padding = self.offset.next_multiple_of(ALIGN) - self.offset;
        let written = self.tensors.write_all(&[0; ALIGN as usize][..padding as usize]);
        let written = written.and_then(|()| self.tensors.write_all(tensor.bytes()));
        written.map_err(|e| self.write_error(TENSORS, &e))?;
        self.records.push(TensorRecord { hash, offset: self.offset + padding, ty });
        self.offset += padding + tensor.bytes().len() as u64;
        self.known.insert(hash, index);
        self.manifest.totals.tensors += 1;
        self.manifest.totals.tensor_bytes += tensor.bytes().len() as u64;
        Ok(index)
    }

    /// Adds a run. Runs of a prompt come in order, prefill first.
    pub fn frame(&mut self, frame: &Frame) -> Result<()> {
        serde_json::to_writer(&mut self.frames, frame)
            .map_err(|e| Error::bug(format!("a run as JSON: {e}")))?;
        self.frames.push(b'\n');
        self.manifest.totals.frames += 1;
        self.manifest.totals.calls += calls(&self.graph, &self.once, frame);
        Ok(())
    }

    /// The suite holds these calls only, by their names.
    pub(crate) fn limit_cases(&mut self, cases: Vec<String>) {
        self.manifest.totals.calls = cases.len() as u64;
        self.manifest.cases = Some(cases);
    }

    /// Writes index and manifest, makes all durable and gives the folder its name.
    ///
    /// # Errors
    /// If a file cannot be written or made durable.
    pub fn finish(mut self, prompts: Vec<Prompt>) -> Result<Manifest> {
        self.manifest.prompts = prompts;
        // Durable before the manifest is, which says that all is there.
        let end = self.tensors.flush().and_then(|()| self.tensors.get_mut().sync());
        end.map_err(|e| self.write_error(TENSORS, &e))?;
        let index: Vec<u8> = self.records.iter().flat_map(TensorRecord::encode).collect();
        let frames = std::mem::take(&mut self.frames);
        self.manifest.files = vec![
            // Without a hash of the whole: each tensor has its own in the index, checked when it is read.
            FileEntry { name: TENSORS.into(), bytes: self.offset, blake3: None },
            FileEntry { name: INDEX.into(), bytes: index.len() as u64, blake3: Some(Hash::compute(&index)) },
            FileEntry {
                name: FRAMES.into(),
                bytes: frames.len() as u64,
                blake3: Some(Hash::compute(&frames)),
            },
        ];
        self.file(INDEX, &index)?;
        self.file(FRAMES, &frames)?;
        let text = serde_json::to_vec_pretty(&self.manifest);
        self.file(MANIFEST, &text.map_err(|e| Error::bug(format!("the manifest as JSON: {e}")))?)?;
        self.new.publish()?;
        Ok(self.manifest)
    }

    /// The position of a type, added if it is new.
    fn type_id(&mut self, ty: TensorType) -> u32 {
        let next = self.manifest.types.len() as u32;
        *self.types.entry(ty).or_insert_with_key(|ty| {
            self.manifest.types.push(ty.clone());
            next
        })
    }

    /// Writes one whole file and makes it durable.
    fn file(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let write = || {
            let mut file = File::create(self.new.folder().join(name))?;
            file.write_all(bytes)?;
            file.sync_all()
        };
        write().map_err(|e| self.write_error(name, &e))
    }

    /// With the bytes that are needed and free.
    fn write_error(&self, name: &str, error: &io::Error) -> Error {
        // What lies on the disk now is given back; what waits in the buffer never took any room.
        let file = std::fs::metadata(self.new.folder().join(TENSORS));
        let on_disk = file.map_or(0, |m| m.len());
        write_error(&self.new.target().join(name), error, self.expected.max(self.offset), on_disk)
    }
}

/// What to say when `path` could not be written. A full disk is told with the bytes that are needed and those that are
/// free; `expected` bytes are foreseen in all, `written` lie on the disk and will be given back.
fn write_error(path: &Path, error: &io::Error, expected: u64, written: u64) -> Error {
    let full =
        matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge);
    if !full {
        return Error::io("write", path, error);
    }
    let folder: PathBuf =
        parent(path).ancestors().find(|p| p.exists()).map_or_else(|| ".".into(), Path::to_path_buf);
    // More than was written, as this did not suffice.
    let need = expected.max(written + 1);
    // What was written is given back, so it counts as free for whoever tries again.
    let free = fs4::available_space(&folder).unwrap_or(0).saturating_add(written);
    let what = match error.kind() {
        ErrorKind::StorageFull => "no space left",
        ErrorKind::QuotaExceeded => "the quota is used up",
        _ => "the file is larger than allowed",
    };
    Error::new(
        tapml_graph::ErrorKind::Io,
        format!(
            "could not write {}: {what}: up to {need} bytes are needed, {free} were free",
            path.display()
        ),
    )
    .with_detail("path", path.display().to_string())
    .with_detail("needed", need.to_string())
    .with_detail("free", free.to_string())
    .with_hint(format!(
        "nothing was left behind; free {} MiB in {}, choose another folder, or carve fewer steps or prompts",
        need.saturating_sub(free).div_ceil(1 << 20).max(1),
        folder.display()
    ))
}
