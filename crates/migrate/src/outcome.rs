//! From the ledger to the report.
//!
//! Nothing is judged here: the report repeats what the ledger has decided. The verdict is the worst of all:
//! rejected before incomplete before accepted.

use crate::composed::is_composed;
use crate::deploy::launch_coverage;
use crate::ledger::{Ledger, OpState};
use crate::report::{
    Coverage, Deployed, MigrateReport, OpCheck, OpReport, Outcome, PromptText, RegimeCount, SCHEMA, Seconds,
    SkippedNode,
};
use crate::suite::Suite;

/// The report of a migration.
pub(crate) fn report(
    ledger: &Ledger,
    suite: &Suite,
    (seconds, deployed): (Seconds, Vec<Deployed>),
    decode: &dyn Fn(&[u32]) -> String,
) -> MigrateReport {
    let ops: Vec<OpReport> = ledger
        .ops
        .iter()
        .cloned()
        .map(|e| OpReport {
            op: e.op,
            state: e.state,
            nodes: e.nodes,
            kernel: e.kernel,
            check: e.check,
            model: e.model,
            seconds: e.seconds,
            reason: e.reason,
        })
        .collect();
    let skipped = skipped_nodes(ledger, suite);
    let regions = ledger.regions.as_ref().map(|known| known.reports.clone()).unwrap_or_default();
    let all_accepted = ops.iter().all(|o| o.state == OpState::Accepted);
    let is_wrong = ops.iter().any(|o| o.state == OpState::Rejected)
        || regions.iter().any(|region| !region.passed && region.skipped.is_none());
    let verdict = if is_wrong {
        Outcome::Rejected
    } else if all_accepted && skipped.is_empty() {
        Outcome::Accepted
    } else {
        Outcome::Incomplete
    };
    // Last in the report's order: composed operators, which run with all others, come after these.
    let last = ops.iter().rev().find(|o| o.state == OpState::Accepted).and_then(|o| o.model.as_ref());
    let prompts = suite.manifest().prompts.iter().enumerate();
    let texts = prompts.map(|(i, p)| PromptText {
        prompt: p.text.clone(),
        source: p.generated_text.clone(),
        target: last.and_then(|m| m.tokens.get(i)).map(|ids| decode(ids)),
    });
    let checks = ops.iter().filter_map(|o| Some((&o.op, o.check.as_ref()?)));
    let notes = checks.flat_map(|(op, check)| notes(op, check)).collect();
    // The calls of fused operators are composed of recorded ones, which count once.
    let plain = ops.iter().filter(|o| !is_composed(suite.graph(), &o.op));
    MigrateReport {
        schema: SCHEMA,
        model: ledger.model.clone(),
        source: ledger.source.clone(),
        target: ledger.target.clone(),
        verdict,
        coverage: Coverage {
            calls: suite.manifest().totals.calls,
            checked: plain.filter_map(|o| o.check.as_ref()).map(|c| c.cases).sum(),
            skipped,
            launches: launch_coverage(&deployed),
            regimes: RegimeCount::of_checks(ops.iter().filter_map(|o| o.check.as_ref())),
        },
        notes,
        deployed,
        texts: texts.collect(),
        ops,
        regions,
        seconds,
    }
}

/// What a reader should know of the checks of an operator that passed or failed for other reasons.
fn notes(op: &str, check: &OpCheck) -> Vec<String> {
    let departs = check.source_ratio.filter(|&ratio| ratio > 1.0).map(|ratio| {
        format!("the source's own `{op}` departs from the exact result by {ratio:.2e} times what rounding explains")
    });
    let undecided = (check.undecided > 0)
        .then(|| format!("{} choices of `{op}` may go either way: a rounding decides them", check.undecided));
    departs.into_iter().chain(undecided).collect()
}

/// Nodes that were not checked.
fn skipped_nodes(ledger: &Ledger, suite: &Suite) -> Vec<SkippedNode> {
    let mut skipped = Vec::new();
    for entry in &ledger.ops {
        skipped.extend(entry.skipped.iter().cloned());
        // All nodes of an operator that no check reached, such as one that lowering puts in.
        let unrun = entry.skipped.is_empty() && entry.check.as_ref().is_none_or(|c| c.cases == 0);
        if unrun {
            let reason = entry.reason.clone().unwrap_or_else(|| "not reached".into());
            let nodes = suite.graph().nodes().iter().filter(|n| n.op.name() == entry.op);
            skipped.extend(nodes.map(|n| SkippedNode { node: n.name.clone(), reason: reason.clone() }));
        }
    }
    skipped
}
