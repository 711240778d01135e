//! The suite of a site: recorded calls of the nodes of its programs with what judges their outputs, so that a browser can check the
//! device that it runs on.
//!
//! A call is run by the very steps of the program that the site runs: its inputs are written to the buffers in which the
//! program has them, and its outputs are read where the program leaves them. Exact results and allowed errors are computed
//! here (`tapml_migrate::verdict::Yardstick`), so that a browser only compares.

use super::file::{SiteFile, write};
use super::part::CompiledPart;
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use tapml_engine::{Tokenizer, Vision, bundled_image, bundled_text};
use tapml_exec::{Call, Image, NOWHERE};
use tapml_graph::{DType, Error, Model, NodeId, Result, Symbol, Symbols, byte_len};
use tapml_import::Checkpoint;
use tapml_kernels::{NodePlan, Phase, PhaseNodes, ProgramStep};
use tapml_migrate::suite::{Case, Suite};
use tapml_migrate::verdict::{Precision, Yardstick};
use tapml_migrate::{CarveOptions, Oracles, PromptInput, Quiet, Stop, carve};

/// The form of the file of calls.
const SCHEMA: u32 = 1;
/// Tokens of the prompt: rows beyond a tile of 8, and few, since every row is stored.
const ROWS: usize = 9;
/// Decode steps, of which the last is kept.
const STEPS: u32 = 2;
/// Bytes of calls up to which a second node of each kernel row is kept, and bytes of all.
const ENOUGH: usize = 4 << 20;
const MOST: usize = 64 << 20;
/// Every list of numbers begins at a multiple of so many bytes.
const ALIGNMENT: usize = 8;

/// The files of a suite.
#[derive(Clone, Debug, Serialize)]
pub struct SiteSuite {
    /// What the calls are.
    pub calls: SiteFile,
    /// Their numbers.
    pub data: SiteFile,
    /// How many calls there are.
    pub count: usize,
}

/// The file of calls.
#[derive(Serialize)]
struct CallList<'a> {
    schema: u32,
    suite: &'a str,
    calls: Vec<SiteCall>,
    /// Rows of the kernel list that no call runs.
    left_out: Vec<LeftOut>,
}

/// One call.
#[derive(Serialize)]
struct SiteCall {
    case: String,
    node: String,
    op: &'static str,
    row: String,
    phase: &'static str,
    /// Whether the steps are those of the encoder of images.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    encoder: bool,
    kernel_hash: String,
    accumulate: String,
    symbols: BTreeMap<String, u64>,
    /// First step and the one behind the last.
    steps: [usize; 2],
    inputs: Vec<CallInput>,
    outputs: Vec<CallOutput>,
}

/// Bytes of the data that go to a buffer.
#[derive(Serialize)]
struct CallInput {
    buffer: u32,
    at: usize,
    bytes: usize,
}

/// Where an output is left, and its yardstick in the data: `count` exact values in f64, rounded values in f32, allowed errors in
/// f32, then the limits of the columns in f64, each list at a multiple of 8 bytes.
#[derive(Serialize)]
struct CallOutput {
    buffer: u32,
    dtype: DType,
    count: usize,
    row_len: usize,
    indices: bool,
    at: usize,
    /// Limits of sums; absent for indices.
    #[serde(skip_serializing_if = "Option::is_none")]
    limits: Option<CallLimits>,
}

/// See `tapml_migrate::verdict::SumLimits`. What is not finite is `null`: no limit.
#[derive(Serialize)]
struct CallLimits {
    scale: f64,
    bias: f64,
    spread: f64,
    columns: usize,
}

/// A row of the kernel list in a phase that no call runs.
#[derive(Serialize)]
struct LeftOut {
    row: String,
    phase: &'static str,
    reason: String,
}

/// The calls that go along, and what does not.
#[derive(Default)]
struct ChosenCalls {
    calls: Vec<SiteCall>,
    data: CallData,
    left_out: Vec<LeftOut>,
}

/// What a model is carved from.
pub(super) struct Carving<'a> {
    pub(super) name: &'a str,
    pub(super) checkpoint: &'a Checkpoint,
    pub(super) model: &'a Model,
    pub(super) tokenizer: &'a Tokenizer,
    /// Most tokens of a step and of a text.
    pub(super) lengths: (usize, usize),
}

/// A model's recorded calls, from which each program with its activations takes its own.
pub(super) struct Recorded<'a> {
    of: &'a Carving<'a>,
    suite: Suite,
    folder: PathBuf,
}

/// What the calls of a program are chosen by.
struct SuiteParts<'a> {
    model: &'a Model,
    /// The model's own, then the encoder of images if it sees.
    programs: &'a [CompiledPart],
}

/// The steps from which calls are chosen, and the run that recorded them.
struct CallPlace<'a> {
    steps: &'a [ProgramStep],
    list: &'a PhaseNodes,
    encoder: bool,
    frame: usize,
    phase: Phase,
}

impl CallPlace<'_> {
    /// The nodes that launch each row, in the graph's order.
    fn rows(&self) -> BTreeMap<String, Vec<NodeId>> {
        let mut rows: BTreeMap<String, Vec<NodeId>> = BTreeMap::new();
        for (id, (_, place)) in (0u32..).map(NodeId).zip(&self.list.nodes) {
            let steps = self.steps.get(place.steps.clone()).unwrap_or_default();
            for row in steps.iter().filter_map(row) {
                let nodes = rows.entry(row).or_default();
                if nodes.last() != Some(&id) {
                    nodes.push(id);
                }
            }
        }
        rows
    }
}

/// The phases in which a list of steps runs. A run of an encoder has one row, whatever the image has.
fn phases(list: &PhaseNodes, encoder: bool) -> impl Iterator<Item = Phase> + use<> {
    let own = list.phase;
    Phase::ALL
        .into_iter()
        .filter(move |phase| own.is_none_or(|own| own == *phase) && (!encoder || *phase == Phase::Decode))
}

impl Carving<'_> {
    /// Carves the model on the reference, into a folder inside this one.
    ///
    /// # Errors
    /// If the reference cannot run the model, or the disk is full.
    pub(super) fn carve(&self, folder: &Path) -> Result<Recorded<'_>> {
        let out = folder.join("suite");
        let (step, context) = self.lengths;
        let mut ids = self.tokenizer.encode(bundled_text())?;
        ids.truncate(ROWS.min(step).min(context.saturating_sub(STEPS as usize)).max(1));
        let options = CarveOptions {
            out: &out,
            overwrite: false,
            steps: STEPS,
            self_contained: false,
            context: self.checkpoint.context() as u32,
            decode: &|ids| self.tokenizer.decode(ids).unwrap_or_default(),
        };
        let image = self.image(&mut ids)?;
        let prompt = PromptInput { ids, image, ..PromptInput::default() };
        let identity = crate::model::identity(self.checkpoint)?;
        let mut source = crate::job::open_platform("cpu", &[])?;
        let stop = Stop::default();
        carve(source.as_mut(), self.model, identity, &[prompt], &options, &Quiet, &stop)?;
        Ok(Recorded { of: self, suite: Suite::open(&out)?, folder: out })
    }

    /// The bundled picture for a model that sees: its first rows take the places of the tokens in the middle. A whole one in each
    /// call would be larger than the rest of the suite.
    fn image(&self, ids: &mut [u32]) -> Result<Option<Image>> {
        let Some(vision) = Vision::open(self.checkpoint)? else { return Ok(None) };
        let pixels = vision.processor().bytes(bundled_image())?;
        let (tokens, count) = (vision.tokens(), ids.len());
        let mut rows = tokens.rows(pixels.parts)?.into_iter();
        let mut slots = vec![NOWHERE; count];
        for (id, slot) in ids.iter_mut().zip(&mut slots).take(count * 2 / 3).skip(count / 3) {
            let Some(row) = rows.next() else { break };
            (*id, *slot) = (tokens.id, row);
        }
        Ok(Some(Image { pixels: pixels.values, slots }))
    }
}

impl Recorded<'_> {
    /// Writes the suite of the programs of a device as `FILE.json` and `FILE.bin`.
    ///
    /// # Errors
    /// If the disk is full.
    pub(super) fn write(&self, programs: &[CompiledPart], folder: &Path, file: &str) -> Result<SiteSuite> {
        let parts = SuiteParts { model: self.of.model, programs };
        let ChosenCalls { calls, data, left_out } = parts.choose_calls(&self.suite)?;
        let count = calls.len();
        let list = CallList { schema: SCHEMA, suite: self.of.name, calls, left_out };
        let list = serde_json::to_vec(&list)
            .map_err(|e| Error::bug(format!("the suite does not serialise: {e}")))?;
        Ok(SiteSuite {
            calls: write(folder, &format!("{file}.json"), &list)?,
            data: write(folder, &format!("{file}.bin"), &data.bytes)?,
            count,
        })
    }

    /// Deletes what was recorded.
    ///
    /// # Errors
    /// If the folder cannot be deleted.
    pub(super) fn remove(self) -> Result<()> {
        let Recorded { suite, folder, .. } = self;
        drop(suite);
        std::fs::remove_dir_all(&folder).map_err(|e| Error::io("remove", &folder, &e))
    }
}

impl SuiteParts<'_> {
    /// For each row of the kernel list and each phase the first node and the last, as far as there is room.
    fn choose_calls(&self, suite: &Suite) -> Result<ChosenCalls> {
        let mut chosen = ChosenCalls::default();
        let mut oracles = Oracles::new(0);
        for (at, part) in self.programs.iter().enumerate() {
            let encoder = at > 0;
            for list in &part.lists {
                for phase in phases(list, encoder) {
                    // An image is given to a run of several rows.
                    let run = if encoder { Phase::Prefill } else { phase };
                    let view = suite.compose_phase(list.graph.clone(), run)?;
                    let frames =
                        (0..view.frames().len()).filter(|&f| Phase::of_run(&view.frames()[f].symbols) == run);
                    let Some(frame) = frames.last() else { continue };
                    oracles = oracles.for_view(0);
                    let place = CallPlace { steps: &part.program.steps, list, encoder, frame, phase };
                    self.choose_of_view(&view, &place, &oracles, &mut chosen);
                }
            }
        }
        Ok(chosen)
    }

    /// The same for the runs of one phase, as one of them was recorded.
    fn choose_of_view(
        &self,
        view: &Suite,
        place: &CallPlace<'_>,
        oracles: &Oracles,
        chosen: &mut ChosenCalls,
    ) {
        let CallPlace { list, encoder, frame, phase, .. } = *place;
        // A node may launch several rows.
        let mut found: BTreeMap<NodeId, SiteCall> = BTreeMap::new();
        for (row, nodes) in place.rows() {
            let ends: HashSet<NodeId> = nodes.first().into_iter().chain(nodes.last()).copied().collect();
            let mut reason = None;
            for &node in nodes.iter().filter(|node| ends.contains(node)) {
                let first = Some(&node) == nodes.first();
                let room = if first { MOST } else { ENOUGH };
                match self.call(view, list, Case { frame, node }, (oracles, room), &mut chosen.data) {
                    Ok(call) => {
                        drop(found.insert(
                            node,
                            SiteCall { row: row.clone(), phase: phase.name(), encoder, ..call },
                        ))
                    }
                    Err(error) => reason = reason.or(first.then(|| error.to_string())),
                }
            }
            chosen.left_out.extend(reason.map(|reason| LeftOut { row, phase: phase.name(), reason }));
        }
        chosen.calls.extend(found.into_values());
    }

    /// The call of a case, its numbers added to the data.
    ///
    /// # Errors
    /// If it was not recorded, or takes more room than there is.
    fn call(
        &self,
        view: &Suite,
        list: &PhaseNodes,
        case: Case,
        (oracles, room): (&Oracles, usize),
        data: &mut CallData,
    ) -> Result<SiteCall> {
        let (call, expected) = view.call(case, self.model)?;
        call.check()?;
        let (plan, place) = &list.nodes[case.node.0 as usize];
        let bytes = bytes(&call)?;
        if data.bytes.len().saturating_add(bytes) > room {
            return Err(Error::unsupported(format!(
                "its call takes {bytes} bytes, {} of {room} are taken",
                data.bytes.len()
            )));
        }
        let seed = u64::from(case.node.0);
        let exact = oracles.exact(&call, seed)?;
        let precision = precision(plan, &call.symbols)?;
        let mut inputs = Vec::new();
        for (tensor, buffer) in call.inputs.iter().zip(&place.inputs) {
            let Some(buffer) = *buffer else { continue };
            let (at, bytes) = (data.add(tensor.bytes()), tensor.bytes().len());
            inputs.push(CallInput { buffer, at, bytes });
        }
        let mut outputs = Vec::new();
        for ((exact, source), &buffer) in exact.iter().zip(&expected).zip(&place.outputs) {
            let yardstick = Yardstick::new(exact, precision, source);
            outputs.push(data.add_output(buffer, &yardstick));
        }
        let symbols = [Symbol::N, Symbol::P].into_iter();
        let symbols = symbols.map(|s| (s.to_string(), call.symbols.get(s).unwrap_or(0))).collect();
        Ok(SiteCall {
            case: view.case_id(case),
            node: call.node.clone(),
            op: call.op.name(),
            row: String::new(),
            phase: "",
            encoder: false,
            kernel_hash: plan.hash.clone(),
            accumulate: plan.accumulate.dtype.to_string(),
            symbols,
            steps: [place.steps.start, place.steps.end],
            inputs,
            outputs,
        })
    }
}

/// The row of the kernel list that a step launches.
pub(super) fn row(step: &ProgramStep) -> Option<String> {
    match step {
        ProgramStep::Dispatch { row, .. } => Some(row.clone()),
        _ => None,
    }
}

/// Bytes that a call takes.
fn bytes(call: &Call) -> Result<usize> {
    let inputs = call.inputs.iter().zip(&call.weights).filter(|(_, weight)| weight.is_none());
    let mut sum: usize = inputs.map(|(tensor, _)| tensor.bytes().len()).sum();
    for ty in &call.output_types {
        // An exact value and two numbers for each element.
        let values = byte_len(DType::F64, &ty.sizes(&call.symbols)?).unwrap_or(usize::MAX);
        sum = sum.saturating_add(values.saturating_mul(2));
    }
    Ok(sum)
}

/// The precision that a plan declares for a run.
fn precision(plan: &NodePlan, symbols: &Symbols) -> Result<Precision> {
    // A chain longer than `usize` allows is as good as endless.
    let terms = usize::try_from(plan.accumulate.chain.eval(symbols)?).unwrap_or(usize::MAX);
    Ok(Precision { accumulate: plan.accumulate.dtype, terms })
}

/// The numbers of all calls.
#[derive(Default)]
struct CallData {
    bytes: Vec<u8>,
}

impl CallData {
    /// Adds bytes; gives where they begin.
    fn add(&mut self, bytes: &[u8]) -> usize {
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
        let at = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        at
    }

    fn add_output(&mut self, buffer: u32, yardstick: &Yardstick) -> CallOutput {
        let f64s = |values: &[f64]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        let f32s = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        let at = self.add(&f64s(&yardstick.exact));
        self.add(&f32s(&yardstick.rounded));
        self.add(&f32s(&yardstick.allowed));
        let limits = &yardstick.limits;
        self.add(&f64s(&limits.columns));
        let Yardstick { dtype, row_len, indices, .. } = *yardstick;
        let (scale, bias, spread, columns) = (limits.scale, limits.bias, limits.spread, limits.columns.len());
        let limits = (!indices).then_some(CallLimits { scale, bias, spread, columns });
        CallOutput { buffer, dtype, count: yardstick.exact.len(), row_len, indices, at, limits }
    }
}
