//! Faults between kernels: order, buffers, caches, uniforms, casts at the boundary.
//!
//! Places are found in the commands that a program gives in one phase. A fault that changes nothing there is not made.

use super::op_names::op_of;
use crate::commands::{Known, edit, only_read};
use crate::mutant::{Cast, Edit, Family, Mutant};
use std::collections::{HashMap, HashSet};
use tapml_cause::Cause;
use tapml_cause::Cause as C;
use tapml_device::{Binding, BufferId, Command, KernelDesc, KernelId};
use tapml_kernels::{Phase, Program, ProgramStep};

/// A fault found in a program: the node concerned (empty if none), the edit, and the diff.
pub struct FoundBetween {
    /// The node.
    pub node: String,
    /// The edit.
    pub edit: Edit,
    /// Lines with `-` and `+`.
    pub diff: String,
}

/// One mutation operator for programs.
pub struct BetweenOperator {
    /// Its name in ids and reports.
    pub name: &'static str,
    /// The family of its mutants.
    pub family: Family,
    /// The causes that a diagnosis may give.
    pub causes: &'static [Cause],
    /// Finds every place in a program.
    pub find: fn(&Commands<'_>) -> Vec<FoundBetween>,
}

/// All mutation operators for programs.
pub const BETWEEN: &[BetweenOperator] = &[
    row("late", Family::Between, &[C::MissingDependency, C::NotWritten, C::StaleData, C::MissingCopy], late),
    row(
        "missing",
        Family::Between,
        &[C::MissingDependency, C::MissingCopy, C::StaleData, C::NotWritten, C::WrongSlot],
        missing,
    ),
    row("alias", Family::Between, &[C::BufferReused, C::StaleData], alias),
    row("other-cache", Family::State, &[C::WrongLayerState, C::WrongSlot], other_cache),
    row("stale-symbols", Family::Between, &[C::WrongSymbol, C::StaleData], stale_symbols),
    row("kept-position", Family::State, &[C::StateNotReset, C::WrongSymbol], kept_position),
    row("stale-input", Family::Between, &[C::MissingCopy, C::StaleData], stale_input),
    row("cast-input", Family::Between, &[C::WrongCast, C::Rounding], cast_input),
    row("cast-output", Family::Between, &[C::WrongCast, C::Rounding], cast_output),
];

/// One row of the table.
const fn row(
    name: &'static str,
    family: Family,
    causes: &'static [Cause],
    find: fn(&Commands<'_>) -> Vec<FoundBetween>,
) -> BetweenOperator {
    BetweenOperator { name, family, causes, find }
}

/// A program's steps as the commands that a device gets.
pub struct Commands<'a> {
    /// The program.
    pub program: &'a Program,
    /// Its steps.
    pub list: Vec<Command>,
    /// The operator of each command's row; empty for those that launch nothing.
    ops: Vec<&'a str>,
    /// Kernels of the program by index.
    kernels: HashMap<KernelId, KernelDesc>,
    /// Names and sizes of the program's buffers by index.
    buffers: HashMap<BufferId, (String, u64)>,
}

impl<'a> Commands<'a> {
    /// The commands of a program in one phase; handles are its indices.
    pub fn from_program(program: &'a Program, phase: Phase) -> Commands<'a> {
        let id = |index: u32| BufferId(u64::from(index));
        let command = |step: &ProgramStep| match step {
            ProgramStep::Dispatch { node, kernel, bindings, groups, .. } => Command::Dispatch {
                label: node.clone(),
                kernel: KernelId(u64::from(*kernel)),
                bindings: bindings
                    .iter()
                    .map(|s| Binding { buffer: id(s.buffer), offset: s.offset, size: s.size })
                    .collect(),
                groups: groups.clone(),
            },
            ProgramStep::Copy { src, src_offset, dst, dst_offset, len, .. } => Command::Copy {
                src: id(*src),
                src_offset: src_offset.clone(),
                dst: id(*dst),
                dst_offset: dst_offset.clone(),
                len: len.clone(),
            },
            ProgramStep::Fill { buffer, word, .. } => Command::Fill { buffer: id(*buffer), word: *word },
        };
        let kernels = program.kernels.iter().enumerate();
        let buffers = program.buffers.iter().enumerate();
        let steps = || program.steps.iter().filter(|step| step.runs_in(phase));
        let op = |step: &'a ProgramStep| match step {
            ProgramStep::Dispatch { row, .. } => op_of(row),
            _ => "",
        };
        Commands {
            program,
            list: steps().map(command).collect(),
            ops: steps().map(op).collect(),
            kernels: kernels.map(|(i, k)| (KernelId(i as u64), k.clone())).collect(),
            buffers: buffers.map(|(i, b)| (BufferId(i as u64), (b.name.clone(), b.size))).collect(),
        }
    }

    /// Handles as edits of lists need them.
    fn known_handles(&self) -> Known<'_> {
        Known { kernels: &self.kernels, buffers: &self.buffers }
    }

    /// Nodes with their operators, in order.
    fn nodes(&self) -> Vec<(&str, &str)> {
        let mut found: Vec<(&str, &str)> = Vec::new();
        for (command, &op) in self.list.iter().zip(&self.ops) {
            let Command::Dispatch { label, .. } = command else { continue };
            // A node may have several dispatches in a row.
            if found.last().is_none_or(|(node, _)| node != label) {
                found.push((label, op));
            }
        }
        found
    }

    /// The bindings of a node that hold growing states, those that it writes if it appends to them.
    fn caches(&self, node: &str) -> Vec<usize> {
        let grows = |buffer: BufferId| {
            let states = self.program.states.iter().filter(|state| state.grows);
            states.map(|state| u64::from(state.buffer)).any(|own| own == buffer.0)
        };
        let of_node =
            |command: &&Command| matches!(command, Command::Dispatch { label, .. } if label == node);
        let mut found: Vec<usize> = Vec::new();
        for command in self.list.iter().filter(of_node) {
            let Command::Dispatch { bindings, .. } = command else { continue };
            found.extend(bindings.iter().enumerate().filter(|(_, b)| grows(b.buffer)).map(|(at, _)| at));
        }
        found.sort_unstable();
        // Several dispatches of a node may bind the same cache.
        found.dedup();
        found
    }

    /// Of each operator the nodes where `edit` changes the list, at most two: one near the first quarter, one near the last.
    fn pick_edits(&self, edit_of: impl Fn(&str) -> Edit) -> Vec<(&str, Edit)> {
        let mut by_op: HashMap<&str, Vec<(&str, Edit)>> = HashMap::new();
        let mut order = Vec::new();
        for (node, op) in self.nodes() {
            let edit = edit_of(node);
            // Where a node has no reader, or no buffer fits, there is nothing to make.
            if !self.changes(node, &edit) {
                continue;
            }
            let found = by_op.entry(op).or_default();
            if found.is_empty() {
                order.push(op);
            }
            found.push((node, edit));
        }
        let chosen = order.into_iter().flat_map(|op| {
            let all = by_op.remove(op).unwrap_or_default();
            // Early and late nodes differ in what their buffers held before.
            let picks: HashSet<usize> = [all.len() / 4, all.len() * 3 / 4].into();
            all.into_iter().enumerate().filter(move |(i, _)| picks.contains(i)).map(|(_, found)| found)
        });
        chosen.collect()
    }

    /// Whether an edit of a node changes the list.
    fn changes(&self, node: &str, change: &Edit) -> bool {
        let mut list = self.list.clone();
        let mutant = Mutant {
            id: String::new(),
            model: String::new(),
            family: Family::Between,
            operator: String::new(),
            op: String::new(),
            row: String::new(),
            parts: Vec::new(),
            target: node.into(),
            source: String::new(),
            edit: change.clone(),
            diff: String::new(),
            causes: Vec::new(),
        };
        edit(&mut list, &mutant, change, &self.known_handles());
        list != self.list
    }
}

/// Finds with their diffs: what a node does, and what it does with the fault.
fn describe_edits(found: Vec<(&str, Edit)>, old: &str, new: &str) -> Vec<FoundBetween> {
    let one = |(node, edit): (&str, Edit)| FoundBetween {
        node: node.to_string(),
        edit,
        diff: format!("program, node {node}\n- {old}\n+ {new}"),
    };
    found.into_iter().map(one).collect()
}

/// A node runs behind its first reader.
fn late(commands: &Commands<'_>) -> Vec<FoundBetween> {
    describe_edits(commands.pick_edits(|_| Edit::Late), "runs before what reads its result", "runs after it")
}

/// A node does not run.
fn missing(commands: &Commands<'_>) -> Vec<FoundBetween> {
    describe_edits(commands.pick_edits(|_| Edit::Missing), "runs", "does not run")
}

/// A node's result overwrites a value that is still needed.
fn alias(commands: &Commands<'_>) -> Vec<FoundBetween> {
    let new = "its result overwrites a value that is read later";
    describe_edits(commands.pick_edits(|_| Edit::Alias), "its result has a buffer of its own", new)
}

/// Attention that reads, and rows that are appended to, the cache of another layer.
fn other_cache(commands: &Commands<'_>) -> Vec<FoundBetween> {
    let mut found = Vec::new();
    for op in ["attention", "append", "rope_append", "rope_append_attention", "rope_attention"] {
        let nodes: Vec<&str> = commands.nodes().into_iter().filter(|n| n.1 == op).map(|n| n.0).collect();
        // Keys and values alternate among the appending nodes. The other layer comes before, so that its cache is filled.
        let step = if op == "append" { 2 } else { 1 };
        for &at in [nodes.len() / 2, nodes.len() * 3 / 4].iter().filter(|&&at| at >= step && at < nodes.len())
        {
            for binding in commands.caches(nodes[at]) {
                let from = nodes[at - step];
                let edit = Edit::Borrow { from: from.to_string(), binding };
                let diff = format!(
                    "program, node {}\n- binding {binding}: its own cache\n+ binding {binding}: the cache of {from}",
                    nodes[at]
                );
                found.push(FoundBetween { node: nodes[at].to_string(), edit, diff });
            }
        }
    }
    found.retain(|f| commands.changes(&f.node, &f.edit));
    found.dedup_by(|a, b| a.node == b.node && a.edit == b.edit);
    found
}

/// A fault of the program as a whole.
fn whole(edit: Edit, old: &str, new: &str) -> FoundBetween {
    FoundBetween { node: String::new(), edit, diff: format!("program\n- {old}\n+ {new}") }
}

/// The block of sizes and positions is written once.
fn stale_symbols(commands: &Commands<'_>) -> Vec<FoundBetween> {
    let old = "the uniform block is written before each run";
    let found = whole(Edit::StaleSymbols, old, "the uniform block is written before the first run");
    commands.program.buffers.iter().any(|b| b.name == "symbols").then_some(found).into_iter().collect()
}

/// Positions of a new text go on where the last one ended; only programs with growing states have any.
fn kept_position(commands: &Commands<'_>) -> Vec<FoundBetween> {
    let found = whole(
        Edit::KeptPosition,
        "a new text begins with p = 0",
        "a new text begins where the last one ended",
    );
    let grows = commands.program.states.iter().any(|s| s.grows);
    grows.then_some(found).into_iter().collect()
}

/// Whether a program reads one of its inputs as it is given.
fn has_input(commands: &Commands<'_>) -> bool {
    let read = only_read(&commands.list, &commands.known_handles());
    commands.program.inputs.iter().any(|port| read.contains(&BufferId(u64::from(port.buffer))))
}

/// Inputs of every second run are lost.
fn stale_input(commands: &Commands<'_>) -> Vec<FoundBetween> {
    let found =
        whole(Edit::StaleInput, "inputs are copied for each run", "inputs are copied for every second run");
    has_input(commands).then_some(found).into_iter().collect()
}

/// Indices pass through a float format, which holds small ones only.
fn cast_input(commands: &Commands<'_>) -> Vec<FoundBetween> {
    let one = |cast| {
        whole(Edit::CastInput(cast), "token ids are copied", &format!("token ids pass through {cast:?}"))
    };
    let casts = [Cast::F16, Cast::Bf16].into_iter().filter(|_| has_input(commands));
    casts.map(one).collect()
}

/// Results pass through a narrower format on their way to the host.
fn cast_output(_: &Commands<'_>) -> Vec<FoundBetween> {
    let one =
        |cast| whole(Edit::CastOutput(cast), "results are copied", &format!("results pass through {cast:?}"));
    [Cast::F16, Cast::Bf16].map(one).into()
}
