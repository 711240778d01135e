//! The score of a suite: mutants of each operator on all its cases.

use super::cover::smallest;
use crate::bench::{
    Fixture, MutantRecord, OpCases, Prepared, RunOptions, Selection, View, kernels, platform,
};
use crate::device::Workbench;
use crate::mutant::{Edit, Family, Mutant};
use crate::{Catalogue, bench};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use tapml_graph::{Bytes, Error, Result, Tensor};
use tapml_migrate::report::RegimeCount;
use tapml_migrate::suite::Case;
use tapml_migrate::verdict::judge;
use tapml_migrate::{KernelChoices, Progress, RowRegimes, Stop, composed_suites, regimes};

/// How a suite is scored.
#[derive(Clone, Debug)]
pub struct ScoreOptions {
    /// Operators; all if empty.
    pub ops: Vec<String>,
    /// Most mutants of each operator.
    pub mutants: usize,
    /// Decides which mutants come first.
    pub seed: u64,
}

impl ScoreOptions {
    /// The operators to score, among those that the device runs and the suite has calls of.
    ///
    /// # Errors
    ///
    /// An operator that was asked for and has no call.
    fn wanted_operators(&self, all: Vec<&'static str>) -> Result<Vec<&'static str>> {
        if let Some(missing) = self.ops.iter().find(|op| !all.contains(&op.as_str())) {
            let text = format!("the device runs no `{missing}` of which the suite has a call");
            return Err(Error::invalid(text).with_hint(format!("it runs: {}", all.join(", "))));
        }
        Ok(all.into_iter().filter(|op| self.ops.is_empty() || self.ops.iter().any(|own| own == op)).collect())
    }
}

/// A mutant that no case kills.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Survivor {
    /// The mutant.
    pub id: String,
    /// The change.
    pub diff: String,
    /// Cases whose results it changes, by less than rounding explains. 0 if nothing that it changes is used.
    pub differing: u64,
    /// The largest ratio of observed to allowed error.
    pub ratio: f64,
}

/// One operator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OpScore {
    /// The operator.
    pub op: String,
    /// Its cases.
    pub cases: usize,
    /// Mutants tried.
    pub mutants: usize,
    /// Mutants that some case kills.
    pub killed: usize,
    /// Mutants that none kills.
    pub survivors: Vec<Survivor>,
    /// The smallest set of cases found that kills as many.
    pub needed: Vec<String>,
    /// Cases that zeros would pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub zeros_pass: Vec<String>,
    /// Cases that a copy of the first input would pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copies_pass: Vec<String>,
}

/// An attribute that could be wrong without any case telling.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blind {
    /// The operator.
    pub op: String,
    /// The kernel's constant that stands for the attribute.
    pub attribute: String,
    /// The mutants that survive.
    pub mutants: Vec<String>,
}

/// The score of a suite on a platform.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SuiteScore {
    /// Version of the fields.
    pub schema: u32,
    /// The suite.
    pub suite: String,
    /// Platform and device.
    pub target: String,
    /// What the device runs: operators in graph order, then fused ones.
    pub ops: Vec<OpScore>,
    /// How much of the kernels the suite reaches.
    pub coverage: KernelCoverage,
    /// Each kernel that has regimes, and the regimes that no call of the suite reaches.
    pub regimes: Vec<RowRegimes>,
    /// Attributes that no case can tell wrong.
    pub blind: Vec<Blind>,
    /// What other prompts told, if they were sought.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub found: Vec<KilledSurvivor>,
    /// Wall-clock time.
    pub seconds: f64,
}

/// How much of the kernels a suite reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelCoverage {
    /// Regimes of all kernels of the scored operators.
    pub regimes: RegimeCount,
}

/// A survivor that another prompt kills.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KilledSurvivor {
    /// The mutant.
    pub id: String,
    /// The prompt's token ids.
    pub prompt: Vec<u32>,
    /// The case in a suite of that prompt alone.
    pub case: String,
}

impl SuiteScore {
    /// Killed and tried mutants of all operators.
    pub fn total(&self) -> (usize, usize) {
        self.ops.iter().fold((0, 0), |(k, m), op| (k + op.killed, m + op.mutants))
    }
}

/// Scores a suite: tries mutants of every operator on all its cases. Faults of synchronisation are left out: no input
/// makes them visible.
///
/// # Errors
///
/// A lost device that cannot be replaced, a request to stop, or a suite that cannot be read.
pub fn score(
    bed: &Fixture,
    options: &ScoreOptions,
    run: &RunOptions<'_>,
    progress: &dyn Progress,
    stop: &Stop,
) -> Result<SuiteScore> {
    let start = Instant::now();
    let bench = Workbench::new((run.open)()?);
    let prepared = Prepared::new(std::slice::from_ref(bed), run.sampling);
    let wanted = options.wanted_operators(prepared.ops(bed, &bench)?)?;
    let mutants = choose_mutants(bed, options, &wanted, &bench)?;
    let records = run_mutants(&prepared, &mutants, run, progress, stop)?;
    let (mut ops, mut rows) = (Vec::new(), Vec::new());
    for op in wanted {
        let cases = prepared.op_cases(&bed.name, op, &bench)?;
        let own: Vec<&MutantRecord> = records.iter().filter(|r| r.op == op).collect();
        ops.push(of_op(&cases, &own)?);
        let reached = |views: &[View<'_>]| reached_regimes(bed, views, op, &bench);
        prepared.with_views(bed, op, &bench, reached)?.into_iter().for_each(|row| row.join(&mut rows));
    }
    let info = bench.info();
    Ok(SuiteScore {
        schema: bench::SCHEMA,
        suite: bed.suite.path().display().to_string(),
        target: format!("{} ({}, {})", info.platform, info.name, info.driver),
        blind: blind(&mutants, &records),
        ops,
        coverage: KernelCoverage { regimes: RegimeCount::from_kernels(rows.iter().map(|row| &row.counts)) },
        regimes: rows,
        found: Vec::new(),
        seconds: start.elapsed().as_secs_f64(),
    })
}

/// The regimes of an operator's kernels that the suite's calls reach, and others.
fn reached_regimes(
    bed: &Fixture,
    views: &[View<'_>],
    op: &str,
    bench: &Workbench,
) -> Result<Vec<RowRegimes>> {
    let device = platform(bench, &[]);
    let mut rows = Vec::new();
    for view in views {
        let cases = view.cases(op);
        let choices = KernelChoices::of_cases(view.suite, &device, &cases)?;
        let own = regimes(view.suite, &bed.model, &choices, &cases)?;
        own.into_iter().for_each(|row| row.join(&mut rows));
    }
    Ok(rows)
}

/// The recorded calls that these named ones are composed of: a call of a fused operator stands for those of several nodes.
/// Calls of operators that no recorded node stands for have none.
///
/// # Errors
///
/// A name that is no case of the suite or of its fused operators.
pub fn recorded_cases(bed: &Fixture, ids: &[&str], run: &RunOptions<'_>) -> Result<Vec<Case>> {
    let bench = Workbench::new((run.open)()?);
    let composed = composed_suites(&bed.suite, &platform(&bench, &[]))?;
    let mut cases = Vec::new();
    for id in ids {
        let fused = composed.iter().find_map(|suite| Some((suite, suite.find_case(id).ok()?)));
        let Some((suite, case)) = fused else {
            cases.push(bed.suite.find_case(id)?);
            continue;
        };
        let inner = bed.suite.inner(suite.graph(), suite.graph().node(case.node)).unwrap_or_default();
        cases.extend(inner.into_iter().map(|node| Case { node, ..case }));
    }
    cases.sort_by_key(|case| (case.frame, case.node));
    // Several fused calls may stand for one recorded call.
    cases.dedup();
    Ok(cases)
}

/// The mutants of each operator that are tried: those of attributes, then others up to the number asked for.
fn choose_mutants(
    bed: &Fixture,
    options: &ScoreOptions,
    ops: &[&str],
    bench: &Workbench,
) -> Result<Vec<Mutant>> {
    let visible =
        |m: &Mutant| !m.is_between() && m.family != Family::Synchronisation && ops.contains(&m.op.as_str());
    let all = Catalogue::generate_wanted(&bed.name, bed.suite.graph(), bench.info(), &visible)?.mutants;
    let mut chosen = Vec::new();
    for op in ops {
        let selection = Selection { ops: vec![op.to_string()], seed: options.seed, ..Selection::default() };
        let ranked = selection.choose_mutants(all.iter().cloned());
        // Attributes are few and always tried.
        let (first, rest): (Vec<Mutant>, Vec<Mutant>) =
            ranked.into_iter().partition(|m| attribute(m).is_some());
        // Attributes may exceed the number that was asked for.
        let room = options.mutants.saturating_sub(first.len());
        chosen.extend(first.into_iter().chain(rest.into_iter().take(room)));
    }
    Ok(chosen)
}

/// Tries mutants, in any order; records are sorted by id.
fn run_mutants(
    prepared: &Prepared<'_>,
    mutants: &[Mutant],
    run: &RunOptions<'_>,
    progress: &dyn Progress,
    stop: &Stop,
) -> Result<Vec<MutantRecord>> {
    let records = Mutex::new(Vec::new());
    let add = |record| records.lock().unwrap_or_else(PoisonError::into_inner).push(record);
    kernels(prepared, mutants, run, &add, progress, stop)?;
    let mut records = records.into_inner().unwrap_or_else(PoisonError::into_inner);
    records.sort_by(|a: &MutantRecord, b| a.id.cmp(&b.id));
    Ok(records)
}

/// The score of one operator from the records of its mutants.
fn of_op(cases: &OpCases, records: &[&MutantRecord]) -> Result<OpScore> {
    let name = |i: usize| cases.cases[i].name.clone();
    // A kernel that cannot be built is killed by every case.
    let (killed, survived): (Vec<&MutantRecord>, Vec<&MutantRecord>) =
        records.iter().partition(|r| r.sighting.is_caught());
    let kills: Vec<Vec<u32>> =
        killed.iter().filter(|r| r.sighting.error.is_none()).map(|r| r.sighting.kills.clone()).collect();
    let survivor = |r: &&MutantRecord| Survivor {
        id: r.id.clone(),
        diff: r.diff.clone(),
        differing: r.sighting.differing,
        ratio: r.sighting.ratio,
    };
    // A case that zeros or a copy pass says little, whatever mutants it kills.
    let trivial = |fake: &(dyn Fn(usize) -> Option<Vec<Tensor>> + Sync)| -> Result<Vec<String>> {
        let passes = (0..cases.cases.len()).into_par_iter().map(|i| {
            let Some(outputs) = fake(i) else { return Ok(None) };
            let case = &cases.cases[i];
            let judgement = judge(&case.exact, &outputs, case.target, None)?;
            Ok(judgement.passes().then(|| name(i)))
        });
        Ok(passes.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
    };
    let zeros = |i: usize| cases.cases[i].expected.iter().map(|t| zero(t).ok()).collect::<Option<Vec<_>>>();
    let copy = |i: usize| {
        let (input, outputs) = (cases.calls[i].inputs.first()?, &cases.cases[i].expected);
        let like = |t: &Tensor| t.dtype() == input.dtype() && t.shape() == input.shape();
        // Only operators that give one tensor like their input can be copies.
        (outputs.len() == 1 && like(&outputs[0])).then(|| vec![input.clone()])
    };
    Ok(OpScore {
        op: cases.op.clone(),
        cases: cases.cases.len(),
        mutants: records.len(),
        killed: killed.len(),
        survivors: survived.iter().map(survivor).collect(),
        needed: smallest(&kills, cases.cases.len()).into_iter().map(|i| name(i as usize)).collect(),
        zeros_pass: trivial(&zeros)?,
        copies_pass: trivial(&copy)?,
    })
}

/// Zeros in the type and shape of a tensor.
fn zero(tensor: &Tensor) -> Result<Tensor> {
    Tensor::new(tensor.dtype(), tensor.shape().to_vec(), Bytes::new(vec![0; tensor.bytes().len()]))
}

/// The attribute that a mutant gets wrong, if it is one of an attribute.
fn attribute(mutant: &Mutant) -> Option<&str> {
    match &mutant.edit {
        Edit::Constant { name, .. } if mutant.operator != "wrong-size" => Some(name),
        Edit::Frequencies { .. } => Some("frequencies"),
        _ => None,
    }
}

/// Attributes with a mutant that no case kills.
fn blind(mutants: &[Mutant], records: &[MutantRecord]) -> Vec<Blind> {
    let mut found: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for record in records.iter().filter(|r| !r.sighting.is_caught()) {
        let Some(mutant) = mutants.iter().find(|m| m.id == record.id) else { continue };
        if let Some(attribute) = attribute(mutant) {
            found.entry((mutant.op.clone(), attribute.into())).or_default().push(mutant.id.clone());
        }
    }
    let one = |((op, attribute), mutants)| Blind { op, attribute, mutants };
    found.into_iter().map(one).collect()
}

/// Which of these mutants, survivors of other prompts, the cases of `bed` kill: a suite of one further prompt.
///
/// # Errors
///
/// As [`score`].
pub fn seek(
    bed: &Fixture,
    mutants: &[String],
    run: &RunOptions<'_>,
    progress: &dyn Progress,
    stop: &Stop,
) -> Result<Vec<KilledSurvivor>> {
    let bench = Workbench::new((run.open)()?);
    let prepared = Prepared::new(std::slice::from_ref(bed), run.sampling);
    let named = |m: &Mutant| mutants.contains(&m.id);
    let wanted = Catalogue::generate_wanted(&bed.name, bed.suite.graph(), bench.info(), &named)?.mutants;
    let prompt = bed.suite.manifest().prompts.first().map(|p| p.ids.clone()).unwrap_or_default();
    let mut found = Vec::new();
    for record in run_mutants(&prepared, &wanted, run, progress, stop)? {
        // Mutants that still survive are left out.
        let Some(&first) = record.sighting.kills.first() else { continue };
        let cases = prepared.op_cases(&bed.name, &record.op, &bench)?;
        let case = cases.cases[first as usize].name.clone();
        found.push(KilledSurvivor { id: record.id, prompt: prompt.clone(), case });
    }
    Ok(found)
}
