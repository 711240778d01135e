//! How far a model's logits, or what an encoder gives, may move when every operator on the target errs as much as its
//! verdict allows: the limit of the model-wise check. It is measured, not chosen: the model runs in f64 on the recorded
//! inputs, once exactly and [`RUNS`] times with every output element of every node moved by
//!
//! ```text
//! R · U + A · ((1 − SHARED) · U + SHARED · V · sign(y))
//! ```
//!
//! where `R + A` is the element's allowed error (see [`crate::verdict`]), `U` is uniform in −1..1 for each element and
//! `V` for each row: what all elements of a row have in common survives sums in which independent errors cancel. Where the
//! source itself errs by more in a row than `R + A`, or the node stays on the source, the source's largest error in the row
//! takes the place of the allowed one. So a source that is wrong by much makes this check coarse: its distance to a target that
//! is right then tells nothing. Each call is judged by its exact result all the same, and the source's departure is reported.
//!
//! A router's choice that these errors can turn over may turn over in none of so few runs, and moves the logits by far more
//! than they do. So where a graph chooses experts the model runs again without errors, once for each node that chooses, and
//! takes the other expert there wherever the last one that is chosen and the first one that is not lie nearer to each other
//! than [`HEADROOM`] times what the disturbed runs show. What these runs move is added to the limits.

mod foreign;

pub(crate) use foreign::RegionMovement;

use crate::oracle::Oracles;
use crate::stop::Stop;
use crate::suite::{Case, Suite};
use crate::verdict::{Allowed, Exact, Precision, SHARED};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use tapml_exec::LOGITS;
use tapml_graph::{
    Context, Dim, Error, Graph, Model, Node, NodeId, Op, Origin, Result, Symbols, TensorType, ValueId,
};
use tapml_reference::{Array, Value, empty_states, eval};

/// Disturbed runs of the whole model.
pub const RUNS: u64 = 4;
/// Headroom on what the disturbed runs show. Where all logits of a position move together, their movement is one normal
/// draw; the largest of four has a mean of 1.5 standard deviations, and no position of a long suite may exceed the limit
/// by chance: 4.5 are exceeded once in 150,000.
pub const HEADROOM: f64 = 3.0;

// Each turned run costs an evaluation of the whole model.
/// Most runs in which choices of experts turn over, behind the disturbed ones. Nodes beyond these share them in turn.
const TURNED: u64 = 8;

/// What the kernel of a node declares at these symbols; `None` if it is not on the target.
pub type DeclaredPrecision<'a> = dyn Fn(NodeId, &Symbols) -> Result<Option<Precision>> + Sync + 'a;

/// Limits of the results' movement, for every row of every run of the suite: a row is a position's logits; if the model
/// is an encoder, the rows of its results follow each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MovementLimits {
    /// For each run of the suite and each row: the largest movement over the row and the disturbed runs, at least the
    /// mean over all rows of the same result, times [`HEADROOM`]; and what other choices of experts move.
    pub moved: Vec<Vec<f64>>,
    /// Likewise: the source's own largest distance from the exact result.
    pub source: Vec<Vec<f64>>,
}

impl MovementLimits {
    /// How far the target's logits may lie from the source's in this row of this run.
    pub fn allowed_movement(&self, frame: usize, row: usize) -> f64 {
        self.moved[frame][row] + self.source[frame][row]
    }

    /// Measures the limits. `precision` gives what the target's kernel for a node declares at these symbols, `None` if
    /// the node stays on the source. A request to stop is heard before each run.
    pub fn measure(
        suite: &Suite,
        model: &Model,
        oracles: &Oracles,
        precision: &DeclaredPrecision<'_>,
        stop: &Stop,
    ) -> Result<MovementLimits> {
        let results = results(model.graph())?;
        let kept = model.graph().cached_values();
        let run = Noisy { suite, model, oracles, precision, results: &results, kept: &kept };
        let prompts = suite.manifest().prompts.len() as u32;
        // With operators of others a graph is evaluated as tensors, without states and turned choices.
        let others = model.graph().nodes().iter().any(|node| matches!(node.op, Op::Foreign(_)));
        let prompt = |prompt| if others { run.arrays(prompt, stop) } else { run.prompt(prompt, stop) };
        // Prompts do not see each other; the runs of one follow from each other.
        let found: Vec<Vec<Results>> = (0..prompts).into_par_iter().map(prompt).collect::<Result<_>>()?;
        let frames = suite.frames().len();
        let mut sources = vec![Vec::new(); frames];
        let mut moved: Vec<Vec<Vec<f64>>> = vec![vec![Vec::new(); results.len()]; frames];
        let mut turned = moved.clone();
        for runs in &found {
            for (seed, rows) in runs.iter().enumerate() {
                // The exact run is number 0, the disturbed ones follow, and those with turned choices come
                // last.
                let is_turned = seed as u64 > RUNS;
                let moved = if is_turned { &mut turned } else { &mut moved };
                for (&frame, found) in rows {
                    for (k, (exact, found)) in runs[0][&frame].iter().zip(found).enumerate() {
                        if seed == 0 {
                            // The target is held against the source, which errs too: both errors add up.
                            let recorded = suite.value(frame, results[k])?.to_f64();
                            sources[frame].extend(distances(exact, &recorded));
                            continue;
                        }
                        let distance = distances(exact, found.values());
                        let slot = &mut moved[frame][k];
                        slot.resize(distance.len(), 0.0);
                        // Turned runs differ in what they turn over, so their movements add up.
                        let join = |old: f64, new| if is_turned { old + new } else { old.max(new) };
                        slot.iter_mut().zip(distance).for_each(|(old, new)| *old = join(*old, new));
                    }
                }
            }
        }
        for k in 0..results.len() {
            let all: Vec<f64> = moved.iter().flat_map(|frame| &frame[k]).copied().collect();
            // A row that moves little in so few runs, by chance, is allowed the mean.
            let mean = all.iter().sum::<f64>() / all.len().max(1) as f64;
            moved.iter_mut().flat_map(|frame| &mut frame[k]).for_each(|m| *m = HEADROOM * m.max(mean));
            for (moved, turned) in moved.iter_mut().zip(&turned) {
                moved[k].iter_mut().zip(&turned[k]).for_each(|(m, t)| *m += t);
            }
        }
        Ok(MovementLimits { moved: moved.into_iter().map(|frame| frame.concat()).collect(), source: sources })
    }
}

/// The values that a model is judged by: its logits, or if it has none, as encoders, all its results.
pub(crate) fn results(graph: &Graph) -> Result<Vec<ValueId>> {
    let logits = graph.outputs().iter().find(|o| o.name == LOGITS);
    let outputs = logits.map_or(graph.outputs(), std::slice::from_ref);
    match outputs {
        [] => Err(Error::unsupported("the graph has no result")),
        outputs => Ok(outputs.iter().map(|o| o.value).collect()),
    }
}

/// The largest distance of each row.
fn distances(exact: &Array<f64>, found: &[f64]) -> Vec<f64> {
    let width = exact.row_len().max(1);
    let rows = exact.values().chunks(width).zip(found.chunks(width));
    rows.map(|(a, b)| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)).collect()
}

/// The rows of each of these sets of inputs, and all of them below each other, if the operator treats rows one by one,
/// they are few, and a weight is a matrix.
fn stack_rows(
    op: &Op,
    types: &[TensorType],
    sets: &[Vec<Value<f64>>],
    weights: &[bool],
) -> Option<(usize, Vec<Value<f64>>)> {
    let first = sets.first()?;
    let rows = first.iter().zip(weights).find(|(_, weight)| !**weight)?.0.shape().first().copied()?;
    let matrix = first.iter().zip(weights).any(|(v, weight)| *weight && v.shape().len() > 1);
    // Only matrices are large enough for the reading to count.
    if !op.row_wise() || !matrix || !(1..=STACKED_ROWS).contains(&rows) {
        return None;
    }
    let below = |k: usize| {
        let shape = first[k].shape();
        if weights[k] {
            return Some(first[k].clone());
        }
        if shape.len() != 2 || shape[0] != rows || sets.iter().any(|set| set[k].shape() != shape) {
            return None;
        }
        let all = vec![rows * sets.len(), shape[1]];
        match &first[k] {
            Value::Float(_) => {
                let values = sets.iter().map(|set| Some(set[k].as_float().ok()?.values()));
                Value::float(all, values.collect::<Option<Vec<_>>>()?.concat()).ok()
            }
            Value::Uint(_) => {
                let ids = sets.iter().map(|set| set[k].as_ids().ok());
                Value::indices(all, ids.collect::<Option<Vec<_>>>()?.concat()).ok()
            }
        }
    };
    let inputs: Vec<Value<f64>> = (0..first.len()).map(below).collect::<Option<_>>()?;
    // A weight may have a row for each row, such as the positions of an image's patches: then there can be no more rows.
    let ty =
        |(ty, input): (&TensorType, &Value<f64>)| TensorType::new(ty.dtype, input.shape().iter().copied());
    let types: Vec<TensorType> = types.iter().zip(&inputs).map(ty).collect();
    let all = Dim::from(rows * sets.len());
    let grows = |ty: &TensorType| ty.shape.len() == 2 && ty.shape[0] == all;
    op.infer(&types).ok()?.iter().all(grows).then_some((rows, inputs))
}

/// The outputs of each set of [`stack_rows`] inputs.
fn unstack_rows(outputs: Vec<Value<f64>>, rows: usize, count: usize) -> Result<Vec<Vec<Value<f64>>>> {
    let mut sets: Vec<Vec<Value<f64>>> = (0..count).map(|_| Vec::new()).collect();
    for output in outputs {
        let shape = [&[rows], &output.shape()[1..]].concat();
        let len: usize = shape.iter().product();
        for (i, set) in sets.iter_mut().enumerate() {
            let part = i * len..(i + 1) * len;
            let missing =
                || Error::bug("an operator that treats rows one by one gave another number of rows");
            set.push(match &output {
                Value::Float(all) => {
                    Value::float(shape.clone(), all.values().get(part).ok_or_else(missing)?.to_vec())?
                }
                Value::Uint(all) => {
                    Value::indices(shape.clone(), all.values().get(part).ok_or_else(missing)?.to_vec())?
                }
            });
        }
    }
    Ok(sets)
}

/// Turns over the choices of a router that errors could turn over: where the `k`-th largest logit of a row and the next lie
/// near each other, they trade places. `known` are the router's inputs exactly and in the disturbed runs.
fn turn(known: &[Vec<Value<f64>>], turned: &mut Value<f64>, k: usize) -> Result<()> {
    let [exact, disturbed @ ..] = known else { return Ok(()) };
    let exact = exact[0].as_float()?;
    let disturbed: Vec<&Array<f64>> = disturbed.iter().map(|way| way[0].as_float()).collect::<Result<_>>()?;
    let logits = turned.as_float()?;
    let (width, mut other) = (logits.row_len().max(1), logits.values().to_vec());
    for (row, values) in other.chunks_mut(width).enumerate().filter(|(_, values)| values.len() > k) {
        let mut order: Vec<usize> = (0..values.len()).collect();
        order.sort_by(|&a, &b| values[b].total_cmp(&values[a]));
        let (Some(&chosen), Some(&next)) = (k.checked_sub(1).and_then(|at| order.get(at)), order.get(k))
        else {
            continue;
        };
        let gap = |of: &Array<f64>| of.values()[row * width + chosen] - of.values()[row * width + next];
        // What the disturbances move the gap by is what the target's own errors may.
        let moves = disturbed.iter().map(|way| (gap(way) - gap(exact)).abs()).fold(0.0, f64::max);
        if values[chosen] - values[next] <= HEADROOM * moves {
            // With the two logits exchanged the router chooses the other.
            values.swap(chosen, next);
        }
    }
    *turned = Value::float(logits.shape().to_vec(), other)?;
    Ok(())
}

/// What all ways have in common.
pub(crate) struct Noisy<'a> {
    pub(crate) suite: &'a Suite,
    pub(crate) model: &'a Model,
    pub(crate) oracles: &'a Oracles,
    pub(crate) precision: &'a DeclaredPrecision<'a>,
    /// See [`results`].
    pub(crate) results: &'a [ValueId],
    /// See [`Graph::cached_values`].
    pub(crate) kept: &'a [ValueId],
}

/// The results of each run of a prompt, by the run's index.
type Results = HashMap<usize, Vec<Array<f64>>>;

/// One way through the runs of a prompt: the exact one, or a disturbed one.
struct Way {
    /// Of the disturbances; 0 and those above [`RUNS`] for none.
    seed: u64,
    /// Of the run under way.
    values: Vec<Option<Value<f64>>>,
    /// Before the run under way.
    states: Vec<Value<f64>>,
    /// What the encoder of an image gave in an earlier run.
    kept: HashMap<ValueId, Value<f64>>,
    /// Of all runs so far.
    results: Results,
}

/// Rows up to which the ways are evaluated together: reading the weights takes longest there.
const STACKED_ROWS: usize = 64;

impl Noisy<'_> {
    /// The results of a prompt's runs, exact and with each of the disturbances. All ways go on node by node.
    fn prompt(&self, prompt: u32, stop: &Stop) -> Result<Vec<Results>> {
        let graph = self.model.graph();
        let way = |seed| {
            let (states, kept) = (empty_states::<f64>(graph)?, HashMap::new());
            Ok(Way { seed, values: Vec::new(), states, kept, results: HashMap::new() })
        };
        // A model without a router has no choices to turn over.
        let routers = graph.nodes().iter().filter(|node| node.op.chosen_count().is_some()).count() as u64;
        let mut ways: Vec<Way> = (0..=RUNS + routers.min(TURNED)).map(way).collect::<Result<_>>()?;
        for (frame, run) in self.suite.frames().iter().enumerate().filter(|(_, f)| f.prompt == prompt) {
            stop.check()?;
            ways.iter_mut().try_for_each(|way| self.begin(way, frame))?;
            let mut router = 0;
            for (i, node) in graph.nodes().iter().enumerate() {
                let case = Case { frame, node: NodeId(i as u32) };
                if !self.suite.ran(case) {
                    continue;
                }
                let inputs = |way: &Way| node.inputs.iter().map(|&v| self.get(&way.values, v)).collect();
                let mut inputs: Vec<Vec<Value<f64>>> = ways.iter().map(inputs).collect::<Result<_>>()?;
                if let Some(count) = node.op.chosen_count() {
                    // Each turned way turns its share of the routers, so that no two of them are of the same
                    // one.
                    let (known, turned) = inputs.split_at_mut(RUNS as usize + 1);
                    let turns = turned.len().max(1);
                    turn(known, &mut turned[router % turns][0], count)?;
                    router += 1;
                }
                let outputs = self.evaluate_each(node, &run.symbols, &inputs)?;
                let put = |(way, outputs): (&mut Way, Vec<Value<f64>>)| self.put(way, case, outputs);
                ways.par_iter_mut().zip(outputs).try_for_each(put)?;
            }
            ways.iter_mut().try_for_each(|way| self.end(way, frame))?;
        }
        Ok(ways.into_iter().map(|way| way.results).collect())
    }

    /// What a run is given.
    fn begin(&self, way: &mut Way, frame: usize) -> Result<()> {
        let graph = self.model.graph();
        way.values = vec![None; graph.values().len()];
        let recorded = self.suite.inputs(frame)?;
        for (id, input) in graph.inputs() {
            if let Some(tensor) = recorded.get(&input.name) {
                way.values[id.0 as usize] = Some(Value::from_tensor(tensor)?);
            }
        }
        for (state, before) in graph.states().iter().zip(way.states.drain(..)) {
            way.values[state.input.0 as usize] = Some(before);
        }
        for &id in self.kept.iter().filter(|&&id| !self.was_computed(frame, id)) {
            // No run of a prompt without an image computes it: then what the source held is taken.
            let earlier = match way.kept.remove(&id) {
                Some(value) => value,
                None => Value::from_tensor(&self.suite.value(frame, id)?)?,
            };
            way.values[id.0 as usize] = Some(earlier);
        }
        Ok(())
    }

    /// A node's outputs for each of these inputs; together, as more rows, where that reads large weights once.
    fn evaluate_each(
        &self,
        node: &Node,
        symbols: &Symbols,
        inputs: &[Vec<Value<f64>>],
    ) -> Result<Vec<Vec<Value<f64>>>> {
        let weight = |&id: &ValueId| self.model.graph().value(id).origin == Origin::Weight;
        let weights: Vec<bool> = node.inputs.iter().map(weight).collect();
        let eval = |inputs: &Vec<Value<f64>>| {
            eval(&node.op, symbols, inputs).context(|| format!("node `{}`", node.name))
        };
        match stack_rows(&node.op, &self.model.graph().input_types(node), inputs, &weights) {
            Some((rows, all)) => unstack_rows(eval(&all)?, rows, inputs.len()),
            None => inputs.par_iter().map(eval).collect(),
        }
    }

    /// Keeps what a node gave, disturbed.
    fn put(&self, way: &mut Way, case: Case, outputs: Vec<Value<f64>>) -> Result<()> {
        let node = self.model.graph().node(case.node);
        for (k, (&id, output)) in node.outputs.iter().zip(outputs).enumerate() {
            let output = match way.seed {
                seed @ 1..=RUNS => self.disturb(case, k, id, output, seed)?,
                _ => output,
            };
            way.values[id.0 as usize] = Some(output);
        }
        Ok(())
    }

    /// What a run leaves.
    fn end(&self, way: &mut Way, frame: usize) -> Result<()> {
        let get = |id: ValueId| self.get(&way.values, id);
        way.kept = self.kept.iter().map(|&id| Ok((id, get(id)?))).collect::<Result<_>>()?;
        way.states = self.model.graph().states().iter().map(|s| get(s.output)).collect::<Result<_>>()?;
        let found = self.results.iter().map(|&id| Ok(get(id)?.as_float()?.clone()));
        way.results.insert(frame, found.collect::<Result<_>>()?);
        Ok(())
    }

    /// Whether the node that gives a value ran in this run.
    fn was_computed(&self, frame: usize, id: ValueId) -> bool {
        match self.model.graph().value(id).origin {
            Origin::Node { node, .. } => self.suite.ran(Case { frame, node }),
            _ => false,
        }
    }

    /// A value of the run under way, or a weight.
    fn get(&self, values: &[Option<Value<f64>>], id: ValueId) -> Result<Value<f64>> {
        let value = self.model.graph().value(id);
        match (&values[id.0 as usize], value.origin) {
            (Some(found), _) => Ok(found.clone()),
            (None, Origin::Weight) => self.oracles.weights().get_weight(self.model, &value.name),
            (None, _) => Err(Error::bug(format!("`{}` is read but not there", value.name))),
        }
    }

    /// Indices are not disturbed.
    fn disturb(
        &self,
        case: Case,
        k: usize,
        id: ValueId,
        output: Value<f64>,
        seed: u64,
    ) -> Result<Value<f64>> {
        let declared = (self.precision)(case.node, &self.suite.frames()[case.frame].symbols)?;
        let Value::Float(array) = &output else {
            return Ok(output);
        };
        match self.move_values(case, (k, id), array.values(), (declared, seed))? {
            Some(moved) => Value::float(array.shape().to_vec(), moved),
            None => Ok(output),
        }
    }

    /// The values of output `k` of a call, each moved by what its verdict allows on the target, or as far as the source
    /// errs there if that is more; `None` if nothing of it moves. `precision` is `None` if the node stays on the source.
    fn move_values(
        &self,
        case: Case,
        (k, id): (usize, ValueId),
        values: &[f64],
        (precision, seed): (Option<Precision>, u64),
    ) -> Result<Option<Vec<f64>>> {
        let exact = self.oracles.exact_outputs(case, || Ok(self.suite.call(case, self.model)?.0))?;
        let exact = &exact[k];
        if exact.values.len() != values.len() || exact.deviation.iter().all(|&d| d == 0.0) {
            return Ok(None);
        }
        let dtype = self.model.graph().value(id).ty.dtype;
        let zero = || vec![0.0; values.len()];
        let (storage, mut computing) = match precision {
            Some(precision) => {
                let allowed = Allowed::new(exact, dtype, precision, None);
                (allowed.storage, allowed.computing)
            }
            None => (zero(), zero()),
        };
        let recorded = self.suite.value(case.frame, id)?.to_f64();
        as_the_source(&mut computing, &storage, exact, &recorded);
        // A stream for each call and output: results do not depend on the order of threads.
        let stream = (case.frame as u64) << 40 | u64::from(case.node.0) << 8 | k as u64;
        let mut random = fastrand::Rng::with_seed(stream.wrapping_mul(2 * RUNS + 1).wrapping_add(seed));
        let mut uniform = || 2.0 * random.f64() - 1.0;
        let mut moved = Vec::with_capacity(values.len());
        let mut shared = 0.0;
        for (i, &y) in values.iter().enumerate() {
            if i % exact.row_len.max(1) == 0 {
                shared = uniform();
            }
            // As in the formula above.
            let own = (1.0 - SHARED) * uniform() + SHARED * shared * y.signum();
            moved.push(y + storage[i] * uniform() + computing[i].min(f64::MAX) * own);
        }
        Ok(Some(moved))
    }
}

/// Lets each element err at least as far as the source does at most in its row. A hybrid runs the source's kernels on
/// inputs that moved, where they err anew: by as much, but not alike.
fn as_the_source(computing: &mut [f64], storage: &[f64], exact: &Exact, recorded: &[f64]) {
    let len = exact.row_len.max(1);
    let rows = exact.values.chunks(len).zip(recorded.chunks(len)).zip(storage.chunks(len));
    for (((exact, recorded), storage), computing) in rows.zip(computing.chunks_mut(len)) {
        let errors = exact.iter().zip(recorded).map(|(a, b)| (a - b).abs()).filter(|e| e.is_finite());
        let worst = errors.fold(0.0, f64::max);
        computing.iter_mut().zip(storage).for_each(|(own, storage)| *own = own.max(worst - storage));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_source_errs_by_is_room_for_its_row() {
        let values = vec![1.0, 2.0, 3.0, 4.0];
        let (deviation, inner) = (vec![0.0; 4], Vec::new());
        let exact = Exact { values, deviation, inner, row_len: 2, integers: None };
        let mut computing = vec![0.1, 0.5, 0.1, 0.1];
        let recorded = [1.0, 2.25, f64::NAN, 4.0];
        as_the_source(&mut computing, &[0.0, 0.05, 0.0, 0.0], &exact, &recorded);
        assert_eq!(computing, [0.25, 0.5, 0.1, 0.1]);
    }

    #[test]
    fn choices_within_reach_turn_over_and_no_others() {
        let way = |values: [f64; 6]| vec![Value::float(vec![2, 3], values.to_vec()).unwrap()];
        let exact = [1.0, 0.99, 0.0, 3.0, 2.0, 1.0];
        // The first row's gap of 0.01 moves by 0.004, the second one's of 1 by 0.02.
        let moved = [1.002, 0.988, 0.0, 3.01, 1.99, 1.0];
        let known = [way(exact), way(moved)];
        let turned = |k: usize| {
            let mut logits = known[0][0].clone();
            turn(&known, &mut logits, k).unwrap();
            logits.as_float().unwrap().values().to_vec()
        };
        assert_eq!(turned(1), [0.99, 1.0, 0.0, 3.0, 2.0, 1.0]);
        assert_eq!(turned(3), exact, "all are chosen");
    }
}
