//! Faults as data: what is changed, where, and what a diagnosis should call it.
//!
//! Everything here serialises, because ids and records of mutants are compared between sessions.

use serde::{Deserialize, Serialize};
use std::fmt;
use tapml_cause::Cause;
use tapml_graph::{Error, Result};

/// The families of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// Wrong constants, signs, operands, approximations, precision.
    Arithmetic,
    /// Wrong elements: bounds, offsets, strides, masks, heads, rows.
    Indexing,
    /// Wrong contents of caches.
    State,
    /// Missing barriers, races, memory that nobody wrote.
    Synchronisation,
    /// Between kernels: buffers, copies, order, uniforms, casts at the boundary.
    Between,
}

impl Family {
    /// All families.
    pub const ALL: [Family; 5] =
        [Family::Arithmetic, Family::Indexing, Family::State, Family::Synchronisation, Family::Between];

    /// The word on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Family::Arithmetic => "arithmetic",
            Family::Indexing => "indexing",
            Family::State => "state",
            Family::Synchronisation => "synchronisation",
            Family::Between => "between",
        }
    }

    /// The family of a word. Fails with the words there are.
    pub fn parse(word: &str) -> Result<Family> {
        Family::ALL.into_iter().find(|f| f.name() == word).ok_or_else(|| {
            Error::invalid(format!("unknown family of faults `{word}`"))
                .with_hint(format!("families: {}", Family::ALL.map(Family::name).join(", ")))
        })
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How a specialisation constant changes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConstantChange {
    /// To this value.
    Set(f64),
    /// By this factor.
    Times(f64),
    /// By this much; sizes stay what they are where they would be below zero: a window of 0 is none.
    Plus(f64),
}

impl ConstantChange {
    /// The changed value.
    pub fn apply(self, value: f64) -> f64 {
        match self {
            ConstantChange::Set(to) => to,
            ConstantChange::Times(factor) => value * factor,
            // See `Plus`: a size below zero has no meaning.
            ConstantChange::Plus(step) if value >= 0.0 && value + step < 0.0 => value,
            ConstantChange::Plus(step) => value + step,
        }
    }
}

/// Number formats that values are forced through by a wrong cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cast {
    /// IEEE binary16.
    F16,
    /// bfloat16.
    Bf16,
}

/// One change of a kernel, of how it is launched, or of a program's commands. Kernels are named as in
/// [`tapml_device::KernelDesc::name`], nodes as in [`tapml_device::Command::Dispatch::label`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Edit {
    /// Bytes `start..end` of the kernel's full source, which must read `old`, become `new`; `append` follows the source.
    Text {
        /// First byte.
        start: usize,
        /// The byte after the last.
        end: usize,
        /// What stands there.
        old: String,
        /// What takes its place.
        new: String,
        /// Functions that `new` calls.
        append: String,
    },
    /// A specialisation constant has another value.
    Constant {
        /// Its name.
        name: String,
        /// How it changes.
        change: ConstantChange,
    },
    /// Two bindings are swapped.
    Bindings {
        /// The one.
        a: usize,
        /// The other.
        b: usize,
    },
    /// The last workgroup of an axis is not launched.
    Grid {
        /// 0 to 2.
        axis: usize,
    },
    /// The frequencies in the kernel's constant table, 64-bit fractions of a turn, follow another base: the one of pair
    /// `j` of `d` is multiplied by `ratio^(j / d)`.
    #[serde(rename = "turns")]
    Frequencies {
        /// Old base over new base.
        ratio: f64,
    },
    /// The node's dispatch comes after the first one that reads what it writes.
    Late,
    /// The node's dispatch is missing.
    Missing,
    /// What the node writes lies in a buffer whose value is still needed.
    Alias,
    /// A binding of the node is bound to what another node binds there, such as another layer's cache.
    Borrow {
        /// The other node.
        from: String,
        /// Which binding.
        binding: usize,
    },
    /// The uniform block keeps the values of the first run.
    StaleSymbols,
    /// The uniform block goes on counting cached tokens when a new text begins.
    KeptPosition,
    /// The program's inputs of the second and later runs of a text are not copied to the device.
    StaleInput,
    /// Indices that go to the device pass through a float format.
    CastInput(Cast),
    /// Floats that come from the device pass through a narrower format.
    CastOutput(Cast),
}

impl Edit {
    /// Whether it changes a program as a whole, so that no replay of single calls can show it.
    pub fn is_between(&self) -> bool {
        !matches!(
            self,
            Edit::Text { .. }
                | Edit::Constant { .. }
                | Edit::Bindings { .. }
                | Edit::Grid { .. }
                | Edit::Frequencies { .. }
        )
    }
}

/// One fault of one model on one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mutant {
    /// `MODEL/OP/OPERATOR/HASH`. Equal changes have equal ids.
    pub id: String,
    /// The model it was made for.
    pub model: String,
    /// The family.
    pub family: Family,
    /// The mutation operator's name.
    pub operator: String,
    /// The operator that becomes faulty, plain or fused; for faults between kernels the operator of the node concerned.
    pub op: String,
    /// The row of the kernel list whose kernel changes; for faults between kernels empty.
    #[serde(default)]
    pub row: String,
    /// The plain operators that a fused one stands for; empty for others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<String>,
    /// The kernel's name for changes of kernels, the node's for changes of programs; empty if neither is meant.
    pub target: String,
    /// Hash of the source that a text edit belongs to; empty for other edits.
    pub source: String,
    /// The change.
    pub edit: Edit,
    /// The change as a person reads it: lines with `-` and `+`.
    pub diff: String,
    /// The causes that a diagnosis may give.
    pub causes: Vec<Cause>,
}

impl Mutant {
    /// Whether the fault is one between kernels.
    pub fn is_between(&self) -> bool {
        self.edit.is_between()
    }

    /// `HASH` of an id: the change and its place, not the words about it.
    pub(crate) fn hash(target: &str, source: &str, edit: &Edit) -> Result<String> {
        let facts = serde_json::to_vec(&(target, source, edit));
        let facts = facts.map_err(|e| Error::bug(format!("a mutant does not serialise: {e}")))?;
        Ok(blake3::hash(&facts).to_hex()[..8].to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::ConstantChange;

    #[test]
    fn a_size_does_not_fall_below_zero() {
        assert_eq!([0.0, 1.0, 128.0].map(|size| ConstantChange::Plus(-1.0).apply(size)), [0.0, 0.0, 127.0]);
        assert_eq!(ConstantChange::Times(-1.0).apply(0.5), -0.5);
    }
}
