//! Weights as `f32`, converted once and shared by all graphs that name them, of however many checkpoints.

use super::quantized::Stack;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tapml_graph::{Context, Model, Result, Tensor};
use tapml_reference::{PackedRows, Value};

/// Converted weights by name. Cloning shares them.
#[derive(Clone, Default)]
pub(super) struct Weights {
    numbers: Arc<Mutex<HashMap<String, Entry>>>,
    /// Packed weights by name.
    packed: Arc<Mutex<HashMap<String, Packed>>>,
}

struct Packed {
    /// As in [`Entry`].
    tensor: Tensor,
    stack: Arc<Stack>,
}

struct Entry {
    /// What the numbers were made from: another tensor under the same name is another checkpoint's weight. Holding it
    /// keeps its bytes where they are, so that no other tensor can be mistaken for it.
    tensor: Tensor,
    numbers: Value<f32>,
}

impl Weights {
    /// The numbers of a weight.
    pub fn get(&self, name: &str, tensor: &Tensor) -> Result<Value<f32>> {
        if let Some(entry) = locked(&self.numbers).get(name)
            && crate::same_bytes(&entry.tensor, tensor)
        {
            return Ok(entry.numbers.clone());
        }
        // Not under the lock: the conversion uses the thread pool, and a thread of it that waits there may take up other
        // work that asks for a weight.
        let numbers = Value::from_tensor(tensor)?;
        let entry = Entry { tensor: tensor.clone(), numbers: numbers.clone() };
        locked(&self.numbers).insert(name.into(), entry);
        Ok(numbers)
    }

    /// A packed weight: one matrix, or one for each expert.
    pub fn packed(&self, model: &Model, name: &str) -> Result<Arc<Stack>> {
        let tensor = model.weight(name)?;
        if let Some(packed) = locked(&self.packed).get(name)
            && crate::same_bytes(&packed.tensor, &tensor)
        {
            return Ok(packed.stack.clone());
        }
        let stack = Arc::new(PackedRows::of(&tensor).context(|| format!("weight `{name}`"))?);
        let packed = Packed { tensor, stack: stack.clone() };
        locked(&self.packed).insert(name.into(), packed);
        Ok(stack)
    }
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
