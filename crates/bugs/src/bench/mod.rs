//! The bench of bugs: models with recorded calls, mutants replayed on them, and what each policy of judging says.
//!
//! Files build on each other in this order:
//!
//! * `fixture` has a model with its recorded calls, `ops` and `made` choose calls of one operator, `noise` says how far correct code errs;
//! * `mutation_run` tries one mutant on them, `policy` and `random` judge for comparison;
//! * `run` and `worker_pool` try many, `whole` and `plan` make full diagnoses;
//! * `select` orders mutants, `report` and `certainty` count what was found.

mod certainty;
mod fixture;
mod made;
mod mutation_run;
mod noise;
mod op_case;
mod ops;
mod plan;
mod policy;
mod random;
mod report;
mod run;
mod run_options;
mod select;
mod whole;
mod worker_pool;

pub use certainty::CauseRate;
pub use fixture::{Fixture, FixtureOptions};
pub use made::MadeCase;
pub use mutation_run::{GRID, MutantClass, MutationRun, Sighting, platform, run_mutants};
pub use noise::Noise;
pub use op_case::{OpCase, View};
pub use ops::{OpCases, Sampling};
pub use plan::{PlannedCase, diagnoses};
pub use policy::{POLICIES, Policy, PolicyValues};
pub use report::{BenchReport, CleanRun, MutantRecord, PolicyRate, SCHEMA};
pub use run::{Prepared, clean, deadline, kernels};
pub use run_options::{Opener, RunOptions};
pub use select::{Selection, tuned_on};
pub use whole::{Diagnosed, Reported, diagnose_faults, logits, matters};
