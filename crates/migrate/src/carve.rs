//! Carving: runs a model on the source platform with real prompts and records every node call into a suite.
//! Hashing and writing happen on a thread of their own, behind a bounded queue.
//!
//! Three threads work: this one runs the source, one hashes and stores what is recorded, and one hashes
//! weights that do not go into the suite. The folder appears only when everything is durable.

use crate::argmax::argmax_last;
use crate::hash::{Hash, tensor_type};
use crate::identity::{ModelIdentity, weight_entries, weight_entries_while};
use crate::progress::Progress;
use crate::stop::Stop;
use crate::suite::index::type_bytes;
use crate::suite::{Frame, Manifest, Prompt, Settings, Slot, SuiteOutput, SuiteSource, SuiteWriter};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use tapml_exec::{Image, Interface, LOGITS, Loaded, NodeEvent, Observer, Platform, load_watched};
use tapml_graph::{Bytes, Context, Error, ErrorKind, Graph, Model, Origin, Result, Symbols, Tensor, ValueId};

/// Batches of values that may wait to be written: enough to hide a slow moment of the disk.
const QUEUE: usize = 4;
/// Bytes of a batch. A run's values go together: waking the writing thread for each would disturb the run.
const BATCH_BYTES: usize = 8 << 20;

/// A prompt as given.
#[derive(Clone, Debug, Default)]
pub struct PromptInput {
    /// Text, for reports; may be empty.
    pub text: String,
    /// Token ids.
    pub ids: Vec<u32>,
    /// The image that some of the tokens stand for.
    pub image: Option<Image>,
    /// Decode steps after it at most; as many as are asked for if `None`.
    pub most_steps: Option<u32>,
}

impl PromptInput {
    /// Hash of the image's pixels.
    pub(crate) fn image_hash(&self) -> Option<Hash> {
        self.image.as_ref().map(|image| Hash::of_tensor(&image.pixels))
    }

    /// Decode steps after it where `asked` are asked for.
    pub(crate) fn steps(&self, asked: u32) -> u32 {
        self.most_steps.map_or(asked, |most| most.min(asked))
    }
}

/// What to carve and how.
pub struct CarveOptions<'a> {
    /// The folder to write.
    pub out: &'a Path,
    /// Whether an existing suite of this name is replaced.
    pub overwrite: bool,
    /// Decode steps after each prompt; an encoder has none.
    pub steps: u32,
    /// Whether the weights' bytes go into the suite.
    pub self_contained: bool,
    /// Most tokens of the model's context; 0 if unknown.
    pub context: u32,
    /// Turns ids into text.
    pub decode: &'a (dyn Fn(&[u32]) -> String + Sync),
}

/// What carving did.
#[derive(Clone, Debug)]
pub struct Carved {
    /// The suite's manifest.
    pub manifest: Manifest,
    /// Time within the source's runs, recording included.
    pub running: Duration,
    /// All time.
    pub total: Duration,
}

/// Runs each prompt and then its decode steps with the token that the source finds most probable, and writes every
/// node call. Nothing is left at `options.out` unless all of it is.
///
/// # Errors
/// If a prompt does not fit the context, the source fails, the disk is full, or someone asks to stop.
pub fn carve(
    platform: &mut dyn Platform,
    model: &Model,
    identity: ModelIdentity,
    prompts: &[PromptInput],
    options: &CarveOptions<'_>,
    progress: &dyn Progress,
    stop: &Stop,
) -> Result<Carved> {
    let start = Instant::now();
    let interface = Interface::from_graph(model.graph())?;
    let steps = steps(&interface, options.steps);
    check_prompts(&interface, prompts, steps, options.context)?;
    let info = platform.describe();
    let source = SuiteSource { platform: info.platform, device: info.device, driver: info.driver };
    let settings = Settings { steps, self_contained: options.self_contained };
    let (out, overwrite) = (options.out, options.overwrite);
    let file = |file| -> Box<dyn SuiteOutput> { Box::new(file) };
    let mut writer = SuiteWriter::begin(out, overwrite, model, identity, source, settings, &file)?;
    writer.expect_bytes(estimate(model, prompts, steps, options.self_contained)?);
    if options.self_contained {
        writer.identify(model, weight_entries(model)?)?;
    }
    // One program for all prompts: its states have room for the longest one and all its steps.
    let longest = prompts.iter().map(|p| p.ids.len()).max().unwrap_or(0);
    let capacity = Symbols::np(longest as u64, longest as u64 + u64::from(steps));
    let useless = AtomicBool::new(false);
    let Recorded { writer, prompts, running } = std::thread::scope(|scope| {
        // Gigabytes of weights are hashed while they are loaded and run.
        let hash = || weight_entries_while(model, &|| unless(&useless));
        let hashing = (!options.self_contained).then(|| scope.spawn(hash));
        let mut load =
            || load_watched(platform, model, &capacity).context(|| "the source platform".to_string());
        let ran = load().and_then(|mut loaded| {
            progress.stage("carve", prompts.iter().map(|p| u64::from(p.steps(steps)) + 1).sum());
            let running = Duration::ZERO;
            let loaded = loaded.as_mut();
            CarveRunner { loaded, interface, steps, options, progress, stop, running }
                .record(model, prompts, writer)
        });
        // The scope waits for the thread, so it is told to give up before an error is returned.
        useless.store(ran.is_err(), Ordering::Relaxed);
        // Joined by hand, also after an error: the scope panics if a thread panicked that it has to join.
        let hashed = hashing.map(|thread| thread.join().map_err(|_| panic_error("hashing")));
        let mut recorded = ran?;
        if let Some(weights) = hashed {
            recorded.writer.identify(model, weights??)?;
        }
        Ok::<_, Error>(recorded)
    })?;
    let manifest = writer.finish(prompts)?;
    Ok(Carved { manifest, running, total: start.elapsed() })
}

/// An error once nobody needs what is being done.
fn unless(useless: &AtomicBool) -> Result<()> {
    if useless.load(Ordering::Relaxed) {
        Err(Error::new(ErrorKind::Interrupted, "no longer needed"))
    } else {
        Ok(())
    }
}

/// A panic of a thread as an error of this program.
fn panic_error(thread: &str) -> Error {
    Error::bug(format!("the {thread} thread of carve panicked"))
}

/// The decode steps after each prompt, where `asked` are asked for: an encoder makes no tokens.
pub(crate) fn steps(interface: &Interface, asked: u32) -> u32 {
    if interface.has_logits() { asked } else { 0 }
}

/// Before anything runs: a prompt that does not fit is told in no time.
fn check_prompts(interface: &Interface, prompts: &[PromptInput], steps: u32, context: u32) -> Result<()> {
    if prompts.is_empty() {
        return Err(Error::invalid("no prompts given").with_hint("give a file with one prompt per line"));
    }
    for (i, prompt) in prompts.iter().enumerate() {
        interface.check(&prompt.ids).context(|| format!("prompt {i}"))?;
        if let Some(image) = &prompt.image {
            interface.check_image(image).context(|| format!("prompt {i}"))?;
        }
        let steps = prompt.steps(steps);
        let tokens = prompt.ids.len() + steps as usize;
        if context > 0 && tokens > context as usize {
            let own = prompt.ids.len();
            return Err(Error::invalid(format!(
                "prompt {i} has {own} tokens and {steps} steps follow, the model's context is {context}"
            ))
            .with_hint(format!(
                "shorten the prompt by {} tokens, or carve fewer steps",
                tokens - context as usize
            )));
        }
    }
    Ok(())
}

/// Bytes of all tensors if no two were equal.
fn estimate(model: &Model, prompts: &[PromptInput], steps: u32, self_contained: bool) -> Result<u64> {
    let graph = model.graph();
    let once = graph.loop_invariant_nodes();
    let frame = |n: u64, p: u64, image: bool| -> Result<u64> {
        let symbols = Symbols::np(n, p);
        let mut sum = 0u64;
        let ran = graph.nodes().iter().zip(&once).filter(|(_, once)| image || !**once);
        for value in ran.flat_map(|(node, _)| &node.outputs) {
            // Of a growing state only new rows are stored, not the whole.
            let growing = graph.states().iter().any(|s| s.output == *value && s.grows(graph));
            if !growing {
                sum = sum.saturating_add(type_bytes(&graph.value(*value).ty.bind(&symbols)?)?);
            }
        }
        Ok(sum)
    };
    let mut sum = 0u64;
    for prompt in prompts {
        let rows = prompt.ids.len() as u64;
        sum = sum.saturating_add(frame(rows, 0, prompt.image.is_some())?);
        sum = sum.saturating_add(frame(1, rows, false)?.saturating_mul(u64::from(prompt.steps(steps))));
    }
    if self_contained {
        for (_, weight) in graph.weights() {
            sum = sum.saturating_add(type_bytes(&weight.ty)?);
        }
    }
    Ok(sum)
}

/// What the run tells the writing thread.
enum CarveMessage {
    Begin { prompt: u32, step: u32, symbols: Symbols, values: usize, states: usize },
    Value(ValueId, Tensor),
    Rows(ValueId, u32),
    State(usize, Tensor),
}

/// The writing thread: runs in order, each closed when the next one begins.
fn write(receiver: Receiver<Vec<CarveMessage>>, mut writer: SuiteWriter) -> Result<SuiteWriter> {
    let mut current: Option<Frame> = None;
    for message in receiver.into_iter().flatten() {
        if let CarveMessage::Begin { prompt, step, symbols, values, states } = message {
            let next = Frame {
                prompt,
                step,
                symbols,
                states: vec![Slot::None; states],
                values: vec![Slot::None; values],
            };
            if let Some(done) = current.replace(next) {
                writer.frame(&done)?;
            }
            continue;
        }
        let frame = current.as_mut().ok_or_else(|| Error::bug("a value before its run"))?;
        match message {
            CarveMessage::Begin { .. } => {}
            CarveMessage::Value(id, tensor) => {
                frame.values[id.0 as usize] = Slot::Stored(writer.put(&tensor)?)
            }
            CarveMessage::Rows(id, rows) => frame.values[id.0 as usize] = Slot::Rows([rows]),
            CarveMessage::State(index, tensor) => frame.states[index] = Slot::Stored(writer.put(&tensor)?),
        }
    }
    if let Some(done) = current {
        writer.frame(&done)?;
    }
    Ok(writer)
}

/// What came of all prompts.
struct Recorded {
    writer: SuiteWriter,
    prompts: Vec<Prompt>,
    /// Time within runs.
    running: Duration,
}

struct CarveRunner<'a> {
    /// The source's program.
    loaded: &'a mut dyn Loaded,
    interface: Interface,
    steps: u32,
    options: &'a CarveOptions<'a>,
    progress: &'a dyn Progress,
    stop: &'a Stop,
    /// Time within runs so far.
    running: Duration,
}

impl CarveRunner<'_> {
    /// Runs all prompts while another thread writes what is recorded.
    fn record(mut self, model: &Model, prompts: &[PromptInput], writer: SuiteWriter) -> Result<Recorded> {
        let (sender, receiver) = sync_channel(QUEUE);
        let (written, ran) = std::thread::scope(|scope| {
            let thread = scope.spawn(|| write(receiver, writer));
            let ran = self.all(model.graph(), prompts, &sender);
            drop(sender);
            (thread.join(), ran)
        });
        // A failed write closes the queue, which the run then reports too: the cause is the write.
        let (writer, prompts) = (written.map_err(|_| panic_error("writing"))??, ran?);
        Ok(Recorded { writer, prompts, running: self.running })
    }

    /// Prompt after prompt.
    fn all(
        &mut self,
        graph: &Graph,
        prompts: &[PromptInput],
        queue: &SyncSender<Vec<CarveMessage>>,
    ) -> Result<Vec<Prompt>> {
        let mut done = Vec::new();
        for (i, prompt) in prompts.iter().enumerate() {
            let generated = self.prompt(graph, i as u32, prompt, queue).context(|| format!("prompt {i}"))?;
            done.push(Prompt {
                text: prompt.text.clone(),
                ids: prompt.ids.clone(),
                image: prompt.image_hash(),
                generated_text: (self.options.decode)(&generated),
                generated,
            });
        }
        Ok(done)
    }

    /// The prefill, then one step for each token; gives the tokens chosen, one more than there are steps.
    fn prompt(
        &mut self,
        graph: &Graph,
        index: u32,
        prompt: &PromptInput,
        queue: &SyncSender<Vec<CarveMessage>>,
    ) -> Result<Vec<u32>> {
        // Prompts do not see each other.
        self.loaded.reset()?;
        let (mut ids, mut position, mut generated) = (prompt.ids.clone(), 0, Vec::new());
        for step in 0..=prompt.steps(self.steps) {
            self.stop.check()?;
            let symbols = self.interface.symbols(ids.len(), position);
            let (values, states) = (graph.values().len(), graph.states().len());
            let begin = CarveMessage::Begin { prompt: index, step, symbols: symbols.clone(), values, states };
            let mut recorder = Recorder { queue, seen: vec![false; values], batch: vec![begin], bytes: 0 };
            let start = Instant::now();
            let inputs = self.interface.inputs_at(&ids, position, prompt.image.as_ref())?;
            let outputs = self.loaded.run(&symbols, &inputs, Some(&mut recorder))?;
            recorder.flush()?;
            self.running += start.elapsed();
            position += ids.len();
            self.progress.advance(1);
            if self.interface.has_logits() {
                let logits = outputs.get(LOGITS);
                let next = argmax_last(logits.ok_or_else(|| Error::bug("the platform gave no `logits`"))?)?;
                // The last one is chosen but not fed.
                generated.push(next);
                ids = vec![next];
            }
        }
        Ok(generated)
    }
}

/// Hands every value to the writing thread once per run.
struct Recorder<'a> {
    /// To the writing thread; sending blocks while it is full.
    queue: &'a SyncSender<Vec<CarveMessage>>,
    /// By value, whether it was sent in this run.
    seen: Vec<bool>,
    batch: Vec<CarveMessage>,
    /// Of the tensors in `batch`.
    bytes: usize,
}

impl Recorder<'_> {
    fn send(&mut self, message: CarveMessage) -> Result<()> {
        if let CarveMessage::Value(_, tensor) | CarveMessage::State(_, tensor) = &message {
            self.bytes += tensor.bytes().len();
        }
        self.batch.push(message);
        if self.bytes < BATCH_BYTES { Ok(()) } else { self.flush() }
    }

    /// Fails if the writing thread is gone; its own error is the cause.
    fn flush(&mut self) -> Result<()> {
        self.bytes = 0;
        let sent = self.queue.send(std::mem::take(&mut self.batch));
        sent.map_err(|_| Error::new(ErrorKind::Io, "the suite could not be written"))
    }

    /// Whether the value is seen for the first time; it counts as seen then.
    fn first(&mut self, id: ValueId) -> bool {
        !std::mem::replace(&mut self.seen[id.0 as usize], true)
    }

    /// Sends what no node of this run gives: inputs, and fixed states before they change.
    fn input(&mut self, event: &NodeEvent<'_>, id: ValueId, tensor: &Tensor) -> Result<()> {
        match event.graph.value(id).origin {
            // What a node gives is seen before it is used, unless the node did not run: it encodes an image of earlier.
            Origin::Input | Origin::Node { .. } if self.first(id) => {
                self.send(CarveMessage::Value(id, tensor.clone()))
            }
            Origin::State(i) if !event.graph.states()[i as usize].grows(event.graph) && self.first(id) => {
                self.send(CarveMessage::State(i as usize, tensor.clone()))
            }
            _ => Ok(()),
        }
    }

    /// Of a growing state, its new rows and their count.
    fn output(&mut self, event: &NodeEvent<'_>, id: ValueId, tensor: &Tensor) -> Result<()> {
        self.seen[id.0 as usize] = true;
        let state = event.graph.states().iter().position(|s| s.output == id && s.grows(event.graph));
        let Some(index) = state else { return self.send(CarveMessage::Value(id, tensor.clone())) };
        let added = event.added_rows().ok_or_else(|| {
            let (state, node) = (&event.graph.states()[index].name, &event.node.name);
            Error::unsupported(format!("state `{state}` grows by node `{node}`, which does not append rows"))
        })?;
        expect_prefix(event, index)?;
        // A copy: the run adds rows in place only while nobody else holds the cache.
        let added = Tensor::new(added.dtype(), added.shape().to_vec(), Bytes::new(added.bytes().to_vec()))?;
        let rows = tensor_type(tensor).shape.first().and_then(|d| d.as_const()).unwrap_or(0);
        self.send(CarveMessage::State(index, added))?;
        self.send(CarveMessage::Rows(id, u32::try_from(rows).map_err(|_| Error::invalid("too many rows"))?))
    }
}

/// Fails if the run changed rows that earlier runs put into a growing state: they are stored only once.
fn expect_prefix(event: &NodeEvent<'_>, state: usize) -> Result<()> {
    // In place, both are the same memory, and no comparison is needed.
    let (before, after) = (event.inputs[0].bytes(), event.outputs[0].bytes());
    if before.as_ptr() == after.as_ptr() || after.starts_with(before) {
        return Ok(());
    }
    let name = &event.graph.states()[state].name;
    Err(Error::invalid(format!(
        "the source changed earlier rows of state `{name}` in node `{}`",
        event.node.name
    )))
}

impl Observer for Recorder<'_> {
    fn node(&mut self, event: &NodeEvent<'_>) -> Result<()> {
        for (&id, tensor) in event.node.inputs.iter().zip(event.inputs) {
            self.input(event, id, tensor)?;
        }
        for (&id, tensor) in event.node.outputs.iter().zip(event.outputs) {
            self.output(event, id, tensor)?;
        }
        Ok(())
    }
}
