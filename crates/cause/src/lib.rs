//! Why a node call is wrong: named hypotheses, each of which predicts the wrong values, tested on what was observed.
//! Runs no platform and reads no files.
//!
//! A hypothesis changes the operator's attributes, its inputs, its arithmetic, or the place of its exact results, and so
//! says what a platform with this defect would have computed. It fits if what was observed differs from that by no more
//! than the verdict allows for rounding, where it differs from the exact result by far more. [`explain`] names the
//! simplest hypothesis that fits, what else was tested, and draws which elements are wrong.
//!
//! The parts, in the order in which they work:
//!
//! * `context` judges the call and makes a smaller one of it, by `cut` and `output_view`;
//! * `hypothesis` has the table of hypotheses, which add to `trials` what they predict;
//! * `fit` says how well a prediction explains what was observed;
//! * `decide` chooses among the trials, and `explain` puts the choice into words;
//! * `region` does all of this for nodes that ran as one model.
#![warn(missing_docs)]

mod cause;
mod context;
mod cut;
mod decide;
mod error_map;
mod evidence;
mod explain;
mod explanation;
mod fit;
mod hypothesis;
mod output_view;
mod region;
mod trials;
mod words;

pub use cause::Cause;
pub use error_map::{ErrorMap, Grid};
pub use evidence::{DeviceFinding, Downstream, Earlier, Evidence};
pub use explain::{explain, explain_foreign};
pub use explanation::{Explanation, Tested};
pub use hypothesis::of_left_out;
pub use region::{RegionExplanation, explain_region};
