//! Which kernels a platform uses for each node of a graph, or why it has none.
//!
//! A choice is asked for one time and kept: verdicts on several threads need it, and the platform has one
//! user. A missing kernel is an answer; any other error ends the job.

use crate::suite::{Case, Suite};
use crate::verdict::Precision;
use std::collections::{BTreeSet, HashMap};
use tapml_exec::{KernelChoice, Phase, Platform};
use tapml_graph::{DType, ErrorKind, Graph, NodeId, Result, Symbols};

/// The kernel of a node in one phase, or why there is none.
type Chosen = std::result::Result<KernelChoice, String>;

/// The kernels of some nodes, in each phase; of none by default.
#[derive(Default)]
pub struct KernelChoices {
    /// Only nodes and phases that were asked for.
    by_node: HashMap<(NodeId, Phase), Chosen>,
}

impl KernelChoices {
    /// Asks the platform for each of these nodes in both phases. Fails if it cannot say, such as for a source that does not
    /// compile.
    pub fn from_platform(
        graph: &Graph,
        platform: &dyn Platform,
        nodes: impl Iterator<Item = NodeId>,
    ) -> Result<KernelChoices> {
        let both = |node| Phase::ALL.map(|phase| (node, phase));
        KernelChoices::of_phases(graph, platform, nodes.flat_map(both))
    }

    /// As [`KernelChoices::from_platform`] for what these cases of a suite run.
    pub fn of_cases(suite: &Suite, platform: &dyn Platform, cases: &[Case]) -> Result<KernelChoices> {
        let keys = cases.iter().map(|case| (case.node, suite.phase(*case)));
        KernelChoices::of_phases(suite.graph(), platform, keys)
    }

    /// Each key is asked for once.
    fn of_phases(
        graph: &Graph,
        platform: &dyn Platform,
        keys: impl Iterator<Item = (NodeId, Phase)>,
    ) -> Result<KernelChoices> {
        let mut by_node = HashMap::new();
        for (id, phase) in keys {
            if by_node.contains_key(&(id, phase)) {
                continue;
            }
            let node = graph.node(id);
            let choice = match platform.kernel_for(&node.op, &graph.input_types(node), phase) {
                Ok(choice) => Ok(choice),
                Err(e) if e.kind() == ErrorKind::Unsupported => Err(e.to_string()),
                Err(e) => return Err(e.context(format!("node `{}`", node.name))),
            };
            by_node.insert((id, phase), choice);
        }
        Ok(KernelChoices { by_node })
    }

    /// The kernel of a node that was asked for in this phase, or why there is none.
    pub fn kernel_at(&self, node: NodeId, phase: Phase) -> std::result::Result<&KernelChoice, &str> {
        match self.by_node.get(&(node, phase)) {
            Some(choice) => choice.as_ref().map_err(String::as_str),
            None => Err("the platform was not asked"),
        }
    }

    /// The kernel that runs a case, or why there is none.
    pub fn of_case(&self, suite: &Suite, case: Case) -> std::result::Result<&KernelChoice, &str> {
        self.kernel_at(case.node, suite.phase(case))
    }

    /// The kernels of a node in all phases that were asked for.
    pub fn kernels(&self, node: NodeId) -> impl Iterator<Item = &KernelChoice> {
        Phase::ALL.into_iter().filter_map(move |phase| self.kernel_at(node, phase).ok())
    }

    /// A kernel of a node that was asked for: the one of prompts if there is one, else that of single rows; or why the
    /// node has none in a phase that was asked for.
    pub fn get(&self, node: NodeId) -> std::result::Result<&KernelChoice, &str> {
        let asked = [Phase::Prefill, Phase::Decode].map(|phase| self.by_node.get(&(node, phase)));
        let mut asked = asked.into_iter().flatten();
        let first = asked.next().ok_or("the platform was not asked")?;
        if let (Ok(_), Some(Err(reason))) = (first, asked.next()) {
            return Err(reason);
        }
        first.as_ref().map_err(String::as_str)
    }

    /// The hashes of a node's kernels in all phases that were asked for, which change with any of them.
    pub fn hash(&self, node: NodeId) -> Option<String> {
        let hashes: Vec<&str> = self.kernels(node).map(|choice| choice.hash.as_str()).collect();
        (!hashes.is_empty()).then(|| hashes.join("+"))
    }

    /// The cases that can run, and those that cannot with the reason.
    pub fn split(&self, suite: &Suite, cases: Vec<Case>) -> (Vec<Case>, Vec<(Case, String)>) {
        let (mut run, mut skipped) = (Vec::new(), Vec::new());
        for case in cases {
            match self.of_case(suite, case) {
                Err(reason) => skipped.push((case, reason.to_string())),
                Ok(_) => run.push(case),
            }
        }
        (run, skipped)
    }

    /// The precision that the kernel of a node declares for a call at these symbols; plain f32 if there is none.
    pub fn precision(&self, node: NodeId, symbols: &Symbols) -> Result<Precision> {
        let declared = self.declared_precision(node, symbols)?;
        Ok(declared.unwrap_or(Precision { accumulate: DType::F32, terms: 0 }))
    }

    /// The precision that the kernel of a node declares for a call at these symbols; `None` if there is none.
    pub fn declared_precision(&self, node: NodeId, symbols: &Symbols) -> Result<Option<Precision>> {
        let Ok(choice) = self.kernel_at(node, Phase::of_run(symbols)) else { return Ok(None) };
        // A chain longer than `usize` allows is as good as endless.
        let terms = usize::try_from(choice.accumulate.chain.eval(symbols)?).unwrap_or(usize::MAX);
        Ok(Some(Precision { accumulate: choice.accumulate.dtype, terms }))
    }

    /// A property of all kernels in use, each value once, joined by `+`.
    pub fn names(&self, property: impl Fn(&KernelChoice) -> String) -> String {
        let names: BTreeSet<String> = self.by_node.values().flatten().map(property).collect();
        names.into_iter().collect::<Vec<_>>().join("+")
    }
}
