//! The engine as others see it: requests go in, events come out of its thread.

use super::batch::{BatchLimits, BatchRunner};
use super::draft_model::{DraftModel, ModelDrafter};
use super::images::ImageLimits;
use super::inbox::{Arrival, Shared, closed_error, lock};
use super::options::{EngineOptions, EngineStats, SubmitError};
use super::request::Request;
use super::scheduler::SequenceId;
use super::thread::EngineThread;
use crate::generate::check_prompt;
use crate::sampler::Sampler;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tapml_graph::{DType, Error, ErrorKind, Result};

/// Most candidates that are told of one token.
const MOST_LOGPROBS: usize = 256;

/// Many requests at once on one model. Its thread owns the runner; each step of it holds rows of several requests.
///
/// Whatever happens, each request that was taken ends with one [`Finished`](super::RequestEvent::Finished) or
/// [`Failed`](super::RequestEvent::Failed), unless its receiver asked to be told no more. Dropping the engine fails what runs.
pub struct Engine {
    shared: Arc<Shared>,
    limits: BatchLimits,
    images: Option<ImageLimits>,
    options: EngineOptions,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A request that was taken. Dropping it cancels the request; one that has ended stays as it is.
#[derive(Debug)]
#[must_use = "dropping it cancels the request"]
pub struct RequestHandle {
    id: SequenceId,
    shared: Arc<Shared>,
}

impl Engine {
    /// Starts an engine. Fails if the runner has no place for anything, on bad options, and if no thread can be started.
    pub fn start(runner: Box<dyn BatchRunner>, options: EngineOptions) -> Result<Engine> {
        Engine::start_with_draft(runner, None, options)
    }

    /// Starts an engine with speculative decoding by a smaller model. Texts are the same with and without.
    ///
    /// # Errors
    /// As [`Engine::start`], and if the models have other vocabularies.
    pub fn start_with_draft(
        runner: Box<dyn BatchRunner>,
        draft: Option<DraftModel>,
        options: EngineOptions,
    ) -> Result<Engine> {
        options.check()?;
        let limits = runner.limits().usable()?;
        let images = runner.image_limits();
        if limits.states > 0 && (draft.is_some() || options.ngram.is_some()) {
            let text = "a recurrent model cannot take guessed tokens back: its state holds them";
            return Err(Error::unsupported(text).with_hint("leave `--draft` and `--ngram` out"));
        }
        let drafter = draft.map(|draft| ModelDrafter::new(draft, limits.vocab)).transpose()?;
        let shared = Arc::new(Shared::new(EngineStats { pages: limits.pages, ..EngineStats::default() }));
        let worker = EngineThread::new(runner, drafter, limits, options.clone(), Arc::clone(&shared));
        let thread = thread::Builder::new().name("engine".into()).spawn(move || worker.run());
        let thread = thread.map_err(|error| {
            Error::new(ErrorKind::Unavailable, format!("could not start the engine's thread: {error}"))
        })?;
        Ok(Engine { shared, limits, images, options, thread: Mutex::new(Some(thread)) })
    }

    /// What the runner was loaded for. The context is at most what all pages hold.
    pub fn limits(&self) -> BatchLimits {
        self.limits
    }

    /// What images must be like; `None` if the model sees none.
    pub fn image_limits(&self) -> Option<&ImageLimits> {
        self.images.as_ref()
    }

    /// Takes a request; its events are told on the engine's thread.
    ///
    /// # Errors
    /// If the request is wrong, if too many wait, and if the engine is shutting down. Nothing is told then.
    pub fn submit(&self, request: Request) -> std::result::Result<RequestHandle, SubmitError> {
        let mut handles = self.submit_all(vec![request])?;
        handles.pop().ok_or_else(|| SubmitError::Invalid(Error::bug("a request has no handle")))
    }

    /// Takes all of these requests or none, such as several answers to one prompt, which share its full pages.
    ///
    /// # Errors
    /// As [`Engine::submit`].
    pub fn submit_all(&self, requests: Vec<Request>) -> std::result::Result<Vec<RequestHandle>, SubmitError> {
        let samplers: Result<Vec<Sampler>> = requests.iter().map(|request| self.check(request)).collect();
        let samplers = samplers.map_err(SubmitError::Invalid)?;
        let mut inbox = self.shared.inbox();
        if !inbox.open || inbox.deadline.is_some() {
            return Err(SubmitError::ShuttingDown(closed_error()));
        }
        let waiting = inbox.waiting + inbox.arrivals.len();
        if waiting + requests.len() > self.options.queue {
            let most = self.options.queue;
            let error = format!("{waiting} requests wait, and at most {most} may");
            let error = Error::new(ErrorKind::Unavailable, error).with_hint("try again later");
            return Err(SubmitError::QueueFull(error));
        }
        let at = Instant::now();
        let handles = requests.into_iter().zip(samplers).map(|(request, sampler)| {
            inbox.last_id += 1;
            let id = inbox.last_id;
            inbox.arrivals.push(Arrival { id, request, sampler, at });
            RequestHandle { id, shared: Arc::clone(&self.shared) }
        });
        let handles = handles.collect();
        self.shared.arrived.notify_all();
        Ok(handles)
    }

    /// What the engine does and has done.
    pub fn stats(&self) -> EngineStats {
        let mut stats = *lock(&self.shared.stats);
        stats.current_step = lock(&self.shared.step_began).map(|began| began.elapsed());
        let inbox = self.shared.inbox();
        stats.waiting += inbox.arrivals.len();
        stats.submitted = inbox.last_id;
        stats
    }

    /// Why no step can run, such as a device that is lost and does not open again; `None` while all is well. The engine keeps
    /// trying, also without requests.
    pub fn fault(&self) -> Option<Error> {
        lock(&self.shared.fault).clone()
    }

    /// Takes no requests any more, lets those that were taken go on for `grace`, fails the rest, and ends the thread. Returns
    /// when all have ended; a step that runs is waited for.
    pub fn shut_down(&self, grace: Duration) {
        let mut inbox = self.shared.inbox();
        let deadline = Instant::now() + grace.min(Duration::from_secs(1 << 30));
        inbox.deadline = Some(inbox.deadline.map_or(deadline, |earlier| earlier.min(deadline)));
        drop(inbox);
        self.shared.arrived.notify_all();
        let mut thread = lock(&self.thread);
        // A receiver of events may be the one who calls.
        if thread.as_ref().is_some_and(|thread| thread.thread().id() == thread::current().id()) {
            return;
        }
        if let Some(thread) = thread.take() {
            // The thread catches its panics.
            let _ = thread.join();
        }
    }

    /// Fails on a request that can never be served.
    fn check(&self, request: &Request) -> Result<Sampler> {
        let BatchLimits { context, vocab, .. } = self.limits;
        check_prompt(request.prompt.len(), context)?;
        self.check_images(request)?;
        let options = &request.options;
        let unknown = |what: &str, mut ids: Box<dyn Iterator<Item = u32> + '_>| {
            let found = ids.find(|id| *id as usize >= vocab);
            found.map_or(Ok(()), |id| {
                Err(Error::invalid(format!("token {id} of the {what} is not among the model's {vocab}")))
            })
        };
        unknown("prompt", Box::new(request.prompt.iter().copied()))?;
        unknown("logit bias", Box::new(options.sampling.logit_bias.iter().map(|(id, _)| *id)))?;
        for (name, count) in [("logprobs", options.logprobs), ("prompt_logprobs", options.prompt_logprobs)] {
            if let Some(count) = count.filter(|count| *count > MOST_LOGPROBS) {
                return Err(Error::invalid(format!(
                    "`{name}` must be at most {MOST_LOGPROBS}, found {count}"
                )));
            }
        }
        Sampler::new(options.sampling.clone())
    }

    /// Fails on images that do not fit the model or the prompt.
    fn check_images(&self, request: &Request) -> Result<()> {
        let Request { prompt, images, .. } = request;
        let Some(limits) = &self.images else {
            let refused = || Error::unsupported("the model takes no images").with_hint("leave them away");
            return if images.is_empty() { Ok(()) } else { Err(refused()) };
        };
        let mut end = 0;
        for (i, placed) in images.iter().enumerate() {
            let (pixels, tokens) = (placed.image.pixels(), placed.tokens());
            if pixels.dtype() != DType::F32 || pixels.shape() != limits.pixels {
                let (dtype, shape, expected) = (pixels.dtype(), pixels.shape(), &limits.pixels);
                let text = format!("image {i} must be f32{expected:?}, found {dtype}{shape:?}");
                return Err(Error::invalid(text));
            }
            let outside = placed.rows.iter().any(|&row| row as usize >= limits.rows);
            if tokens.start < end || tokens.is_empty() || tokens.end > prompt.len() || outside {
                let (rows, length) = (limits.rows, prompt.len());
                return Err(Error::invalid(format!(
                    "image {i} stands at the tokens {tokens:?} of {length}, from {end} on, and has {rows} rows"
                )));
            }
            end = tokens.end;
        }
        Ok(())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shut_down(Duration::ZERO);
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Engine({:?})", self.limits)
    }
}

impl RequestHandle {
    /// Ends the request at the latest after the step that runs. It is told [`Finish::Cancelled`](crate::Finish::Cancelled),
    /// unless it has ended before.
    pub fn cancel(&self) {
        let mut inbox = self.shared.inbox();
        if inbox.open {
            inbox.cancelled.push(self.id);
            self.shared.arrived.notify_all();
        }
    }
}

impl Drop for RequestHandle {
    fn drop(&mut self) {
        self.cancel();
    }
}
