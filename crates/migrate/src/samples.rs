//! An operator's built-in sample cases on a platform, judged as recorded calls are.

use crate::check::check_types;
use crate::oracle::Oracles;
use crate::verdict::{Judgement, Precision, judge};
use serde::Serialize;
use tapml_exec::{Call, KernelChoice, Phase, Platform};
use tapml_graph::op::{OpInfo, Sample};
use tapml_graph::{Context, Error, ErrorKind, Result, Tensor};

/// What the values of samples are made from.
const SEED: u64 = 11;

/// How an operator's samples fared.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SampleCheck {
    /// The operator.
    pub op: String,
    /// Samples whose outputs are right.
    pub passed: u64,
    /// Samples whose outputs are wrong, or that failed.
    pub failed: u64,
    /// The largest ratio of observed to allowed error among those that gave something.
    pub worst: f64,
    /// What is wrong.
    pub failures: Vec<SampleFailure>,
    /// What the platform does not serve.
    pub skipped: Vec<SkippedSample>,
}

/// A sample that failed.
#[derive(Clone, Debug, Serialize)]
pub struct SampleFailure {
    /// What is special about the sample.
    pub sample: String,
    /// The call as a person would write it: operator, attributes, types of the inputs, symbols.
    pub call: String,
    /// What was expected.
    pub expected: String,
    /// What was found.
    pub found: String,
    /// What decided, such as `single element`; or the kind of error.
    pub criterion: String,
    /// How the wrong elements lie, if that says anything.
    pub pattern: Option<String>,
}

/// A sample that the platform does not serve.
#[derive(Clone, Debug, Serialize)]
pub struct SkippedSample {
    /// What is special about the sample.
    pub sample: String,
    /// Why.
    pub reason: String,
}

/// Runs every sample of an operator on a platform. Fails only if nothing can be run any more.
pub fn check_samples(platform: &mut dyn Platform, info: &OpInfo) -> Result<SampleCheck> {
    let oracles = Oracles::new(0);
    let mut check = SampleCheck { op: info.name.into(), ..SampleCheck::default() };
    for sample in (info.samples)() {
        let call = call(&sample)?;
        match one(platform, &call) {
            Err(error) if matches!(error.kind(), ErrorKind::DeviceLost | ErrorKind::Interrupted) => {
                return Err(error);
            }
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                check.skipped.push(SkippedSample { sample: sample.name, reason: error.message().into() });
            }
            Err(error) => {
                check.failed += 1;
                check.failures.push(failed(&sample, &call, &error));
            }
            Ok((choice, outputs)) => {
                let judgement = verdict(&oracles, &call, &choice, &outputs)?;
                check.worst = check.worst.max(judgement.ratio);
                match judgement.passed() {
                    true => check.passed += 1,
                    false => {
                        check.failed += 1;
                        check.failures.push(wrong(&sample, &call, &judgement));
                    }
                }
            }
        }
    }
    Ok(check)
}

fn call(sample: &Sample) -> Result<Call> {
    let input_types = sample.types();
    Ok(Call {
        node: format!("{} / {}", sample.op.name(), sample.name),
        op: sample.op.clone(),
        symbols: sample.symbols.clone(),
        inputs: sample.tensors(SEED)?,
        weights: vec![None; input_types.len()],
        output_types: sample.op.infer(&input_types)?,
        input_types,
    })
}

fn one(platform: &mut dyn Platform, call: &Call) -> Result<(KernelChoice, Vec<Tensor>)> {
    let choice = platform.kernel_for(&call.op, &call.input_types, Phase::of_run(&call.symbols))?;
    let mut outputs = None;
    platform.replay(std::slice::from_ref(call), &mut |_, given| outputs = Some(given))?;
    let outputs = outputs.ok_or_else(|| Error::bug("the platform gave no result"))??;
    check_types(call, &outputs)?;
    Ok((choice, outputs))
}

fn verdict(oracles: &Oracles, call: &Call, choice: &KernelChoice, outputs: &[Tensor]) -> Result<Judgement> {
    let terms = usize::try_from(choice.accumulate.chain.eval(&call.symbols)?).unwrap_or(usize::MAX);
    let precision = Precision { accumulate: choice.accumulate.dtype, terms };
    judge(&oracles.exact(call, SEED)?, outputs, precision, None).context(|| format!("node `{}`", call.node))
}

fn shown(sample: &Sample, call: &Call) -> String {
    let types: Vec<String> = call.input_types.iter().map(|ty| ty.to_string()).collect();
    let symbols: Vec<String> =
        sample.symbols.iter().map(|(symbol, value)| format!("{symbol} = {value}")).collect();
    format!(
        "{}({}) {} with {}",
        call.op.name(),
        types.join(", "),
        call.op.attributes_text(),
        symbols.join(", ")
    )
}

fn failed(sample: &Sample, call: &Call, error: &Error) -> SampleFailure {
    let types =
        call.output_types.iter().map(|ty| ty.bind(&call.symbols).map_or(ty.to_string(), |ty| ty.to_string()));
    SampleFailure {
        sample: sample.name.clone(),
        call: shown(sample, call),
        expected: types.collect::<Vec<_>>().join(", "),
        found: error.to_string(),
        criterion: error.kind().name().into(),
        pattern: None,
    }
}

fn wrong(sample: &Sample, call: &Call, judgement: &Judgement) -> SampleFailure {
    let e = &judgement.worst;
    SampleFailure {
        sample: sample.name.clone(),
        call: shown(sample, call),
        expected: format!(
            "{:.8e} ± {:.1e} at element {} of output {}",
            e.exact, e.allowed, e.index, e.output
        ),
        found: format!("{:.8e}", e.observed),
        criterion: judgement.criterion.name().into(),
        pattern: judgement.pattern.as_ref().map(|pattern| pattern.text.clone()),
    }
}
