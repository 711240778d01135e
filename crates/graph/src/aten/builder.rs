//! Puts the steps of a definition together, and keeps their types.
//!
//! Every method checks the types of its operands and states the type of its result, so that each step is a valid call of its ONNX
//! operator. All sizes are constants. No value has more elements than [`MOST`], whatever a file asks for.

use super::definition::{Definition, DefinitionStep, OperandSource};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::TensorType;
use crate::op::{DeclaredType, Foreign};
use crate::tensor::Tensor;
use serde_json::{Map, Value, json};
use std::ops::Range;

/// Most elements of a value: what a verdict of one call holds in memory.
const MOST: usize = 1 << 31;
/// Most elements of a constant that a definition makes itself.
const MOST_CONSTANT: usize = 1 << 24;

/// A value with its type.
#[derive(Clone, Debug, PartialEq)]
pub struct Operand {
    /// Where it is found.
    pub source: OperandSource,
    /// The dtype of its elements.
    pub dtype: DType,
    /// Its sizes, outermost first; none for a number without dimensions.
    pub shape: Vec<usize>,
}

impl Operand {
    /// Dtype and shape as a type of the graph.
    pub fn ty(&self) -> TensorType {
        TensorType::new(self.dtype, self.shape.iter().copied())
    }

    /// Count of dimensions.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Count of elements, at most [`MOST`].
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// A dimension that counts from the end if it is negative; a number without dimensions has one for this.
    pub fn axis(&self, value: i64) -> Result<usize> {
        axis(value, self.rank().max(1))
    }
}

/// A dimension of so many.
///
/// # Errors
/// If there is none.
pub fn axis(value: i64, rank: usize) -> Result<usize> {
    let from_front = if value < 0 { value.checked_add(rank as i64) } else { Some(value) };
    let found = from_front.and_then(|value| usize::try_from(value).ok()).filter(|axis| *axis < rank);
    found.ok_or_else(|| Error::invalid(format!("axis {value} of a tensor of {rank} dimensions")))
}

/// The shape to which two shapes stretch.
///
/// # Errors
/// If two sizes of one dimension differ and neither is 1.
pub fn broadcast_shape(a: &[usize], b: &[usize]) -> Result<Vec<usize>> {
    let rank = a.len().max(b.len());
    let at = |shape: &[usize], d: usize| (d + shape.len()).checked_sub(rank).map_or(1, |d| shape[d]);
    let size = |d: usize| match (at(a, d), at(b, d)) {
        (one, other) if one == other || other == 1 => Ok(one),
        (1, other) => Ok(other),
        _ => Err(Error::invalid(format!("{a:?} and {b:?} do not stretch to each other"))),
    };
    (0..rank).map(size).collect()
}

/// A definition in the making.
pub struct Builder {
    /// The inputs at their places.
    inputs: Vec<Option<Operand>>,
    /// The steps so far.
    steps: Vec<DefinitionStep>,
    /// The constants so far.
    constants: Vec<Tensor>,
    /// Dtypes that the operator declares for its outputs, where it does.
    declared: Vec<Option<TensorType>>,
    /// Whether somebody asks for each output.
    asked: Vec<bool>,
}

impl Builder {
    /// A definition without steps.
    ///
    /// # Errors
    /// Of kind `Unsupported` if a size is not constant, or an input has more than [`MOST`] elements.
    pub fn new(op: &Foreign, inputs: &[Option<TensorType>]) -> Result<Builder> {
        let operand = |(place, ty): (usize, &Option<TensorType>)| {
            let Some(ty) = ty else { return Ok(None) };
            let size = |dim: &Dim| dim.as_const().and_then(|size| usize::try_from(size).ok());
            let shape = ty.shape.iter().map(size).collect::<Option<Vec<usize>>>();
            let shape = shape.ok_or_else(|| Error::unsupported(format!("{ty}: sizes must be constant")))?;
            check(&shape, MOST)?;
            Ok(Some(Operand { source: OperandSource::Input(place), dtype: ty.dtype, shape }))
        };
        let inputs = inputs.iter().enumerate().map(operand).collect::<Result<_>>()?;
        let declared = op.outputs().iter().map(|declared| declared.ty().cloned()).collect();
        let asked = op.outputs().iter().map(DeclaredType::is_asked).collect();
        Ok(Builder { inputs, steps: Vec::new(), constants: Vec::new(), declared, asked })
    }

    /// The input at a place.
    pub fn input(&self, place: usize) -> Option<&Operand> {
        self.inputs.get(place)?.as_ref()
    }

    /// Places of inputs.
    pub fn places(&self) -> usize {
        self.inputs.len()
    }

    /// The dtype in which PyTorch computes floats of integers: f32, or f64 where everything is evaluated in that.
    pub fn float(&self) -> DType {
        let inputs = self.inputs.iter().flatten().map(|operand| operand.dtype);
        let declared = self.declared.iter().flatten().map(|ty| ty.dtype);
        if inputs.chain(declared).any(|dtype| dtype == DType::F64) { DType::F64 } else { DType::F32 }
    }

    /// Whether somebody asks for the output at this place.
    pub fn asks(&self, place: usize) -> bool {
        self.asked.get(place).copied().unwrap_or(false)
    }

    /// Adds an operator; gives its outputs.
    ///
    /// # Errors
    /// If an output has more than [`MOST`] elements, or the operator is not valid.
    pub fn step(
        &mut self,
        kind: &str,
        attributes: Value,
        inputs: &[Option<&Operand>],
        outputs: &[(DType, Vec<usize>)],
    ) -> Result<Vec<Operand>> {
        let Value::Object(attributes) = attributes else {
            return Err(Error::bug("attributes are an object"));
        };
        // Before the step is added, so that a definition never holds a value that is too large.
        outputs.iter().try_for_each(|(_, shape)| check(shape, MOST))?;
        let declared = outputs
            .iter()
            .map(|(dtype, shape)| DeclaredType::As(TensorType::new(*dtype, shape.iter().copied())));
        let places = inputs.iter().map(Option::is_some).collect();
        let op = Foreign::new(kind, Map::from_iter(attributes), places, declared.collect())?;
        // Types of absent inputs have no place here, as in a graph's node.
        let types = inputs.iter().flatten().map(|operand| operand.ty()).collect();
        let inputs = inputs.iter().map(|operand| operand.map(|operand| operand.source)).collect();
        self.steps.push(DefinitionStep { op, inputs, types });
        let step = self.steps.len() - 1;
        let operand = |(place, (dtype, shape)): (usize, &(DType, Vec<usize>))| Operand {
            source: OperandSource::Step(step, place),
            dtype: *dtype,
            shape: shape.clone(),
        };
        Ok(outputs.iter().enumerate().map(operand).collect())
    }

    /// Adds an operator of one output.
    pub fn add_operator(
        &mut self,
        kind: &str,
        attributes: Value,
        inputs: &[&Operand],
        (dtype, shape): (DType, Vec<usize>),
    ) -> Result<Operand> {
        let inputs: Vec<Option<&Operand>> = inputs.iter().copied().map(Some).collect();
        Ok(self.step(kind, attributes, &inputs, &[(dtype, shape)])?.swap_remove(0))
    }

    /// A constant.
    pub fn constant(&mut self, tensor: Tensor) -> Operand {
        let (dtype, shape) = (tensor.dtype(), tensor.shape().to_vec());
        self.constants.push(tensor);
        Operand { source: OperandSource::Constant(self.constants.len() - 1), dtype, shape }
    }

    /// A list of integers.
    pub fn ints(&mut self, values: &[i64]) -> Result<Operand> {
        Ok(self.constant(Tensor::from_i64(DType::I64, vec![values.len()], values)?))
    }

    /// A number without dimensions.
    pub fn number(&mut self, value: f64, dtype: DType) -> Result<Operand> {
        self.fill_constant(value, dtype, Vec::new())
    }

    /// A constant of one number.
    ///
    /// # Errors
    /// If there are more than [`MOST_CONSTANT`] elements.
    pub fn fill_constant(&mut self, value: f64, dtype: DType, shape: Vec<usize>) -> Result<Operand> {
        check(&shape, MOST_CONSTANT)?;
        let count = shape.iter().product();
        let tensor = if dtype.is_float() {
            Tensor::from_f64(dtype, shape, &vec![value; count])?
        } else {
            Tensor::from_i64(dtype, shape, &vec![value as i64; count])?
        };
        Ok(self.constant(tensor))
    }

    /// An operator of one operand whose result is of the same type.
    pub fn unary(&mut self, kind: &str, attributes: Value, x: &Operand) -> Result<Operand> {
        self.add_operator(kind, attributes, &[x], (x.dtype, x.shape.clone()))
    }

    /// An operator of two operands that stretch.
    pub fn pair(&mut self, kind: &str, a: &Operand, b: &Operand) -> Result<Operand> {
        self.add_operator(kind, json!({}), &[a, b], (a.dtype, broadcast_shape(&a.shape, &b.shape)?))
    }

    /// The elements in the same order in another shape.
    pub fn reshape(&mut self, x: &Operand, shape: &[usize]) -> Result<Operand> {
        check(shape, MOST)?;
        if shape.iter().product::<usize>() != x.elements() {
            return Err(Error::invalid(format!("{:?} do not fill {shape:?}", x.shape)));
        }
        // No step, so that a definition has no operators without effect.
        if x.shape == shape {
            return Ok(x.clone());
        }
        let sizes: Vec<i64> = shape.iter().map(|&size| size as i64).collect();
        let sizes = self.ints(&sizes)?;
        // With `allowzero` a size of 0 means 0 and not "as the input".
        self.add_operator("onnx.Reshape@14", json!({"allowzero": 1}), &[x, &sizes], (x.dtype, shape.to_vec()))
    }

    /// The same values as another value, where a node gives one of its operands as it is.
    pub fn copy_value(&mut self, x: &Operand) -> Result<Operand> {
        match x.source {
            // An output of a step is a value of its own already.
            OperandSource::Step(..) => Ok(x.clone()),
            _ => self.unary("onnx.Identity@14", json!({}), x),
        }
    }

    /// Dimensions in another order.
    pub fn transpose(&mut self, x: &Operand, order: &[usize]) -> Result<Operand> {
        let mut sorted = order.to_vec();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..x.rank()) {
            return Err(Error::invalid(format!("dims {order:?} are no order of {} dimensions", x.rank())));
        }
        let shape = order.iter().map(|&axis| x.shape[axis]).collect();
        self.add_operator("onnx.Transpose@13", json!({"perm": order}), &[x], (x.dtype, shape))
    }

    /// The last two dimensions exchanged.
    pub fn transpose_matrix(&mut self, x: &Operand) -> Result<Operand> {
        let rank = x.rank();
        if rank < 2 {
            return Err(Error::invalid(format!("{} is no matrix", x.ty())));
        }
        let mut order: Vec<usize> = (0..rank).collect();
        order.swap(rank - 1, rank - 2);
        self.transpose(x, &order)
    }

    /// Stretched to a shape.
    pub fn expand(&mut self, x: &Operand, shape: &[usize]) -> Result<Operand> {
        // `Expand` of ONNX would stretch the shape as well, PyTorch's does not.
        if broadcast_shape(&x.shape, shape)? != shape {
            return Err(Error::invalid(format!("{:?} does not stretch to {shape:?}", x.shape)));
        }
        let sizes: Vec<i64> = shape.iter().map(|&size| size as i64).collect();
        let sizes = self.ints(&sizes)?;
        self.add_operator("onnx.Expand@13", json!({}), &[x, &sizes], (x.dtype, shape.to_vec()))
    }

    /// Elements `start`, `start + step`, … before `end` of a dimension.
    pub fn slice(
        &mut self,
        x: &Operand,
        axis: usize,
        elements: Range<usize>,
        step: usize,
    ) -> Result<Operand> {
        let Range { start, end } = elements;
        let mut shape = x.shape.clone();
        shape[axis] = end.saturating_sub(start).div_ceil(step);
        // ONNX clamps ends, so that the largest integer means the whole axis.
        let integer = |value: usize| [i64::try_from(value).unwrap_or(i64::MAX)];
        let (starts, ends) = (self.ints(&integer(start))?, self.ints(&integer(end))?);
        let (axes, steps) = (self.ints(&integer(axis))?, self.ints(&integer(step))?);
        self.add_operator("onnx.Slice@13", json!({}), &[x, &starts, &ends, &axes, &steps], (x.dtype, shape))
    }

    /// Several one after the other along a dimension.
    pub fn concat(&mut self, parts: &[Operand], axis: usize) -> Result<Operand> {
        let first = parts.first().ok_or_else(|| Error::invalid("nothing to join"))?;
        let mut shape = first.shape.clone();
        // All sizes but the one along the axis have to be the same.
        for part in &parts[1..] {
            let same = |d: usize| d == axis || part.shape.get(d) == shape.get(d);
            if part.rank() != shape.len() || part.dtype != first.dtype || !(0..shape.len()).all(same) {
                return Err(Error::invalid(format!("{} and {} do not join", first.ty(), part.ty())));
            }
            shape[axis] += part.shape[axis];
        }
        let parts: Vec<&Operand> = parts.iter().collect();
        self.add_operator("onnx.Concat@13", json!({"axis": axis}), &parts, (first.dtype, shape))
    }

    /// In another dtype.
    pub fn cast(&mut self, x: &Operand, dtype: DType) -> Result<Operand> {
        if x.dtype == dtype {
            return Ok(x.clone());
        }
        let code = element_code(dtype)?;
        self.add_operator("onnx.Cast@13", json!({"to": code}), &[x], (dtype, x.shape.clone()))
    }

    /// The product of two matrices, or of batches of them that stretch.
    pub fn matmul(&mut self, a: &Operand, b: &Operand) -> Result<Operand> {
        let ([batch_a @ .., m, k], [batch_b @ .., rows, n]) = (a.shape.as_slice(), b.shape.as_slice()) else {
            return Err(Error::invalid(format!("a product of {} and {}", a.ty(), b.ty())));
        };
        if k != rows || a.dtype != b.dtype {
            return Err(Error::invalid(format!("a product of {} and {}", a.ty(), b.ty())));
        }
        let mut shape = broadcast_shape(batch_a, batch_b)?;
        shape.extend([*m, *n]);
        self.add_operator("onnx.MatMul@13", json!({}), &[a, b], (a.dtype, shape))
    }

    /// The definition, with these outputs.
    pub fn finish(self, outputs: Vec<Option<OperandSource>>) -> Definition {
        Definition { steps: self.steps, constants: self.constants, outputs }
    }
}

/// Refuses shapes of more elements than this.
fn check(shape: &[usize], most: usize) -> Result<()> {
    let count = shape.iter().try_fold(1usize, |all, &size| all.checked_mul(size));
    if count.is_some_and(|count| count <= most) {
        Ok(())
    } else {
        Err(Error::unsupported(format!("{shape:?}: more than {most} elements")))
    }
}

/// The code of a dtype in `TensorProto.DataType` of the ONNX standard.
fn element_code(dtype: DType) -> Result<i64> {
    Ok(match dtype {
        DType::F32 => 1,
        DType::U8 => 2,
        DType::I8 => 3,
        DType::U16 => 4,
        DType::I16 => 5,
        DType::I32 => 6,
        DType::I64 => 7,
        DType::Bool => 9,
        DType::F16 => 10,
        DType::F64 => 11,
        DType::U32 => 12,
        DType::U64 => 13,
        DType::BF16 => 16,
        other => return Err(Error::unsupported(format!("{other} is no dtype of the standard"))),
    })
}
