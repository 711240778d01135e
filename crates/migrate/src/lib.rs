//! Migration: carving a model into a suite of node calls, checking them on a platform, verdicts with the numbers that
//! decide, and the ledger that moves a model over one operator at a time. It prints nothing and draws nothing.
//!
//! The way through it: `carve` records a suite, `check` replays it and judges each call, `migrate` decides
//! operator by operator, `report` holds what is told. Exact results come from `oracle`, limits of whole
//! models from `noise`. Platforms are those of `tapml-exec`; nothing here knows a device.
#![warn(missing_docs)]

pub mod accumulation_order;
mod ahead;
mod argmax;
pub mod attributes;
mod carve;
mod check;
mod choices;
mod composed;
mod decide;
mod deploy;
mod entry;
mod extremes;
pub mod filter;
mod hash;
mod hashes;
mod html;
mod identity;
mod judged;
mod junit;
pub mod ledger;
mod made;
mod migrate;
mod migration;
mod model_check;
mod model_run;
mod noise;
mod oracle;
mod order;
mod outcome;
mod overflow;
mod progress;
pub mod range_test;
mod ratio;
mod reached;
mod record;
mod regions;
pub mod report;
mod samples;
pub mod shadow;
mod slots;
mod so_far;
mod stop;
pub mod suite;
mod together;
pub mod verdict;

pub use argmax::argmax;
pub use carve::{CarveOptions, Carved, PromptInput, carve};
pub use check::{CheckOptions, Checked, Checker, OpChecked, check, composed_suites};
pub use choices::KernelChoices;
pub use hash::{Hash, tensor_type};
pub use html::html;
pub use identity::{ModelIdentity, WeightEntry, graph_hash, weight_entries, weights_hash};
pub use judged::{CaseResult, JudgedCall};
pub use junit::junit;
pub use made::{Made, MadeCall, MadeFailure, Purpose, made_calls, regimes};
pub use migrate::{MigrateOptions, Migrated, ObtainSuite, migrate, migrate_suite, obtain_suite};
pub use model_check::ModelCheck;
pub use model_run::{Watch, check_model, row_distance, watch_model};
pub use noise::{DeclaredPrecision, MovementLimits};
pub use oracle::{Oracles, terms};
pub use order::estimate_work;
pub use progress::{Progress, Quiet};
pub use ratio::ratio_text;
pub use reached::RowRegimes;
pub use record::{RecordedRun, identity_of_file, record};
pub use regions::{
    RegionJudgement, RegionOutcome, Regions, SmallestRegion, WrongRegion, segments, smallest_failing,
};
pub use samples::{
    KernelSamples, SampleCheck, SampleFailure, SkippedSample, check_calls, check_rows, check_samples,
};
pub use so_far::SoFar;
pub use stop::Stop;
