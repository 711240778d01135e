//! The bench of bugs: models with recorded calls, mutants replayed on them, and what each policy of judging says.

mod bed;
mod certainty;
mod crew;
mod made;
mod noise;
mod ops;
mod plan;
mod policy;
mod random;
mod report;
mod run;
mod select;
mod sight;
mod whole;

pub use bed::{Bed, BedOptions};
pub use certainty::CauseRate;
pub use made::MadeCase;
pub use noise::Noise;
pub use ops::{OpCase, OpCases, Sampling, View};
pub use plan::{Case, diagnoses};
pub use policy::{POLICIES, Policy, Values};
pub use report::{CleanRun, Rate, Record, Report, SCHEMA};
pub use run::{Opener, Prepared, RunOptions, clean, deadline, kernels};
pub use select::{Selection, tuned_on};
pub use sight::{Class, GRID, Sight, Sighting, platform, sight};
pub use whole::{Diagnosed, Reported, diagnosed, logits, matters};
