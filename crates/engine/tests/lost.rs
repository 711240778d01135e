//! A device that is lost in the middle of a batch: it is opened again, the model loaded, the texts computed anew, and every
//! answer is what it would be without the loss.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tapml_engine::{
    BatchLimits, Engine, EngineOptions, PagedRunner, Request, RequestEvent, RequestHandle, RequestOptions,
};
use tapml_exec::{CpuPlatform, Loaded, Observer, Platform};
use tapml_graph::{Error, ErrorKind, Model, Result, Symbols, Tensor};
use tapml_import::{Checkpoint, ImportOptions};

const LIMITS: BatchLimits = BatchLimits {
    page: 8,
    pages: 40,
    rows: 48,
    sequences: 5,
    context: 96,
    vocab: 0,
    states: 0,
    length_limit: None,
    window: None,
};

/// When the device is lost, and whether it comes back.
#[derive(Default)]
struct Plan {
    /// Steps that lose the device, counted over all devices.
    cuts: Mutex<Vec<usize>>,
    steps: AtomicUsize,
    /// Attempts to open it.
    opened: AtomicUsize,
    /// Attempts that fail.
    closed: AtomicUsize,
}

/// A graph on a device that is lost as the plan says, and stays lost.
struct Mortal {
    loaded: Box<dyn Loaded>,
    plan: Arc<Plan>,
    lost: bool,
}

fn loss_error() -> Error {
    Error::new(ErrorKind::DeviceLost, "the plug was pulled")
}

impl Loaded for Mortal {
    fn run(
        &mut self,
        symbols: &Symbols,
        inputs: &HashMap<String, Tensor>,
        observer: Option<&mut dyn Observer>,
    ) -> Result<HashMap<String, Tensor>> {
        let step = self.plan.steps.fetch_add(1, Ordering::Relaxed) + 1;
        self.lost |= self.plan.cuts.lock().unwrap().contains(&step);
        if self.lost { Err(loss_error()) } else { self.loaded.run(symbols, inputs, observer) }
    }

    fn reset(&mut self) -> Result<()> {
        if self.lost { Err(loss_error()) } else { self.loaded.reset() }
    }
}

struct MortalPlatform(CpuPlatform, Arc<Plan>);

impl Platform for MortalPlatform {
    fn word(&self) -> &str {
        self.0.word()
    }
    fn describe(&self) -> tapml_exec::PlatformInfo {
        self.0.describe()
    }
    fn kernel_for(
        &self,
        op: &tapml_graph::Op,
        inputs: &[tapml_graph::TensorType],
        phase: tapml_exec::Phase,
    ) -> Result<tapml_exec::KernelChoice> {
        self.0.kernel_for(op, inputs, phase)
    }
    fn replay(&mut self, calls: &[tapml_exec::Call], sink: &mut tapml_exec::Sink<'_>) -> Result<()> {
        self.0.replay(calls, sink)
    }
    fn load(&mut self, model: &Model, capacity: &Symbols) -> Result<Box<dyn Loaded>> {
        let loaded = self.0.load(model, capacity)?;
        Ok(Box::new(Mortal { loaded, plan: self.1.clone(), lost: false }))
    }
    fn take_findings(&mut self) -> Vec<tapml_device::Finding> {
        Vec::new()
    }
    fn memory(&self) -> (u64, u64) {
        self.0.memory()
    }
}

/// The model on a device that follows the plan.
fn open(model: &Model, plan: &Arc<Plan>) -> Result<PagedRunner> {
    PagedRunner::new(&mut MortalPlatform(CpuPlatform::new(), plan.clone()), model, LIMITS)
}

/// An engine whose device is opened again as often as the plan lets it.
fn start(plan: &Arc<Plan>) -> Engine {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/llama");
    let model = Checkpoint::open_with(&path, &ImportOptions::default()).unwrap().model().clone();
    let runner = open(&model, plan).unwrap();
    let plan = plan.clone();
    let runner = runner.with_reopening(move || {
        if plan.opened.fetch_add(1, Ordering::Relaxed) < plan.closed.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Unavailable, "no driver answers"));
        }
        open(&model, &plan)
    });
    Engine::start(Box::new(runner), EngineOptions::default()).unwrap()
}

/// Asks for texts of several lengths at once.
fn ask(engine: &Engine, count: u32) -> Vec<(RequestHandle, Receiver<RequestEvent>)> {
    let ask = |seed: u32| {
        let (sender, events) = channel();
        let tell = move |event| match sender.send(event) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        };
        let prompt = (0..5 + 4 * seed).map(|i| (seed * 7919 + i * 104_729) % 500).collect();
        let options = RequestOptions { max_tokens: 12, ..RequestOptions::default() };
        let request = Request { prompt, images: Vec::new(), options, mask: None, events: Box::new(tell) };
        (engine.submit(request).unwrap(), events)
    };
    (1..=count).map(ask).collect()
}

/// The tokens of an answer, or why there are none.
fn answer(events: &Receiver<RequestEvent>) -> Result<Vec<u32>> {
    let mut tokens = Vec::new();
    loop {
        match events.recv_timeout(Duration::from_secs(60)).expect("no end was told") {
            RequestEvent::Token(token) => tokens.push(token.id),
            RequestEvent::Finished(..) => return Ok(tokens),
            RequestEvent::Failed(error) => return Err(error),
            RequestEvent::Prompt(_) => {}
        }
    }
}

fn answers(engine: &Engine) -> Vec<Vec<u32>> {
    ask(engine, 4).iter().map(|(_, events)| answer(events).unwrap()).collect()
}

#[test]
fn answers_are_the_same_wherever_the_device_was_lost() {
    let plan = Arc::new(Plan::default());
    let expected = answers(&start(&plan));
    let steps = plan.steps.load(Ordering::Relaxed);
    assert!(steps > 12, "{steps} steps");
    // In the prefill, in the middle, twice in a row, and with a device that takes two attempts to come back.
    for (cuts, closed) in [(vec![1], 0), (vec![7], 0), (vec![5, 6], 0), (vec![4, 11], 2)] {
        let plan = Arc::new(Plan::default());
        *plan.cuts.lock().unwrap() = cuts.clone();
        plan.closed.store(closed, Ordering::Relaxed);
        let engine = start(&plan);
        assert_eq!(answers(&engine), expected, "lost at {cuts:?}");
        let stats = engine.stats();
        assert_eq!(stats.device_reopened, cuts.len() as u64);
        assert_eq!(plan.opened.load(Ordering::Relaxed), cuts.len() + closed);
        assert_eq!((stats.failed, stats.failed_steps), (0, cuts.len() as u64), "{stats:?}");
    }
}

#[test]
fn a_device_that_stays_lost_fails_requests_with_the_loss_until_it_is_back() {
    let plan = Arc::new(Plan::default());
    *plan.cuts.lock().unwrap() = vec![6];
    plan.closed.store(usize::MAX, Ordering::Relaxed);
    let engine = start(&plan);
    for (_, events) in ask(&engine, 4) {
        let error = answer(&events).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
        let text = error.to_string();
        assert!(text.contains("3 attempts") && text.contains("no driver answers"), "{text}");
    }
    assert_eq!((plan.opened.load(Ordering::Relaxed), engine.stats().device_reopened), (3, 0));
    let fault = engine.fault().expect("the engine tells that it cannot run");
    assert!(fault.to_string().contains("no driver answers"), "{fault}");
    plan.closed.store(0, Ordering::Relaxed);
    // Without a request, too: whoever watches over servers sends none to one that cannot run.
    let begun = Instant::now();
    while engine.fault().is_some() {
        assert!(begun.elapsed() < Duration::from_secs(30), "the device is not opened again");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(answers(&engine), answers(&start(&Arc::new(Plan::default()))));
    assert_eq!(engine.stats().device_reopened, 1);
}
