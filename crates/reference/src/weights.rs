//! Weights in the number type of a run, converted once and shared between runs and threads.

use crate::real::Real;
use crate::value::Value;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tapml_graph::{Context, Model, Result, Tensor};

/// Converted weights by name. Each is converted when it is first asked for. Threads that ask for a new one at the same
/// moment may all convert it; the first result is shared.
#[derive(Debug, Default)]
pub struct WeightCache<T> {
    /// A slot for each name that was asked for; errors are kept as well.
    slots: Mutex<HashMap<String, Slot<T>>>,
    /// Bytes that converted weights may take together, if bounded, and those that they take.
    budget: Option<usize>,
    used: AtomicUsize,
}

/// A value that is set once and shared.
type Slot<T> = Arc<OnceLock<Result<Value<T>>>>;

impl<T: Real> WeightCache<T> {
    /// An empty cache.
    pub fn new() -> WeightCache<T> {
        WeightCache { slots: Mutex::default(), budget: None, used: AtomicUsize::new(0) }
    }

    /// An empty cache that converts weights of up to so many bytes together; those beyond are converted as they are read,
    /// each time (see [`Value::from_streamed`]).
    pub fn with_budget(budget: usize) -> WeightCache<T> {
        WeightCache { budget: Some(budget), ..WeightCache::new() }
    }

    /// The weight of this name. `tensor` is converted if this name is new; it is not looked at otherwise, so one cache
    /// serves one checkpoint.
    ///
    /// # Errors
    /// If the tensor cannot be converted; the same error comes again for the same name.
    pub fn get(&self, name: &str, tensor: &Tensor) -> Result<Value<T>> {
        let slot = self.slot(name);
        if let Some(done) = slot.get() {
            return done.clone();
        }
        // Not within `get_or_init`: the conversion uses the thread pool, and a thread of it that waits there may take up
        // other work that asks for this very weight, which would then wait for itself.
        let bytes = tensor.len().saturating_mul(T::DTYPE.size());
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        let streamed = self.budget.is_some_and(|budget| before.saturating_add(bytes) > budget);
        let value = if streamed { Value::from_streamed(tensor) } else { Value::from_tensor(tensor) };
        let value = value.context(|| format!("weight `{name}`"));
        let mut own = false;
        let value = slot.get_or_init(|| {
            own = true;
            value
        });
        // Streamed weights take no memory of their own; another thread's result is counted by that thread.
        if streamed || !own {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
        }
        value.clone()
    }

    /// The weight of this name in `model`, for use as the `weights` of [`crate::run_graph`].
    pub fn get_weight(&self, model: &Model, name: &str) -> Result<Value<T>> {
        match self.slot(name).get() {
            Some(done) => done.clone(),
            None => self.get(name, &model.weight(name)?),
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

    /// The slot of a name, which is made if it is new.
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
    fn a_weight_is_shared_between_threads() {
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
    fn work_of_the_pool_that_asks_for_one_new_weight_does_not_wait_for_itself() {
        // Large enough to be converted in several parts.
        let values = vec![0.5; 1 << 20];
        let tensor = Tensor::from_f32_as(DType::BF16, vec![1 << 10, 1 << 10], values).unwrap();
        for _ in 0..20 {
            let cache = WeightCache::<f64>::new();
            rayon::scope(|scope| {
                for _ in 0..16 {
                    scope.spawn(|_| {
                        assert_eq!(cache.get("w", &tensor).unwrap().as_float().unwrap().len(), 1 << 20)
                    });
                }
            });
            assert_eq!(cache.len(), 1);
        }
    }

    #[test]
    fn weights_beyond_the_budget_are_streamed() {
        let cache = WeightCache::<f64>::with_budget(100 * 8);
        let tensor = |len: usize| Tensor::from_f32_as(DType::BF16, vec![1, len], vec![0.5; len]).unwrap();
        let narrow =
            |name: &str, len: usize| cache.get(name, &tensor(len)).unwrap().as_float().unwrap().is_narrow();
        assert!(!narrow("a", 60) && narrow("b", 60), "the second does not fit");
        assert!(!narrow("c", 40) && narrow("d", 1) && !narrow("a", 60));
    }

    #[test]
    fn a_weight_that_cannot_be_used_is_an_error_that_names_it() {
        let cache = WeightCache::<f32>::new();
        let bytes = Tensor::from_f64(DType::U8, vec![2], &[1.0, 2.0]).unwrap();
        assert!(cache.get("lm_head", &bytes).unwrap_err().to_string().contains("lm_head"));
    }
}
