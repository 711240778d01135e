//! Weights as `f32`, converted once and shared by all graphs that name them, of however many checkpoints.

use super::quantized::Stack;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tapml_graph::op::Packing;
use tapml_graph::{Context, Error, Model, Result, Tensor};
use tapml_reference::{PackedRows, Quantized, Value};

/// Converted weights by name. Cloning shares them.
#[derive(Clone, Default)]
pub(super) struct Weights {
    numbers: Arc<Mutex<HashMap<String, Entry>>>,
    /// Quantised weights by the name of their words.
    packed: Arc<Mutex<HashMap<String, Packed>>>,
}

struct Packed {
    /// As in [`Entry`], words, scales and zeros.
    parts: Vec<Tensor>,
    packing: Packing,
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

    /// A quantised weight given by the names of its words, scales and zeros: one matrix, or one for each expert.
    pub fn packed(&self, packing: Packing, model: &Model, names: &[&str]) -> Result<Arc<Stack>> {
        let parts = names.iter().map(|name| model.weight(name)).collect::<Result<Vec<_>>>()?;
        let name = names.first().ok_or_else(|| Error::bug("a quantised weight without parts"))?;
        if let Some(packed) = locked(&self.packed).get(*name)
            && packed.packing == packing
            && packed.parts.len() == parts.len()
            && packed.parts.iter().zip(&parts).all(|(a, b)| crate::same_bytes(a, b))
        {
            return Ok(packed.stack.clone());
        }
        let stack = Arc::new(pack(packing, &parts).context(|| format!("weight `{name}`"))?);
        let packed = Packed { parts, packing, stack: stack.clone() };
        locked(&self.packed).insert((*name).into(), packed);
        Ok(stack)
    }
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Words, scales and zeros of one matrix or of a stack of them.
fn pack(packing: Packing, parts: &[Tensor]) -> Result<Stack> {
    let values = parts.iter().map(Value::from_tensor).collect::<Result<Vec<Value<f32>>>>()?;
    let (Some(words), Some(scales)) = (values.first(), values.get(1)) else {
        return Err(Error::bug("a quantised weight has words and scales"));
    };
    let &[.., rows, columns] = words.shape() else { return Err(Error::bug("words of rank 1")) };
    let zeros = values.get(2).map(|zeros| zeros.as_float()).transpose()?;
    let (k, group) = (columns * packing.per_word() as usize, packing.group as usize);
    let (each, groups) = ((rows * columns).max(1), (rows * (k / group)).max(1));
    let scales = scales.as_float()?.values();
    let matrix = |(i, q): (usize, &[u32])| {
        let part = |of: &'_ [f32]| of.get(i * groups..(i + 1) * groups).map(<[f32]>::to_vec);
        let missing = || Error::bug("fewer scales than rows");
        let scale = part(scales).ok_or_else(missing)?;
        let zero = zeros.map(|zeros| part(zeros.values()).ok_or_else(missing)).transpose()?;
        let (bits, float) = (packing.bits as usize, packing.float);
        PackedRows::new(Quantized { q, scale: &scale, zero: zero.as_deref(), k, bits, group, float })
    };
    words.as_ids()?.chunks_exact(each).enumerate().map(matrix).collect()
}
