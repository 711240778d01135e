//! The arguments of a call: tensors by the schema's names, and attributes. Those that nothing reads are refused.
//!
//! Attributes come from a file. Their lists are short by the size of the file, and every number that becomes a size is bounded.

use super::builder::{Builder, Operand};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::op::Foreign;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};

/// What stands in the place of a tensor.
#[derive(Clone, Debug)]
pub enum TensorArgument {
    /// A tensor.
    Tensor(Operand),
    /// A number.
    Number(Number),
    /// Nothing.
    Absent,
}

/// A number as PyTorch tells them apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Number {
    /// Integers beyond 2⁵³ are rounded.
    pub value: f64,
    /// Whether it is written with a point.
    pub float: bool,
}

/// The arguments of one call.
pub struct Arguments<'a> {
    /// The call.
    op: &'a Foreign,
    /// What stands in the place of each tensor of the schema; several for a list.
    given: BTreeMap<&'static str, Vec<TensorArgument>>,
    /// Attributes that the definition looked at.
    read: RefCell<HashSet<&'static str>>,
}

impl<'a> Arguments<'a> {
    /// `tensors` are the schema's arguments that are tensors, in order; a name with `*` in front is a list of them.
    ///
    /// A number in the place of a tensor is an attribute of that name, and takes no input.
    ///
    /// # Errors
    /// If there are more inputs than the schema takes, or fewer than a list asks for.
    pub fn new(op: &'a Foreign, tensors: &[&'static str], builder: &Builder) -> Result<Arguments<'a>> {
        let mut given = BTreeMap::new();
        let mut place = 0;
        let next = |place: &mut usize| {
            *place += 1;
            builder.input(*place - 1).cloned().map_or(TensorArgument::Absent, TensorArgument::Tensor)
        };
        for name in tensors {
            let (name, list) = name.strip_prefix('*').map_or((*name, false), |name| (name, true));
            let attribute = op.attributes().get(name);
            let found = match (attribute, list) {
                (Some(value), false) => {
                    vec![number(value).map_or(TensorArgument::Absent, TensorArgument::Number)]
                }
                (None, false) => vec![next(&mut place)],
                (attribute, true) => {
                    // All that are left, if nothing is said.
                    let left = builder.places().saturating_sub(place);
                    let said = attribute.map(|value| value.get("tensors").and_then(Value::as_u64));
                    let count = match said {
                        None => left,
                        Some(count) => count
                            .and_then(|count| usize::try_from(count).ok())
                            .filter(|count| *count <= left)
                            .ok_or_else(|| {
                                Error::invalid(format!("`{name}` asks for other than {left} tensors"))
                            })?,
                    };
                    (0..count).map(|_| next(&mut place)).collect()
                }
            };
            given.insert(name, found);
        }
        // An input without a place in the schema would be ignored silently.
        if place < builder.places() {
            return Err(Error::invalid(format!("takes {place} tensors, found {}", builder.places())));
        }
        Ok(Arguments { op, given, read: RefCell::default() })
    }

    /// Fails on an argument that the definition did not look at.
    pub fn expect_all_read(&self) -> Result<()> {
        let read = self.read.borrow();
        // A number in the place of a tensor was read as one.
        let is_read = |name: &str| read.contains(name) || self.given.contains_key(name);
        match self.op.attributes().keys().find(|name| !is_read(name)) {
            None => Ok(()),
            Some(name) => {
                let name: String = name.chars().take(80).collect();
                Err(Error::unsupported(format!("the argument `{}` is not served", name.escape_debug())))
            }
        }
    }

    /// Arguments that change no result.
    pub fn ignore(&self, names: &[&'static str]) {
        self.read.borrow_mut().extend(names);
    }

    /// Arguments that must have this value, or be absent.
    pub fn expect(&self, name: &'static str, value: bool) -> Result<()> {
        if self.flag(name, value)? == value {
            Ok(())
        } else {
            Err(Error::unsupported(format!("`{name}` is not served")))
        }
    }

    /// What stands in the place of a tensor.
    pub fn tensor_argument(&self, name: &str) -> TensorArgument {
        self.given.get(name).and_then(|given| given.first()).cloned().unwrap_or(TensorArgument::Absent)
    }

    /// A tensor that must be there.
    pub fn tensor(&self, name: &str) -> Result<Operand> {
        self.optional(name).ok_or_else(|| Error::invalid(format!("needs the tensor `{name}`")))
    }

    /// A tensor of floats that must be there.
    pub fn floats(&self, name: &str) -> Result<Operand> {
        let x = self.tensor(name)?;
        if x.dtype.is_float() { Ok(x) } else { Err(Error::unsupported(format!("`{name}` is {}", x.ty()))) }
    }

    /// A tensor that may be absent.
    pub fn optional(&self, name: &str) -> Option<Operand> {
        match self.tensor_argument(name) {
            TensorArgument::Tensor(operand) => Some(operand),
            _ => None,
        }
    }

    /// A list of tensors, all of which are there.
    pub fn list(&self, name: &str) -> Result<Vec<Operand>> {
        let one = |given: &TensorArgument| match given {
            TensorArgument::Tensor(operand) => Ok(operand.clone()),
            _ => Err(Error::invalid(format!("a tensor of `{name}` is missing"))),
        };
        self.given.get(name).map_or(Ok(Vec::new()), |all| all.iter().map(one).collect())
    }

    /// An attribute that is there and not null, which counts as read.
    fn value(&self, name: &'static str) -> Option<&'a Value> {
        self.read.borrow_mut().insert(name);
        // A null stands for an argument that is not given.
        self.op.attributes().get(name).filter(|value| !value.is_null())
    }

    /// An attribute as `read` understands it; `None` if it is absent or null.
    ///
    /// # Errors
    /// Of kind `InvalidInput`, with the first 80 characters of the value.
    fn parse_value<T>(
        &self,
        name: &'static str,
        kind: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let parse = |value: &'a Value| {
            let found = value.to_string().chars().take(80).collect::<String>();
            read(value).ok_or_else(|| Error::invalid(format!("`{name}`: expected {kind}, found `{found}`")))
        };
        self.value(name).map(parse).transpose()
    }

    /// Whether an argument is there and not null.
    pub fn has(&self, name: &'static str) -> bool {
        self.value(name).is_some()
    }

    /// A number.
    pub fn number(&self, name: &'static str) -> Result<Option<Number>> {
        self.parse_value(name, "a number", number)
    }

    /// A number with a default.
    pub fn float(&self, name: &'static str, default: f64) -> Result<f64> {
        Ok(self.number(name)?.map_or(default, |number| number.value))
    }

    /// An integer.
    pub fn int(&self, name: &'static str) -> Result<Option<i64>> {
        self.parse_value(name, "an integer", Value::as_i64)
    }

    /// An integer that must be there.
    pub fn needed_int(&self, name: &'static str) -> Result<i64> {
        self.int(name)?.ok_or_else(|| Error::invalid(format!("needs the argument `{name}`")))
    }

    /// Yes or no.
    pub fn flag(&self, name: &'static str, default: bool) -> Result<bool> {
        Ok(self.parse_value(name, "true or false", Value::as_bool)?.unwrap_or(default))
    }

    /// A text.
    pub fn text(&self, name: &'static str) -> Result<Option<&'a str>> {
        self.parse_value(name, "a text", Value::as_str)
    }

    /// A dtype.
    pub fn dtype(&self, name: &'static str) -> Result<Option<DType>> {
        self.parse_value(name, "a dtype", |value| {
            DType::parse(value.as_str()?).filter(|dtype| dtype.packing().is_none())
        })
    }

    /// A list of integers.
    pub fn ints(&self, name: &'static str) -> Result<Option<Vec<i64>>> {
        self.parse_value(name, "a list of integers", |value| {
            let list = value.get("ints").unwrap_or(value);
            match list.as_i64() {
                // PyTorch's schemas take one integer for a list of them.
                Some(one) => Some(vec![one]),
                None => list.as_array()?.iter().map(Value::as_i64).collect(),
            }
        })
    }

    /// A list of integers that must be there.
    pub fn needed_ints(&self, name: &'static str) -> Result<Vec<i64>> {
        self.ints(name)?.ok_or_else(|| Error::invalid(format!("needs the argument `{name}`")))
    }

    /// A list of floats.
    pub fn numbers(&self, name: &'static str) -> Result<Option<Vec<f64>>> {
        self.parse_value(name, "a list of numbers", |value| {
            let list = value.get("floats").unwrap_or(value).as_array()?;
            list.iter().map(|value| Some(number(value)?.value)).collect()
        })
    }

    /// A list of so many small sizes that are no less than `least`; one stands for all.
    ///
    /// Small is at most 32767. An empty list counts as absent.
    ///
    /// # Errors
    /// If the argument is missing without a default, or has other sizes.
    pub fn sizes(
        &self,
        name: &'static str,
        count: usize,
        default: Option<usize>,
        least: i64,
    ) -> Result<Vec<usize>> {
        let given = self.ints(name)?.filter(|given| !given.is_empty());
        let given = match (given, default) {
            (Some(given), _) => given,
            (None, Some(default)) => vec![default as i64],
            (None, None) => return Err(Error::invalid(format!("needs the argument `{name}`"))),
        };
        // Bounded by `fits`, so that nothing is cut off.
        let small = |value: &i64| usize::from(u16::try_from(*value).unwrap_or(0));
        let fits = given.iter().all(|&value| value >= least && value <= i64::from(i16::MAX));
        match (given.as_slice(), fits) {
            ([one], true) => Ok(vec![small(one); count]),
            (several, true) if several.len() == count => Ok(several.iter().map(small).collect()),
            _ => Err(Error::invalid(format!(
                "`{name}` is {given:?}, expected {count} small integers of {least} or more"
            ))),
        }
    }
}

/// A number of an attribute: of JSON, a truth as 0 or 1, or a text for what JSON cannot write.
fn number(value: &Value) -> Option<Number> {
    let value = value.get("float").unwrap_or(value);
    match value {
        Value::Bool(flag) => Some(Number { value: f64::from(u8::from(*flag)), float: false }),
        Value::String(text) if matches!(text.as_str(), "inf" | "-inf" | "nan") => {
            Some(Number { value: text.parse().ok()?, float: true })
        }
        value => Some(Number { value: value.as_f64()?, float: !value.is_i64() && !value.is_u64() }),
    }
}
