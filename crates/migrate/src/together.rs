//! After the operators are accepted one by one: the accepted nodes of others' operators as one model of the target.

use crate::choices::Choices;
use crate::identity::Hash;
use crate::ledger::{KeyedRegions, Ledger, LedgerFolder, VERSION};
use crate::migrate::Migration;
use crate::regions::{Regions, is_not_served, segments, smallest_failing};
use crate::report::RegionReport;
use std::collections::BTreeSet;
use tapml_graph::{Error, ErrorKind, NodeId, Op, Result, Symbols};

impl Migration<'_> {
    /// Runs the regions of accepted nodes with the values of the first recorded run, and enters what came of it into the ledger.
    pub(crate) fn regions(
        &mut self,
        folder: &LedgerFolder,
        ledger: &mut Ledger,
        choices: &Choices,
    ) -> Result<()> {
        let graph = self.model.graph();
        if !graph.nodes().iter().any(|node| matches!(node.op, Op::Foreign(_))) {
            return Ok(());
        }
        let text = format!(
            "regions {VERSION} {} {:?} {:?}",
            self.suite.hash(),
            self.evidence,
            self.target.describe()
        );
        let key = Hash::of(text.as_bytes());
        if ledger.regions.as_ref().is_some_and(|known| known.key == key) {
            return Ok(());
        }
        let placed = |id: NodeId| self.is_placed(&graph.node(id).name);
        let all: Vec<BTreeSet<NodeId>> =
            segments(graph, &placed).into_iter().filter(|nodes| nodes.len() > 1).collect();
        self.progress.stage("run accepted nodes as one model", all.len() as u64);
        let mut reports = Vec::new();
        for nodes in all {
            self.stop.check()?;
            match self.region(&nodes, choices) {
                Ok(report) => reports.push(report),
                // A platform that runs nodes one by one has no regions: its programs are checked as they are deployed.
                Err(e) if is_not_served(&e) => self.progress.note(&format!("no region: {e}")),
                Err(e) => return Err(e.context("a region of accepted nodes")),
            }
            self.progress.advance(1);
        }
        ledger.regions = Some(KeyedRegions { key, reports });
        folder.save(ledger)
    }

    fn region(&mut self, nodes: &BTreeSet<NodeId>, choices: &Choices) -> Result<RegionReport> {
        let precision = |node: NodeId, symbols: &Symbols| choices.declared(node, symbols);
        let (suite, model, oracles) = (self.suite, self.model, self.oracles);
        let regions = Regions { suite, model, oracles, precision: &precision };
        let name = |id: &NodeId| model.graph().node(*id).name.clone();
        let named = |nodes: &BTreeSet<NodeId>| nodes.iter().map(name).collect::<Vec<String>>();
        let (first, last) = (nodes.first().map(name), nodes.last().map(name));
        let mut report = RegionReport {
            nodes: nodes.len() as u64,
            first: first.unwrap_or_default(),
            last: last.unwrap_or_default(),
            passed: true,
            ratio: 0.0,
            failing: Vec::new(),
            reason: None,
        };
        let target = &mut *self.target;
        match failure(regions.check(target, nodes, 0))? {
            Found::Passed(ratio) => report.ratio = ratio,
            Found::Fails(..) => {
                let stop = self.stop;
                let mut fails = |nodes: &BTreeSet<NodeId>| {
                    stop.check()?;
                    Ok(matches!(failure(regions.check(target, nodes, 0))?, Found::Fails(..)))
                };
                let smallest = smallest_failing(nodes.clone(), &mut fails)?;
                report.passed = false;
                report.failing = named(&smallest);
                (report.ratio, report.reason) = match failure(regions.check(target, &smallest, 0))? {
                    Found::Fails(ratio, reason) => (ratio, Some(reason)),
                    Found::Passed(ratio) => (ratio, Some("it failed, and passed when it ran again".into())),
                };
            }
        }
        Ok(report)
    }
}

/// What became of a region.
enum Found {
    Passed(f64),
    Fails(f64, String),
}

/// What a check says of a region; an error if it says nothing.
fn failure(checked: Result<crate::regions::RegionJudgement>) -> Result<Found> {
    let lost = |e: &Error| {
        is_not_served(e)
            || matches!(e.kind(), ErrorKind::DeviceLost | ErrorKind::Interrupted | ErrorKind::Bug)
    };
    match checked {
        Ok(judged) if judged.passed() => Ok(Found::Passed(judged.ratio)),
        Ok(judged) => {
            let reason = format!(
                "`{}` departs at element {} by {:.2e} times what the allowed errors of the nodes explain: exact {:.6e}, found {:.6e}",
                judged.value, judged.element, judged.ratio, judged.exact, judged.observed
            );
            Ok(Found::Fails(judged.ratio, reason))
        }
        Err(e) if lost(&e) => Err(e),
        Err(e) => Ok(Found::Fails(f64::INFINITY, e.to_string())),
    }
}
