//! The calls that `check` makes beside recorded ones, with everything that judging mutants on them needs.

use super::noise::Noise;
use super::op_case::{OpCase, View, replay};
use tapml_exec::{CpuPlatform, Platform};
use tapml_graph::{DType, ErrorKind, Model, Result, Tensor};
use tapml_migrate::suite::Case;
use tapml_migrate::verdict::{Exact, Judgement, Precision};
use tapml_migrate::{KernelChoices, MadeCall, made_calls, terms};

/// One made call with what is known about it.
pub struct MadeCase {
    /// The call.
    pub made: MadeCall,
    /// What is known about it; the source platform's outputs decide for other policies alone.
    pub known: OpCase,
}

impl MadeCase {
    /// Bytes of its inputs, weights not counted.
    pub(super) fn bytes(&self) -> usize {
        let call = &self.made.call;
        let own = call.inputs.iter().zip(&call.weights).filter(|(_, weight)| weight.is_none());
        own.map(|(input, _)| input.bytes().len()).sum()
    }

    /// The verdict of outputs.
    pub fn judge(&self, outputs: &[Tensor]) -> Result<Judgement> {
        self.made.judge(&self.known.exact, outputs, self.known.target)
    }
}

/// The made calls of these cases that the device runs.
/// Calls that it refuses are left out, because a mutant could not be told there.
pub(super) fn cases(
    model: &Model,
    (view, choices): (&View<'_>, &KernelChoices),
    cases: &[Case],
    clean: &mut dyn Platform,
) -> Result<Vec<MadeCase>> {
    let mut all = Vec::new();
    for made in made_calls(view.suite, model, choices, cases)? {
        all.extend(make_case(view, choices, made, clean)?);
    }
    Ok(all)
}

/// What is known of a made call; `None` if the device does not serve it.
fn make_case(
    view: &View<'_>,
    choices: &KernelChoices,
    made: MadeCall,
    clean: &mut dyn Platform,
) -> Result<Option<MadeCase>> {
    let outputs = match run_made(clean, &made) {
        // Other sizes than the recorded ones may be beyond the device.
        Err(e) if e.kind() == ErrorKind::Unsupported => return Ok(None),
        outputs => outputs?,
    };
    let exact: Vec<Exact> = made.exact(view.oracles)?;
    let known = OpCase {
        case: made.case,
        name: made.id(),
        expected: run_made(&mut CpuPlatform::new(), &made)?,
        target: choices.precision(made.case.node, &made.call.symbols)?,
        source: Precision { accumulate: DType::F32, terms: terms(&made.call) },
        noise: Noise::from_outputs(&exact, &outputs),
        exact: exact.into(),
        clean: outputs,
    };
    Ok(Some(MadeCase { made, known }))
}

/// The outputs of a made call.
pub(super) fn run_made(platform: &mut dyn Platform, made: &MadeCall) -> Result<Vec<Tensor>> {
    replay(platform, std::slice::from_ref(&made.call))?.remove(0)
}
