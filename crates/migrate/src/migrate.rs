//! Migration, Algorithm 1: for each operator kind, in the order of [`sort_moves`], check its calls alone, then the hybrid model
//! with it, then accept or reject it. Evidence that still holds is taken from the ledger.
//!
//! The ledger is saved after each check and each decision. Evidence is valid for a key: a hash of all that
//! it depends on. A run that finds the same key reads the evidence instead of making it.

use crate::ahead::{Ahead, AheadWork};
use crate::carve::{CarveOptions, PromptInput, carve, steps};
use crate::check::composed_suites;
use crate::choices::KernelChoices;
use crate::composed::{composed_kinds, is_composed};
use crate::deploy::{list_deployed, unchecked_calls};
use crate::identity::{self, ModelIdentity};
use crate::ledger::{Entry, Ledger, LedgerFolder, OpState, VERSION};
use crate::migration::{Migration, Timed, limits_key};
use crate::oracle::Oracles;
use crate::order::sort_moves;
use crate::outcome::report;
use crate::progress::Progress;
use crate::report::{MigrateReport, Seconds};
use crate::stop::Stop;
use crate::suite::{Prompt, Suite};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tapml_exec::{Interface, Phase, Platform};
use tapml_graph::{Error, Graph, Model, NodeId, Result};

/// How to migrate.
pub struct MigrateOptions<'a> {
    /// The ledger's folder.
    pub ledger: &'a Path,
    /// Decode steps after each prompt.
    pub steps: u32,
    /// Most tokens of the model's context; 0 if unknown.
    pub context: u32,
    /// Time that reading the model took, for the report, seconds.
    pub import_seconds: f64,
    /// Turns ids into text.
    pub decode: &'a (dyn Fn(&[u32]) -> String + Sync),
}

/// A finished migration.
#[derive(Clone, Debug)]
pub struct Migrated {
    /// The report.
    pub report: MigrateReport,
    /// The suite that was carved or reused.
    pub suite: PathBuf,
}

/// Moves `model` from `source` to `target` operator by operator. Running it again with the same ledger redoes only what
/// changed, and what depends on it. A request to stop ends it with [`ErrorKind::Interrupted`]; nothing decided is lost.
#[expect(
    clippy::too_many_arguments,
    reason = "the model, the two platforms and the caller's hooks are all needed"
)]
pub fn migrate(
    model: &Model,
    identity: ModelIdentity,
    prompts: &[PromptInput],
    source: &mut dyn Platform,
    target: &mut dyn Platform,
    options: &MigrateOptions<'_>,
    progress: &dyn Progress,
    stop: &Stop,
) -> Result<Migrated> {
    let carving = |identity: &ModelIdentity, source: &mut dyn Platform, folder: &LedgerFolder| {
        let carving = CarveOptions {
            out: &folder.suite(),
            overwrite: true,
            steps: options.steps,
            self_contained: false,
            context: options.context,
            decode: options.decode,
        };
        obtain_suite(model, identity, prompts, source, &carving, progress, stop)
    };
    let oracles = Oracles::new(Oracles::MIGRATION_BUDGET);
    migrate_suite(model, identity, &carving, &oracles, source, target, options, progress, stop)
}

/// Gives the suite in a ledger's folder, carved if it is not there.
pub type ObtainSuite<'a> = dyn Fn(&ModelIdentity, &mut dyn Platform, &LedgerFolder) -> Result<Suite> + 'a;

/// As [`migrate`], with a suite that is obtained in another way, and with exact results from elsewhere.
#[expect(
    clippy::too_many_arguments,
    reason = "the model, the two platforms and the caller's hooks are all needed"
)]
pub fn migrate_suite(
    model: &Model,
    identity: ModelIdentity,
    obtain: &ObtainSuite<'_>,
    oracles: &Oracles,
    source: &mut dyn Platform,
    target: &mut dyn Platform,
    options: &MigrateOptions<'_>,
    progress: &dyn Progress,
    stop: &Stop,
) -> Result<Migrated> {
    let start = Instant::now();
    // Taken before anything else: two migrations in one folder would mix their evidence.
    let folder = LedgerFolder::take(options.ledger)?;
    let mut identity = identity;
    // Before the ledger is read, which is refused if it is of other weights.
    identity.weights = identity::weights_hash(&identity::weight_entries(model)?).to_string();
    let graph = identity::graph_hash(model.graph());
    let old = folder.load(graph, &identity, progress)?;
    let mut seconds = Seconds { import: options.import_seconds, ..Seconds::default() };
    let suite = Timed::new(&mut seconds.carve).run(|| obtain(&identity, source, &folder))?;
    let composed = composed_suites(&suite, target)?;
    progress.stage("compile kernels", 0);
    Timed::new(&mut seconds.compile).run(|| prepare(&suite, &composed, target));
    let mut ledger = Ledger {
        version: VERSION,
        model: identity,
        graph,
        source: source.describe(),
        target: target.describe(),
        suite: Some(suite.hash()),
        ops: entries(model.graph(), &composed, old.as_ref()),
        limits: old.as_ref().and_then(|o| o.limits.clone()),
        // Old evidence is carried over; keys decide later whether it holds.
        regions: old.and_then(|o| o.regions),
    };
    folder.save(&ledger)?;
    let nodes = (0..model.graph().nodes().len() as u32).map(NodeId);
    let choices = KernelChoices::from_platform(model.graph(), target, nodes)?;
    let views = composed.each_ref().map(|_| oracles.for_view(Oracles::VIEW_BUDGET));
    let mut seconds = std::thread::scope(|scope| {
        let key = limits_key(&suite, &choices);
        let is_known = ledger.limits.as_ref().is_some_and(|known| known.key == key);
        let work = AheadWork {
            suite: &suite,
            model,
            oracles,
            choices: &choices,
            limits: (!is_known).then_some(key),
            calls: unchecked_calls(&ledger, model.graph(), composed.iter().zip(&views)),
        };
        let mut run = Migration {
            suite: &suite,
            model,
            oracles,
            source,
            target: &mut *target,
            progress,
            stop,
            hybrid: None,
            placed: HashSet::new(),
            unfused: None,
            evidence: Vec::new(),
            seconds,
            ahead: Ahead::start(scope, work),
            composed: &views,
        };
        // Composed operators have their turn after all others.
        for at in sort_moves(&suite, &ledger.ops, run.target.is_software()) {
            stop.check()?;
            if !is_composed(suite.graph(), &ledger.ops[at].op) {
                run.op(&folder, &mut ledger, at, &choices)?;
            }
        }
        run.decide_composed(&folder, &mut ledger, &composed)?;
        run.regions(&folder, &mut ledger, &choices)?;
        Ok::<Seconds, Error>(run.seconds)
    })?;
    let deployed = list_deployed(&ledger, model.graph(), target)?;
    seconds.total = start.elapsed().as_secs_f64() + options.import_seconds;
    let report = report(&ledger, &suite, (seconds, deployed), options.decode);
    Ok(Migrated { report, suite: folder.suite() })
}

/// Lets the target compile the kernels of all nodes together: one after the other, each would wait for the checks of those before it.
fn prepare(suite: &Suite, composed: &[Suite; 2], target: &mut dyn Platform) {
    let plain = Phase::ALL.map(|phase| (suite.graph(), phase));
    let fused = [(composed[0].graph(), Phase::ALL[0]), (composed[1].graph(), Phase::ALL[1])];
    let nodes = plain.into_iter().chain(fused).flat_map(|(graph, phase)| {
        (0..graph.nodes().len() as u32).map(move |node| (graph, NodeId(node), phase))
    });
    target.prepare(&nodes.collect::<Vec<_>>());
}

/// The suite at `options.out` if it is intact and of this model, source, prompts and steps; else a new one in its place.
/// `identity.weights` must be known.
pub fn obtain_suite(
    model: &Model,
    identity: &ModelIdentity,
    prompts: &[PromptInput],
    source: &mut dyn Platform,
    options: &CarveOptions<'_>,
    progress: &dyn Progress,
    stop: &Stop,
) -> Result<Suite> {
    let info = source.describe();
    let steps = steps(&Interface::from_graph(model.graph())?, options.steps);
    if options.out.try_exists().map_err(|e| Error::io("look for", options.out, &e))? {
        match Suite::open(options.out).and_then(|s| s.verify().map(|()| s)) {
            Ok(suite) => {
                let m = suite.manifest();
                let same_source = (&m.source.platform, &m.source.device, &m.source.driver)
                    == (&info.platform, &info.device, &info.driver);
                let same_prompts = m.prompts.len() == prompts.len()
                    && m.prompts.iter().zip(prompts).all(|(a, b)| same_prompt(a, b, steps));
                let same_model = m.graph_hash == identity::graph_hash(model.graph())
                    && m.model.weights == identity.weights;
                if same_model && same_source && same_prompts && m.settings.steps == steps {
                    return Ok(suite);
                }
            }
            // A damaged suite is no reason to fail: it can be made again.
            Err(error) => progress.note(&format!("carving again: {error}")),
        }
    }
    carve(source, model, identity.clone(), prompts, options, progress, stop)?;
    Suite::open(options.out)
}

/// Whether a carved prompt is this one, followed by as many steps as it asks for.
fn same_prompt(carved: &Prompt, given: &PromptInput, steps: u32) -> bool {
    // An encoder generates nothing.
    let as_long = carved.generated.is_empty() || carved.generated.len() == given.steps(steps) as usize + 1;
    carved.ids == given.ids && carved.image == given.image_hash() && as_long
}

/// The ledger's operators in graph order, then the fused ones of the target, with what an older ledger knows of them.
fn entries(graph: &Graph, composed: &[Suite; 2], old: Option<&Ledger>) -> Vec<Entry> {
    let known = |op: &str| old.and_then(|l| l.ops.iter().find(|e| e.op == op)).cloned();
    let kinds = graph.op_kinds().into_iter();
    kinds
        .chain(composed_kinds(graph, composed))
        .map(|(op, nodes)| {
            let entry = known(op).unwrap_or_default();
            Entry { op: op.into(), nodes: nodes as u64, state: OpState::Pending, reason: None, ..entry }
        })
        .collect()
}
