//! The calls of one operator that mutants are replayed on, with everything that judging them needs.
//!
//! Judging needs the exact results, the source's outputs, and what the device gives without a fault; all are computed once.

use super::made::{self, MadeCase};
use super::noise::Noise;
use super::op_case::{OpCase, View, replay};
use super::random;
use rayon::prelude::*;
use std::collections::HashMap;
use tapml_exec::{Call, Phase, Platform};
use tapml_graph::{DType, Error, ErrorKind, Model, NodeId, Result, Symbol, Tensor};
use tapml_migrate::accumulation_order;
use tapml_migrate::filter::{Filter, looked_at};
use tapml_migrate::range_test::{self, Overflow};
use tapml_migrate::suite::{Case, Suite};
use tapml_migrate::verdict::{Exact, Precision};
use tapml_migrate::{KernelChoices, terms};
use tapml_reference::Value;

/// Which calls of an operator are replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// Nodes of each kernel variant: the first, the last and those between at equal distances.
    pub nodes: usize,
    /// Runs of more tokens than this are used for attention and what feeds it positions alone.
    pub long: u64,
    /// Whether calls are made beside recorded ones, as `check` makes them.
    pub made: bool,
    /// Whether of the model's own nodes only those are used that the device runs as they are, in the phases in which it does.
    pub deployed: bool,
}

impl Sampling {
    /// All recorded calls of what the device runs, and no others.
    pub const ALL: Sampling = Sampling { nodes: usize::MAX, long: u64::MAX, made: false, deployed: true };
}

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling { nodes: 3, long: 32, made: true, deployed: false }
    }
}

/// The calls of one operator.
pub struct OpCases {
    /// The operator.
    pub op: String,
    /// The calls, in the order of `cases`.
    pub calls: Vec<Call>,
    /// What is known about them.
    pub cases: Vec<OpCase>,
    /// Calls with inputs drawn from a normal distribution, as a unit test would make, and what the source computes.
    pub random: (Vec<Call>, Vec<Vec<Tensor>>),
    /// One small call of each variant, for devices that check while they run.
    pub checked: Vec<Call>,
    /// Calls with made-up inputs.
    pub probes: Vec<Probe>,
    /// Calls that are made beside the recorded ones, small ones first.
    pub made: Vec<MadeCase>,
}

/// A call with made-up inputs: over the whole range, or such that sums show how they are formed.
pub struct Probe {
    /// The call.
    pub call: Call,
    /// What it was made of.
    pub recorded: Call,
    /// Its exact results.
    pub exact: Vec<Exact>,
    /// The precision that the kernel declares.
    pub declared: Precision,
}

impl Probe {
    /// What these outputs show.
    /// First what exceeds the range, then sums in longer chains than the kernel declares.
    fn shows(&self, outputs: &[Tensor]) -> Option<Overflow> {
        let names = (self.call.node.as_str(), "");
        let beyond = range_test::find_overflow((&self.call, &self.recorded), &self.exact, outputs, names);
        beyond.or_else(|| accumulation_order::longer(&self.call, outputs, self.declared, names))
    }
}

// Calls are prepared once and shared by all mutants of an operator.
impl OpCases {
    /// Chooses calls of these suites, replays them on `clean`, a device without faults, and computes exact results.
    ///
    /// # Errors
    ///
    /// No call of the operator, a kernel that the device does not have, or a device without a fault that fails.
    pub fn from_views(
        model: &Model,
        views: &[View<'_>],
        op: &str,
        clean: &mut dyn Platform,
        sampling: Sampling,
    ) -> Result<OpCases> {
        let mut all = OpCases {
            op: op.into(),
            calls: Vec::new(),
            cases: Vec::new(),
            random: (Vec::new(), Vec::new()),
            checked: Vec::new(),
            probes: Vec::new(),
            made: Vec::new(),
        };
        for view in views {
            all.add(model, view, clean, sampling)?;
        }
        // Without a call nothing could be seen of a mutant.
        if all.cases.is_empty() {
            return Err(Error::invalid("no recorded run reaches it").with_hint("record further prompts"));
        }
        all.random = random::calls(&all.checked)?;
        // The first that fails ends a run, so quick ones come first.
        all.made.sort_by_key(MadeCase::bytes);
        Ok(all)
    }

    /// Adds the calls of one suite.
    fn add(
        &mut self,
        model: &Model,
        view: &View<'_>,
        clean: &mut dyn Platform,
        sampling: Sampling,
    ) -> Result<()> {
        let (suite, op) = (view.suite, self.op.as_str());
        // Long runs take long, and tell more of operators that know positions only.
        let long = |frame| positional(op) || tokens(suite, frame) <= sampling.long;
        let every = view.cases(op).into_iter().filter(|case| long(case.frame)).collect::<Vec<Case>>();
        let choices = KernelChoices::of_cases(suite, clean, &every)?;
        let mut nodes: Vec<NodeId> = every.iter().map(|case| case.node).collect();
        nodes.sort();
        // A node has a case in each frame.
        nodes.dedup();
        let chosen = sample(&nodes, &choices, sampling.nodes)?;
        let cases: Vec<Case> = every.into_iter().filter(|case| chosen.contains(&case.node)).collect();
        let recorded = cases.iter().map(|&case| suite.call(case, model));
        let (calls, expected): (Vec<Call>, Vec<Vec<Tensor>>) =
            recorded.collect::<Result<Vec<_>>>()?.into_iter().unzip();
        let outputs = replay(clean, &calls)?.into_iter().collect::<Result<Vec<_>>>()?;
        let known = cases.par_iter().zip(&calls).zip(expected.into_par_iter().zip(outputs));
        let known = known.map(|((&case, call), (expected, clean))| {
            // Calls do not depend on each other, and the oracle takes most of the time.
            let exact = view.oracles.exact_outputs(case, || Ok(call))?;
            Ok(OpCase {
                case,
                name: suite.case_id(case),
                noise: Noise::from_outputs(&exact, &clean),
                expected,
                exact,
                target: choices.precision(case.node, &call.symbols)?,
                source: Precision { accumulate: DType::F32, terms: terms(call) },
                clean,
            })
        });
        let known = known.collect::<Result<Vec<_>>>()?;
        // The first prompt's prefill and its first decode step of one node of each variant.
        let variants = sample(&nodes, &choices, 1)?;
        let few = |case: &OpCase| variants.contains(&case.case.node) && case.case.frame < 2;
        let few: Vec<usize> = (0..known.len()).filter(|&i| few(&known[i])).collect();
        let checked: Vec<Call> = few.iter().map(|&i| calls[i].clone()).collect();
        self.probes.extend(probes(view, &choices, &checked)?);
        if sampling.made {
            self.made.extend(made::cases(model, (view, &choices), &cases, clean)?);
        }
        self.checked.extend(checked);
        self.calls.extend(calls);
        self.cases.extend(known);
        Ok(())
    }

    /// Where probes of the range give NaN or infinity and the exact results are finite. Fails only if no call can be run
    /// any more.
    pub fn find_overflows(&self, platform: &mut dyn Platform) -> Result<Vec<Overflow>> {
        let calls: Vec<Call> = self.probes.iter().map(|probe| probe.call.clone()).collect();
        let found = replay(platform, &calls)?;
        let mut beyond = Vec::new();
        for (probe, outputs) in self.probes.iter().zip(found) {
            match outputs {
                Ok(outputs) => beyond.extend(probe.shows(&outputs)),
                Err(e) if e.kind() == ErrorKind::DeviceLost => return Err(e),
                // What cannot be run is seen in the calls that were recorded.
                Err(_) => {}
            }
        }
        Ok(beyond)
    }

    /// Whether errors are what correct code makes: the device without a fault, or the source platform.
    pub fn explains(&self, noise: Noise) -> bool {
        is_explained(self.cases.iter(), noise)
    }

    /// What the matched filter finds in outputs whose elements all pass, in the order of the cases.
    pub fn filter_outputs(&self, outputs: &[&[Tensor]]) -> Result<Filter> {
        let filter = Filter::default();
        looked_at(self.cases.len()).into_par_iter().try_for_each(|i| {
            let (call, case) = (&self.calls[i], &self.cases[i]);
            let inputs = || call.inputs.iter().map(Value::from_tensor).collect();
            filter.add((i, call), &inputs, &case.exact, outputs[i], case.target)
        })?;
        Ok(filter)
    }
}

/// Whether errors over these calls are what correct code makes.
pub(super) fn is_explained<'a>(cases: impl Iterator<Item = &'a OpCase> + Clone, noise: Noise) -> bool {
    let clean: Noise = cases.clone().map(|c| c.noise).sum();
    // The source is correct code too, and may err more than the device.
    let source: Noise = cases.map(|c| Noise::from_outputs(&c.exact, &c.expected)).sum();
    let larger = Noise { squares: clean.squares.max(source.squares), worst: clean.worst.max(source.worst) };
    noise.explained_by(larger)
}

/// The probes of these calls: of those of several rows, if there are any.
fn probes(view: &View<'_>, choices: &KernelChoices, calls: &[Call]) -> Result<Vec<Probe>> {
    let several = |call: &&Call| call.symbols.get(Symbol::N).is_none_or(|n| n > 1);
    let rows = calls.iter().any(|call| several(&call));
    let calls = calls.iter().filter(|call| !rows || several(call));
    let graph = view.suite.graph();
    let node = |call: &Call| {
        graph.find_node(&call.node).and_then(|id| choices.kernel_at(id, Phase::of_run(&call.symbols)).ok())
    };
    let serial = |call: &Call| rows && node(call).is_some_and(|choice| choice.accumulate.keeps_chain);
    let made = |call: &Call| match range_test::range_call(call)? {
        None if serial(call) => accumulation_order::order_call(call),
        probe => Ok(probe),
    };
    let probes = calls.filter_map(|call| Some((call, made(call).transpose()?)));
    let probes = probes.map(|(recorded, probe)| {
        let probe = probe?;
        let exact = view.oracles.exact(&probe, 0)?;
        let terms = match node(recorded) {
            Some(choice) => choice.accumulate.chain.eval(&probe.symbols)? as usize,
            None => 0,
        };
        let declared = Precision { accumulate: DType::F32, terms };
        Ok(Probe { call: probe, recorded: recorded.clone(), exact, declared })
    });
    probes.collect()
}

/// Whether an operator knows positions, so that long runs tell more of it.
fn positional(op: &str) -> bool {
    let plain = matches!(op, "attention" | "rope_angles" | "rope" | "append");
    plain || matches!(op, "rope_append_attention" | "rope_append" | "rope_attention")
}

/// Rows of a recorded run.
fn tokens(suite: &Suite, frame: usize) -> u64 {
    suite.frames()[frame].symbols.get(Symbol::N).unwrap_or(0)
}

/// Of the nodes that one variant of a kernel serves, at most `count`.
fn sample(nodes: &[NodeId], choices: &KernelChoices, count: usize) -> Result<Vec<NodeId>> {
    let mut variants: HashMap<String, Vec<NodeId>> = HashMap::new();
    for &node in nodes {
        choices.get(node).map_err(|reason| Error::unsupported(reason.to_string()))?;
        variants.entry(choices.hash(node).unwrap_or_default()).or_default().push(node);
    }
    let pick = |all: &Vec<NodeId>| -> Vec<NodeId> {
        let count = count.min(all.len());
        // The first and the last are always among them, if there are two.
        let (last, gaps) = (all.len() - 1, count.max(2) - 1);
        let mut places: Vec<usize> = (0..count).map(|i| i * last / gaps).collect();
        places.dedup();
        places.into_iter().map(|i| all[i]).collect()
    };
    let mut chosen: Vec<NodeId> = variants.values().flat_map(pick).collect();
    chosen.sort();
    Ok(chosen)
}
