//! What all requests share: the model, the counts, and places that bound what goes on at once.

use crate::error::ApiError;
use crate::fields::Parsed;
use crate::metrics::Metrics;
use crate::options::ServerOptions;
use crate::served::ServedModel;
use axum::http::StatusCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use tapml_constraint::{CompiledGrammar, Grammar, GrammarCompiler};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bodies that are read to requests and tokens at once: each takes several times its bytes meanwhile.
const PREPARING: usize = 4;

/// See the module.
pub struct ServerState {
    /// The model.
    pub model: ServedModel,
    /// What is counted.
    pub metrics: Metrics,
    /// What bounds requests.
    pub options: ServerOptions,
    /// When the server started, seconds since 1970.
    pub created: u64,
    /// Made for the first form that is asked for: large vocabularies take a moment.
    grammars: OnceLock<Result<GrammarCompiler, ApiError>>,
    places: Arc<Semaphore>,
    preparing: Arc<Semaphore>,
    stopping: AtomicBool,
}

impl ServerState {
    /// The state of a server that starts.
    pub fn new(model: ServedModel, options: ServerOptions) -> ServerState {
        ServerState {
            model,
            metrics: Metrics::default(),
            created: unix_seconds(),
            grammars: OnceLock::new(),
            places: Arc::new(Semaphore::new(options.max_concurrent.min(Semaphore::MAX_PERMITS))),
            preparing: Arc::new(Semaphore::new(PREPARING)),
            stopping: AtomicBool::new(false),
            options,
        }
    }

    /// Makes the form of an answer ready, which `field` of the request demands.
    ///
    /// # Errors
    /// If it cannot be enforced.
    pub fn compile(&self, field: &str, grammar: &Grammar) -> Parsed<CompiledGrammar> {
        let ServedModel { tokenizer, stop_ids, .. } = &self.model;
        let vocab = self.model.engine()?.limits().vocab;
        let make = || Ok(GrammarCompiler::new(tokenizer.vocabulary(vocab, stop_ids))?);
        let compiler = self.grammars.get_or_init(make).as_ref().map_err(ApiError::clone)?;
        compiler.compile(grammar).map_err(|e| ApiError::from(e).with_param(field))
    }

    /// From here on requests are refused.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Whether requests are refused because the server ends.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// A place for a request, which is given back when it is dropped.
    pub fn enter(&self) -> Parsed<OwnedSemaphorePermit> {
        if self.is_stopping() {
            return Err(ApiError::stopping());
        }
        self.places.clone().try_acquire_owned().map_err(|_| {
            let most = self.options.max_concurrent;
            ApiError::overload_error(format!(
                "{most} requests are served already, which is the most; try again later"
            ))
        })
    }

    /// Does work that takes the processor, such as cutting text into tokens, where it keeps no other request waiting.
    pub async fn prepare<T: Send + 'static>(
        self: &Arc<ServerState>,
        work: impl FnOnce(&ServerState) -> Parsed<T> + Send + 'static,
    ) -> Parsed<T> {
        let failed = || ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the work on the request broke off");
        let place = self.preparing.clone().acquire_owned().await.map_err(|_| failed())?;
        let state = self.clone();
        let work = tokio::task::spawn_blocking(move || {
            let _place = place;
            work(&state)
        });
        work.await.map_err(|_| failed())?
    }
}

/// Seconds since 1970.
pub fn unix_seconds() -> u64 {
    use std::time::{SystemTime, UNIX_EPOCH};
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
