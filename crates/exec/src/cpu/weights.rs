//! Weights as `f32`, converted once and shared by all graphs that name them, of however many checkpoints.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tapml_graph::{Result, Tensor};
use tapml_reference::Value;

/// Converted weights by name. Cloning shares them.
#[derive(Clone, Default)]
pub(super) struct Weights(Arc<Mutex<HashMap<String, Entry>>>);

struct Entry {
    /// What the numbers were made from: another tensor under the same name is another checkpoint's weight. Holding it
    /// keeps its bytes where they are, so that no other tensor can be mistaken for it.
    tensor: Tensor,
    numbers: Value<f32>,
}

impl Weights {
    /// The numbers of a weight.
    pub fn get(&self, name: &str, tensor: &Tensor) -> Result<Value<f32>> {
        let entries = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries().get(name)
            && crate::same_bytes(&entry.tensor, tensor)
        {
            return Ok(entry.numbers.clone());
        }
        // Not under the lock: the conversion uses the thread pool, and a thread of it that waits there may take up other
        // work that asks for a weight.
        let numbers = Value::from_tensor(tensor)?;
        entries().insert(name.into(), Entry { tensor: tensor.clone(), numbers: numbers.clone() });
        Ok(numbers)
    }
}
