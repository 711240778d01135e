//! Graph to program: lowers the graph for each phase, plans every node, assigns buffers by lifetime, and lays out the
//! steps.
//!
//! A program holds the steps of both phases. Lists of one phase are told apart by the phase of each step, and share
//! buffers, weights and kernels. Buffers have the sizes that values take at capacity, so that one program serves all
//! smaller runs.

mod compiler;
mod list;
mod options;
mod place;
mod trace;

pub use compiler::POISON;
pub use options::CompileOptions;
pub use place::{NodePlace, ObservableNodes, PhaseNodes};
pub use trace::{TracedValue, is_trace, trace_port};

use crate::lower::lower;
use crate::plan::{NodePlan, Phase};
use crate::planner::Planner;
use crate::program::Program;
use compiler::Compiler;
use list::StepList;
use std::sync::Arc;
use tapml_device::DeviceInfo;
use tapml_graph::{Context, Error, ErrorKind, Graph, Result};

/// Rows up to which a run is one of the decode phase, where rows are independent: those of one tile of the products.
pub const DECODE_ROWS: u64 = 128;

/// Compiles a graph for devices like this one. One program serves every `n` and `p` up to the capacity.
///
/// A growing state whose new rows an appending operator adds is extended in place, and a fixed state that its last user
/// advances is advanced in place where the kernel can; any other state is copied back at the end of a run. Fails with
/// [`ErrorKind::Unsupported`] and a list of every node that has no kernel at its types.
///
/// The program is checked before it is returned, as one from a file would be.
pub fn compile(graph: &Graph, info: &DeviceInfo, options: &CompileOptions) -> Result<Program> {
    compile_with(graph, &mut Planner::new(info.clone(), options.overrides.clone()), options)
}

/// As [`compile`] with the plans, the device and the user's kernels of a planner, which may have served other graphs.
pub fn compile_with(graph: &Graph, planner: &mut Planner, options: &CompileOptions) -> Result<Program> {
    Ok(compile_phases(graph, planner, options, false)?.program)
}

/// As [`compile`], with what it takes to stop a run before and behind single nodes and look at their values. With independent rows the
/// program has one list of steps for all runs, that of the decode phase; else it is the same.
///
/// # Errors
/// As [`compile`]; `Unsupported` for a program with another list of steps for single rows.
pub fn compile_observable(
    graph: &Graph,
    info: &DeviceInfo,
    options: &CompileOptions,
) -> Result<(Program, ObservableNodes)> {
    let mut planner = Planner::new(info.clone(), options.overrides.clone());
    let compiled = compile_phases(graph, &mut planner, options, true)?;
    if compiled.decode.is_some() {
        let text = "single nodes are shown of programs that run all numbers of rows by the same kernels";
        return Err(Error::unsupported(text).context(format!("graph `{}`", graph.name())));
    }
    Ok((compiled.program, ObservableNodes { graph: compiled.prefill.graph, places: compiled.places }))
}

/// As [`compile`], with the nodes of each list of steps: that of prompts, or of all runs, then that of single rows if there is one.
/// The program is the same.
///
/// # Errors
/// As [`compile`].
pub fn compile_with_nodes(
    graph: &Graph,
    info: &DeviceInfo,
    options: &CompileOptions,
) -> Result<(Program, Vec<PhaseNodes>)> {
    let mut planner = Planner::new(info.clone(), options.overrides.clone());
    let CompiledPhases { program, prefill, decode, places } =
        compile_phases(graph, &mut planner, options, false)?;
    let mut places = places.into_iter();
    let first = decode.is_some().then_some(Phase::Prefill);
    let lists = [(first, Some(prefill)), (Some(Phase::Decode), decode)].into_iter();
    let lists = lists.filter_map(|(phase, lowered)| {
        let LoweredGraph { graph, plans } = lowered?;
        // Places were noted list by list, a plan and a place for each node.
        let nodes = plans.into_iter().zip(places.by_ref()).collect();
        Some(PhaseNodes { phase, graph, nodes })
    });
    let lists = lists.collect();
    Ok((program, lists))
}

/// What compiling gives.
struct CompiledPhases {
    program: Program,
    /// The graph of prompts, and of all runs if there is no list for single rows.
    prefill: LoweredGraph,
    /// That of single rows, if there is one.
    decode: Option<LoweredGraph>,
    /// The nodes of both lists, one behind the other.
    places: Vec<NodePlace>,
}

/// Lowers, plans and lays out.
/// One that is `observable` has one list where settings alone tell two apart.
fn compile_phases(
    graph: &Graph,
    planner: &mut Planner,
    options: &CompileOptions,
    observable: bool,
) -> Result<CompiledPhases> {
    // With independent rows, both phases differ in their settings alone.
    let decode_rows = if planner.overrides().is_row_invariant() { DECODE_ROWS } else { 1 };
    let single = observable && decode_rows > 1;
    let of_all = if single { Phase::Decode } else { Phase::Prefill };
    let prefill = LoweredGraph::from_graph(graph, of_all, planner, options)?;
    // Each phase has its own plans even where nothing is fused: kernels of one row serve only the decode phase.
    let decode = if single {
        None
    } else {
        let decode = LoweredGraph::from_graph(graph, Phase::Decode, planner, options)?;
        Some(decode).filter(|decode| !prefill.runs_as(decode))
    };
    let compiled = Compiler::new(graph, planner.info(), options).and_then(|mut compiler| {
        // Where both are the same, one list without a phase serves every run, and the device records it a single
        // time.
        match &decode {
            None => compiler.list(&prefill, None)?,
            Some(decode) => {
                compiler.list(&prefill, Some(Phase::Prefill))?;
                compiler.list(decode, Some(Phase::Decode))?;
            }
        }
        let places = std::mem::take(&mut compiler.places);
        Ok((Program { decode_rows, ..compiler.finish()? }, places))
    });
    let (program, places) = compiled.context(|| format!("graph `{}`", graph.name()))?;
    program.check()?;
    Ok(CompiledPhases { program, prefill, decode, places })
}

/// A graph as it runs in one phase, with the plan of every node.
///
/// `plans[i]` belongs to `graph.nodes()[i]`. Names of values are those of the source graph.
struct LoweredGraph {
    graph: Graph,
    plans: Vec<Arc<NodePlan>>,
}

impl LoweredGraph {
    /// Lowers and plans; fails as [`compile`].
    fn from_graph(
        graph: &Graph,
        phase: Phase,
        planner: &mut Planner,
        options: &CompileOptions,
    ) -> Result<LoweredGraph> {
        let graph = lower(graph, phase, options.active_fusions(), planner)?;
        let plans = plan_all(&graph, phase, planner)?;
        Ok(LoweredGraph { graph, plans })
    }

    /// Whether both phases are one: the same nodes by the same kernels.
    /// Equal hashes mean equal launches.
    fn runs_as(&self, other: &LoweredGraph) -> bool {
        let same = |(a, b): (&Arc<NodePlan>, &Arc<NodePlan>)| a.kernel == b.kernel && a.hash == b.hash;
        self.graph == other.graph && self.plans.iter().zip(&other.plans).all(same)
    }
}

impl Compiler<'_> {
    /// The steps of a lowered graph, for one phase or for both.
    fn list(&mut self, lowered: &LoweredGraph, phase: Option<Phase>) -> Result<()> {
        let mut list = StepList::new(self, &lowered.graph, phase)?;
        for (index, (node, plan)) in lowered.graph.nodes().iter().zip(&lowered.plans).enumerate() {
            list.node(index, node, plan).context(|| format!("node `{}`", node.name))?;
        }
        list.finish()
    }
}

/// The plan of every node, or one error that lists all that are unsupported.
///
/// A user sees all that a device lacks at the first attempt. Any error of another kind ends planning at its node.
fn plan_all(graph: &Graph, phase: Phase, planner: &mut Planner) -> Result<Vec<Arc<NodePlan>>> {
    let (mut plans, mut refused) = (Vec::new(), Vec::new());
    for node in graph.nodes() {
        match planner.plan(&node.op, &graph.input_types(node), phase) {
            Ok(plan) => plans.push(plan),
            Err(e) if e.kind() == ErrorKind::Unsupported => {
                refused.push(e.context(format!("node `{}`", node.name)))
            }
            Err(e) => return Err(e.context(format!("node `{}`", node.name))),
        }
    }
    match refused.len() {
        0 => Ok(plans),
        1 => Err(refused.remove(0)),
        count => {
            let lines: Vec<String> = refused.iter().map(|e| format!("\n  {e}")).collect();
            Err(Error::unsupported(format!(
                "{count} nodes are unsupported on {}:{}",
                planner.info().name,
                lines.concat()
            )))
        }
    }
}
