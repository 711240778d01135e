//! From a failing call to its cause: the call repeated on the target, run once on the checking device, and handed to the
//! hypotheses.

use crate::diagnose::Run;
use crate::report::Fault;
use tapml_device::Finding;
use tapml_exec::Call;
use tapml_graph::{Result, Tensor};
use tapml_migrate::CaseResult;
use tapml_migrate::report::is_defect;

/// Adds cause and evidence to a fault whose first failing case is this.
pub(crate) fn explain(run: &mut Run<'_>, first: &CaseResult, fault: &mut Fault) -> Result<()> {
    let (call, _) = run.suite.call(first.case, run.model)?;
    fault.findings = findings(run, &call, first.case.node)?;
    if let Err(error) = &first.outcome {
        fault.cause = "crash".into();
        fault.certain = true;
        fault.evidence = format!("the kernel could not be built or run: {error}");
        return Ok(());
    }
    let observed = repeats(run, &call)?;
    let differs = observed.windows(2).any(|pair| !same(&pair[0], &pair[1]));
    fault.evidence = sentence(fault, differs);
    Ok(())
}

/// The outputs of the call, as often as the options say; a repeat that could not be run is left out.
pub(crate) fn repeats(run: &mut Run<'_>, call: &Call) -> Result<Vec<Vec<Tensor>>> {
    let mut observed = Vec::new();
    for _ in 0..run.options.repeats {
        let keep = &mut |_, outputs: Result<Vec<Tensor>>| observed.extend(outputs);
        run.target.replay(std::slice::from_ref(call), keep)?;
    }
    Ok(observed)
}

/// Whether two outputs have the same bits.
pub(crate) fn same(a: &[Tensor], b: &[Tensor]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.bytes()[..] == b.bytes()[..])
}

/// The defects that the checking device sees in a call, if it runs the same kernel.
pub(crate) fn findings(run: &mut Run<'_>, call: &Call, node: tapml_graph::NodeId) -> Result<Vec<Finding>> {
    let Some(checker) = run.checker.as_deref_mut() else { return Ok(Vec::new()) };
    let same = match (checker.kernel_for(&call.op, &call.input_types), run.choices.get(node)) {
        (Ok(own), Ok(choice)) => own.hash == choice.hash,
        _ => false,
    };
    if !same {
        return Ok(Vec::new());
    }
    checker.take_findings();
    checker.replay(std::slice::from_ref(call), &mut |_, _| {})?;
    Ok(checker.take_findings())
}

/// What is known without a hypothesis.
fn sentence(fault: &Fault, differs: bool) -> String {
    let mut text = format!("{}: {}", fault.criterion, fault.pattern);
    if differs {
        text += "; repeats of the same call give other results";
    }
    if let Some(finding) = fault.findings.iter().find(|f| is_defect(f)) {
        text += &format!("; {finding}");
    }
    text
}
