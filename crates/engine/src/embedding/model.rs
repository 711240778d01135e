//! The thread that makes vectors, one text after another.

use super::encoder::{EncoderLimits, TextEncoder};
use super::options::EmbeddingOptions;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tapml_constraint::panics;
use tapml_graph::{Error, ErrorKind, Result};

/// Takes a vector.
type VectorReceiver = Box<dyn FnOnce(Result<Vec<f32>>) + Send>;

/// What was done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EmbeddingStats {
    /// Texts that are computed: 0 or 1.
    pub running: usize,
    /// Texts that wait.
    pub waiting: usize,
    /// Texts that have a vector.
    pub finished: u64,
    /// Texts that failed.
    pub failed: u64,
    /// How often a lost device was opened again.
    pub device_reopened: u64,
    /// How long the encoder worked.
    pub encode_time: Duration,
}

/// A text to be computed.
struct EncodeJob {
    ids: Vec<u32>,
    size: Option<usize>,
    done: VectorReceiver,
}

/// What the thread shares with others.
#[derive(Default)]
struct Shared {
    stats: Mutex<EmbeddingStats>,
    /// Whether texts that wait fail.
    closed: AtomicBool,
}

impl Shared {
    /// A panic while they were held left nothing half done.
    fn stats(&self) -> MutexGuard<'_, EmbeddingStats> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An encoder whose hidden states become vectors. Texts are computed one after another on a thread of its own.
pub struct EmbeddingModel {
    limits: EncoderLimits,
    options: EmbeddingOptions,
    shared: Arc<Shared>,
    /// `None` while it is dropped.
    jobs: Option<Sender<EncodeJob>>,
    thread: Option<JoinHandle<()>>,
}

impl EmbeddingModel {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the encoder has no place for a text, or no thread can be started.
    pub fn start(encoder: Box<dyn TextEncoder>, options: EmbeddingOptions) -> Result<EmbeddingModel> {
        let mut limits = encoder.limits();
        limits.context = limits.context.min(options.max_tokens.unwrap_or(usize::MAX));
        if limits.context == 0 || limits.width == 0 || options.pooling.is_empty() {
            return Err(Error::invalid(format!("an encoder must have place for a text, found {limits:?}")));
        }
        let shared = Arc::<Shared>::default();
        let (jobs, received) = channel();
        let (options_of_thread, shared_with_it) = (options.clone(), shared.clone());
        let worker = EncoderThread {
            encoder,
            width: limits.width,
            options: options_of_thread,
            shared: shared_with_it,
            broken: false,
        };
        let thread = thread::Builder::new().name("encoder".into()).spawn(move || worker.run(&received));
        let thread = thread.map_err(|error| {
            Error::new(ErrorKind::Unavailable, format!("could not start the encoder's thread: {error}"))
        })?;
        Ok(EmbeddingModel { limits, options, shared, jobs: Some(jobs), thread: Some(thread) })
    }

    /// What texts it takes.
    pub fn limits(&self) -> EncoderLimits {
        self.limits
    }

    /// How its vectors are made.
    pub fn options(&self) -> &EmbeddingOptions {
        &self.options
    }

    /// Numbers of a vector.
    pub fn size(&self) -> usize {
        self.options.size(self.limits.width)
    }

    /// Texts that wait and those that come fail from here on.
    pub fn close(&self) {
        self.shared.closed.store(true, Ordering::Release);
    }

    /// What was done so far.
    pub fn stats(&self) -> EmbeddingStats {
        *self.shared.stats()
    }

    /// Computes the vector of a text of 1 to `context` ids, cut to `size` numbers if it is given. `done` is told on the thread of
    /// the encoder.
    pub fn submit(
        &self,
        ids: Vec<u32>,
        size: Option<usize>,
        done: impl FnOnce(Result<Vec<f32>>) + Send + 'static,
    ) {
        self.shared.stats().waiting += 1;
        let job = EncodeJob { ids, size, done: Box::new(done) };
        // The thread lives as long as this does.
        let sent = self.jobs.as_ref().map(|jobs| jobs.send(job));
        if let Some(Err(unsent)) = sent {
            self.shared.stats().waiting -= 1;
            (unsent.0.done)(Err(Error::bug("the encoder's thread has ended")));
        }
    }
}

impl Drop for EmbeddingModel {
    fn drop(&mut self) {
        self.close();
        self.jobs = None;
        if let Some(thread) =
            self.thread.take().filter(|thread| thread.thread().id() != thread::current().id())
        {
            // The thread catches its panics.
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for EmbeddingModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EmbeddingModel({:?}, {:?})", self.limits, self.options)
    }
}

/// What the thread has.
struct EncoderThread {
    encoder: Box<dyn TextEncoder>,
    width: usize,
    options: EmbeddingOptions,
    shared: Arc<Shared>,
    /// Whether the encoder must be reset before its next text.
    broken: bool,
}

impl EncoderThread {
    /// Works until nobody can send any more.
    fn run(mut self, jobs: &Receiver<EncodeJob>) {
        for EncodeJob { ids, size, done } in jobs {
            let began = Instant::now();
            {
                let mut stats = self.shared.stats();
                (stats.waiting, stats.running) = (stats.waiting - 1, 1);
            }
            let closed = self.shared.closed.load(Ordering::Acquire);
            let vector = if closed { Err(closed_error()) } else { self.compute(&ids, size) };
            {
                let mut stats = self.shared.stats();
                stats.running = 0;
                stats.encode_time += began.elapsed();
                stats.device_reopened = self.encoder.reopened_count();
                *(if vector.is_ok() { &mut stats.finished } else { &mut stats.failed }) += 1;
            }
            // A receiver that panics concerns nobody else.
            let _ = panics::catch(|| done(vector));
        }
    }

    fn compute(&mut self, ids: &[u32], size: Option<usize>) -> Result<Vec<f32>> {
        let states = match self.encode(ids) {
            // A text is computed again where the device comes back.
            Err(lost) if lost.kind() == ErrorKind::DeviceLost => self.encode(ids),
            states => states,
        };
        self.options.vector(&states?, self.width, size)
    }

    fn encode(&mut self, ids: &[u32]) -> Result<Vec<f32>> {
        let broken = std::mem::replace(&mut self.broken, true);
        let encoder = &mut self.encoder;
        let work = panics::catch(|| {
            if broken {
                encoder.reset()?;
            }
            encoder.encode(ids)
        });
        let states = work.unwrap_or_else(|| Err(Error::bug("the encoder panicked")))?;
        self.broken = false;
        Ok(states)
    }
}

fn closed_error() -> Error {
    Error::new(ErrorKind::Unavailable, "the encoder is shutting down")
        .with_hint("send the request to another server")
}
