//! What is measured: an operator at its types, the call that is timed, the kernels that make a difference to it, and which
//! of them pass the operator's calls.
//!
//! A choice is measured at one call and proved on all: a kernel that is fast and wrong somewhere is not
//! chosen.

use super::lowerings::{Lowering, TunePlace};
use super::time;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use tapml_device::{Device, DeviceInfo};
use tapml_exec::DevicePlatform;
use tapml_graph::{Model, NodeId, Result, Symbol, Symbols};
use tapml_kernels::{Choice, NodePlan, Overrides, Phase, TuningCache, matters, plan_settings};
use tapml_migrate::suite::{Case, Suite};
use tapml_migrate::{Checker, OpChecked, Oracles, Progress, Stop};

/// A suite's calls: its own, and those of fused operators composed of them for each lowering.
pub struct Views<'a> {
    /// View 0.
    own: &'a Suite,
    /// Views 1, 2, …, in the order of the lowerings.
    composed: Vec<Suite>,
}

impl<'a> Views<'a> {
    /// The views of these lowerings.
    pub fn new(suite: &'a Suite, lowerings: &[&Lowering], phase: Phase) -> Result<Views<'a>> {
        let composed = lowerings.iter().map(|lowering| suite.compose_phase(lowering.graph.clone(), phase));
        Ok(Views { own: suite, composed: composed.collect::<Result<_>>()? })
    }

    /// Of views.
    fn count(&self) -> usize {
        1 + self.composed.len()
    }

    /// The suite of a view.
    fn get(&self, view: usize) -> &Suite {
        view.checked_sub(1).map_or(self.own, |at| &self.composed[at])
    }

    /// The first view with calls at a place, and the nodes that have them.
    fn find(&self, place: &TunePlace, phase: Phase) -> Option<(usize, Vec<NodeId>)> {
        (0..self.count()).find_map(|view| {
            let suite = self.get(view);
            let ids = suite.cases().filter(|case| suite.phase(*case) == phase).map(|case| case.node);
            let ids: BTreeSet<NodeId> = ids.collect();
            let here = |id: &NodeId| {
                let node = suite.graph().node(*id);
                node.op == place.op && suite.graph().input_types(node) == place.inputs
            };
            let nodes: Vec<NodeId> = ids.into_iter().filter(here).collect();
            (!nodes.is_empty()).then_some((view, nodes))
        })
    }
}

/// An operator at given types, the call that is timed, and the kernels that make a difference to it.
pub struct Key {
    /// The operator and its types.
    pub place: TunePlace,
    /// Where its calls are; see [`Views`].
    view: usize,
    /// In the graph of the view.
    nodes: Vec<NodeId>,
    /// The call that is timed.
    call: Case,
    /// Kernels with their settings.
    plans: Vec<NodePlan>,
    /// Names of those that are right on all calls.
    passed: Vec<String>,
    /// Seconds of one run of each kernel that passed, by name.
    pub seconds: Vec<(String, f64)>,
}

impl Key {
    /// What is to be measured of a place; `None` if no recorded run reaches it, or if no kernel serves it.
    pub fn for_place(place: &TunePlace, views: &Views<'_>, info: &DeviceInfo, phase: Phase) -> Option<Key> {
        let (view, nodes) = views.find(place, phase)?;
        let suite = views.get(view);
        let call = timed_case(suite, &nodes, phase)?;
        let plans = plan_settings(&place.op, &place.inputs, phase, info).ok()?;
        let plans = different(plans, &suite.frames()[call.frame].symbols);
        let (passed, seconds, place) = (Vec::new(), Vec::new(), place.clone());
        Some(Key { place, view, nodes, call, plans, passed, seconds })
    }

    /// Names of its kernels.
    pub fn kernels(&self) -> impl Iterator<Item = String> {
        self.plans.iter().map(|plan| plan.kernel.clone())
    }

    /// Kernels that do not pass its calls.
    pub fn failed_kernels(&self) -> Vec<String> {
        self.kernels().filter(|kernel| !self.passed.contains(kernel)).collect()
    }

    /// The fastest kernel.
    pub fn fastest(&self) -> Option<&(String, f64)> {
        self.seconds.iter().min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Times the kernels that passed.
    pub fn time(&mut self, views: &Views<'_>, model: &Model, device: &mut dyn Device) -> Result<()> {
        let call = views.get(self.view).call(self.call, model)?.0;
        let passed = self.plans.iter().filter(|plan| self.passed.contains(&plan.kernel));
        let seconds = passed.map(|plan| Ok((plan.kernel.clone(), time::plan(device, plan, &call)?)));
        self.seconds = seconds.collect::<Result<_>>()?;
        Ok(())
    }

    /// The operator's name.
    fn op(&self) -> &'static str {
        self.place.op.name()
    }

    /// Whether all its calls among these are right, and those made of them.
    fn passes(&self, checked: &OpChecked) -> bool {
        // An operator's check covers all its types; only those of this key count here.
        let mut own = checked.results.iter().filter(|r| self.nodes.contains(&r.case.node)).peekable();
        let made = checked.made.iter().any(|failure| self.nodes.contains(&failure.made.case.node));
        own.peek().is_some() && own.all(|result| !result.is_failed()) && !made
    }
}

/// Checks every kernel on all calls of its operator, and notes which pass at which types.
pub fn prove(
    views: &Views<'_>,
    model: &Model,
    platform: &mut DevicePlatform,
    keys: &mut [Key],
    progress: &dyn Progress,
    stop: &Stop,
) -> Result<()> {
    let oracles: Vec<Oracles> = (0..views.count()).map(|_| Oracles::new(Oracles::VIEW_BUDGET)).collect();
    let all: BTreeSet<(&str, usize)> = keys.iter().map(|key| (key.op(), key.view)).collect();
    for (op, view) in all {
        let suite = views.get(view);
        let checker = Checker::new(suite, model, &oracles[view], progress, stop);
        let calls = suite.cases().filter(|case| suite.graph().node(case.node).op.name() == op).count();
        let here = |key: &&Key| (key.op(), key.view) == (op, view);
        let kernels: BTreeSet<String> = keys.iter().filter(here).flat_map(Key::kernels).collect();
        // One check of the operator for each kernel, and not one for each key.
        for kernel in kernels {
            stop.check()?;
            choose(platform, keys, op, &kernel)?;
            progress.stage(&format!("check {kernel}"), calls as u64);
            let checked = checker.op(platform, op)?;
            // A finding cannot be told to a single key, so that the kernel passes at none.
            if !checked.check.findings.is_empty() {
                continue;
            }
            for key in keys.iter_mut().filter(|key| (key.op(), key.view) == (op, view)) {
                if key.kernels().any(|own| own == kernel) && key.passes(&checked) {
                    key.passed.push(kernel.clone());
                }
            }
        }
    }
    Ok(())
}

/// Makes the platform run this kernel for all nodes of the operator.
fn choose(platform: &mut DevicePlatform, keys: &[Key], op: &str, kernel: &str) -> Result<()> {
    let mut choices = TuningCache::new(platform.device_info());
    for key in keys.iter().filter(|key| key.op() == op) {
        choices.add(Choice::new(&key.place.op, &key.place.inputs, kernel, Vec::new()));
    }
    let mut overrides = Overrides::default();
    overrides.choose(choices);
    platform.set_overrides(overrides)
}

/// Those that make a difference to a call with these symbols: what does not, the measurement cannot tell from the default.
fn different(plans: Vec<NodePlan>, symbols: &Symbols) -> Vec<NodePlan> {
    let rows = symbols.get(Symbol::N).unwrap_or(0);
    let mut kept: Vec<NodePlan> = Vec::new();
    for plan in plans {
        if matters(&plan.kernel, rows) && !kept.iter().any(|known| known.does_the_same(&plan)) {
            kept.push(plan);
        }
    }
    kept
}

/// The call of these nodes that stands for the phase: of the most cached tokens, and of a prompt of the most new ones.
fn timed_case(suite: &Suite, nodes: &[NodeId], phase: Phase) -> Option<Case> {
    let of_nodes = suite.cases().filter(|case| nodes.contains(&case.node) && suite.phase(*case) == phase);
    let size = |case: &Case| {
        let symbols = &suite.frames()[case.frame].symbols;
        let (n, p) = (symbols.get(Symbol::N).unwrap_or(0), symbols.get(Symbol::P).unwrap_or(0));
        // Of equals, the first in the suite.
        (Reverse(n), Reverse(p))
    };
    of_nodes.min_by_key(size)
}
