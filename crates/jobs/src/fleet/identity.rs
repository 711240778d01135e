//! What a run at a broker is a run of: a name is a label, and results count only for the check that they were made for.
//!
//! Two processes that name the same run at a broker add to one result. The identity keeps them from adding
//! results of different suites, kernels or releases.

use super::device::{is_loss, open};
use super::record::{Member, Record, Records};
use super::setup::Fleet;
use crate::platform::{Platform, PlatformSpec, deciding_spec};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use tapml_graph::{Error, NodeId, Result};
use tapml_kernels::Phase;
use tapml_migrate::Hash;
use tapml_migrate::suite::{Case, Suite};

/// All that decides what a run finds, besides the devices that its targets name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Identity {
    /// Version of TapML.
    version: String,
    /// Hash of the suite.
    suite: String,
    /// The targets with the options that results depend on.
    targets: Vec<String>,
    /// How cases are spread.
    spread: String,
    /// Names of operators; all if empty.
    ops: Vec<String>,
    /// Names of cases; all if empty.
    cases: Vec<String>,
    /// The user's kernels: which one each replaces, and the hash of its text.
    kernels: Vec<String>,
}

impl Identity {
    /// The identity of a fleet's run on these targets.
    pub fn new(fleet: &Fleet<'_>, targets: &[String]) -> Result<Identity> {
        // The order of words on a command line decides nothing.
        let sorted = |mut all: Vec<String>| {
            all.sort();
            all.dedup();
            all
        };
        let target = |word: &String| Ok(deciding_spec(&PlatformSpec::parse(word)?).to_string());
        let kernels =
            fleet.kernels.texts().map(|(name, text)| format!("{name} {}", Hash::compute(text.as_bytes())));
        Ok(Identity {
            version: env!("CARGO_PKG_VERSION").into(),
            suite: fleet.suite.hash().to_string(),
            targets: sorted(targets.iter().map(target).collect::<Result<_>>()?),
            spread: fleet.spread.name().into(),
            ops: sorted(fleet.ops.to_vec()),
            cases: sorted(fleet.cases.to_vec()),
            kernels: sorted(kernels.collect()),
        })
    }

    /// Fails unless a run is of the same check; `run` is its name.
    pub(super) fn expect(&self, found: &Identity, run: &str) -> Result<()> {
        let list = |all: &[String]| if all.is_empty() { "none named".into() } else { all.join(", ") };
        let parts = |of: &Identity| {
            [
                ("TapML", of.version.clone()),
                // Twelve digits of a hash are enough for people.
                ("suite", of.suite.chars().take(12).collect()),
                ("targets", list(&of.targets)),
                ("spread", of.spread.clone()),
                ("operators", list(&of.ops)),
                ("cases", list(&of.cases)),
                ("kernels", list(&of.kernels)),
            ]
        };
        let both = parts(found).into_iter().zip(parts(self)).filter(|(theirs, own)| theirs != own);
        let differences: Vec<String> = both
            .map(|((name, theirs), (_, own))| format!("{name}: expected {theirs}, found {own}"))
            .collect();
        if differences.is_empty() {
            Ok(())
        } else {
            Err(other_run_error(&format!("the run `{run}` is of another check: {}", differences.join("; "))))
        }
    }
}

/// Fails if a device that takes part was another one, or had another driver or kernel, when it gave a result of the run.
pub(super) fn expect_same(fleet: &Fleet<'_>, records: &Records, members: &[Member]) -> Result<()> {
    for now in members {
        let own: Vec<&Record> = records.values().filter(|r| r.member.target == now.target).collect();
        if let Some(record) = own.iter().find(|record| record.member.class() != now.class()) {
            let (target, then, now) = (&now.target, record.member.class(), now.class());
            return Err(other_run_error(&format!(
                "the run has results of {target} as {then}; it is {now} now"
            )));
        }
        // A device without results of this run cannot contradict any.
        if own.is_empty() {
            continue;
        }
        let device = match open(fleet, now) {
            // Others may go on without it.
            Err(error) if is_loss(&error) => continue,
            device => device?,
        };
        let mut kernels = Kernels::new(fleet.suite);
        for record in own {
            let kernel = kernels.hash(device.as_ref(), fleet.suite.find_case(&record.case)?);
            if kernel != record.kernel {
                let (case, target) = (&record.case, &now.target);
                return Err(other_run_error(&format!(
                    "{target} ran {case} of the run with another kernel than it has now"
                )));
            }
        }
    }
    Ok(())
}

/// Which kernels a device has for the nodes of a suite, each looked up once.
pub(super) struct Kernels<'a> {
    suite: &'a Suite,
    known: HashMap<(NodeId, Phase), String>,
}

impl<'a> Kernels<'a> {
    pub fn new(suite: &'a Suite) -> Kernels<'a> {
        Kernels { suite, known: HashMap::new() }
    }

    /// The hash of the kernel that runs a case; empty if there is none.
    pub fn hash(&mut self, device: &dyn Platform, case: Case) -> String {
        let (graph, phase) = (self.suite.graph(), self.suite.phase(case));
        let node = graph.node(case.node);
        let find = || device.kernel_for(&node.op, &graph.input_types(node), phase).map(|choice| choice.hash);
        self.known.entry((case.node, phase)).or_insert_with(|| find().unwrap_or_default()).clone()
    }
}

/// The name stands for another run.
pub(super) fn other_run_error(what: &str) -> Error {
    Error::invalid(what)
        .with_hint("choose another name with --run, or repeat the command that the run began with")
}
