//! Tensors that a server holds: freed when nobody here needs them any more.
//!
//! A value that stays with the server is a [`Held`]; dropping the last one releases it there. Lock order:
//! weights, then server.

use super::server::{Gave, NodeCall, NodeServer};
use crate::Region;
use crate::again::Reopen;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tapml_graph::op::Foreign;
use tapml_graph::{Context, Error, Result, Tensor};

type Server = Arc<Mutex<Box<dyn NodeServer>>>;

/// A server that lost its thread refuses further calls itself, so a poisoned lock adds nothing.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A server, and the weights that it holds.
#[derive(Clone)]
pub(super) struct ServerWeights {
    /// Shared by all that is loaded.
    server: Server,
    weights: Arc<Mutex<HashMap<String, HeldWeight>>>,
    /// Rises when the server was opened again.
    generation: Arc<AtomicU64>,
}

impl Reopen for ServerWeights {
    fn reopen(&mut self, lost: Error) -> Result<()> {
        lock(&self.server).reopen(lost)?;
        self.generation.fetch_add(1, Ordering::Relaxed);
        lock(&self.weights).clear();
        Ok(())
    }
}

struct HeldWeight {
    /// What was put: another tensor under the same name is another checkpoint's weight. Holding it keeps its bytes where
    /// they are, so that no other tensor can be mistaken for it.
    tensor: Tensor,
    held: Arc<Held>,
}

/// A tensor that the server holds until the last of its users is gone.
pub(super) struct Held {
    server: Server,
    id: u32,
    /// The server's generation that holds it, and the one that it is in now.
    held_in: u64,
    generation: Arc<AtomicU64>,
}

impl Held {
    pub fn id(&self) -> u32 {
        self.id
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // A lost server has freed everything already; there is nobody to tell.
        if self.held_in == self.generation.load(Ordering::Relaxed) {
            // A failure to release is no failure of the run; the server frees all at its end.
            drop(lock(&self.server).release(self.id));
        }
    }
}

/// A value, wherever it is.
#[derive(Clone)]
pub(super) enum ValuePlace {
    Here(Tensor),
    There(Arc<Held>),
}

impl ValuePlace {
    /// The tensor, of a value that was asked for.
    pub fn tensor(self) -> Result<Tensor> {
        match self {
            ValuePlace::Here(tensor) => Ok(tensor),
            ValuePlace::There(_) => Err(Error::bug("a value that was asked for stayed with the server")),
        }
    }
}

impl ServerWeights {
    pub fn new(server: Box<dyn NodeServer>) -> ServerWeights {
        ServerWeights {
            server: Arc::new(Mutex::new(server)),
            weights: Arc::default(),
            generation: Arc::default(),
        }
    }

    /// The handle of a tensor that the server has now.
    fn hold(&self, id: u32) -> Held {
        let (server, generation) = (self.server.clone(), self.generation.clone());
        Held { server, id, held_in: self.generation(), generation }
    }

    /// How often the server was opened again: what it held before is gone.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Whether the server may be lost and opened again.
    pub fn reopens(&self) -> bool {
        lock(&self.server).reopens()
    }

    /// The weight of this name, put unless it is there.
    pub fn weight(&self, name: &str, tensor: &Tensor) -> Result<Arc<Held>> {
        let mut weights = lock(&self.weights);
        if let Some(weight) = weights.get(name)
            && crate::same_bytes(&weight.tensor, tensor)
        {
            return Ok(weight.held.clone());
        }
        let id = lock(&self.server).put(tensor).context(|| format!("weight `{name}`"))?;
        let held = Arc::new(self.hold(id));
        weights.insert(name.into(), HeldWeight { tensor: tensor.clone(), held: held.clone() });
        Ok(held)
    }

    /// See [`NodeServer::discover`].
    pub fn discover(&self, node: &str, op: &Foreign, inputs: &[(Tensor, bool)]) -> Result<Vec<Tensor>> {
        lock(&self.server).discover(node, op, inputs)
    }

    /// See [`NodeServer::run_region`].
    pub fn run_region(&self, region: &Region) -> Result<Vec<Tensor>> {
        lock(&self.server).run_region(region)
    }

    /// Runs a node.
    pub fn call(&self, call: &NodeCall<'_>) -> Result<Vec<ValuePlace>> {
        let gave = lock(&self.server).call(call)?;
        let place = |gave| match gave {
            Gave::Here(tensor) => ValuePlace::Here(tensor),
            Gave::Held(id) => ValuePlace::There(Arc::new(self.hold(id))),
        };
        Ok(gave.into_iter().map(place).collect())
    }
}
