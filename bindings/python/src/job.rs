//! The long jobs. They run on a thread of their own, so that Python hears of progress, and of Ctrl-C, meanwhile.

use crate::error::{self, exception};
use pyo3::prelude::*;
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;
use tapml::align::AlignJob;
use tapml::jobs::{CarveJob, CheckJob, DiagnoseJob, MigrateJob, RecordJob};
use tapml::migrate::report::Outcome;
use tapml::migrate::{Progress, Stop};
use tapml::shown::report;
use tapml::{Error, Result};

/// How often Python looks for Ctrl-C.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// What a job tells.
enum Event {
    Stage(String, u64),
    Advance(u64),
    Note(String),
}

/// Sends progress to Python's thread.
struct Channel(Mutex<Sender<Event>>);

impl Channel {
    fn send(&self, event: Event) {
        if let Ok(sender) = self.0.lock() {
            // Nobody listens any more after an interrupt.
            let _ = sender.send(event);
        }
    }
}

impl Progress for Channel {
    fn stage(&self, name: &str, total: u64) {
        self.send(Event::Stage(report(name, false), total));
    }

    fn advance(&self, units: u64) {
        self.send(Event::Advance(units));
    }

    fn note(&self, text: &str) {
        self.send(Event::Note(report(text, false)));
    }
}

/// Whether everything holds, and the report as JSON.
type Done = (bool, String);
type JobWork = Box<dyn FnOnce(&dyn Progress, &Stop) -> Result<Done> + Send>;

/// A job from its name and its fields as JSON.
fn work(kind: &str, fields: &str) -> Result<JobWork> {
    fn read<T: serde::de::DeserializeOwned>(fields: &str) -> Result<T> {
        serde_json::from_str(fields).map_err(|e| Error::invalid(format!("options: {e}")))
    }
    fn done(holds: bool, report: &impl serde::Serialize) -> Result<Done> {
        let text = serde_json::to_string(report);
        Ok((holds, text.map_err(|e| Error::bug(format!("a report does not serialise: {e}")))?))
    }
    Ok(match kind {
        "carve" => {
            let job: CarveJob = read(fields)?;
            Box::new(move |progress, stop| done(true, &job.run(progress, stop)?))
        }
        "check" => {
            let job: CheckJob = read(fields)?;
            Box::new(move |progress, stop| job.run(progress, stop).and_then(|r| done(r.passes(), &r)))
        }
        "migrate" => {
            let job: MigrateJob = read(fields)?;
            Box::new(move |progress, stop| {
                let (report, _) = job.run(progress, stop)?;
                done(report.verdict == Outcome::Accepted, &report)
            })
        }
        "diagnose" => {
            let job: DiagnoseJob = read(fields)?;
            Box::new(move |progress, stop| job.run(progress, stop).and_then(|r| done(r.holds(), &r)))
        }
        "record" => {
            let job: RecordJob = read(fields)?;
            Box::new(move |_, _| done(true, &job.run()?))
        }
        "align" => {
            let job: AlignJob = read(fields)?;
            Box::new(move |progress, stop| {
                job.run(progress, stop).and_then(|r| done(r.departs.is_none(), &r))
            })
        }
        other => return Err(Error::bug(format!("unknown job `{other}`"))),
    })
}

/// Runs a job; whether everything holds, and the report as JSON. `progress` is called with `("stage", name, total)`, `("advance", "", units)` and `("note", text, 0)`.
#[pyfunction]
pub fn job(py: Python<'_>, kind: &str, fields: &str, progress: Py<PyAny>) -> PyResult<Done> {
    let work = error::result(py, work(kind, fields))?;
    let (sender, mut events) = mpsc::channel();
    let stop = Stop::new();
    let shared = stop.clone();
    let thread = std::thread::spawn(move || work(&Channel(Mutex::new(sender)), &shared));
    let mut interrupt: Option<PyErr> = None;
    loop {
        let (told, receiver) = py.detach(move || wait(events));
        events = receiver;
        if let (Ok(told), None) = (&told, &interrupt) {
            interrupt = told.iter().try_for_each(|event| report_event(py, &progress, event)).err();
        }
        if let Err(signal) = py.check_signals()
            && interrupt.replace(signal).is_some()
        {
            // Asked twice: the thread ends when it next looks.
            break;
        }
        if interrupt.is_some() {
            stop.request();
        }
        if told.is_err() {
            break;
        }
    }
    if let Some(interrupt) = interrupt {
        return Err(interrupt);
    }
    let done = py.detach(|| thread.join());
    let done = done.unwrap_or_else(|_| Err(Error::bug(format!("`{kind}` panicked"))));
    done.map_err(|e| exception(py, &e))
}

type Waited = std::result::Result<Vec<Event>, RecvTimeoutError>;

/// What was told within a tick; many small steps are told as one.
fn wait(events: Receiver<Event>) -> (Waited, Receiver<Event>) {
    let first = match events.recv_timeout(POLL_INTERVAL) {
        Ok(first) => first,
        Err(RecvTimeoutError::Timeout) => return (Ok(Vec::new()), events),
        Err(ended) => return (Err(ended), events),
    };
    let mut told = vec![first];
    while let Ok(next) = events.try_recv() {
        match (told.last_mut(), next) {
            (Some(Event::Advance(units)), Event::Advance(more)) => *units += more,
            (_, next) => told.push(next),
        }
    }
    (Ok(told), events)
}

fn report_event(py: Python<'_>, progress: &Py<PyAny>, event: &Event) -> PyResult<()> {
    let (kind, text, number) = match event {
        Event::Stage(name, total) => ("stage", name.as_str(), *total),
        Event::Advance(units) => ("advance", "", *units),
        Event::Note(text) => ("note", text.as_str(), 0),
    };
    progress.call1(py, (kind, text, number)).map(drop)
}
