//! Weights in the number type of a run, converted once and shared between runs and threads.

use crate::real::Real;
use crate::value::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tapml_graph::{Context, Model, Result, Tensor};

/// Converted weights by name. Each is converted when it is first asked for; other threads that want it wait, those that
/// want another weight do not.
#[derive(Debug, Default)]
pub struct WeightCache<T> {
    slots: Mutex<HashMap<String, Slot<T>>>,
}

type Slot<T> = Arc<OnceLock<Result<Value<T>>>>;

impl<T: Real> WeightCache<T> {
    /// An empty cache.
    pub fn new() -> WeightCache<T> {
        WeightCache { slots: Mutex::new(HashMap::new()) }
    }

    /// The weight of this name. `tensor` is converted if this name is new; it is not looked at otherwise, so one cache
    /// serves one checkpoint.
    pub fn get(&self, name: &str, tensor: &Tensor) -> Result<Value<T>> {
        let slot = self.slot(name);
        slot.get_or_init(|| Value::from_tensor(tensor).context(|| format!("weight `{name}`"))).clone()
    }

    /// The weight of this name in `model`, for use as the `weights` of [`crate::run_graph`].
    pub fn of(&self, model: &Model, name: &str) -> Result<Value<T>> {
        match self.slot(name).get() {
            Some(done) => done.clone(),
            None => self.get(name, model.weight(name)?),
        }
    }

    /// Number of weights held.
    pub fn len(&self) -> usize {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether no weight is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn slot(&self, name: &str) -> Slot<T> {
        // A poisoned map is whole: no code that can panic runs under the lock.
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        match slots.get(name) {
            Some(slot) => slot.clone(),
            None => slots.entry(name.to_string()).or_default().clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapml_graph::DType;

    #[test]
    fn a_weight_is_converted_once_and_shared_between_threads() {
        let cache = WeightCache::<f64>::new();
        let tensor = Tensor::from_f32_as(DType::BF16, vec![64, 64], vec![0.5; 4096]).unwrap();
        let pointers: Vec<usize> = std::thread::scope(|scope| {
            let handles: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        cache.get("w", &tensor).unwrap().as_float().unwrap().values().as_ptr() as usize
                    })
                })
                .collect();
            handles.into_iter().map(|h| h.join().unwrap()).collect()
        });
        assert!(pointers.iter().all(|&p| p == pointers[0]));
        assert_eq!(cache.len(), 1);
    }

    #[test]
    fn a_weight_that_cannot_be_used_is_an_error_that_names_it() {
        let cache = WeightCache::<f32>::new();
        let bytes = Tensor::from_f64(DType::U8, vec![2], &[1.0, 2.0]).unwrap();
        assert!(cache.get("lm_head", &bytes).unwrap_err().to_string().contains("lm_head"));
    }
}
