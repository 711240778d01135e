//! One call of an operator: its inputs, its attributes with the types that the operator expects, its outputs.
//!
//! An evaluation reads its operator through a [`Call`] alone. So each attribute that it reads is recorded, and one that it
//! does not read is refused: an unknown attribute could change the result.
//!
//! Attributes are JSON values in the form that [`Foreign`] describes. A list may stand bare or in an object that names its
//! type, such as `{"ints": […]}`.

use crate::array::Array;
use crate::real::{Element, Real};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::HashSet;
use tapml_graph::op::{DeclaredType, Foreign, Subgraph};
use tapml_graph::{DType, Error, Result, Tensor};

/// What an evaluation gives: the outputs at their places; later ones may be left out if they are absent.
pub type Outputs = Result<Vec<Option<Tensor>>>;

/// Version that an operator without one has: the newest.
pub const NEWEST: u32 = u32::MAX;
/// How a model comes to another version of its operators.
pub const CONVERT: &str =
    "write the model in a newer operator set: `onnx.version_converter.convert_version(model, 17)`";

/// An evaluation of any operator, in the form of [`crate::evaluate`].
pub type Evaluate = fn(&Foreign, &[Option<Tensor>], bool) -> Outputs;

/// One call. Attributes that a function does not read are refused after it: none is ignored silently.
pub struct Call<'a> {
    /// The operator with its attributes and declared outputs.
    op: &'a Foreign,
    /// Inputs at their places, `None` where an optional one is absent.
    inputs: &'a [Option<Tensor>],
    /// Whether every float of the result is stored as `f64`.
    wide: bool,
    /// What evaluates operators of graphs within this one.
    evaluate: Evaluate,
    /// Names of the attributes that were read. A cell, because reading is no change to the callers.
    read: RefCell<HashSet<&'static str>>,
}

impl<'a> Call<'a> {
    /// A call of which no attribute is read yet.
    pub fn new(op: &'a Foreign, inputs: &'a [Option<Tensor>], wide: bool, evaluate: Evaluate) -> Call<'a> {
        Call { op, inputs, wide, evaluate, read: RefCell::default() }
    }

    /// The outputs of an operator within this one, stored as wide as those of this one.
    pub fn evaluate_within(&self, op: &Foreign, inputs: &[Option<Tensor>]) -> Outputs {
        (self.evaluate)(op, inputs, self.wide)
    }

    /// A call of an operator within this one that has attributes alone.
    pub fn of_attributes<'b>(&self, op: &'b Foreign) -> Call<'b> {
        Call::new(op, &[], false, self.evaluate)
    }

    /// Whether floats are computed in `f64`.
    pub fn is_double(&self) -> bool {
        self.wide || self.inputs.iter().flatten().any(|tensor| tensor.dtype() == DType::F64)
    }

    /// Whether floats are stored in `f64`, whatever the operator would store.
    pub fn is_wide(&self) -> bool {
        self.wide
    }

    /// The version of the operator; the newest if it has none.
    pub fn version(&self) -> u32 {
        self.op.version().unwrap_or(NEWEST)
    }

    /// Count of places of inputs, absent ones too.
    pub fn places(&self) -> usize {
        self.inputs.len()
    }

    /// Whether somebody asks for an output.
    pub fn asks(&self, place: usize) -> bool {
        self.op.outputs().get(place).is_some_and(DeclaredType::is_asked)
    }

    /// Count of places of outputs.
    pub fn output_places(&self) -> usize {
        self.op.outputs().len()
    }

    /// An optional input.
    pub fn optional(&self, place: usize) -> Option<&'a Tensor> {
        self.inputs.get(place)?.as_ref()
    }

    /// An input that has to be there.
    pub fn input(&self, place: usize) -> Result<&'a Tensor> {
        self.optional(place).ok_or_else(|| {
            Error::invalid(format!("input {place} is absent, and the operator has no default for it"))
        })
    }

    /// Every input, all of which have to be there.
    pub fn all(&self) -> Result<Vec<&'a Tensor>> {
        (0..self.inputs.len()).map(|place| self.input(place)).collect()
    }

    /// The numbers of an input.
    pub fn array<T: Element>(&self, place: usize) -> Result<Array<T>> {
        Array::read(self.input(place)?).map_err(|e| e.context(format!("input {place}")))
    }

    /// The numbers of an optional input.
    pub fn optional_array<T: Element>(&self, place: usize) -> Result<Option<Array<T>>> {
        self.optional(place).map(|_| self.array(place)).transpose()
    }

    /// The integers of an input, such as sizes or axes, whatever their width.
    pub fn integers(&self, place: usize) -> Result<Vec<i64>> {
        self.input(place)?.to_i64().map_err(|e| e.context(format!("input {place}")))
    }

    /// The integers of an optional input.
    pub fn optional_integers(&self, place: usize) -> Result<Option<Vec<i64>>> {
        self.optional(place).map(|_| self.integers(place)).transpose()
    }

    /// The one integer of an input of one element.
    pub fn integer(&self, place: usize) -> Result<i64> {
        match self.integers(place)?.as_slice() {
            [one] => Ok(*one),
            more => Err(Error::invalid(format!("input {place}: expected one element, found {}", more.len()))),
        }
    }

    /// The one number of an input of one element, which is a float or an integer.
    pub fn number<T: Real>(&self, place: usize) -> Result<T> {
        match self.input(place)?.to_f64().as_slice() {
            [one] => Ok(T::nearest(*one)),
            more => Err(Error::invalid(format!("input {place}: expected one element, found {}", more.len()))),
        }
    }

    /// The dtype of an input.
    pub fn dtype(&self, place: usize) -> Result<DType> {
        Ok(self.input(place)?.dtype())
    }

    /// A tensor that the operator stores as `dtype`; floats stay `f64` in a wide evaluation.
    pub fn store<T: Element>(&self, array: Array<T>, dtype: DType) -> Result<Tensor> {
        T::store(array.data, array.shape, self.stored_dtype(dtype))
    }

    /// What the operator stores as `dtype` is stored as.
    pub fn stored_dtype(&self, dtype: DType) -> DType {
        if self.wide && dtype.is_float() { DType::F64 } else { dtype }
    }

    /// One output, stored as `dtype`.
    pub fn single_output<T: Element>(&self, array: Array<T>, dtype: DType) -> Outputs {
        Ok(vec![Some(self.store(array, dtype)?)])
    }

    /// One output in the dtype of the first input.
    pub fn like_first<T: Element>(&self, array: Array<T>) -> Outputs {
        self.single_output(array, self.dtype(0)?)
    }

    /// Outputs at the places of the operator; those that nobody asks for are dropped.
    pub fn place(&self, mut outputs: Vec<Option<Tensor>>) -> Outputs {
        let asked = self.op.outputs();
        // A function may give more outputs than the node names, or leave out absent ones at the end.
        outputs.resize(asked.len().max(outputs.len()), None);
        outputs.truncate(asked.len());
        for (place, (output, asked)) in outputs.iter_mut().zip(asked).enumerate() {
            if !asked.is_asked() {
                *output = None;
            } else if output.is_none() {
                return Err(Error::unsupported(format!("output {place} is not evaluated")));
            }
        }
        Ok(outputs)
    }

    /// The value of an attribute, which counts as read from here on, even if it is absent.
    fn attribute(&self, name: &'static str) -> Option<&'a Value> {
        self.read.borrow_mut().insert(name);
        self.op.attributes().get(name)
    }

    /// An attribute as `read` understands it; `None` if it is absent.
    ///
    /// # Errors
    /// Of kind `InvalidInput`, with the first 80 characters of the value, if `read` does not understand it.
    fn parse_value<T>(
        &self,
        name: &'static str,
        kind: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let parse = |value: &'a Value| {
            read(value).ok_or_else(|| {
                // Values come from a file and may be long.
                let found = value.to_string().chars().take(80).collect::<String>();
                Error::invalid(format!("attribute `{name}`: expected {kind}, found `{found}`"))
            })
        };
        self.attribute(name).map(parse).transpose()
    }

    /// Whether an attribute is there.
    pub fn has(&self, name: &'static str) -> bool {
        self.attribute(name).is_some()
    }

    /// Attributes that change no result, such as those for training.
    pub fn ignore(&self, names: &[&'static str]) {
        self.read.borrow_mut().extend(names);
    }

    /// An integer.
    pub fn int(&self, name: &'static str) -> Result<Option<i64>> {
        self.parse_value(name, "an integer", Value::as_i64)
    }

    /// An integer with a default.
    pub fn int_or(&self, name: &'static str, default: i64) -> Result<i64> {
        Ok(self.int(name)?.unwrap_or(default))
    }

    /// An integer that says yes or no, as ONNX has no attributes of type bool: 0 is no.
    pub fn flag(&self, name: &'static str, default: bool) -> Result<bool> {
        Ok(self.int(name)?.map_or(default, |value| value != 0))
    }

    /// A float. JSON has no infinities and no NaN: those stand as the texts `inf`, `-inf` and `nan`.
    pub fn float(&self, name: &'static str) -> Result<Option<f64>> {
        self.parse_value(name, "a float", |value| float(value.get("float").unwrap_or(value)))
    }

    /// A float with a default.
    pub fn float_or(&self, name: &'static str, default: f64) -> Result<f64> {
        Ok(self.float(name)?.unwrap_or(default))
    }

    /// A list of integers.
    pub fn ints(&self, name: &'static str) -> Result<Option<Vec<i64>>> {
        self.parse_value(name, "a list of integers", |value| {
            list(value, "ints")?.iter().map(Value::as_i64).collect()
        })
    }

    /// A list of floats.
    pub fn floats(&self, name: &'static str) -> Result<Option<Vec<f64>>> {
        self.parse_value(name, "a list of floats", |value| list(value, "floats")?.iter().map(float).collect())
    }

    /// A text.
    pub fn text(&self, name: &'static str) -> Result<Option<&'a str>> {
        self.parse_value(name, "a text", Value::as_str)
    }

    /// A text with a default.
    pub fn text_or(&self, name: &'static str, default: &'a str) -> Result<&'a str> {
        Ok(self.text(name)?.unwrap_or(default))
    }

    /// A list of texts.
    pub fn texts(&self, name: &'static str) -> Result<Option<Vec<&'a str>>> {
        self.parse_value(name, "a list of texts", |value| {
            list(value, "strings")?.iter().map(Value::as_str).collect()
        })
    }

    /// A tensor.
    pub fn tensor(&self, name: &'static str) -> Result<Option<Tensor>> {
        self.parse_value(name, "a tensor", |value| tensor(value.get("tensor")?))
    }

    /// A graph, which has to be there.
    pub fn graph(&self, name: &'static str) -> Result<Subgraph> {
        let missing = || Error::invalid(format!("the attribute `{name}` is missing"));
        Subgraph::from_attribute(self.attribute(name).ok_or_else(missing)?)?
            .ok_or_else(|| Error::invalid(format!("attribute `{name}`: expected a graph")))
    }

    /// Count of places of inputs that are the operator's own; those behind them are read by graphs within it.
    pub fn own_inputs(&self) -> usize {
        self.op.own_inputs()
    }

    /// Refuses attributes that the function did not read.
    pub fn check_attributes(&self) -> Result<()> {
        let read = self.read.borrow();
        match self.op.attributes().keys().find(|name| !read.contains(name.as_str())) {
            None => Ok(()),
            Some(name) => {
                let name = name.chars().take(80).collect::<String>();
                Err(Error::unsupported(format!("the attribute `{}` is not served", name.escape_debug())))
            }
        }
    }
}

/// The dtype of a code of the enum `TensorProto.DataType` of onnx.proto.
///
/// # Errors
/// Of kind `Unsupported` if TapML has no such dtype.
pub fn element_type(code: i64) -> Result<DType> {
    Ok(match code {
        1 => DType::F32,
        2 => DType::U8,
        3 => DType::I8,
        4 => DType::U16,
        5 => DType::I16,
        6 => DType::I32,
        7 => DType::I64,
        // 8 is STRING, which has no numbers.
        9 => DType::Bool,
        10 => DType::F16,
        11 => DType::F64,
        12 => DType::U32,
        13 => DType::U64,
        // 14 and 15 are complex numbers; those from 17 on are floats and integers of at most 8 bits.
        16 => DType::BF16,
        other => {
            return Err(Error::unsupported(format!("the element type {other} of onnx.proto is not served")));
        }
    })
}

/// A number, or one of the three texts for what JSON cannot write.
fn float(value: &Value) -> Option<f64> {
    match value {
        Value::String(text) if matches!(text.as_str(), "inf" | "-inf" | "nan") => text.parse().ok(),
        value => value.as_f64(),
    }
}

/// The elements of a list, bare or under the name of its type.
fn list<'v>(value: &'v Value, name: &str) -> Option<&'v Vec<Value>> {
    value.get(name).unwrap_or(value).as_array()
}

/// A tensor of an object with `dtype`, `shape` and `data`. `None` if one is missing, if the shape does not fit the data, or
/// for a packed dtype.
fn tensor(value: &Value) -> Option<Tensor> {
    let dtype = DType::parse(value.get("dtype")?.as_str()?).filter(|dtype| dtype.packing().is_none())?;
    let size = |size: &Value| size.as_u64().and_then(|size| usize::try_from(size).ok());
    let shape = value.get("shape")?.as_array()?.iter().map(size).collect::<Option<Vec<usize>>>()?;
    let data = value.get("data")?.as_array()?;
    if crate::array::volume(&shape).ok()? != data.len() {
        return None;
    }
    match dtype {
        dtype if dtype.is_float() => {
            let data = data.iter().map(float).collect::<Option<Vec<f64>>>()?;
            Tensor::from_f64(dtype, shape, &data).ok()
        }
        // `i64` holds only half of the numbers of `u64`.
        DType::U64 => {
            let data = data.iter().map(Value::as_u64).collect::<Option<Vec<u64>>>()?;
            u64::store(data, shape, dtype).ok()
        }
        dtype => {
            let data = data.iter().map(|v| v.as_i64().or(v.as_bool().map(i64::from)));
            Tensor::from_i64(dtype, shape, &data.collect::<Option<Vec<i64>>>()?).ok()
        }
    }
}
