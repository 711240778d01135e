//! `paged_recurrence`, evaluated: the recurrence of a single text, over the rows of each text in turn.

use super::PagedRecurrence;
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::{Value, reserve, zeros};
use tapml_graph::op::Recurrence;
use tapml_graph::{Error, Result, Symbol, Symbols};

impl Evaluate for PagedRecurrence {
    fn eval<T: Real>(&self, symbols: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let [own @ .., texts, slots] = inputs else { return Err(Error::bug("texts and slots are missing")) };
        let (texts, slots) = (texts.as_ids()?, slots.as_ids()?);
        let at = self.recurrence.state_input();
        let states = own[at].as_float()?;
        let [_, columns] = *states.shape() else { return Err(Error::bug("`states` is no matrix")) };
        let size = states.values().len() / self.slots as usize;
        let mut after = reserve(1, states.values().len())?;
        after.extend_from_slice(states.values());
        // Values of a row of the output.
        let (mut y, mut width) = (Vec::new(), 0);
        for (text, slots) in slots.chunks_exact(2).enumerate() {
            let rows: Vec<usize> = (0..texts.len()).filter(|&row| texts[row] as usize == text).collect();
            if rows.is_empty() {
                continue;
            }
            let mut single = reserve(1, own.len())?;
            for (index, value) in own.iter().enumerate() {
                single.push(match value.shape() {
                    _ if index == at => {
                        let before = slot(states.values(), slots[0], size);
                        let before = before.map_or_else(|| zeros(1, size), |before| Ok(before.to_vec()))?;
                        Value::float(vec![size / columns.max(1), columns], before)?
                    }
                    // Of what has two sizes, all but the state has rows of texts. Weights have one or three.
                    [_, columns] => chosen_rows(value.as_float()?.values(), &rows, *columns)?,
                    _ => value.clone(),
                });
            }
            let symbols = symbols.clone().with_symbol(Symbol::N, rows.len() as u64);
            let outputs = run(&self.recurrence, &symbols, &single)?;
            let [rows_of_text, state] = &outputs[..] else {
                return Err(Error::bug("a recurrence has two outputs"));
            };
            let rows_of_text = rows_of_text.as_float()?.values();
            width = rows_of_text.len() / rows.len();
            if y.is_empty() {
                y = zeros(texts.len(), width)?;
            }
            for (from, row) in rows_of_text.chunks_exact(width.max(1)).zip(rows) {
                y[row * width..(row + 1) * width].copy_from_slice(from);
            }
            let start = (slots[1] as usize).saturating_mul(size);
            if let Some(kept) = after.get_mut(start..start.saturating_add(size)) {
                kept.copy_from_slice(state.as_float()?.values());
            }
        }
        if y.is_empty() {
            // No row is any text's.
            width = inputs[0].as_float()?.shape().get(1).copied().unwrap_or(0);
            y = zeros(texts.len(), width)?;
        }
        let after = Value::float(states.shape().to_vec(), after)?;
        Ok(vec![Value::float(vec![texts.len(), width], y)?, after])
    }
}

/// A slot of states of `size` elements each; `None` beyond the last one.
fn slot<T>(states: &[T], slot: u32, size: usize) -> Option<&[T]> {
    let start = (slot as usize).saturating_mul(size);
    states.get(start..start.saturating_add(size))
}

/// These rows of a matrix.
fn chosen_rows<T: Real>(values: &[T], rows: &[usize], columns: usize) -> Result<Value<T>> {
    let mut chosen = reserve(rows.len(), columns)?;
    rows.iter().for_each(|row| chosen.extend_from_slice(&values[row * columns..(row + 1) * columns]));
    Value::float(vec![rows.len(), columns], chosen)
}

/// The recurrence of a single text.
fn run<T: Real>(recurrence: &Recurrence, symbols: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
    match recurrence {
        Recurrence::TokenShift(op) => op.eval(symbols, inputs),
        Recurrence::Wkv(op) => op.eval(symbols, inputs),
        Recurrence::Wkv7(op) => op.eval(symbols, inputs),
        Recurrence::CausalConv(op) => op.eval(symbols, inputs),
        Recurrence::SelectiveScan(op) => op.eval(symbols, inputs),
    }
}
