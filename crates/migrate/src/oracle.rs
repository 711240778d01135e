//! Exact results of node calls and their sensitivity, computed once per call and shared by every platform that is
//! checked: they depend on the recorded inputs alone.

use crate::stop::Stop;
use crate::suite::{Case, Suite};
use crate::verdict::{AMPLITUDE, Allowed, COPIES, Exact, Precision};
use rayon::prelude::*;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tapml_exec::Call;
use tapml_graph::op::{DeclaredType, Foreign};
use tapml_graph::{Context, DType, ErrorKind, Model, Op, Result, Tensor, TensorType};
use tapml_reference::foreign::{self, Disturbance, Evaluator};
use tapml_reference::{Value, WeightCache, oracle};

/// Bytes of weights that are kept in f64: all of a small model. Those beyond are converted as products read them, which for
/// a large model is faster than to write and read four times the memory, and does not need it.
const WEIGHTS: usize = 1 << 30;

/// Oracle results of one suite. Results are kept while they fit the budget, so that a second check of the same calls,
/// such as one after a kernel was edited, computes nothing.
pub struct Oracles {
    /// Shared by all calls, and by the views of one suite.
    weights: Arc<WeightCache<f64>>,
    /// Who evaluates operators of others that TapML does not; what it says is believed as TapML's own evaluations are.
    evaluator: Option<Box<dyn Evaluator>>,
    /// Not held while something is computed.
    known: Mutex<Known>,
    budget: usize,
}

/// Results that are kept.
#[derive(Default)]
struct Known {
    exact: HashMap<Case, Arc<Vec<Exact>>>,
    /// Of values and deviations.
    bytes: usize,
}

impl Oracles {
    /// Bytes of results that a job keeps which comes back to the same calls: a check that is repeated for an edited kernel, a
    /// diagnosis, a bench of mutants.
    pub const BUDGET: usize = 1 << 30;
    /// Half of it for a migration, during which source and target both hold the model.
    pub const MIGRATION_BUDGET: usize = Oracles::BUDGET / 2;
    /// A quarter of it where the results of several views of a suite are kept at a time: its own calls, and those of fused
    /// operators in each lowering.
    pub const VIEW_BUDGET: usize = Oracles::BUDGET / 4;

    /// Keeps results of up to `budget` bytes in memory.
    pub fn new(budget: usize) -> Oracles {
        let weights = Arc::new(WeightCache::with_budget(WEIGHTS));
        Oracles { weights, evaluator: None, known: Mutex::default(), budget }
    }

    /// Oracles of another view of the suite, whose cases have the same numbers: for its fused operators, which TapML evaluates
    /// itself. Weights are shared, since they are those of the same model.
    pub fn for_view(&self, budget: usize) -> Oracles {
        Oracles { weights: self.weights.clone(), evaluator: None, known: Mutex::default(), budget }
    }

    /// With somebody who evaluates the operators of others that TapML does not evaluate itself.
    pub fn with_evaluator(self, evaluator: Box<dyn Evaluator>) -> Oracles {
        Oracles { evaluator: Some(evaluator), ..self }
    }

    /// Bytes of results that are kept at most.
    pub fn budget(&self) -> usize {
        self.budget
    }

    /// The exact outputs of `case` of the suite that these oracles belong to; `call` gives its call if they are not
    /// known yet.
    pub fn exact_outputs<C: std::borrow::Borrow<Call>>(
        &self,
        case: Case,
        call: impl FnOnce() -> Result<C>,
    ) -> Result<Arc<Vec<Exact>>> {
        // The lock is given back at once: computing takes long.
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).exact.get(&case).cloned();
        if let Some(exact) = known {
            return Ok(exact);
        }
        let call = call()?;
        let call = call.borrow();
        let seed = (case.frame as u64) << 32 | u64::from(case.node.0);
        let exact = Arc::new(self.compute(call, seed).context(|| format!("oracle of node `{}`", call.node))?);
        let bytes: usize = exact.iter().map(|e| e.values.len() * 16).sum();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // Two threads may have computed the same; the first result is counted.
        if known.bytes + bytes <= self.budget && known.exact.insert(case, exact.clone()).is_none() {
            known.bytes += bytes;
        }
        Ok(exact)
    }

    /// Computes the exact outputs of these cases, as many as are kept, so that whoever asks for them later need not wait. What
    /// fails is left to whoever asks. A request to stop ends it.
    pub(crate) fn compute_ahead(&self, suite: &Suite, model: &Model, cases: &[Case], stop: &Stop) {
        let is_full = || self.known.lock().unwrap_or_else(PoisonError::into_inner).bytes >= self.budget;
        // Whoever asks for what failed is told why.
        let compute = |case: &Case| {
            let needed = stop.check().is_ok() && !is_full();
            needed.then(|| drop(self.exact_outputs(*case, || Ok(suite.call(*case, model)?.0))))
        };
        cases.par_iter().try_for_each(compute).unwrap_or_default()
    }

    /// The exact outputs of a call that is no case of a suite; not kept. `seed` decides the disturbances that measure the
    /// sensitivity.
    pub fn exact(&self, call: &Call, seed: u64) -> Result<Vec<Exact>> {
        self.compute(call, seed).context(|| format!("oracle of node `{}`", call.node))
    }

    /// The weights in f64.
    pub(crate) fn weights(&self) -> &WeightCache<f64> {
        &self.weights
    }

    /// The inputs of a call in f64.
    pub fn inputs(&self, call: &Call) -> Result<Vec<Value<f64>>> {
        let inputs = call.inputs.iter().zip(&call.weights).map(|(tensor, weight)| match weight {
            Some(name) => self.weights.get(name, tensor),
            None => Value::from_tensor(tensor),
        });
        inputs.collect()
    }

    /// By TapML's own evaluation.
    fn compute(&self, call: &Call, seed: u64) -> Result<Vec<Exact>> {
        if call.op.is_foreign() {
            return self.compute_foreign(call, seed);
        }
        let inputs = self.inputs(call)?;
        let is_weight: Vec<bool> = call.weights.iter().map(Option::is_some).collect();
        let found = oracle(&call.op, &call.symbols, &inputs, &is_weight, AMPLITUDE, COPIES, seed)?;
        Ok(Exact::of_outputs(&found))
    }

    /// The outputs of an operator of others in `f64`, of inputs in `f64`: by TapML's own evaluation, else by whoever was named.
    ///
    /// # Errors
    /// If nobody evaluates the operator, or the inputs do not fit it.
    pub fn evaluate(&self, op: &Foreign, inputs: &[Tensor], constants: &[bool]) -> Result<Vec<Tensor>> {
        match (foreign::OwnEvaluator.evaluate(op, inputs, constants), &self.evaluator) {
            (Err(error), Some(other)) if error.kind() == ErrorKind::Unsupported => {
                other.evaluate(op, inputs, constants)
            }
            (found, _) => found,
        }
    }

    /// The outputs of an operator of others on these inputs in the precision that they have, whatever it declares; `constants` says
    /// of each input whether it is a weight. Where only whoever was named evaluates it, floats have the dtypes that `op` declares.
    pub fn run(&self, op: &Foreign, inputs: &[Tensor], constants: &[bool]) -> Result<Vec<Tensor>> {
        let unknown = |place: &DeclaredType| match place {
            DeclaredType::Absent => DeclaredType::Absent,
            _ => DeclaredType::Unknown,
        };
        // Without declared types an evaluator gives those that follow from the inputs.
        let asked = op.with_outputs(op.outputs().iter().map(unknown).collect())?;
        match (foreign::evaluate(&asked, inputs), &self.evaluator) {
            (Err(error), Some(other)) if error.kind() == ErrorKind::Unsupported => {
                let wide: Vec<Tensor> = inputs.iter().map(foreign::widened_tensor).collect::<Result<_>>()?;
                let found = other.evaluate(&asked, &wide, constants)?;
                let declared = op.outputs().iter().filter_map(DeclaredType::ty);
                let of = |(found, declared): (Tensor, &TensorType)| match declared.dtype {
                    dtype if found.dtype().is_float() && dtype.is_float() && dtype != found.dtype() => {
                        Tensor::from_f64(dtype, found.shape().to_vec(), &found.to_f64())
                    }
                    _ => Ok(found),
                };
                found.into_iter().zip(declared).map(of).collect()
            }
            (found, _) => found,
        }
    }

    /// By whoever evaluates the operator, TapML first.
    fn compute_foreign(&self, call: &Call, seed: u64) -> Result<Vec<Exact>> {
        let is_weight: Vec<bool> = call.weights.iter().map(Option::is_some).collect();
        let (op, accumulate, terms) = (&call.op, DType::F32, terms(call));
        let reach = accumulate.unit_roundoff() * Allowed::roundings(Precision { accumulate, terms });
        let disturbance = Disturbance { amplitude: AMPLITUDE, reach, copies: COPIES, seed };
        let by =
            |evaluator: &dyn Evaluator| foreign::oracle(evaluator, op, &call.inputs, &is_weight, disturbance);
        let found = match (by(&foreign::OwnEvaluator), &self.evaluator) {
            (Err(error), Some(other)) if error.kind() == ErrorKind::Unsupported => by(other.as_ref())?,
            (Err(error), None) if error.kind() == ErrorKind::Unsupported => {
                let aten = matches!(op, Op::Foreign(op) if op.domain() == "aten");
                let known = if aten { "torch-f64" } else { "reference" };
                return Err(
                    error.with_hint(format!("name a runtime that evaluates it in f64: --oracle {known}"))
                );
            }
            (found, _) => found?,
        };
        let mut exact = Exact::of_outputs(&found.found);
        for ((exact, output), integers) in exact.iter_mut().zip(&found.found.exact).zip(found.integers) {
            exact.row_len = row_len(output.shape());
            exact.integers = integers;
        }
        Ok(exact)
    }
}

/// Elements that share their floor of sensitivity: those of the last sizes, so many that chance makes not all of their
/// deviations small.
fn row_len(shape: &[usize]) -> usize {
    const ENOUGH: usize = 16;
    let mut len = 1;
    for &size in shape.iter().rev() {
        if len >= ENOUGH {
            break;
        }
        len *= size;
    }
    len.max(1)
}

/// Terms of the longest sum that an operator forms for one output element, from the shapes of its inputs: 0 if every
/// input has the output's shape (element-wise), else the longest row, or the rows of an input that are summed over, or
/// all rows if they see each other.
pub fn terms(call: &Call) -> usize {
    if call.op.is_foreign() {
        return usize::try_from(foreign::terms(&call.op, &call.input_types)).unwrap_or(usize::MAX);
    }
    let output = call.output_types.first().and_then(|t| t.sizes(&call.symbols).ok()).unwrap_or_default();
    // The numbers of a packed weight are summed over as those of any other.
    let is_number = |dtype: DType| dtype.is_float() || dtype.packing().is_some();
    let numbers = || call.inputs.iter().zip(&call.weights).filter(|(t, _)| is_number(t.dtype()));
    // A weight is summed over even where all sizes are equal.
    if numbers().all(|(t, w)| t.shape() == output && w.is_none()) {
        return 0;
    }
    let longest = |tensor: &tapml_graph::Tensor, weight: bool| {
        let row = tensor.shape().last().copied().unwrap_or(0);
        match tensor.shape() {
            [rows, _] if !weight && output.first() != Some(rows) => row.max(*rows),
            _ => row,
        }
    };
    let rows = output.first().copied().filter(|_| !call.op.row_wise()).unwrap_or(0);
    numbers().map(|(t, w)| longest(t, w.is_some())).max().unwrap_or(0).max(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapml_graph::op::{Add, Linear};
    use tapml_graph::{Bytes, Dim, Packing, Symbol, Symbols, byte_len};

    /// Width of a model whose projections are square.
    const WIDTH: usize = 64;

    fn zeros(dtype: DType, shape: &[usize]) -> Tensor {
        let bytes = byte_len(dtype, shape).unwrap();
        Tensor::new(dtype, shape.to_vec(), Bytes::new(vec![0u8; bytes])).unwrap()
    }

    /// A call with as many rows as columns, so that no size tells inputs and outputs apart; the second input has this type.
    fn square_call(op: Op, second: DType, is_weight: bool) -> Call {
        let rows = TensorType::new(DType::F32, [Dim::from(Symbol::N), Dim::from(WIDTH)]);
        let columns = if is_weight { Dim::from(WIDTH) } else { Dim::from(Symbol::N) };
        Call {
            node: "q_proj".into(),
            op,
            symbols: Symbols::np(WIDTH as u64, 0),
            inputs: vec![zeros(DType::F32, &[WIDTH, WIDTH]), zeros(second, &[WIDTH, WIDTH])],
            input_types: vec![rows.clone(), TensorType::new(second, [columns, Dim::from(WIDTH)])],
            weights: vec![None, is_weight.then(|| "q_proj.weight".into())],
            output_types: vec![rows],
        }
    }

    #[test]
    fn a_square_projection_sums_its_columns_whatever_its_weight_is_packed_as() {
        let packed = [4, 8].map(|bits| DType::Packed(Packing::integers(bits, 32, false)));
        for dtype in packed.into_iter().chain([DType::F32]) {
            let call = square_call(Linear::default().into(), dtype, true);
            call.check().unwrap();
            assert_eq!(terms(&call), WIDTH, "{dtype}");
        }
    }

    #[test]
    fn an_operator_of_single_elements_sums_nothing() {
        let call = square_call(Add {}.into(), DType::F32, false);
        call.check().unwrap();
        assert_eq!(terms(&call), 0);
    }
}
