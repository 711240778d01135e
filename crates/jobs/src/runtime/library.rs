//! Modules compiled for a device, and on it.
//!
//! Compiling needs the device's limits and features, not the device: the result is plain data. Uploading
//! compiles kernels and sends weights.

use super::argument::FunctionArgument;
use super::bound::Bound;
use super::device::Device;
use super::function::{Function, Role};
use super::module::{Body, Module};
use std::sync::{Arc, Mutex};
use tapml_graph::{Error, Model, Result, Symbols, known_names};
use tapml_kernels::{Overrides, Program};

// Buffers of activations grow with it.
/// Most tokens of a language model's run unless said otherwise: longer inputs run in parts.
const STEP: usize = 64;
/// Largest `n` and `p` of other modules unless said otherwise.
const CAPACITY: usize = 1024;
/// Most tokens that a language model remembers unless said otherwise.
const CONTEXT: usize = 2048;

/// How modules are compiled.
#[derive(Clone, Debug, Default)]
pub struct CompileOptions {
    /// The largest `n`: most tokens of one run. 64 for language models, which run longer inputs in parts; else 1024.
    pub step: Option<usize>,
    /// Most tokens that a language model remembers, at most as many as it was made for; 2048 if there are as many. For
    /// other modules the largest `p`.
    pub context: Option<usize>,
    /// Kernels to use instead of the built-in ones.
    pub overrides: Overrides,
}

/// Compiled modules, as plain data on the host.
#[derive(Clone, Debug)]
pub struct Library {
    /// Name of the device it was compiled for.
    /// For messages only: whether a program fits is asked of its kernels.
    target: String,
    parts: Vec<Part>,
}

/// One module.
#[derive(Clone, Debug)]
struct Part {
    program: Arc<Program>,
    /// The weights, which are sent when it is uploaded.
    model: Option<Arc<Model>>,
    arguments: Vec<FunctionArgument>,
    /// One, or three that share states.
    functions: Vec<(String, Role)>,
}

/// Compiles modules for devices like this one. Nothing is sent to the device.
///
/// The functions have the modules' names. A language model gives three that share its memory: `prefill` forgets all and
/// reads a text, `forward` reads tokens behind those so far, `decode` one token. Beside other modules they are called
/// `NAME.prefill` and so on.
pub fn compile(modules: &[Module], device: &Device, options: &CompileOptions) -> Result<Library> {
    if modules.is_empty() {
        return Err(Error::invalid("there is nothing to compile"));
    }
    // A library of one module needs no prefix to tell functions apart.
    let alone = modules.len() == 1;
    let parts = modules
        .iter()
        .map(|m| part(m, device, options, alone).map_err(|e| e.context(format!("module `{}`", m.name()))));
    let library = Library { target: device.info().name.clone(), parts: parts.collect::<Result<Vec<_>>>()? };
    let names: Vec<&str> = library.functions().collect();
    match names.iter().enumerate().find(|(i, name)| names[..*i].contains(name)) {
        None => Ok(library),
        Some((_, name)) => Err(Error::invalid(format!("two functions are called `{name}`"))
            .with_hint("give the modules names of their own")),
    }
}

/// Compiles one module. `alone` is whether its functions need no prefix.
fn part(module: &Module, device: &Device, options: &CompileOptions, alone: bool) -> Result<Part> {
    let language = module.is_language_model();
    let step = options.step.unwrap_or(if language { STEP } else { CAPACITY });
    if step == 0 || options.context == Some(0) {
        return Err(Error::invalid("step and context must be at least 1"));
    }
    let roles = if language {
        [Role::Prefill, Role::Decode, Role::Forward]
            .map(|role| {
                if alone {
                    (role.name().to_string(), role)
                } else {
                    (format!("{}.{}", module.name(), role.name()), role)
                }
            })
            .to_vec()
    } else {
        vec![(module.name().to_string(), Role::Plain)]
    };
    match &module.body {
        Body::Kernel(kernel) => {
            let capacity = Symbols::np(step as u64, options.context.unwrap_or(CAPACITY) as u64);
            let program = kernel.program(module.name(), &capacity)?;
            // A kernel of one's own has no other row to fall back on.
            program.kernels.iter().try_for_each(|k| k.check_limits(device.info()))?;
            let arguments = FunctionArgument::in_order_of_bindings(&program, |i| kernel.writes(i));
            Ok(Part { program: Arc::new(program), model: None, arguments, functions: roles })
        }
        Body::Graph { model, context } => {
            let asked = options.context.unwrap_or(if language { CONTEXT } else { CAPACITY });
            // A longer context has positions that the model was not trained for.
            let most = if language { asked.min(context.unwrap_or(asked)) } else { asked };
            // A context of `most` positions has `most − 1` before the last token.
            let (step, past) = if language { (step.min(most), most - 1) } else { (step, most) };
            let compile = tapml_kernels::CompileOptions {
                context: language.then_some(most as u64),
                overrides: options.overrides.clone(),
                ..tapml_kernels::CompileOptions::new(Symbols::np(step as u64, past as u64))
            };
            let program = tapml_kernels::compile(model.graph(), device.info(), &compile)?;
            let arguments = FunctionArgument::from_program(&program);
            Ok(Part { program: Arc::new(program), model: Some(model.clone()), arguments, functions: roles })
        }
    }
}

impl Library {
    /// The device that it was compiled for.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Names of the functions.
    pub fn functions(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().flat_map(|p| p.functions.iter().map(|(name, _)| name.as_str()))
    }

    /// What a function takes and gives.
    pub fn arguments(&self, function: &str) -> Result<&[FunctionArgument]> {
        let found = self.parts.iter().find(|p| p.functions.iter().any(|(name, _)| name == function));
        found.map(|p| p.arguments.as_slice()).ok_or_else(|| no_function(function, self.functions()))
    }

    /// The compiled programs, as plain data.
    pub fn programs(&self) -> impl Iterator<Item = &Program> {
        self.parts.iter().map(|p| &*p.program)
    }

    /// Puts the library on a device: kernels are compiled there, weights are sent. Fails with
    /// [`tapml_graph::ErrorKind::Unsupported`] if a kernel is beyond the limits of this device.
    pub fn upload(&self, device: &Device) -> Result<Uploaded> {
        let mut functions = Vec::new();
        for part in &self.parts {
            for kernel in &part.program.kernels {
                kernel.check_limits(device.info()).map_err(|e| {
                    e.context(format!("compiled for {}", self.target)).with_hint("compile for this device")
                })?;
            }
            let weight = |name: &str| match &part.model {
                Some(model) => model.weight(name),
                None => Err(Error::bug(format!("a kernel of one's own has no weight `{name}`"))),
            };
            // One for all functions of the module: they share weights and states.
            let bound = Arc::new(Mutex::new(Bound::load(device, part.program.clone(), &weight)?));
            let function = |(name, role): &(String, Role)| {
                Function::new(name.clone(), part.arguments.clone(), *role, bound.clone(), device.clone())
            };
            functions.extend(part.functions.iter().map(function));
        }
        Ok(Uploaded { device: device.clone(), functions })
    }
}

/// A library on a device.
#[derive(Clone, Debug)]
pub struct Uploaded {
    device: Device,
    functions: Vec<Function>,
}

impl Uploaded {
    /// The function of this name.
    pub fn function(&self, name: &str) -> Result<Function> {
        let found = self.functions.iter().find(|f| f.name() == name);
        found.cloned().ok_or_else(|| no_function(name, self.functions()))
    }

    /// Names of the functions.
    pub fn functions(&self) -> impl Iterator<Item = &str> {
        self.functions.iter().map(Function::name)
    }

    /// Where it is.
    pub fn device(&self) -> &Device {
        &self.device
    }
}

/// The error for a name that the library does not have.
fn no_function<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Error {
    Error::invalid(format!("there is no function `{name}`")).with_hint(known_names(name, known))
}
