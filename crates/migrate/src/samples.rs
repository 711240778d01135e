//! An operator's built-in sample cases on a platform, judged as recorded calls are.
//!
//! Samples are made of random values from a seed, so that every platform gets the same. Their dtypes and
//! sizes are the operator's own list.

use crate::judged::check_types;
use crate::oracle::Oracles;
use crate::verdict::{Exact, Judgement, Precision, judge};
use serde::Serialize;
use tapml_exec::{Call, DevicePlatform, KernelChoice, Overrides, Phase, Platform};
use tapml_graph::op::{OpInfo, Sample};
use tapml_graph::{Context, Error, ErrorKind, Result, Tensor};
use tapml_kernels::{Choice, TuningCache, plan_variants};

// Any seed would do; failures can be repeated as long as it stays.
/// What the values of samples are made from.
const SEED: u64 = 11;

/// How an operator's samples fared.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SampleCheck {
    /// The operator.
    pub op: String,
    /// Runs of samples whose outputs are right: one run of each sample, or one by each row of the kernel list that serves it.
    pub passed: u64,
    /// Those whose outputs are wrong, or that failed.
    pub failed: u64,
    /// The largest ratio of observed to allowed error among those that gave something.
    pub worst: f64,
    /// What is wrong.
    pub failures: Vec<SampleFailure>,
    /// What the platform does not serve.
    pub skipped: Vec<SkippedSample>,
    /// The same for each row of the kernel list, where every row ran the samples that it serves.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<KernelSamples>,
}

/// The samples that one row of the kernel list ran.
#[derive(Clone, Debug, Default, Serialize)]
pub struct KernelSamples {
    /// The row, such as `linear/gemv`.
    pub kernel: String,
    /// Samples whose outputs are right.
    pub passed: u64,
    /// Those whose outputs are wrong, or that failed.
    pub failed: u64,
    /// The largest ratio of observed to allowed error among those that gave something.
    pub worst: f64,
}

/// A sample that failed.
#[derive(Clone, Debug, Serialize)]
pub struct SampleFailure {
    /// What is special about the sample.
    pub sample: String,
    /// The row of the kernel list that ran it, where every row ran it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
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
    // Nothing is kept: each sample is run once.
    let oracles = Oracles::new(0);
    let mut check = SampleCheck { op: info.name.into(), ..SampleCheck::default() };
    for sample in (info.samples)() {
        let call = call(&sample)?;
        let outcome = run(platform, &call, &oracles, &mut None)?;
        check.add(&sample.name, &call, None, outcome);
    }
    Ok(check)
}

/// Runs calls of one operator kind, each with its name, as [`check_samples`] runs samples. What nobody evaluates exactly is
/// skipped.
pub fn check_calls(
    platform: &mut dyn Platform,
    op: &str,
    calls: &[(String, Call)],
    oracles: &Oracles,
) -> Result<SampleCheck> {
    let mut check = SampleCheck { op: op.into(), ..SampleCheck::default() };
    for (name, call) in calls {
        let outcome = match oracles.exact(call, SEED) {
            Ok(exact) => run(platform, call, oracles, &mut Some(exact))?,
            Err(error) => SampleRun::Unsupported(format!("nobody says what is exact: {error}")),
        };
        check.add(name, call, None, outcome);
    }
    Ok(check)
}

/// As [`check_samples`] by every row of the kernel list that serves a sample, of an operator or of a fused one, not only by
/// the row that the device would be given. The platform's choices among the built-in kernels are lost.
pub fn check_rows(platform: &mut DevicePlatform, name: &str, samples: &[Sample]) -> Result<SampleCheck> {
    let oracles = Oracles::new(0);
    let mut check = SampleCheck { op: name.into(), ..SampleCheck::default() };
    for sample in samples {
        let call = call(sample)?;
        let (phase, device) = (Phase::of_run(&call.symbols), platform.device_info());
        let rows: Vec<String> = match plan_variants(&call.op, &call.input_types, phase, device) {
            Ok(plans) => plans.into_iter().map(|plan| plan.kernel).collect(),
            Err(error) => {
                check.add(&sample.name, &call, None, SampleRun::from_error(error)?);
                continue;
            }
        };
        // Shared by the rows: exact results do not depend on the kernel.
        let mut exact = None;
        for row in rows {
            choose(platform, &call, &row)?;
            let outcome = run(platform, &call, &oracles, &mut exact)?;
            check.add(&sample.name, &call, Some(&row), outcome);
        }
    }
    Ok(check)
}

/// Makes the platform run a call by this row.
fn choose(platform: &mut DevicePlatform, call: &Call, row: &str) -> Result<()> {
    let mut choices = TuningCache::new(platform.device_info());
    choices.add(Choice::new(&call.op, &call.input_types, row, Vec::new()));
    let mut overrides = Overrides::default();
    overrides.choose(choices);
    platform.set_overrides(overrides)
}

/// What became of one run of a sample.
enum SampleRun {
    Judged { kernel: String, judgement: Box<Judgement> },
    Unsupported(String),
    Failed(Error),
}

impl SampleRun {
    /// What an error means for a sample. Fails if nothing can be run any more.
    fn from_error(error: Error) -> Result<SampleRun> {
        match error.kind() {
            ErrorKind::DeviceLost | ErrorKind::Interrupted => Err(error),
            ErrorKind::Unsupported => Ok(SampleRun::Unsupported(error.message().into())),
            _ => Ok(SampleRun::Failed(error)),
        }
    }
}

/// Runs a call and judges what it gives by its exact outputs, which are computed once.
fn run(
    platform: &mut dyn Platform,
    call: &Call,
    oracles: &Oracles,
    exact: &mut Option<Vec<Exact>>,
) -> Result<SampleRun> {
    // The exact result is computed only if the platform serves the call.
    match run_call(platform, call) {
        Ok((choice, outputs)) => {
            let exact = match exact {
                Some(exact) => exact,
                None => exact.insert(oracles.exact(call, SEED)?),
            };
            let judgement = verdict(exact, call, &choice, &outputs)?;
            Ok(SampleRun::Judged { kernel: choice.name, judgement: Box::new(judgement) })
        }
        Err(error) => SampleRun::from_error(error),
    }
}

impl SampleCheck {
    /// Counts what became of a sample, by `row` of the kernel list if it was to be run by that one.
    fn add(&mut self, sample: &str, call: &Call, row: Option<&str>, outcome: SampleRun) {
        let mut count = KernelSamples::default();
        let failure = match outcome {
            SampleRun::Unsupported(reason) => {
                return self.skipped.push(SkippedSample { sample: sample.into(), reason });
            }
            // The row gives the call to others, which have their own turn.
            SampleRun::Judged { kernel, .. } if row.is_some_and(|row| row != kernel) => {
                let reason = format!("`{kernel}` runs it in the place of `{}`", row.unwrap_or_default());
                return self.skipped.push(SkippedSample { sample: sample.into(), reason });
            }
            SampleRun::Judged { judgement, .. } => {
                count.worst = judgement.ratio;
                (!judgement.passes()).then(|| wrong(sample, call, &judgement))
            }
            SampleRun::Failed(error) => Some(sample_failure(sample, call, &error)),
        };
        (count.passed, count.failed) = (u64::from(failure.is_none()), u64::from(failure.is_some()));
        self.passed += count.passed;
        self.failed += count.failed;
        self.worst = self.worst.max(count.worst);
        self.failures.extend(failure.map(|f| SampleFailure { kernel: row.map(str::to_string), ..f }));
        // Without a row, nothing is counted by rows.
        let Some(row) = row else { return };
        match self.kernels.iter_mut().find(|known| known.kernel == row) {
            Some(known) => {
                known.passed += count.passed;
                known.failed += count.failed;
                known.worst = known.worst.max(count.worst);
            }
            None => self.kernels.push(KernelSamples { kernel: row.into(), ..count }),
        }
    }
}

/// A sample as a call whose inputs are all no weights.
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

/// The kernel of a call, and what it gives.
fn run_call(platform: &mut dyn Platform, call: &Call) -> Result<(KernelChoice, Vec<Tensor>)> {
    let choice = platform.kernel_for(&call.op, &call.input_types, Phase::of_run(&call.symbols))?;
    let mut outputs = None;
    platform.replay(std::slice::from_ref(call), &mut |_, given| outputs = Some(given))?;
    let outputs = outputs.ok_or_else(|| Error::bug("the platform gave no result"))??;
    check_types(call, &outputs)?;
    Ok((choice, outputs))
}

/// By the precision that the kernel declares.
fn verdict(exact: &[Exact], call: &Call, choice: &KernelChoice, outputs: &[Tensor]) -> Result<Judgement> {
    let terms = usize::try_from(choice.accumulate.chain.eval(&call.symbols)?).unwrap_or(usize::MAX);
    let precision = Precision { accumulate: choice.accumulate.dtype, terms };
    judge(exact, outputs, precision, None).context(|| format!("node `{}`", call.node))
}

/// As a person would write it.
fn describe_call(call: &Call) -> String {
    let types: Vec<String> = call.input_types.iter().map(|ty| ty.to_string()).collect();
    let symbols: Vec<String> =
        call.symbols.iter().map(|(symbol, value)| format!("{symbol} = {value}")).collect();
    let shown = format!("{}({}) {}", call.op.name(), types.join(", "), call.op.attributes_text());
    match symbols.as_slice() {
        [] => shown,
        symbols => format!("{shown} with {}", symbols.join(", ")),
    }
}

/// A sample that could not be run.
fn sample_failure(sample: &str, call: &Call, error: &Error) -> SampleFailure {
    let types =
        call.output_types.iter().map(|ty| ty.bind(&call.symbols).map_or(ty.to_string(), |ty| ty.to_string()));
    SampleFailure {
        sample: sample.into(),
        kernel: None,
        call: describe_call(call),
        expected: types.collect::<Vec<_>>().join(", "),
        found: error.to_string(),
        criterion: error.kind().name().into(),
        pattern: None,
    }
}

/// A sample with a wrong output.
fn wrong(sample: &str, call: &Call, judgement: &Judgement) -> SampleFailure {
    let e = &judgement.worst;
    SampleFailure {
        sample: sample.into(),
        kernel: None,
        call: describe_call(call),
        expected: format!(
            "{:.8e} ± {:.1e} at element {} of output {}",
            e.exact, e.allowed, e.index, e.output
        ),
        found: format!("{:.8e}", e.observed),
        criterion: judgement.criterion.name().into(),
        pattern: judgement.pattern.as_ref().map(|pattern| pattern.text.clone()),
    }
}
