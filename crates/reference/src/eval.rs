//! The list of evaluations, one per plain operator, and the checks before each. A fused operator is not listed:
//! its definition runs instead.
//!
//! Shape inference runs before every evaluation, on types whose sizes are those of the values. So an evaluation may index freely.

use crate::real::Real;
use crate::run::run_definition;
use crate::value::Value;
use tapml_graph::op::{self, Operator};
use tapml_graph::{Context, DType, Error, Op, Result, Symbols, Tensor, TensorType};

/// The evaluation of one plain operator. Implemented in the file of the operator's name.
pub(crate) trait Evaluate: Operator {
    /// Whether outputs are copies of inputs, so that there is nothing to round.
    const MOVES_ONLY: bool = false;

    /// Puts the sizes that `symbols` bind back in symbolic form where shape inference compares with them.
    fn symbolic(&self, _types: &mut [TensorType], _symbols: &Symbols) {}

    /// The outputs. Shapes have been checked.
    fn eval<T: Real>(&self, symbols: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>>;

    /// The operator with the numbers that it computes from its attributes alone disturbed: each multiplied by
    /// what `factor` gives next. `None` if there are none.
    fn disturb_constants(&self, _factor: &mut dyn FnMut() -> f64) -> Option<Op> {
        None
    }

    /// For an operator that chooses, how its outputs jump where another choice is near; `None` for any other.
    fn jumps(&self, _inputs: &[Value<f64>], _amplitude: f64) -> Result<Option<Vec<Jump>>> {
        Ok(None)
    }
}

/// For each element of an output the largest of `change · min(1, amplitude / r)` over the choices near the one taken:
/// how far the element changes with that choice, and the relative disturbance `r` from which on it may be taken.
pub(crate) enum Jump {
    /// Of indices, whose change counts as 1, and which change in no other way.
    Indices(Vec<f64>),
    /// Of numbers, which move also while the choice stays.
    Numbers(Vec<f64>),
}

/// Makes the functions that look an operator up in the list: one `match` each, so that a new row serves all of them.
macro_rules! evaluators {
    ($($ty:ident),+ $(,)?) => {
        fn symbolic(op: &Op, types: &mut [TensorType], symbols: &Symbols) {
            match op {
                $(Op::$ty(op) => Evaluate::symbolic(op, types, symbols),)+
                _ => {}
            }
        }

        /// The outputs of a plain operator; `None` if it has no evaluation of its own.
        fn plain<T: Real>(op: &Op, symbols: &Symbols, inputs: &[Value<T>]) -> Option<Result<Vec<Value<T>>>> {
            match op {
                $(Op::$ty(op) => Some(Evaluate::eval(op, symbols, inputs)),)+
                _ => None,
            }
        }

        /// See [`Evaluate::MOVES_ONLY`].
        pub(crate) fn moves_only(op: &Op) -> bool {
            match op {
                $(Op::$ty(_) => <op::$ty as Evaluate>::MOVES_ONLY,)+
                _ => false,
            }
        }

        /// See [`Evaluate::disturb_constants`].
        pub(crate) fn disturb_constants(op: &Op, factor: &mut dyn FnMut() -> f64) -> Option<Op> {
            match op {
                $(Op::$ty(op) => Evaluate::disturb_constants(op, factor),)+
                _ => None,
            }
        }

        /// See [`Evaluate::jumps`].
        pub(crate) fn jumps(op: &Op, inputs: &[Value<f64>], amplitude: f64) -> Result<Option<Vec<Jump>>> {
            match op {
                $(Op::$ty(op) => Evaluate::jumps(op, inputs, amplitude),)+
                _ => Ok(None),
            }
        }
    };
}

evaluators! {
    Embedding,
    RmsNorm,
    LayerNorm,
    Linear,
    RopeAngles,
    Rope,
    Append,
    Attention,
    PagedAppend,
    PagedAttention,
    PagedRecurrence,
    TakeRows,
    Add,
    Mul,
    Lerp,
    Silu,
    Gelu,
    Relu,
    ReluSquared,
    Sigmoid,
    Tanh,
    Softplus,
    Scale,
    Softcap,
    Clamp,
    Columns,
    Concat,
    Rows,
    Patches,
    MergeSquares,
    LastRow,
    MergeRows,
    Positions,
    PositionScale,
    Route,
    ExpertLinear,
    Combine,
    TokenShift,
    Wkv,
    Wkv7,
    WkvBonus,
    CausalConv,
    SelectiveScan,
    Dequantize,
    Argmax,
    TopK,
    ExpSums,
    AllReduce,
    AllGather,
}

/// Evaluates an operator in `T` throughout; nothing is rounded to storage dtypes. Fails if the inputs do not have the
/// shapes that the operator needs when `symbols` hold, or if an id lies outside its table.
///
/// Evaluations are deterministic: they depend neither on threads nor on what runs beside them.
pub fn eval<T: Real>(op: &Op, symbols: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
    T::eval(op, symbols, inputs)
}

/// Evaluates in `f32` and rounds each output to its dtype in `output_dtypes`.
///
/// # Errors
/// As [`eval`], and if there are other numbers of dtypes than of outputs.
pub fn run_node(
    op: &Op,
    symbols: &Symbols,
    inputs: &[Tensor],
    output_dtypes: &[DType],
) -> Result<Vec<Tensor>> {
    let values: Vec<Value<f32>> = inputs.iter().map(Value::from_tensor).collect::<Result<_>>()?;
    let outputs = eval(op, symbols, &values)?;
    if outputs.len() != output_dtypes.len() {
        let (have, want) = (output_dtypes.len(), outputs.len());
        return Err(Error::invalid(format!("`{}` has {want} outputs, {have} dtypes given", op.name())));
    }
    outputs.iter().zip(output_dtypes).map(|(value, &dtype)| value.to_tensor(dtype)).collect()
}

/// [`eval`] for one number type; reached through the type so that it is compiled in this crate.
pub(crate) fn evaluate<T: Real>(op: &Op, symbols: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
    // The body's own nodes are checked one by one.
    if let Op::Fused(fused) = op {
        let outputs = run_definition(fused.body(), symbols, inputs);
        return outputs.context(|| op.name().to_string());
    }
    if let Op::Foreign(op) = op {
        return crate::foreign::eval(op, inputs).context(|| op.kind().to_string());
    }
    // Values have numbers as sizes, where some operators compare symbols.
    let concrete: Vec<TensorType> = inputs.iter().map(Value::ty).collect();
    let mut types = concrete.clone();
    symbolic(op, &mut types, symbols);
    // Only the error matters in a release: it names what does not fit.
    let inferred = op.infer(&types).map_err(|e| {
        let bound: Vec<String> =
            symbols.iter().map(|(symbol, value)| format!("{symbol} = {value}")).collect();
        e.context(format!("with {}", bound.join(", ")))
    })?;
    let outputs = match plain(op, symbols, inputs) {
        Some(outputs) => outputs,
        None => match op.definition(&concrete) {
            Some(graph) => graph.and_then(|graph| run_definition(&graph, symbols, inputs)),
            None => Err(Error::unsupported("the reference has no evaluation of this operator")),
        },
    };
    let outputs = outputs.context(|| op.name().to_string())?;
    // An evaluation of another shape than inference says is a bug of this crate.
    debug_assert_eq!(
        inferred.iter().map(|t| t.sizes(symbols).ok()).collect::<Vec<_>>(),
        outputs.iter().map(|v| Some(v.shape().to_vec())).collect::<Vec<_>>(),
        "shapes of the outputs of {}",
        op.name()
    );
    Ok(outputs)
}
