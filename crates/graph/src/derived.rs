//! Weights that are made from others when they are asked for, so that a large model need not be in memory twice.

use crate::error::{Error, Result};
use crate::graph::TensorType;
use crate::tensor::{Tensor, WeakTensor};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Groups of tensors that are held for a while after they were made: those who ask for one ask for its neighbours next,
/// on several threads perhaps.
const HELD: usize = 4;

/// Makes a few weights at once, such as the words and scales of one.
pub struct Derived {
    types: Vec<TensorType>,
    /// Makes all of them.
    make: Box<dyn Fn() -> Result<Vec<Tensor>> + Send + Sync>,
    /// What was made last, as long as somebody holds it.
    made: Mutex<Vec<WeakTensor>>,
}

impl Derived {
    /// Tensors of these types, which `make` gives in this order, the same each time.
    pub fn new(
        types: Vec<TensorType>,
        make: impl Fn() -> Result<Vec<Tensor>> + Send + Sync + 'static,
    ) -> Derived {
        Derived { types, make: Box::new(make), made: Mutex::default() }
    }

    /// The types of what it makes.
    pub fn types(&self) -> &[TensorType] {
        &self.types
    }

    /// Tensor `part`, if somebody holds it.
    fn held_tensor(&self, part: usize) -> Option<Tensor> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).get(part)?.upgrade()
    }

    /// All tensors, made now.
    ///
    /// # Errors
    /// If they cannot be made, or have other types than was said, which is a bug.
    fn make(&self) -> Result<Vec<Tensor>> {
        // Not under the lock: a thread of the pool that waits there could take up work that asks for these very weights.
        let tensors = (self.make)()?;
        let types = tensors.iter().map(|t| TensorType::new(t.dtype(), t.shape().iter().copied()));
        if !types.eq(self.types.iter().cloned()) {
            return Err(Error::bug("a derived weight has another type than it was said to have"));
        }
        *self.made.lock().unwrap_or_else(PoisonError::into_inner) =
            tensors.iter().map(Tensor::downgrade).collect();
        Ok(tensors)
    }
}

impl fmt::Debug for Derived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Derived").field("types", &self.types).finish_non_exhaustive()
    }
}

/// What was made most recently.
#[derive(Debug, Default)]
pub struct Recent(Mutex<Vec<Vec<Tensor>>>);

impl Recent {
    /// Tensor `part` of what `derived` makes: the one that somebody holds, else made now.
    pub fn get(&self, derived: &Arc<Derived>, part: usize) -> Result<Tensor> {
        if let Some(tensor) = derived.held_tensor(part) {
            return Ok(tensor);
        }
        // Two threads may both make a group; the result is the same.
        let made = derived.make()?;
        let tensor = made.get(part).cloned().ok_or_else(|| Error::bug("a derived weight is not there"))?;
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The oldest group goes; whoever uses its tensors keeps them.
        held.truncate(HELD - 1);
        held.insert(0, made);
        Ok(tensor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn count_derivations(count: &Arc<AtomicUsize>) -> Arc<Derived> {
        let (count, types) = (count.clone(), vec![TensorType::new(DType::F32, [1u64]); 2]);
        Arc::new(Derived::new(types, move || {
            let made = count.fetch_add(1, Ordering::Relaxed) as f32;
            Ok(vec![Tensor::from_f32(vec![1], vec![made])?, Tensor::from_f32(vec![1], vec![-made])?])
        }))
    }

    #[test]
    fn neighbours_are_made_once_and_given_up_when_nobody_holds_them() {
        let count = Arc::new(AtomicUsize::new(0));
        let (recent, first) = (Recent::default(), count_derivations(&count));
        let words = recent.get(&first, 0).unwrap();
        recent.get(&first, 1).unwrap();
        assert_eq!(count.load(Ordering::Relaxed), 1);
        let others: Vec<Arc<Derived>> = (0..HELD).map(|_| count_derivations(&Arc::default())).collect();
        others.iter().for_each(|other| drop(recent.get(other, 0).unwrap()));
        // The words are still held here, the other tensor is not.
        let again = recent.get(&first, 0).unwrap();
        assert!(std::ptr::eq(again.bytes().as_ptr(), words.bytes().as_ptr()));
        recent.get(&first, 1).unwrap();
        assert_eq!(count.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn what_is_made_has_the_types_that_were_said() {
        let types = vec![TensorType::new(DType::F16, [1u64])];
        let derived = Derived::new(types, || Ok(vec![Tensor::from_f32(vec![1], vec![0.0])?]));
        assert!(Recent::default().get(&Arc::new(derived), 0).is_err());
    }
}
