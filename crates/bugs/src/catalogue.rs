//! All mutants of a model on a device: every operator of the tables at every place of every kernel and of the program.

use crate::mutant::Edit;
use crate::mutant::{Family, Mutant};
use crate::operators::{BETWEEN, Commands, Found, Kernel, OPERATORS, op_of};
use crate::source::KernelSource;
use std::collections::{HashMap, HashSet};
use tapml_device::{DeviceInfo, KernelDesc, Language};
use tapml_graph::{Error, Graph, Result, Symbols};
use tapml_kernels::{CompileOptions, Launch, Overrides, Phase, Planner, Validator, compile};

/// The mutants of one model on devices like one.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    /// Every mutant that compiles, by operator of the model and place.
    pub mutants: Vec<Mutant>,
    /// How many were dropped because they do not compile.
    pub invalid: usize,
    /// Kernels that get no faults, because they are not in WGSL.
    pub foreign: Vec<String>,
}

/// Capacity of the program in which faults between kernels are looked for.
fn capacity() -> Symbols {
    Symbols::np(64, 64)
}

impl Catalogue {
    /// Generates all mutants of the kernels and of the program that `graph` takes on devices like `info`.
    pub fn of(model: &str, graph: &Graph, info: &DeviceInfo) -> Result<Catalogue> {
        let mut catalogue = Catalogue::default();
        let mut seen = HashSet::new();
        let mut validator = Validator::new();
        let mut sources: HashMap<String, KernelSource> = HashMap::new();
        for launch in launches(graph, info)? {
            let desc = &launch.desc;
            if desc.source.language != Language::Wgsl {
                catalogue
                    .foreign
                    .extend((!catalogue.foreign.contains(&desc.name)).then(|| desc.name.clone()));
                continue;
            }
            let key = format!("{}\0{}", desc.name, desc.source.full());
            if !sources.contains_key(&key) {
                sources.insert(key.clone(), KernelSource::of(desc)?);
            }
            let kernel = Kernel { desc, args: &launch.args, source: &sources[&key] };
            catalogue.kernel(model, &kernel, &mut seen, &mut validator)?;
        }
        catalogue.between(model, graph, info)?;
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

    fn kernel(
        &mut self,
        model: &str,
        kernel: &Kernel<'_>,
        seen: &mut HashSet<String>,
        validator: &mut Validator,
    ) -> Result<()> {
        let (desc, op) = (kernel.desc, op_of(&kernel.desc.name));
        for operator in OPERATORS {
            for Found { edit, diff } in (operator.find)(kernel) {
                let source = match edit {
                    Edit::Text { .. } => kernel.source.hash.clone(),
                    _ => String::new(),
                };
                let hash = Mutant::hash(&desc.name, &source, &edit)?;
                if !seen.insert(hash.clone()) {
                    continue;
                }
                let family = if op == "append" { Family::State } else { operator.family };
                let mutant = Mutant {
                    id: format!("{model}/{op}/{}/{hash}", operator.name),
                    model: model.into(),
                    family,
                    operator: operator.name.into(),
                    op: op.into(),
                    target: desc.name.clone(),
                    source,
                    edit,
                    diff,
                    causes: operator.causes.to_vec(),
                };
                match compiles(&mutant, desc, validator) {
                    true => self.mutants.push(mutant),
                    false => self.invalid += 1,
                }
            }
        }
        Ok(())
    }

    fn between(&mut self, model: &str, graph: &Graph, info: &DeviceInfo) -> Result<()> {
        let program = compile(graph, info, &CompileOptions::new(capacity()))?;
        let commands = Commands::of(&program);
        for operator in BETWEEN {
            for found in (operator.find)(&commands) {
                let node = graph.nodes().iter().find(|n| n.name == found.node);
                let op = node.map_or("", |n| n.op.name());
                let hash = Mutant::hash(&found.node, "", &found.edit)?;
                let place = if op.is_empty() { "program" } else { op };
                self.mutants.push(Mutant {
                    id: format!("{model}/{place}/{}/{hash}", operator.name),
                    model: model.into(),
                    family: operator.family,
                    operator: operator.name.into(),
                    op: op.into(),
                    target: found.node,
                    source: String::new(),
                    edit: found.edit,
                    diff: found.diff,
                    causes: operator.causes.to_vec(),
                });
            }
        }
        Ok(())
    }
}

/// The distinct launches of a graph's nodes, in graph order.
fn launches(graph: &Graph, info: &DeviceInfo) -> Result<Vec<Launch>> {
    let mut planner = Planner::new(info.clone(), Overrides::default());
    let (mut seen, mut found) = (HashSet::new(), Vec::new());
    for (node, phase) in graph.nodes().iter().flat_map(|node| Phase::ALL.map(|phase| (node, phase))) {
        let plan = planner.plan(&node.op, &graph.input_types(node), phase)?;
        for launch in &plan.launches {
            let key = serde_json::to_vec(&launch.desc);
            let key = key.map_err(|e| Error::bug(format!("kernel `{}`: {e}", launch.desc.name)))?;
            if seen.insert(key) {
                found.push(launch.clone());
            }
        }
    }
    Ok(found)
}

/// Whether the changed kernel is valid. Changes of launches always are.
fn compiles(mutant: &Mutant, desc: &KernelDesc, validator: &mut Validator) -> bool {
    let changed = changed(desc, std::slice::from_ref(mutant));
    changed == *desc || validator.check(&changed).is_ok()
}

/// The description with every fault of kernels that fits it.
pub fn changed(desc: &KernelDesc, mutants: &[Mutant]) -> KernelDesc {
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
                    *value = change.of(*value);
                }
            }
            _ => {}
        }
    }
    if texts.is_empty() {
        return changed;
    }
    texts.sort_by_key(|t| std::cmp::Reverse(t.0));
    let mut text = full;
    for (start, end, new, append) in texts {
        text.replace_range(start..end, new);
        text.push_str(append);
    }
    // No edit spans lines of both; the prelude keeps its lines, so that messages point to the same place.
    let lines = changed.source.prelude.matches('\n').count();
    let at = match lines {
        0 => 0,
        lines => text.match_indices('\n').nth(lines - 1).map_or(0, |(at, _)| at + 1),
    };
    changed.source.text = text.split_off(at);
    changed.source.prelude = text;
    changed
}
