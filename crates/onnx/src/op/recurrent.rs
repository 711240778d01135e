//! `LSTM`, `GRU` and `RNN`, and an LSTM of ONNX Runtime with weights of 8 bits.
//!
//! Equations, orders of gates and defaults are those of the operators in ONNX's Operators.md.

use super::quantize::through_bytes;
use crate::array::{Array, volume};
use crate::call::{Call, Outputs};
use crate::facts::{CallFacts, InputSizes, terms};
use crate::product::{Gemm, Matrix, multiply};
use crate::real::Real;
use tapml_graph::{Error, Result};

/// An activation with its parameters.
#[derive(Clone, Copy)]
struct CellActivation<T> {
    kind: ActivationKind,
    alpha: T,
    beta: T,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ActivationKind {
    Relu,
    Tanh,
    Sigmoid,
    Affine,
    LeakyRelu,
    ThresholdedRelu,
    ScaledTanh,
    HardSigmoid,
    Elu,
    Softsign,
    Softplus,
}

/// Name, kind, and the defaults of alpha and beta if the activation has them.
const ACTIVATIONS: &[(&str, ActivationKind, Option<f64>, Option<f64>)] = &[
    ("relu", ActivationKind::Relu, None, None),
    ("tanh", ActivationKind::Tanh, None, None),
    ("sigmoid", ActivationKind::Sigmoid, None, None),
    ("affine", ActivationKind::Affine, Some(1.0), Some(0.0)),
    ("leakyrelu", ActivationKind::LeakyRelu, Some(0.01), None),
    ("thresholdedrelu", ActivationKind::ThresholdedRelu, Some(1.0), None),
    ("scaledtanh", ActivationKind::ScaledTanh, Some(1.0), Some(1.0)),
    ("hardsigmoid", ActivationKind::HardSigmoid, Some(0.2), Some(0.5)),
    ("elu", ActivationKind::Elu, Some(1.0), None),
    ("softsign", ActivationKind::Softsign, None, None),
    ("softplus", ActivationKind::Softplus, None, None),
];

impl<T: Real> CellActivation<T> {
    fn apply(self, x: T) -> T {
        let CellActivation { alpha, beta, .. } = self;
        let (zero, one) = (T::zero(), T::one());
        match self.kind {
            ActivationKind::Relu => x.max(zero),
            ActivationKind::Tanh => x.tanh(),
            ActivationKind::Sigmoid => sigmoid(x),
            ActivationKind::Affine => alpha * x + beta,
            ActivationKind::LeakyRelu => {
                if x < zero {
                    alpha * x
                } else {
                    x
                }
            }
            ActivationKind::ThresholdedRelu => {
                if x > alpha {
                    x
                } else {
                    zero
                }
            }
            ActivationKind::ScaledTanh => alpha * (beta * x).tanh(),
            ActivationKind::HardSigmoid => (alpha * x + beta).max(zero).min(one),
            ActivationKind::Elu => {
                if x < zero {
                    alpha * x.exp_m1()
                } else {
                    x
                }
            }
            ActivationKind::Softsign => x / (one + x.abs()),
            ActivationKind::Softplus => x.max(zero) + (-x.abs()).exp().ln_1p(),
        }
    }
}

/// `1 / (1 + e⁻ˣ)`.
fn sigmoid<T: Real>(x: T) -> T {
    // Neither branch computes the exponential of a large number.
    if x >= T::zero() { T::one() / (T::one() + (-x).exp()) } else { x.exp() / (T::one() + x.exp()) }
}

/// The activations of all directions: from the attributes, else these.
fn activations<T: Real>(
    call: &Call<'_>,
    directions: usize,
    default: &[&str],
) -> Result<Vec<CellActivation<T>>> {
    let names = call.texts("activations")?.unwrap_or_else(|| default.repeat(directions));
    let mut alphas = call.floats("activation_alpha")?.unwrap_or_default().into_iter();
    let mut betas = call.floats("activation_beta")?.unwrap_or_default().into_iter();
    if names.len() != default.len() * directions {
        return Err(Error::invalid(format!(
            "attribute `activations`: expected {}, found {}",
            default.len() * directions,
            names.len()
        )));
    }
    let read = |name: &&str| {
        let found = ACTIVATIONS.iter().find(|(own, ..)| own.eq_ignore_ascii_case(name));
        let &(_, kind, alpha, beta) = found.ok_or_else(|| {
            let name: String = name.chars().take(40).collect();
            Error::unsupported(format!("the activation `{}` is not served", name.escape_debug()))
        })?;
        // The lists hold numbers of the activations that have such a parameter, in order.
        let take = |default: Option<f64>, list: &mut std::vec::IntoIter<f64>| {
            default.map_or(0.0, |default| list.next().unwrap_or(default))
        };
        let (alpha, beta) = (take(alpha, &mut alphas), take(beta, &mut betas));
        Ok(CellActivation { kind, alpha: T::nearest(alpha), beta: T::nearest(beta) })
    };
    names.iter().map(read).collect()
}

/// Which operator.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CellKind {
    Lstm,
    /// With weights of 8 bits, and inputs and states that are quantised as they are multiplied.
    DynamicLstm,
    Gru,
    Rnn,
}

impl CellKind {
    fn gates(self) -> usize {
        match self {
            CellKind::Lstm | CellKind::DynamicLstm => 4,
            CellKind::Gru => 3,
            CellKind::Rnn => 1,
        }
    }

    /// Refuses batches for which the result depends on how the work is split.
    fn check_batch(self, batch: usize) -> Result<()> {
        if self == CellKind::DynamicLstm && batch > 1 {
            let text = format!("{batch} sequences: which of their states share a scale depends on threads");
            return Err(Error::unsupported(text));
        }
        Ok(())
    }

    fn activations(self) -> &'static [&'static str] {
        match self {
            CellKind::Lstm | CellKind::DynamicLstm => &["Sigmoid", "Tanh", "Tanh"],
            CellKind::Gru => &["Sigmoid", "Tanh"],
            CellKind::Rnn => &["Tanh"],
        }
    }
}

/// A call with everything in the layout of sequences first.
struct RecurrentProblem<T> {
    cell: CellKind,
    steps: usize,
    batch: usize,
    width: usize,
    hidden: usize,
    /// Whether each direction runs backwards.
    reverse: Vec<bool>,
    /// `[steps, batch, width]`.
    x: Array<T>,
    /// `[directions, gates · hidden, width]` and `[directions, gates · hidden, hidden]`.
    w: Array<T>,
    r: Array<T>,
    /// `[directions, 2 · gates · hidden]`, if any.
    bias: Option<Array<T>>,
    /// Steps of each of the batch.
    lengths: Vec<usize>,
    /// `[directions, batch, hidden]`.
    h: Array<T>,
    c: Array<T>,
    /// `[directions, 3 · hidden]`: input, output, forget.
    peepholes: Option<Array<T>>,
    activations: Vec<CellActivation<T>>,
    clip: Option<T>,
    /// Whether the forget gate is one less the input gate.
    input_forget: bool,
    /// Whether a GRU multiplies the state with its weights before the reset gate applies.
    linear_before_reset: bool,
    batch_first: bool,
}

fn fits<T>(array: &Array<T>, shape: &[usize], what: &str) -> Result<()> {
    if array.shape == shape {
        Ok(())
    } else {
        Err(Error::invalid(format!("{what}: expected {shape:?}, found {:?}", array.shape)))
    }
}

/// Weights of 8 bits, `[directions, k, gates · hidden]` with a scale and a zero point for each direction or each column of it, as
/// the numbers that they stand for, in the layout of other cells.
fn dequantize_weights<T: Real>(call: &Call<'_>, place: usize, scale: usize) -> Result<Array<T>> {
    let x = call.array::<i128>(place)?;
    let scales = call.array::<T>(scale)?;
    let zeros = call.optional_array::<i128>(scale + 1)?;
    let wrong = || Error::invalid(format!("scales {:?} for the weight {:?}", scales.shape, x.shape));
    let &[directions, k, columns] = x.shape.as_slice() else { return Err(wrong()) };
    let each = match scales.shape.as_slice() {
        [count] if *count == directions => false,
        [first, second] if (*first, *second) == (directions, columns) => true,
        _ => return Err(wrong()),
    };
    if zeros.as_ref().is_some_and(|zeros| zeros.shape != scales.shape) {
        return Err(Error::invalid(format!(
            "zero points of another shape than the scales {:?}",
            scales.shape
        )));
    }
    let number = |(at, &x): (usize, &i128)| {
        let direction = at / columns / k;
        let own = if each { direction * columns + at % columns } else { direction };
        T::nearest((x - zeros.as_ref().map_or(0, |zeros| zeros.data[own])) as f64) * scales.data[own]
    };
    let data = x.data.iter().enumerate().map(number).collect();
    Ok(Array { shape: x.shape.clone(), data }.transpose(&[0, 2, 1]))
}

/// Steps of each of the batch; all if they are not given.
fn lengths(call: &Call<'_>, steps: usize, batch: usize) -> Result<Vec<usize>> {
    let Some(list) = call.optional_integers(4)? else { return Ok(vec![steps; batch]) };
    let length = |&length: &i64| usize::try_from(length).ok().filter(|&length| length <= steps);
    let lengths = list.iter().map(length).collect::<Option<Vec<usize>>>();
    lengths.filter(|list| list.len() == batch).ok_or_else(|| {
        Error::invalid(format!("input 4: expected {batch} lengths up to {steps}, found {list:?}"))
    })
}

impl<T: Real> RecurrentProblem<T> {
    fn read(call: &Call<'_>, cell: CellKind) -> Result<RecurrentProblem<T>> {
        let reverse = match call.text_or("direction", "forward")? {
            "forward" => vec![false],
            "reverse" => vec![true],
            "bidirectional" => vec![false, true],
            other => {
                return Err(Error::invalid(format!(
                    "attribute `direction`: there is no `{}`",
                    other.escape_debug()
                )));
            }
        };
        let directions = reverse.len();
        let batch_first = call.flag("layout", false)?;
        let mut x = call.array::<T>(0)?;
        let (w, r) = match cell {
            CellKind::DynamicLstm => (dequantize_weights(call, 1, 8)?, dequantize_weights(call, 2, 10)?),
            _ => (call.array::<T>(1)?, call.array::<T>(2)?),
        };
        if x.rank() != 3 || r.rank() != 3 {
            return Err(Error::invalid(format!(
                "expected inputs of rank 3, found {:?} and {:?}",
                x.shape, r.shape
            )));
        }
        if batch_first {
            x = x.transpose(&[1, 0, 2]);
        }
        let [steps, batch, width] = [x.shape[0], x.shape[1], x.shape[2]];
        cell.check_batch(batch)?;
        let hidden = r.shape[2];
        if hidden == 0 || call.int_or("hidden_size", hidden as i64)? != hidden as i64 {
            return Err(Error::invalid(format!("`hidden_size` is not that of the weight {:?}", r.shape)));
        }
        let gates = cell.gates() * hidden;
        fits(&w, &[directions, gates, width], "input 1")?;
        fits(&r, &[directions, gates, hidden], "input 2")?;
        let bias = call.optional_array(3)?;
        if let Some(bias) = &bias {
            fits(bias, &[directions, 2 * gates], "input 3")?;
        }
        let lengths = lengths(call, steps, batch)?;
        let state = |place: usize| -> Result<Array<T>> {
            let Some(state) = call.optional_array::<T>(place)? else {
                return Array::zeros(vec![directions, batch, hidden]);
            };
            let state = if batch_first && state.rank() == 3 { state.transpose(&[1, 0, 2]) } else { state };
            fits(&state, &[directions, batch, hidden], &format!("input {place}"))?;
            Ok(state)
        };
        let lstm = matches!(cell, CellKind::Lstm | CellKind::DynamicLstm);
        let h = state(5)?;
        let c = if lstm { state(6)? } else { Array::zeros(vec![directions, batch, hidden])? };
        let peepholes = if lstm { call.optional_array(7)? } else { None };
        if let Some(peepholes) = &peepholes {
            fits(peepholes, &[directions, 3 * hidden], "input 7")?;
        }
        call.ignore(&["output_sequence"]);
        Ok(RecurrentProblem {
            activations: activations(call, directions, cell.activations())?,
            clip: call.float("clip")?.map(T::nearest),
            input_forget: lstm && call.flag("input_forget", false)?,
            linear_before_reset: cell == CellKind::Gru && call.flag("linear_before_reset", false)?,
            cell,
            steps,
            batch,
            width,
            hidden,
            reverse,
            x,
            w,
            r,
            bias,
            lengths,
            h,
            c,
            peepholes,
            batch_first,
        })
    }

    fn clip(&self, x: T) -> T {
        self.clip.map_or(x, |clip| x.max(-clip).min(clip))
    }

    /// Runs one direction: `y` is given every hidden state of it, and the states are left as they are at the end.
    fn run(&self, direction: usize, h: &mut [T], c: &mut [T], y: &mut [T]) -> Result<()> {
        let (hidden, gates) = (self.hidden, self.cell.gates() * self.hidden);
        let directions = self.reverse.len();
        let part =
            |array: &Array<T>, size: usize| array.data[direction * size..(direction + 1) * size].to_vec();
        let (w, r) = (part(&self.w, gates * self.width), part(&self.r, gates * hidden));
        let bias =
            self.bias.as_ref().map_or_else(|| vec![T::zero(); 2 * gates], |bias| part(bias, 2 * gates));
        let peepholes =
            self.peepholes.as_ref().map_or_else(|| vec![T::zero(); 3 * hidden], |p| part(p, 3 * hidden));
        let mut inputs = vec![T::zero(); volume(&[self.steps, self.batch, gates])?];
        let b = Matrix::new(&w, self.width).transpose();
        let quantized = |values: &[T]| (self.cell == CellKind::DynamicLstm).then(|| through_bytes(values));
        let bytes = quantized(&self.x.data);
        multiply(Gemm {
            a: Matrix::new(bytes.as_deref().unwrap_or(&self.x.data), self.width),
            b,
            c: &mut inputs,
            k: self.width,
            n: gates,
        });
        let mut recurrent = vec![T::zero(); self.batch * gates];
        for step in 0..self.steps {
            let bytes = quantized(h);
            let a = Matrix::new(bytes.as_deref().unwrap_or(h), hidden);
            let b = Matrix::new(&r, hidden).transpose();
            multiply(Gemm { a, b, c: &mut recurrent, k: hidden, n: gates });
            for n in 0..self.batch {
                // A shorter sequence keeps its last state, and its outputs behind the end stay 0.
                if step >= self.lengths[n] {
                    continue;
                }
                let at = if self.reverse[direction] { self.lengths[n] - 1 - step } else { step };
                let gate = Gates {
                    x: &inputs[(at * self.batch + n) * gates..][..gates],
                    h: &recurrent[n * gates..][..gates],
                    r: &r,
                    bias: &bias,
                    peepholes: &peepholes,
                    activations: &self.activations[direction * self.cell.activations().len()..],
                };
                let (h, c) = (&mut h[n * hidden..][..hidden], &mut c[n * hidden..][..hidden]);
                match self.cell {
                    CellKind::Lstm | CellKind::DynamicLstm => self.lstm(&gate, h, c),
                    CellKind::Gru => self.gru(&gate, h),
                    CellKind::Rnn => {
                        for (i, h) in h.iter_mut().enumerate() {
                            *h = gate.activations[0].apply(self.clip(gate.sum(i)));
                        }
                    }
                }
                y[((at * directions + direction) * self.batch + n) * hidden..][..hidden].copy_from_slice(h);
            }
        }
        Ok(())
    }

    /// Gates in the order input, output, forget, cell.
    fn lstm(&self, gate: &Gates<'_, T>, h: &mut [T], c: &mut [T]) {
        let size = self.hidden;
        let [f, g, last] = [gate.activations[0], gate.activations[1], gate.activations[2]];
        for i in 0..size {
            let input = f.apply(self.clip(gate.sum(i) + gate.peepholes[i] * c[i]));
            let forget = if self.input_forget {
                T::one() - input
            } else {
                f.apply(self.clip(gate.sum(2 * size + i) + gate.peepholes[2 * size + i] * c[i]))
            };
            c[i] = forget * c[i] + input * g.apply(self.clip(gate.sum(3 * size + i)));
            let output = f.apply(self.clip(gate.sum(size + i) + gate.peepholes[size + i] * c[i]));
            h[i] = output * last.apply(c[i]);
        }
    }

    /// Gates in the order update, reset, hidden.
    fn gru(&self, gate: &Gates<'_, T>, h: &mut [T]) {
        let size = self.hidden;
        let (f, g) = (gate.activations[0], gate.activations[1]);
        let reset: Vec<T> = (0..size).map(|i| f.apply(self.clip(gate.sum(size + i)))).collect();
        // Without `linear_before_reset` the reset state is multiplied, which no product computed before holds.
        let kept: Vec<T> = h.iter().zip(&reset).map(|(&h, &reset)| h * reset).collect();
        let next: Vec<T> = (0..size)
            .map(|i| {
                let row = 2 * size + i;
                let behind = gate.bias[3 * size + row];
                let recurrent = if self.linear_before_reset {
                    reset[i] * (gate.h[row] + behind)
                } else {
                    let weights = &gate.r[row * size..(row + 1) * size];
                    kept.iter().zip(weights).map(|(&h, &r)| h * r).sum::<T>() + behind
                };
                let new = g.apply(self.clip(gate.x[row] + recurrent + gate.bias[row]));
                let update = f.apply(self.clip(gate.sum(i)));
                (T::one() - update) * new + update * h[i]
            })
            .collect();
        h.copy_from_slice(&next);
    }
}

/// What one step of one of the batch is computed from.
struct Gates<'a, T> {
    /// Products of the input and of the last hidden state with the weights.
    x: &'a [T],
    h: &'a [T],
    r: &'a [T],
    bias: &'a [T],
    peepholes: &'a [T],
    activations: &'a [CellActivation<T>],
}

impl<T: Real> Gates<'_, T> {
    /// The argument of gate `i` without peepholes. Biases of the input come before those of the state.
    fn sum(&self, i: usize) -> T {
        self.x[i] + self.h[i] + self.bias[i] + self.bias[self.x.len() + i]
    }
}

fn run<T: Real>(call: &Call<'_>, cell: CellKind) -> Outputs {
    let problem = RecurrentProblem::<T>::read(call, cell)?;
    let (directions, batch, hidden) = (problem.reverse.len(), problem.batch, problem.hidden);
    let mut y = Array::<T>::zeros(vec![problem.steps, directions, batch, hidden])?;
    let (mut h, mut c) = (problem.h.clone(), problem.c.clone());
    for direction in 0..directions {
        let states = direction * batch * hidden..(direction + 1) * batch * hidden;
        problem.run(direction, &mut h.data[states.clone()], &mut c.data[states], &mut y.data)?;
    }
    if problem.batch_first {
        y = y.transpose(&[2, 0, 1, 3]);
        h = h.transpose(&[1, 0, 2]);
        c = c.transpose(&[1, 0, 2]);
    }
    let dtype = call.dtype(0)?;
    let mut outputs = vec![Some(call.store(y, dtype)?), Some(call.store(h, dtype)?)];
    if matches!(cell, CellKind::Lstm | CellKind::DynamicLstm) {
        outputs.push(Some(call.store(c, dtype)?));
    }
    Ok(outputs)
}

/// `LSTM`.
pub fn lstm<T: Real>(call: &Call<'_>) -> Outputs {
    run::<T>(call, CellKind::Lstm)
}

/// `com.microsoft.DynamicQuantizeLSTM`: the weights have 8 bits; all inputs, and before each step the states, go through `u8` with
/// a scale of their own.
pub fn dynamic_lstm<T: Real>(call: &Call<'_>) -> Outputs {
    run::<T>(call, CellKind::DynamicLstm)
}

/// `GRU`.
pub fn gru<T: Real>(call: &Call<'_>) -> Outputs {
    run::<T>(call, CellKind::Gru)
}

/// `RNN`.
pub fn rnn<T: Real>(call: &Call<'_>) -> Outputs {
    run::<T>(call, CellKind::Rnn)
}

/// Input and hidden size, for each step: errors of one step reach all later ones.
pub fn step_terms(sizes: &InputSizes<'_>) -> CallFacts {
    let steps = sizes.size(0, if sizes.int("layout", 0) != 0 { 1 } else { 0 });
    terms(sizes.size(0, 2).saturating_add(sizes.size(2, 2)).saturating_mul(steps))
}

/// As [`step_terms`], of weights with the inputs in front.
pub fn dynamic_step_terms(sizes: &InputSizes<'_>) -> CallFacts {
    let products = sizes.size(1, 1).saturating_add(sizes.size(2, 1));
    terms(products.saturating_mul(sizes.size(0, 0)))
}
