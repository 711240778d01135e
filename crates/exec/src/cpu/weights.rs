//! Weights as `f32`, converted once and shared by all graphs that name them, of however many checkpoints.
//!
//! Entries are never removed while the platform lives. Two threads may convert one weight at a time; the
//! later one stays.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tapml_graph::{Context, Model, Result, Tensor};
use tapml_reference::{PackedRows, Value};

/// One matrix, or one for each expert.
pub(super) type PackedStack = Vec<PackedRows>;

/// Converted weights by name. Cloning shares them.
#[derive(Clone, Default)]
pub(super) struct ConvertedWeights {
    numbers: Arc<Mutex<HashMap<String, WeightEntry>>>,
    /// Packed weights by name.
    packed: Arc<Mutex<HashMap<String, PackedWeight>>>,
}

/// A packed weight, ready for products.
struct PackedWeight {
    /// As in [`WeightEntry`].
    tensor: Tensor,
    /// One matrix, or one for each expert.
    stack: Arc<PackedStack>,
}

struct WeightEntry {
    /// What the numbers were made from: another tensor under the same name is another checkpoint's weight. Holding it
    /// keeps its bytes where they are, so that no other tensor can be mistaken for it.
    tensor: Tensor,
    numbers: Value<f32>,
}

impl ConvertedWeights {
    /// The numbers of a weight.
    pub fn get(&self, name: &str, tensor: &Tensor) -> Result<Value<f32>> {
        if let Some(entry) = lock(&self.numbers).get(name)
            && crate::same_bytes(&entry.tensor, tensor)
        {
            return Ok(entry.numbers.clone());
        }
        // Not under the lock: the conversion uses the thread pool, and a thread of it that waits there may take up other
        // work that asks for a weight.
        let numbers = Value::from_tensor(tensor)?;
        let entry = WeightEntry { tensor: tensor.clone(), numbers: numbers.clone() };
        lock(&self.numbers).insert(name.into(), entry);
        Ok(numbers)
    }

    /// A packed weight: one matrix, or one for each expert.
    pub fn get_packed(&self, model: &Model, name: &str) -> Result<Arc<PackedStack>> {
        let tensor = model.weight(name)?;
        if let Some(packed) = lock(&self.packed).get(name)
            && crate::same_bytes(&packed.tensor, &tensor)
        {
            return Ok(packed.stack.clone());
        }
        let stack = Arc::new(PackedRows::from_tensor(&tensor).context(|| format!("weight `{name}`"))?);
        let packed = PackedWeight { tensor, stack: stack.clone() };
        lock(&self.packed).insert(name.into(), packed);
        Ok(stack)
    }
}

/// A panic elsewhere leaves the map usable.
fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
