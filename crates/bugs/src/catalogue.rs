//! All mutants of a model on a device: every operator of the tables at every place of every kernel that its program
//! launches, plain or fused, and of the program.
//!
//! Mutants are made of the program as it is compiled for one device, since only kernels that it launches can fail there.

use crate::mutant::Edit;
use crate::mutant::{Family, Mutant};
use crate::operators::{BETWEEN, Commands, FoundEdit, MutatedKernel, OPERATORS, appends};
use crate::source::KernelSource;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use tapml_device::{DeviceInfo, KernelDesc};
use tapml_graph::{Error, Graph, Op, Result, Symbols};
use tapml_kernels::{
    CompileOptions, Launch, Overrides, Phase, Planner, Program, Validator, compile_with, lower,
};

/// The mutants of one model on devices like one.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    /// Every mutant that compiles, by operator of the model and place.
    pub mutants: Vec<Mutant>,
    /// What the program launches, with the number of mutants; none is left out.
    pub rows: Vec<RowMutants>,
}

/// A row of the kernel list that a program launches, and the mutants of its kernels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowMutants {
    /// The row.
    pub row: String,
    /// The phases in which it is launched.
    pub phases: Vec<String>,
    /// Mutants that compile, of those asked for.
    pub mutants: usize,
    /// Mutants that were dropped because they do not compile, of those asked for.
    pub invalid: usize,
    /// Why there are no mutants, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub none: Option<String>,
}

impl RowMutants {
    /// Adds the row of another model to those of all.
    pub fn join(self, all: &mut Vec<RowMutants>) {
        let Some(known) = all.iter_mut().find(|known| known.row == self.row) else {
            all.push(self);
            return;
        };
        known.mutants += self.mutants;
        known.invalid += self.invalid;
        // Only if no model has mutants there.
        known.none = known.none.take().filter(|_| self.none.is_some());
        let new: Vec<String> = self.phases.into_iter().filter(|p| !known.phases.contains(p)).collect();
        known.phases.extend(new);
    }
}

/// Capacity of the program that mutants are made for.
fn capacity() -> Symbols {
    Symbols::np(64, 64)
}

/// A kernel that a program launches: for which operator, by which row, in which phase.
///
/// One kernel may be launched by several rows and in both phases; each is an entry.
struct Launched {
    /// Name of the operator, plain or fused.
    op: &'static str,
    /// Plain operators that a fused one stands for.
    parts: Vec<String>,
    row: String,
    /// Prefill or decode.
    phase: Phase,
    /// The kernel, what it binds and its grid.
    launch: Launch,
}

/// Decides which mutants are kept.
struct Judge<'a> {
    validator: Validator,
    wanted: &'a dyn Fn(&Mutant) -> bool,
    /// Rows with mutants that are not wanted.
    unwanted: HashSet<String>,
}

impl Catalogue {
    /// Generates all mutants of the kernels that the lowered graphs of `graph` launch on devices like `info`, and of the
    /// program.
    ///
    /// Mutants are sorted by operator and id, so that a list does not depend on the order in which they were found.
    ///
    /// # Errors
    ///
    /// A graph that the device cannot run, or a kernel whose source cannot be read.
    pub fn generate(model: &str, graph: &Graph, info: &DeviceInfo) -> Result<Catalogue> {
        Catalogue::generate_wanted(model, graph, info, &|_| true)
    }

    /// Those of all mutants that are wanted, under the ids that they have among all.
    ///
    /// Whether a mutant compiles takes nearly all of the time, and is not asked of the others. A row of which no mutant is wanted
    /// is left out.
    ///
    /// # Errors
    ///
    /// As [`Catalogue::generate`].
    pub fn generate_wanted(
        model: &str,
        graph: &Graph,
        info: &DeviceInfo,
        wanted: &dyn Fn(&Mutant) -> bool,
    ) -> Result<Catalogue> {
        let mut planner = Planner::new(info.clone(), Overrides::default());
        let options = CompileOptions::new(capacity());
        let mut compiled = |graph: &Graph| -> Result<(Vec<(Phase, Graph)>, Program)> {
            let program = compile_with(graph, &mut planner, &options)?;
            let lowered =
                Phase::ALL.map(|phase| Ok((phase, lower(graph, phase, &options.fusing, &mut planner)?)));
            Ok((lowered.into_iter().collect::<Result<_>>()?, program))
        };
        let (lowered, program) = compiled(graph)?;
        // As it is deployed; what diagnosis loads does not choose the next token.
        // Programs that choose tokens have launches beside those of the graph.
        let deployed = graph.greedy()?.map(|graph| compiled(&graph)).transpose()?;
        let (chosen, choosing) =
            deployed.as_ref().map_or((&lowered, &program), |(graphs, program)| (graphs, program));
        let mut catalogue = Catalogue::default();
        catalogue.kernels(model, &launches(chosen, choosing, &mut planner)?, wanted)?;
        catalogue.add_program_mutants(model, &lowered, &program)?;
        catalogue.mutants.retain(wanted);
        catalogue.mutants.sort_by(|a, b| (&a.op, &a.operator, &a.id).cmp(&(&b.op, &b.operator, &b.id)));
        Ok(catalogue)
    }

    /// The mutant of this id. Fails if there is none.
    pub fn find(&self, id: &str) -> Result<&Mutant> {
        self.mutants.iter().find(|m| m.id == id).ok_or_else(|| {
            let example = self.mutants.first().map_or("", |m| m.id.as_str());
            Error::invalid(format!("there is no mutant `{id}`"))
                .with_hint(format!("ids look like `{example}`; `tapml bench bugs --list` prints them"))
        })
    }

    /// The wanted mutants of everything that is launched.
    /// A source is parsed once, however many launches share it.
    fn kernels(
        &mut self,
        model: &str,
        launched: &[Launched],
        wanted: &dyn Fn(&Mutant) -> bool,
    ) -> Result<()> {
        let mut seen = HashSet::new();
        let mut judge = Judge { validator: Validator::new(), wanted, unwanted: HashSet::new() };
        let mut sources: HashMap<String, KernelSource> = HashMap::new();
        for one in launched {
            let desc = &one.launch.desc;
            let at = self.row(one);
            let key = format!("{}\0{}", desc.name, desc.source.full());
            if !sources.contains_key(&key) {
                sources.insert(key.clone(), KernelSource::parse(desc)?);
            }
            let kernel = MutatedKernel { desc, args: &one.launch.args, source: &sources[&key] };
            self.kernel(model, (one, at), &kernel, &mut seen, &mut judge)?;
        }
        let unwanted = judge.unwanted;
        self.rows.retain(|row| row.mutants + row.invalid > 0 || !unwanted.contains(&row.row));
        for row in &mut self.rows {
            match row.mutants {
                0 => drop(
                    row.none
                        .get_or_insert_with(|| "no mutation operator finds a place in its kernels".into()),
                ),
                _ => row.none = None,
            }
        }
        Ok(())
    }

    /// The place of a launch's row in the list of rows.
    fn row(&mut self, launched: &Launched) -> usize {
        let at = self.rows.iter().position(|known| known.row == launched.row).unwrap_or(self.rows.len());
        if at == self.rows.len() {
            self.rows.push(RowMutants { row: launched.row.clone(), ..RowMutants::default() });
        }
        let phases = &mut self.rows[at].phases;
        if !phases.iter().any(|phase| phase == launched.phase.name()) {
            phases.push(launched.phase.name().into());
        }
        at
    }

    /// The mutants of one launch, by every operator. Those that an earlier launch gave are not repeated.
    fn kernel(
        &mut self,
        model: &str,
        (launched, at): (&Launched, usize),
        kernel: &MutatedKernel<'_>,
        seen: &mut HashSet<String>,
        judge: &mut Judge<'_>,
    ) -> Result<()> {
        let (desc, op) = (kernel.desc, launched.op);
        for operator in OPERATORS {
            for FoundEdit { edit, diff } in (operator.find)(kernel) {
                // Byte places are right in this source only; other edits hold for any.
                let source = match edit {
                    Edit::Text { .. } => kernel.source.hash.clone(),
                    _ => String::new(),
                };
                let hash = Mutant::hash(&desc.name, &source, &edit)?;
                if !seen.insert(hash.clone()) {
                    continue;
                }
                // Whatever goes wrong in such a kernel shows as a wrong state.
                let family = if appends(op) { Family::State } else { operator.family };
                let mutant = Mutant {
                    id: format!("{model}/{op}/{}/{hash}", operator.name),
                    model: model.into(),
                    family,
                    operator: operator.name.into(),
                    op: op.into(),
                    row: launched.row.clone(),
                    parts: launched.parts.clone(),
                    target: desc.name.clone(),
                    source,
                    edit,
                    diff,
                    causes: operator.causes.to_vec(),
                };
                if !(judge.wanted)(&mutant) {
                    judge.unwanted.insert(mutant.row);
                } else if compiles(&mutant, desc, &mut judge.validator) {
                    self.rows[at].mutants += 1;
                    self.mutants.push(mutant);
                } else {
                    // Counted, so that a row without mutants can be explained.
                    self.rows[at].invalid += 1
                }
            }
        }
        Ok(())
    }

    /// The mutants of the program's lists. What both phases have is one mutant.
    fn add_program_mutants(
        &mut self,
        model: &str,
        lowered: &[(Phase, Graph)],
        program: &Program,
    ) -> Result<()> {
        // Hashes leave the phase out, so that both phases give one mutant.
        let mut seen = HashSet::new();
        for (phase, graph) in lowered {
            let commands = Commands::from_program(program, *phase);
            for operator in BETWEEN {
                for found in (operator.find)(&commands) {
                    let node = graph.nodes().iter().find(|n| n.name == found.node);
                    let op = node.map_or("", |n| n.op.name());
                    let hash = Mutant::hash(&found.node, "", &found.edit)?;
                    if !seen.insert(hash.clone()) {
                        continue;
                    }
                    let place = if op.is_empty() { "program" } else { op };
                    self.mutants.push(Mutant {
                        id: format!("{model}/{place}/{}/{hash}", operator.name),
                        model: model.into(),
                        family: operator.family,
                        operator: operator.name.into(),
                        op: op.into(),
                        row: String::new(),
                        parts: node.map_or(Vec::new(), |n| parts(&n.op)),
                        target: found.node,
                        source: String::new(),
                        edit: found.edit,
                        diff: found.diff,
                        causes: operator.causes.to_vec(),
                    });
                }
            }
        }
        Ok(())
    }
}

/// The plain operators that a fused one stands for, each once.
fn parts(op: &Op) -> Vec<String> {
    let Op::Fused(fused) = op else { return Vec::new() };
    fused.body().op_kinds().into_iter().map(|(op, _)| op.to_string()).collect()
}

/// The distinct launches of a program, in the order of its lowered graphs. Copies that the program leaves out are none.
fn launches(lowered: &[(Phase, Graph)], program: &Program, planner: &mut Planner) -> Result<Vec<Launched>> {
    let key = |desc: &KernelDesc| {
        serde_json::to_vec(desc).map_err(|e| Error::bug(format!("kernel `{}`: {e}", desc.name)))
    };
    let launched = program.kernels.iter().map(key).collect::<Result<HashSet<Vec<u8>>>>()?;
    let (mut seen, mut found) = (HashSet::new(), Vec::new());
    for (phase, graph) in lowered {
        for node in graph.nodes() {
            let plan = planner.plan(&node.op, &graph.input_types(node), *phase)?;
            for launch in &plan.launches {
                let key = key(&launch.desc)?;
                // A plan may have launches that the compiler of programs leaves out.
                if launched.contains(&key) && seen.insert((*phase, plan.kernel.clone(), key)) {
                    let (op, row) = (node.op.name(), plan.kernel.clone());
                    let (parts, phase) = (parts(&node.op), *phase);
                    found.push(Launched { op, parts, row, phase, launch: launch.clone() });
                }
            }
        }
    }
    Ok(found)
}

/// Whether the changed kernel is as valid as the kernel itself: some declare fewer bindings than they are given. Changes of
/// launches always are.
fn compiles(mutant: &Mutant, desc: &KernelDesc, validator: &mut Validator) -> bool {
    let changed = apply_mutants(desc, std::slice::from_ref(mutant));
    if changed == *desc {
        return true;
    }
    // Some kernels declare fewer bindings than they get, and fail the check as they are.
    match validator.check(&changed) {
        Ok(()) => true,
        Err(wrong) => validator.check(desc).is_err_and(|known| known.to_string() == wrong.to_string()),
    }
}

/// The description with every fault of kernels that fits it.
///
/// Text edits whose `old` does not stand at their place are left out, and so are those of another source.
pub fn apply_mutants(desc: &KernelDesc, mutants: &[Mutant]) -> KernelDesc {
    let mut changed = desc.clone();
    let mut texts: Vec<(usize, usize, &str, &str)> = Vec::new();
    let full = desc.source.full();
    let hash = blake3::hash(full.as_bytes()).to_hex();
    for mutant in mutants.iter().filter(|m| m.target == desc.name) {
        match &mutant.edit {
            Edit::Text { start, end, old, new, append }
                if hash.starts_with(&mutant.source) && full.get(*start..*end) == Some(old) =>
            {
                texts.push((*start, *end, new, append));
            }
            Edit::Constant { name, change } => {
                for (_, value) in changed.constants.iter_mut().filter(|(n, _)| n == name) {
                    *value = change.apply(*value);
                }
            }
            _ => {}
        }
    }
    if texts.is_empty() {
        return changed;
    }
    // From the last place to the first, so that earlier places stay right.
    texts.sort_by_key(|t| std::cmp::Reverse(t.0));
    // No edit spans bytes of both prelude and text.
    let (mut text, mut at) = (full, desc.source.prelude.len());
    for (start, end, new, append) in texts {
        // The edit is in the prelude, whose length changes.
        if end <= at {
            at = at + new.len() - (end - start);
        }
        text.replace_range(start..end, new);
        text.push_str(append);
    }
    changed.source.text = text.split_off(at);
    changed.source.prelude = text;
    changed
}
