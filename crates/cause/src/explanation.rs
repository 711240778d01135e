//! What [`crate::explain`] says.
//!
//! Its fields are part of the reports that users read.

use crate::{Cause, ErrorMap};
use serde::{Deserialize, Serialize};

/// Why a node call is wrong, as far as the hypotheses can tell.
///
/// [`Explanation::certain`] is a claim about evidence, not a probability: anything less than all of it is `false`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The best hypothesis' cause, or [`Cause::Unknown`].
    pub cause: Cause,
    /// Whether it explains every element, predicts something distinctive, and no other cause explains as much.
    pub certain: bool,
    /// One sentence to act on, with the numbers.
    pub evidence: String,
    /// The share of the wrong elements that it explains, from 0 to 1.
    pub fit: f64,
    /// When the fault shows, as a condition on the call, such as "`dilations` is [2,2]"; absent where the cause says nothing of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The best hypothesis of every cause that was tested, best first.
    pub tested: Vec<Tested>,
    /// Which elements are wrong.
    #[serde(rename = "picture")]
    pub error_map: ErrorMap,
}

/// The best hypothesis of one cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tested {
    /// Its cause.
    pub cause: Cause,
    /// The share of the wrong elements that it explains, from 0 to 1.
    pub fit: f64,
    /// What was assumed.
    pub note: String,
}
