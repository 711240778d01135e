//! After the operators are accepted one by one: the accepted nodes of others' operators as one model of the target.
//!
//! Only platforms that compile several nodes into one program have regions. A region that fails makes the
//! migration fail; its nodes stay accepted one by one.

use crate::choices::KernelChoices;
use crate::decide::{RegionDecision, decide_region};
use crate::hash::Hash;
use crate::ledger::{KeyedRegions, Ledger, LedgerFolder, VERSION};
use crate::migration::Migration;
use crate::regions::{MOST_RUNS, Regions, segments};
use crate::report::RegionReport;
use std::collections::BTreeSet;
use tapml_graph::{Context, NodeId, Op, Result, Symbols};

impl Migration<'_> {
    /// Runs the regions of accepted nodes with the values of recorded runs, and enters what came of it into the ledger.
    pub(crate) fn regions(
        &mut self,
        folder: &LedgerFolder,
        ledger: &mut Ledger,
        choices: &KernelChoices,
    ) -> Result<()> {
        let graph = self.model.graph();
        // A platform that runs nodes one by one has no regions: its programs are checked as they are deployed.
        if !self.target.runs_regions() || !graph.nodes().iter().any(|node| matches!(node.op, Op::Foreign(_)))
        {
            return Ok(());
        }
        let text = format!(
            "regions {VERSION} {MOST_RUNS} {} {:?} {:?}",
            self.suite.hash(),
            self.evidence,
            self.target.describe()
        );
        let key = Hash::compute(text.as_bytes());
        // The evidence of the same nodes, device and suite is in the ledger.
        if ledger.regions.as_ref().is_some_and(|known| known.key == key) {
            return Ok(());
        }
        let placed = |id: NodeId| self.is_placed(&graph.node(id).name);
        let all: Vec<BTreeSet<NodeId>> =
            // A single node was checked alone already.
            segments(graph, &placed).into_iter().filter(|nodes| nodes.len() > 1).collect();
        self.progress.stage("run accepted nodes as one model", all.len() as u64);
        let mut reports = Vec::new();
        for nodes in all {
            self.stop.check()?;
            reports.push(self.region(&nodes, choices).context(|| "a region of accepted nodes".into())?);
            self.progress.advance(1);
        }
        ledger.regions = Some(KeyedRegions { key, reports });
        folder.save(ledger)
    }

    /// Checks one region; the platform's errors about it go into the report.
    fn region(&mut self, nodes: &BTreeSet<NodeId>, choices: &KernelChoices) -> Result<RegionReport> {
        let precision = |node: NodeId, symbols: &Symbols| choices.declared_precision(node, symbols);
        let (suite, model, oracles) = (self.suite, self.model, self.oracles);
        let regions = Regions { suite, model, oracles, precision: &precision };
        let name = |id: &NodeId| model.graph().node(*id).name.clone();
        let (target, stop) = (&mut *self.target, self.stop);
        let found = regions.check_smallest(target, nodes, stop)?;
        let (passed, skipped, reason) = match decide_region(&found) {
            RegionDecision::Passed => (true, None, None),
            RegionDecision::Skipped(why) => (false, Some(why), None),
            RegionDecision::Failed(why) => (false, None, Some(why)),
        };
        Ok(RegionReport {
            nodes: nodes.len() as u64,
            first: nodes.first().map(name).unwrap_or_default(),
            last: nodes.last().map(name).unwrap_or_default(),
            runs: regions.runs() as u64,
            passed,
            ratio: found.outcome.ratio(),
            failing: found.failing.iter().map(name).collect(),
            skipped,
            reason,
            reproduce: None,
        })
    }
}
