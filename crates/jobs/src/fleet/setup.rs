//! What a fleet runs, and how cases are spread over its devices.

use super::record::Member;
use std::time::Duration;
use tapml_graph::Model;
use tapml_kernels::Overrides;
use tapml_migrate::suite::Suite;
use tapml_migrate::{Oracles, Progress, Stop};

/// How cases are spread over the devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// Every case on one device, whichever is free.
    #[default]
    Share,
    /// Every case on one device of each class: platform, device, driver and agent.
    Class,
    /// Every case on every device.
    Every,
}

impl Spread {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Spread::Share => "share",
            Spread::Class => "class",
            Spread::Every => "every",
        }
    }

    /// The lane that a device works in.
    pub(super) fn lane(self, member: &Member) -> String {
        match self {
            Spread::Share => "all".into(),
            Spread::Class => member.class(),
            Spread::Every => member.target.clone(),
        }
    }
}

/// What a fleet runs.
pub struct Fleet<'a> {
    /// The suite.
    pub suite: &'a Suite,
    /// What [`Suite::model`] gave.
    pub model: &'a Model,
    /// Exact results.
    pub oracles: &'a Oracles,
    /// The user's kernels.
    pub kernels: &'a Overrides,
    /// Names of operators; all if empty.
    pub ops: &'a [String],
    /// Names of cases; all if empty.
    pub cases: &'a [String],
    /// How cases are spread.
    pub spread: Spread,
    /// How long a device that is lost may take to come back.
    pub wait_timeout: Duration,
    /// Told of progress.
    pub progress: &'a dyn Progress,
    /// Set by the user to stop.
    pub stop: &'a Stop,
}
