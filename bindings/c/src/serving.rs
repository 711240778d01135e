//! An agent that serves on a thread of its own.

use serde_json::json;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use tapml::offer::{AgentOptions, Local, Offer};
use tapml::rpc::agent::Agent;
use tapml::{Error, ErrorKind, Result};

/// A running agent.
pub struct TapmlAgent {
    agent: Arc<Agent>,
    /// What it offers.
    offer: Local,
    options: AgentOptions,
    serving: JoinHandle<()>,
    /// How serving has ended, once it has.
    end: Arc<Mutex<Option<Result<()>>>>,
}

impl TapmlAgent {
    /// Starts an agent whose sessions are threads.
    pub(crate) fn start(options: AgentOptions) -> Result<TapmlAgent> {
        let offer = Local::new(&options.targets)?;
        let agent = Arc::new(options.open(None)?);
        let end = Arc::new(Mutex::new(None));
        let (serves, ended) = (agent.clone(), end.clone());
        let serve = move || {
            block_broken_pipes();
            let served = catch_unwind(AssertUnwindSafe(|| serves.serve()));
            let served = served.unwrap_or_else(|panic| Err(Error::bug(panic_text(panic.as_ref()))));
            *ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(served);
        };
        let serving = std::thread::Builder::new().name("tapml-agent".into()).spawn(serve);
        let serving = serving
            .map_err(|e| Error::new(ErrorKind::Unavailable, format!("could not start a thread: {e}")))?;
        Ok(TapmlAgent { agent, offer, options, serving, end })
    }

    /// What it does, as a JSON object.
    pub(crate) fn status(&self) -> Result<String> {
        let scheme = if self.options.is_encrypted() { "wss" } else { "ws" };
        let address = self.agent.address();
        let address = (address.port() > 0).then(|| format!("{scheme}://{address}"));
        let end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        let error = end.as_ref().and_then(|end| end.as_ref().err()).map(Error::to_string);
        let running = end.is_none();
        drop(end);
        let devices = self.offer.list().into_iter().map(|(name, found)| match found {
            Ok(info) => json!({ "name": name, "device": info.name, "error": null }),
            Err(error) => json!({ "name": name, "device": null, "error": error.to_string() }),
        });
        let status = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "running": running,
            "error": error,
            "address": address,
            "sessions": self.agent.count_sessions(),
            "devices": devices.collect::<Vec<_>>(),
        });
        Ok(status.to_string())
    }

    /// Stops it and tells how serving ended.
    pub(crate) fn stop(self) -> Result<()> {
        self.agent.stopper().stop();
        // Its panics are caught inside.
        let _ = self.serving.join();
        self.end.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or(Ok(()))
    }
}

/// What a panic says.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("a panic in the library: {}", text.unwrap_or("without a message"))
}

/// A client that vanishes must not end the app: programs in C die of a broken pipe unless they ask not to. Threads that this thread
/// starts inherit it, so that no thread of the app is changed.
#[cfg(unix)]
fn block_broken_pipes() {
    let mut pipes = nix::sys::signal::SigSet::empty();
    pipes.add(nix::sys::signal::Signal::SIGPIPE);
    // It fails for wrong arguments alone.
    let _ = pipes.thread_block();
}

/// There are no signals.
#[cfg(not(unix))]
fn block_broken_pipes() {}
