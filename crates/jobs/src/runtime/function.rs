//! Functions of an uploaded library.
//!
//! Arguments are checked before anything is sent: device, dtype, shape, aliasing. Symbols are solved from
//! the shapes.

use super::argument::FunctionArgument;
use super::bound::Bound;
use super::device::Device;
use super::solve;
use super::tensor::DeviceTensor;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tapml_graph::{Error, Result, Symbol, Symbols};

/// How a function uses the memory of its module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// One run.
    Plain,
    /// Tokens behind those so far.
    Forward,
    /// Tokens after forgetting all.
    Prefill,
    /// One token.
    Decode,
}

impl Role {
    /// As functions of a language model are called.
    pub fn name(self) -> &'static str {
        match self {
            Role::Plain => "call",
            Role::Forward => "forward",
            Role::Prefill => "prefill",
            Role::Decode => "decode",
        }
    }
}

/// A function on a device. Clones are the same function; functions of one language model share what it remembers.
#[derive(Clone)]
pub struct Function {
    /// As the library calls it.
    name: String,
    arguments: Arc<[FunctionArgument]>,
    role: Role,
    /// Shared by the functions of one module; the lock orders their runs.
    bound: Arc<Mutex<Bound>>,
    device: Device,
}

impl Function {
    pub(super) fn new(
        name: String,
        arguments: Vec<FunctionArgument>,
        role: Role,
        bound: Arc<Mutex<Bound>>,
        device: Device,
    ) -> Function {
        Function { name, arguments: arguments.into(), role, bound, device }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it takes and gives, in the order of [`Function::call`].
    pub fn arguments(&self) -> &[FunctionArgument] {
        &self.arguments
    }

    /// Where it runs.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Runs the function with its inputs and outputs, in the order of [`Function::arguments`], all on its device.
    /// Returns before the work is complete; what fails in it is told by [`DeviceTensor::read`] or [`Device::wait`].
    ///
    /// Fails, before anything runs, if an argument has another dtype or shape than the others demand, or is given as an
    /// output and once more.
    pub fn call(&self, arguments: &[&DeviceTensor]) -> Result<()> {
        self.check_arguments(arguments).map_err(|e| e.context(format!("function `{}`", self.name)))
    }

    /// As [`Function::call`] with the inputs alone: makes the outputs.
    pub fn call_new(&self, inputs: &[&DeviceTensor]) -> Result<Vec<DeviceTensor>> {
        self.with_outputs(inputs).map_err(|e| e.context(format!("function `{}`", self.name)))
    }

    /// Forgets all tokens: states begin empty again.
    pub fn reset(&self) -> Result<()> {
        self.lock().reset()
    }

    /// Tokens that the states hold; `None` after a failed run.
    pub fn position(&self) -> Option<u64> {
        self.lock().position()
    }

    fn lock(&self) -> MutexGuard<'_, Bound> {
        // A run that panicked has left no position, so that the next one asks for a reset.
        self.bound.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Solves the sizes of the outputs, makes them, then calls.
    fn with_outputs(&self, inputs: &[&DeviceTensor]) -> Result<Vec<DeviceTensor>> {
        let wanted: Vec<&FunctionArgument> = self.arguments.iter().filter(|a| !a.output).collect();
        if wanted.len() != inputs.len() {
            return Err(self.count(inputs.len()));
        }
        // The lock is not held while outputs are made: that takes it on the device.
        let symbols = self.symbols(&mut self.lock(), wanted.iter().copied().zip(inputs.iter().copied()))?;
        let mut outputs = Vec::new();
        for argument in self.arguments.iter().filter(|a| a.output) {
            let shape = argument.ty.sizes(&symbols)?;
            outputs.push(DeviceTensor::reserve(&self.device, shape, argument.ty.dtype)?);
        }
        let (mut given, mut made) = (inputs.iter().copied(), outputs.iter());
        // Arguments may mix inputs and outputs; callers of `call_new` give inputs only.
        let next = |a: &FunctionArgument| if a.output { made.next() } else { given.next() };
        let all: Vec<&DeviceTensor> = self.arguments.iter().filter_map(next).collect();
        self.check_arguments(&all)?;
        Ok(outputs)
    }

    /// Checks, then runs by role.
    fn check_arguments(&self, arguments: &[&DeviceTensor]) -> Result<()> {
        if arguments.len() != self.arguments.len() {
            return Err(self.count(arguments.len()));
        }
        let pairs = || self.arguments.iter().zip(arguments.iter().copied());
        // Held until the run is submitted: `p` must not change between the check and the run.
        let mut bound = self.lock();
        let symbols = self.symbols(&mut bound, pairs())?;
        for (argument, tensor) in pairs() {
            self.expect(argument, tensor, &symbols)?;
            // Two inputs may be one tensor; an output may be nothing else.
            let again = arguments.iter().filter(|t| t.buffer() == tensor.buffer()).count() > 1;
            if argument.output && again {
                return Err(Error::invalid(format!("`{}` is an output and given twice", argument.name))
                    .with_hint("give a tensor of its own: a kernel must not read what it writes"));
            }
        }
        let tokens = symbols.get(Symbol::N).unwrap_or(1);
        match self.role {
            Role::Plain => return bound.run(&symbols, pairs()),
            Role::Decode if tokens != 1 => {
                return Err(Error::invalid(format!("one token at a time, found {tokens}"))
                    .with_hint("`forward` reads several"));
            }
            Role::Prefill => {
                // What is refused forgets nothing.
                bound.within_context(tokens, 0)?;
                bound.reset()?;
            }
            Role::Decode | Role::Forward => {}
        }
        bound.run_in_parts(tokens, pairs())
    }

    /// The values of the symbols that the arguments give.
    fn symbols<'a>(
        &self,
        bound: &mut Bound,
        pairs: impl Iterator<Item = (&'a FunctionArgument, &'a DeviceTensor)>,
    ) -> Result<Symbols> {
        let pairs: Vec<_> = pairs.collect();
        for (argument, tensor) in &pairs {
            if argument.ty.shape.len() != tensor.shape().len() {
                return Err(wrong(argument, tensor, &argument.ty.to_string()));
            }
        }
        // A prefill forgets what the states hold.
        let past = match self.role {
            Role::Prefill => Some(0),
            _ => bound.past_length()?,
        };
        // Without states nothing tells `p` but the arguments.
        let known = past.map_or(Symbols::new(), |p| Symbols::new().with_symbol(Symbol::P, p));
        let mut symbols = solve::symbols(known, pairs.iter().map(|(a, t)| (&a.ty, t.shape())))?;
        // A symbol that no argument has decides nothing; it still needs a value.
        for (symbol, default) in [(Symbol::N, 1), (Symbol::P, 0)] {
            if symbols.get(symbol).is_none() {
                symbols = symbols.with_symbol(symbol, default);
            }
        }
        Ok(symbols)
    }

    /// Device, dtype and shape of one argument.
    fn expect(&self, argument: &FunctionArgument, tensor: &DeviceTensor, symbols: &Symbols) -> Result<()> {
        if !tensor.device().is(&self.device) {
            let text =
                format!("`{}` is on {:?}, the function on {:?}", argument.name, tensor.device(), self.device);
            return Err(Error::invalid(text).with_hint("make tensors on the device of the library"));
        }
        let sizes = argument.ty.sizes(symbols)?;
        if tensor.dtype() == argument.ty.dtype && tensor.shape() == sizes {
            Ok(())
        } else {
            Err(wrong(argument, tensor, &format!("{}{sizes:?}", argument.ty.dtype)))
        }
    }

    /// The error for a wrong number of arguments.
    fn count(&self, found: usize) -> Error {
        let show = |a: &FunctionArgument| format!("{}: {}", a.name, a.ty);
        let (outputs, inputs): (Vec<_>, Vec<_>) = self.arguments.iter().partition(|a| a.output);
        let (all, less) = (self.arguments.len(), inputs.len());
        Error::invalid(format!("{found} arguments, expected {all}, or the {less} inputs alone")).with_hint(
            format!(
                "inputs {}; outputs {}",
                inputs.into_iter().map(show).collect::<Vec<_>>().join(", "),
                outputs.into_iter().map(show).collect::<Vec<_>>().join(", ")
            ),
        )
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show =
            |a: &FunctionArgument| format!("{}{}: {}", if a.output { "out " } else { "" }, a.name, a.ty);
        let arguments: Vec<String> = self.arguments.iter().map(show).collect();
        write!(f, "Function({}({}) on {})", self.name, arguments.join(", "), self.device.word())
    }
}

/// The error for a wrong type.
fn wrong(argument: &FunctionArgument, tensor: &DeviceTensor, expected: &str) -> Error {
    let (name, dtype, shape) = (&argument.name, tensor.dtype(), tensor.shape());
    Error::invalid(format!("`{name}` must be {expected}, found {dtype}{shape:?}"))
}
