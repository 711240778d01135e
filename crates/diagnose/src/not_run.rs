//! Operators and kernels that did not run on the target: nothing can be said of them, and they are never called clean.
//!
//! A diagnosis with such entries does not hold, even without a fault: see [`crate::Diagnosis::holds`].

use crate::context::DiagnosisContext;
use crate::report::NotRun;
use tapml_exec::GivenKernel;
use tapml_graph::NodeId;
use tapml_migrate::OpChecked;

/// Why no recorded call holds a node.
pub(crate) const UNSEEN: &str = "no recorded run needed it";

/// What of a checked operator was not run; `None` if every recorded call was.
pub(crate) fn of_checked(run: &DiagnosisContext<'_>, done: &OpChecked) -> Option<NotRun> {
    let check = &done.check;
    // Skipped nodes are counted against all nodes of the operator.
    let all = run.suite.graph().nodes().iter().filter(|node| node.op.name() == check.op).count();
    let reason = match check.skipped.as_slice() {
        [first, ..] if check.skipped.len() < all => {
            format!("{} of {all} nodes: {}", check.skipped.len(), first.reason)
        }
        [first, ..] => first.reason.clone(),
        [] if check.cases == 0 => UNSEEN.into(),
        [] => return None,
    };
    let given = run.overrides.given_kernels().find(|given| given.op == check.op);
    // Who gave a kernel asks about that one, whatever else serves the operator.
    let kernel = given.map_or_else(|| check.kernel.clone(), |given| given.name);
    Some(NotRun { op: check.op.clone(), kernel, reason })
}

/// The user's kernels that no node runs, but for those of operators that are known not to run.
pub(crate) fn unused_kernels(run: &DiagnosisContext<'_>, known: &[NotRun]) -> Vec<NotRun> {
    // Told already, with a better reason.
    let fresh = |given: &GivenKernel| known.iter().all(|n| n.op != given.op);
    let given = run.overrides.given_kernels().filter(fresh);
    given
        .filter_map(|given| {
            Some(NotRun { reason: reason(run, &given)?, op: given.op.into(), kernel: given.name })
        })
        .collect()
}

/// Why no node runs a user's kernel; `None` if one does.
fn reason(run: &DiagnosisContext<'_>, given: &GivenKernel) -> Option<String> {
    let nodes = run.suite.graph().nodes();
    let of_op = (0u32..).zip(nodes).filter(|(_, node)| node.op.name() == given.op);
    let mut used: Vec<&str> =
        of_op.flat_map(|(i, _)| run.choices.kernels(NodeId(i))).map(|choice| choice.name.as_str()).collect();
    used.extend(run.lowered.iter().filter(|(op, _)| *op == given.op).map(|(_, kernel)| kernel.as_str()));
    used.sort_unstable();
    used.dedup();
    if used.contains(&given.name.as_str()) {
        return None;
    }
    Some(if used.is_empty() {
        format!("the model has no operator `{}`", given.op)
    } else {
        format!("no node of the model runs `{}`; they run {}", given.replaces, used.join(", "))
    })
}
