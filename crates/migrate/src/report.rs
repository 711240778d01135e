//! The reports of checking and migrating: their JSON fields are a promise to users, see the project's interface.

mod check;
mod migration;
mod regimes;
mod region;

pub use crate::reached::{KernelRegimes, Unreached};
pub(crate) use check::finite;
pub use check::{
    BUCKETS, CheckReport, Failure, KernelCheck, MAX_FAILURES, OpCheck, SkippedCase, SkippedNode, Worst,
    bucket, is_defect,
};
pub use migration::{
    Coverage, Deployed, LaunchCount, LaunchCoverage, MigrateReport, OpReport, Outcome, PromptText, Seconds,
};
pub use regimes::RegimeCount;
pub use region::RegionReport;

/// Version of the reports' fields.
pub const SCHEMA: u32 = 1;
