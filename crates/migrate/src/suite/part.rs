//! A smaller suite of some calls of another: only the tensors that these read and wrote.

use super::manifest::{Frame, Manifest, Slot};
use super::reader::{Case, Suite};
use super::writer::SuiteWriter;
use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use tapml_graph::{Error, Model, Origin, Result, ValueId};

/// Writes a suite of these calls of `suite` at `path`: [`Manifest::cases`] names them. It replays as they do, but holds no
/// whole run of the model. `model` is what [`Suite::model`] gave; an existing suite is refused unless `overwrite`.
///
/// Runs of a prompt up to the last one with a call are kept, without values where nothing is called, so that names of calls
/// stay what they are.
pub fn part(suite: &Suite, model: &Model, cases: &[Case], path: &Path, overwrite: bool) -> Result<Manifest> {
    if cases.is_empty() {
        return Err(Error::invalid("a suite needs a call"));
    }
    let manifest = suite.manifest();
    let (identity, source) = (manifest.model.clone(), manifest.source.clone());
    let mut writer =
        SuiteWriter::create(path, overwrite, model, identity, source, manifest.settings.clone())?;
    let needed = Needed::from_cases(suite, cases);
    for (i, run) in suite.frames().iter().enumerate() {
        let of_prompt = |c: &&Case| suite.frames()[c.frame].prompt == run.prompt;
        if cases.iter().filter(of_prompt).any(|c| c.frame >= i) {
            let frame = needed.frame(suite, i, &mut store_tensor(suite, &mut writer))?;
            writer.frame(&frame)?;
        }
    }
    let ids: BTreeSet<String> = cases.iter().map(|&case| suite.case_id(case)).collect();
    writer.limit_cases(ids.into_iter().collect());
    writer.finish(manifest.prompts.clone())
}

/// Stores a tensor of the old suite in the new one.
fn store_tensor<'w>(suite: &'w Suite, writer: &'w mut SuiteWriter) -> impl FnMut(Slot) -> Result<Slot> + 'w {
    move |slot| match slot {
        Slot::Stored(index) => Ok(Slot::Stored(writer.put(&suite.tensor(index)?)?)),
        other => Ok(other),
    }
}

/// What the calls need of the runs.
struct Needed {
    /// Values, by run.
    values: HashSet<(usize, ValueId)>,
    /// Growing states, in every run of a prompt.
    grown: HashSet<(u32, usize)>,
    /// Other states, by run.
    fixed: HashSet<(usize, usize)>,
}

impl Needed {
    /// Looks at the inputs and outputs of each call.
    fn from_cases(suite: &Suite, cases: &[Case]) -> Needed {
        let graph = suite.graph();
        let mut needed = Needed { values: HashSet::new(), grown: HashSet::new(), fixed: HashSet::new() };
        for case in cases {
            let node = graph.node(case.node);
            let run = &suite.frames()[case.frame];
            for &value in node.inputs.iter().chain(&node.outputs) {
                needed.values.insert((case.frame, value));
                let rows = matches!(run.values[value.0 as usize], Slot::Rows(_));
                let state = match graph.value(value).origin {
                    Origin::State(i) => Some(i as usize),
                    // An output that is stored as rows of a state.
                    _ if rows => super::validate::growing_output(graph, value.0),
                    _ => None,
                };
                match state {
                    // All earlier runs are needed: each adds its rows.
                    Some(i) if graph.states()[i].grows(graph) => drop(needed.grown.insert((run.prompt, i))),
                    Some(i) => drop(needed.fixed.insert((case.frame, i))),
                    None => {}
                }
            }
        }
        needed
    }

    /// The run's places, those that are not needed left out.
    fn frame(&self, suite: &Suite, i: usize, put: &mut dyn FnMut(Slot) -> Result<Slot>) -> Result<Frame> {
        let run = &suite.frames()[i];
        let state = |s: usize| self.grown.contains(&(run.prompt, s)) || self.fixed.contains(&(i, s));
        let value = |v: usize| self.values.contains(&(i, ValueId(v as u32)));
        let mut keep = |(at, &slot): (usize, &Slot), wanted: &dyn Fn(usize) -> bool| {
            if wanted(at) { put(slot) } else { Ok(Slot::None) }
        };
        let states = run.states.iter().enumerate().map(|s| keep(s, &state)).collect::<Result<_>>()?;
        let values = run.values.iter().enumerate().map(|v| keep(v, &value)).collect::<Result<_>>()?;
        Ok(Frame { prompt: run.prompt, step: run.step, symbols: run.symbols.clone(), states, values })
    }
}
