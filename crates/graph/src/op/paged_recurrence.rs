//! `paged_recurrence`: a recurrence over rows of several texts, whose states lie in slots.

use super::shape::{expect_dim, expect_indices, indices};
use super::{CausalConv, SelectiveScan, TokenShift, Wkv, Wkv7};
use super::{Extreme, Fill, Op, Operator, Sample};
use crate::pools::Pools;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// The inputs of `recurrence` in its order, with `states: f32[slots·r, c]` in the place of its state `f32[r, c]`, and behind
/// them `texts: u32[n]` and `slots: u32[t, 2]`. Row `i` belongs to text `texts[i]`. For each text `c` that has rows, the
/// recurrence runs over these rows in their order. It begins with slot `slots[c, 0]` of the states, which is rows
/// `r·slots[c, 0]` to `r·slots[c, 0] + r − 1`, and what it leaves becomes slot `slots[c, 1]`. Outputs are those of the
/// recurrence: rows, and the states after.
///
/// A text that begins with a slot beyond the last one begins with zeros; what goes to such a slot is kept nowhere. A slot to
/// which one text's state goes must not be another text's. A row of no text, `texts[i] ≥ t`, gives zeros.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PagedRecurrence {
    /// What each text computes.
    pub recurrence: Recurrence,
    /// Slots of the states; at least 1.
    pub slots: u32,
}

/// The recurrences of [`PagedRecurrence`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Recurrence {
    /// See [`TokenShift`].
    TokenShift(TokenShift),
    /// See [`Wkv`].
    Wkv(Wkv),
    /// See [`Wkv7`].
    Wkv7(Wkv7),
    /// See [`CausalConv`].
    CausalConv(CausalConv),
    /// See [`SelectiveScan`].
    SelectiveScan(SelectiveScan),
}

impl Recurrence {
    /// The recurrence that an operator is; `None` if it is none.
    pub fn from_op(op: &Op) -> Option<Recurrence> {
        Some(match op {
            Op::TokenShift(op) => Recurrence::TokenShift(op.clone()),
            Op::Wkv(op) => Recurrence::Wkv(op.clone()),
            Op::Wkv7(op) => Recurrence::Wkv7(op.clone()),
            Op::CausalConv(op) => Recurrence::CausalConv(op.clone()),
            Op::SelectiveScan(op) => Recurrence::SelectiveScan(op.clone()),
            _ => return None,
        })
    }

    /// The operator that treats a single text.
    pub fn op(&self) -> Op {
        match self.clone() {
            Recurrence::TokenShift(op) => op.into(),
            Recurrence::Wkv(op) => op.into(),
            Recurrence::Wkv7(op) => op.into(),
            Recurrence::CausalConv(op) => op.into(),
            Recurrence::SelectiveScan(op) => op.into(),
        }
    }

    /// The number of the input that is the state before.
    pub fn state_input(&self) -> usize {
        match self {
            Recurrence::TokenShift(_) => 1,
            Recurrence::CausalConv(_) => 2,
            Recurrence::Wkv(_) => 5,
            Recurrence::Wkv7(_) | Recurrence::SelectiveScan(_) => 6,
        }
    }
}

impl PagedRecurrence {
    /// The type of one text's state; `None` if the states do not consist of whole slots.
    pub fn state_type(&self, states: &TensorType) -> Option<TensorType> {
        let [rows, columns] = states.shape.as_slice() else { return None };
        let (rows, slots) = (rows.as_const()?, u64::from(self.slots));
        let each = rows.checked_div(slots).filter(|each| *each > 0 && each * slots == rows)?;
        Some(TensorType { dtype: states.dtype, shape: vec![each.into(), columns.clone()] })
    }
}

impl Operator for PagedRecurrence {
    const NAME: &'static str = "paged_recurrence";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        let at = self.recurrence.state_input();
        let [own @ .., texts, slots] = inputs else {
            return Err(Error::invalid(format!("expected texts and slots, found {} inputs", inputs.len())));
        };
        let states = own.get(at).ok_or_else(|| Error::invalid(format!("input {at} is missing")))?;
        let one = self.state_type(states).ok_or_else(|| {
            Error::invalid(format!("`states` must hold {} slots of rows each, found {states}", self.slots))
        })?;
        let mut single = own.to_vec();
        single[at] = one;
        let mut outputs = self.recurrence.op().infer(&single)?;
        let rows: &[Dim] = outputs.first().map_or(&[], |y| &y.shape);
        let rows = rows.first().ok_or_else(|| Error::bug("a recurrence has no rows"))?;
        expect_dim("the length of `texts`", expect_indices("texts", texts)?, rows)?;
        let (_, columns) = indices("slots", slots)?;
        expect_dim("the second size of `slots`", columns, &Dim::from(2u64))?;
        if let Some(after) = outputs.get_mut(1) {
            after.clone_from(states);
        }
        Ok(outputs)
    }

    fn pools(&self, inputs: &[TensorType]) -> Option<Pools> {
        let at = self.recurrence.state_input();
        let rows = self.state_type(inputs.get(at)?)?.shape.first()?.as_const()?;
        let part = usize::try_from(rows).ok()?;
        Some(Pools { inputs: vec![at], outputs: vec![1], part, table: inputs.len().checked_sub(1)? })
    }

    fn with_parts(&self, parts: u32) -> PagedRecurrence {
        PagedRecurrence { slots: parts, ..self.clone() }
    }

    /// Those of each recurrence, with rows of three texts and of none.
    fn samples() -> Vec<Sample> {
        const SLOTS: u32 = 5;
        let all = [TokenShift::samples, Wkv::samples, Wkv7::samples, CausalConv::samples, SelectiveScan::samples];
        let mut samples = Vec::new();
        for sample in all.into_iter().flat_map(|samples| samples()) {
            let Some(recurrence) = Recurrence::from_op(&sample.op) else { continue };
            let (name, at, n) = (sample.name, recurrence.state_input(), sample.symbols.get(crate::Symbol::N));
            let own = sample.op.name();
            // Prompts beside other texts, some of which have fewer rows than a convolution looks back; single rows otherwise.
            let texts = if n.is_some_and(|n| n > 3) { "2,2,0,0,0,3,1,2,0" } else { "1,0,2" };
            let op = PagedRecurrence { recurrence, slots: SLOTS };
            let mut sample = Sample { name: format!("{own}, {name}"), op: op.into(), ..sample };
            if let Some(state) = sample.inputs.get_mut(at) {
                let rows = state.ty.shape[0].as_const().unwrap_or(1) * u64::from(SLOTS);
                state.ty.shape[0] = rows.into();
            }
            let sample = sample.input(DType::U32, "n", Fill::Values(texts));
            // One goes on in its place, one from a place that stays, and one begins.
            samples.push(sample.input(DType::U32, "3,2", Fill::Values("3,3,1,4,4294967295,0")));
        }
        samples
    }

    /// Large rows would grow from step to step.
    fn extremes(&self) -> &'static [Extreme] {
        self.recurrence.op().extremes()
    }
}
