//! Whether a model fits a target, and if not, why.
//!
//! Errors of planning carry details by name (`limit`, `asked`, `offered`, `tensor`, `kernel`, `op`); from
//! them a refusal is told apart from a fault.

use super::{Error, ErrorKind, ProgramMemory};
use serde::Serialize;
use std::fmt;

/// Whether a model fits a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Fit {
    /// It does.
    Fits,
    /// A limit of the target is too low.
    TooBig {
        /// What is too big: a tensor, a kernel, or a use of memory (`weights`, `states`, `activations`).
        what: String,
        /// The limit: `memory`, or the name of a field of [`tapml_device::Limits`].
        limit: String,
        /// What is needed.
        asked: u64,
        /// What there is.
        offered: u64,
    },
    /// The architecture, a part of the configuration or an operator is not supported.
    Unsupported {
        /// Which.
        reason: String,
    },
    /// The configuration cannot be right, or TapML is wrong.
    Failed {
        /// What was found.
        reason: String,
    },
}

impl Fit {
    /// What an error of planning means.
    pub(super) fn from_error(error: &Error) -> Fit {
        let number = |name| error.detail(name).and_then(|text| text.parse::<u64>().ok());
        let what = error.detail("tensor").or(error.detail("kernel")).or(error.detail("op"));
        match (error.kind(), what, error.detail("limit"), number("asked"), number("offered")) {
            (ErrorKind::Unsupported, Some(what), Some(limit), Some(asked), Some(offered)) => {
                Fit::TooBig { what: what.into(), limit: limit.into(), asked, offered }
            }
            (ErrorKind::Unsupported, ..) => {
                let op = error.detail("op").map_or(String::new(), |op| format!("op {op}: "));
                Fit::Unsupported { reason: format!("{op}{}", error.message()) }
            }
            _ => Fit::Failed { reason: error.to_string() },
        }
    }

    /// One out of several that were found; more than one reason of the gravest kind are told together.
    ///
    /// A fault wins over what is unsupported, that over a limit.
    pub(super) fn join(all: Vec<Fit>) -> Result<(), Fit> {
        let failed = all.iter().find(|f| matches!(f, Fit::Failed { .. }));
        if let Some(failed) = failed {
            return Err(failed.clone());
        }
        let mut reasons = Vec::new();
        for fit in &all {
            match fit {
                Fit::Unsupported { reason } if !reasons.contains(reason) => reasons.push(reason.clone()),
                _ => {}
            }
        }
        match (reasons.is_empty(), all.into_iter().next()) {
            (false, _) => Err(Fit::Unsupported { reason: reasons.join("; ") }),
            (true, Some(first)) => Err(first),
            (true, None) => Ok(()),
        }
    }

    /// Whether this much memory is there; if not, the largest use of it is named.
    pub(super) fn for_memory(memory: &ProgramMemory, budget: u64) -> Fit {
        let asked = memory.peak();
        if asked <= budget {
            return Fit::Fits;
        }
        let uses =
            [("weights", memory.weights), ("states", memory.states), ("activations", memory.activations)];
        let largest = uses.iter().max_by_key(|(_, bytes)| *bytes).map_or("weights", |(name, _)| *name);
        Fit::TooBig { what: largest.into(), limit: "memory".into(), asked, offered: budget }
    }

    /// Whether it fits.
    pub fn fits(&self) -> bool {
        *self == Fit::Fits
    }
}

impl fmt::Display for Fit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fit::Fits => f.write_str("fits"),
            Fit::TooBig { what, limit, .. } => write!(f, "too big: {what}, {limit}"),
            Fit::Unsupported { reason } => write!(f, "unsupported: {reason}"),
            Fit::Failed { reason } => write!(f, "failed: {reason}"),
        }
    }
}
