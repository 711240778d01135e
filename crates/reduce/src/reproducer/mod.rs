//! The reproducer: what runs and what should come out, as plain data, and the folder it is written to.
//!
//! `case.json` has a schema of its own, which the native runner and the page read.

mod case;
mod contents;
mod folder;
mod nodes;
mod page;
mod readme;
mod runtime;

pub use case::Values;
pub use contents::{Contents, Files, PROGRAM_FILES};
pub use folder::MARKER;
pub use runtime::{ExportedProgram, RuntimeReproducer, WriteProgram};

use crate::reduce::Reduced;
use crate::report::attributes_of;
use crate::specimen::Specimen;
use crate::trial::{Failure, Wrong};
use case::{Binding, Buffer, Case, Dispatch, Expected, Given, Kernel, Output, SCHEMA, Sum};
use std::path::Path;
use tapml_exec::{NodePlan, Phase, Platform};
use tapml_graph::{Error, Result, Tensor, byte_len};
use tapml_kernels::{Arg, Launch, symbol_bytes};
use tapml_migrate::verdict::{Allowed, SumTest};

/// What outputs and scratch hold before the first launch: a NaN in `f32` and in `f16`, so that what a kernel leaves out
/// shows.
const POISON: u32 = 0x7fc0_7fc0;

/// The program that runs it natively.
const RUNNER: &str = include_str!("runner/main.rs");
/// The manifest of that program.
const MANIFEST: &str = include_str!("runner/manifest.toml");

/// A failing call as a program of WebGPU with its data.
#[derive(Clone, Debug)]
pub struct Reproducer {
    /// What runs, and what is compared.
    case: Case,
    /// Files by their path in the folder.
    files: Files,
    /// The text for people.
    readme: String,
}

impl Reproducer {
    /// The reproducer of a reduced call that fails on the platform. Fails if the platform has no kernels, such as `cpu`.
    pub fn new(found: &Reduced, case: &str, platform: &dyn Platform) -> Result<Reproducer> {
        let call = &found.smallest.call;
        let plan = platform.plan(&call.op, &call.input_types, Phase::of_run(&call.symbols))?;
        let mut builder = Builder { specimen: &found.smallest, plan: &plan, files: Files::new() };
        let buffers = builder.buffers()?;
        let kernels = builder.kernels();
        let launches =
            plan.launches.iter().map(|l| builder.dispatch(l, &buffers, &kernels)).collect::<Result<_>>()?;
        let mut values = vec![builder.values("real", &found.smallest, &found.failure)?];
        if let Some(simple) = &found.simplified {
            values.push(builder.values("simplified", &simple.specimen, &simple.failure)?);
        }
        // Buffers of the outputs follow those of the inputs.
        let shapes = call
            .output_types
            .iter()
            .zip(call.inputs.len()..)
            .map(|(ty, buffer)| Ok(Output { buffer, dtype: ty.dtype, shape: ty.sizes(&call.symbols)? }));
        let outputs = shapes.collect::<Result<_>>()?;
        let files = builder.files;
        let case = Case {
            schema: SCHEMA,
            case: case.to_string(),
            op: call.op.name().to_string(),
            attributes: attributes_of(call),
            kernel: plan.kernel.clone(),
            found_on: platform.describe(),
            buffers,
            kernels: kernels.into_iter().map(|(kernel, _)| kernel).collect(),
            launches,
            outputs,
            values,
        };
        let readme = readme::readme(&case, found);
        Ok(Reproducer { case, files, readme })
    }

    /// Writes the folder, whole or not at all. One that is there already is replaced only if it is a reproducer and
    /// `overwrite` is set.
    pub fn write(&self, folder: &Path, overwrite: bool) -> Result<()> {
        let own = [
            (MARKER.to_string(), self.case.json()?.into_bytes()),
            ("README.md".into(), self.readme.clone().into_bytes()),
            ("index.html".into(), page::page(&self.case, &self.files)?.into_bytes()),
            ("Cargo.toml".into(), MANIFEST.into()),
            ("src/main.rs".into(), RUNNER.into()),
        ];
        let data = self.files.iter().map(|(name, bytes)| (name.clone(), bytes.clone()));
        folder::write_files(&own.into_iter().chain(data).collect(), folder, overwrite)
    }

    /// The sets of values, the real ones first.
    pub fn values(&self) -> &[Values] {
        &self.case.values
    }
}

/// Gathers the files while the case is put together.
struct Builder<'a> {
    /// The smallest call.
    specimen: &'a Specimen,
    /// How the platform runs it.
    plan: &'a NodePlan,
    files: Files,
}

impl Builder<'_> {
    /// Buffers of the inputs, the outputs, scratch, constants and last the symbols, in this order.
    fn buffers(&mut self) -> Result<Vec<Buffer>> {
        let call = &self.specimen.call;
        let buffer =
            |name: String, size: usize| Buffer { name, size: padded_size(size), file: None, fill: None };
        let mut buffers: Vec<Buffer> = call
            .inputs
            .iter()
            .enumerate()
            .map(|(i, t)| buffer(format!("input{i}"), t.bytes().len()))
            .collect();
        let filled = |name, size| Buffer { fill: Some(POISON), ..buffer(name, size) };
        for (i, ty) in call.output_types.iter().enumerate() {
            let size = byte_len(ty.dtype, &ty.sizes(&call.symbols)?);
            // The product of the sizes may exceed the address space.
            let size = size.ok_or_else(|| Error::invalid(format!("output {i}, {ty}, is too large")))?;
            buffers.push(filled(format!("output{i}"), size));
        }
        for (i, size) in self.plan.scratch.iter().enumerate() {
            buffers.push(filled(format!("scratch{i}"), size.bytes().eval(&call.symbols)? as usize));
        }
        let constants =
            self.plan.constants.iter().enumerate().map(|(i, c)| (format!("constant{i}"), c.clone()));
        let symbols = ("symbols".to_string(), symbol_bytes(&call.symbols)?.to_vec());
        for (name, bytes) in constants.chain([symbols]).collect::<Vec<_>>() {
            let file = self.put(format!("data/{name}.bin"), bytes.clone());
            buffers.push(Buffer { file: Some(file), ..buffer(name, bytes.len()) });
        }
        Ok(buffers)
    }

    /// The distinct kernels with their texts.
    fn kernels(&mut self) -> Vec<(Kernel, String)> {
        let mut kernels: Vec<(Kernel, String)> = Vec::new();
        for launch in &self.plan.launches {
            let next = self.kernel(launch, kernels.len());
            // Launches of one text with other constants are kernels of their own.
            if !kernels.iter().any(|(known, text)| are_same(known, &next.0) && *text == next.1) {
                self.put(next.0.file.clone(), next.1.clone().into_bytes());
                kernels.push(next);
            }
        }
        kernels
    }

    /// A kernel and its text, as the file of this number.
    fn kernel(&self, launch: &Launch, number: usize) -> (Kernel, String) {
        let desc = &launch.desc;
        let kernel = Kernel {
            file: format!("kernels/{number}.wgsl"),
            entry: desc.entry.clone(),
            constants: desc.constants.iter().cloned().collect(),
            f16: desc.needs_f16,
            subgroups: desc.needs_subgroups,
            bindings: desc.bindings.clone(),
        };
        (kernel, desc.source.full())
    }

    /// A launch with its sizes, and the index of its kernel.
    fn dispatch(
        &self,
        launch: &Launch,
        buffers: &[Buffer],
        kernels: &[(Kernel, String)],
    ) -> Result<Dispatch> {
        // Any number serves: `are_same` leaves out the file's name.
        let (wanted, text) = self.kernel(launch, 0);
        let kernel = kernels.iter().position(|(k, t)| are_same(k, &wanted) && *t == text);
        let mut groups = [0; 3];
        for (size, extent) in groups.iter_mut().zip(&launch.groups) {
            *size = extent.eval(&self.specimen.call.symbols)?;
        }
        let bindings = launch.args.iter().map(|arg| self.binding(*arg, buffers)).collect::<Result<_>>()?;
        let kernel = kernel.ok_or_else(|| Error::bug("a launch without a kernel"))?;
        Ok(Dispatch { kernel, bindings, groups })
    }

    /// The range that an argument names. A length of 0 is the rest of the buffer.
    fn binding(&self, arg: Arg, buffers: &[Buffer]) -> Result<Binding> {
        let (inputs, outputs) = (self.specimen.call.inputs.len(), self.specimen.call.output_types.len());
        let scratch = self.plan.scratch.len();
        let (buffer, offset, len) = match arg {
            Arg::Input { index, offset, len } => (index, offset, len),
            Arg::Output(i) => (inputs + i, 0, 0),
            Arg::Scratch(i) => (inputs + outputs + i, 0, 0),
            Arg::Constant(i) => (inputs + outputs + scratch + i, 0, 0),
            // The symbols are the last buffer.
            Arg::Symbols => (buffers.len() - 1, 0, 0),
        };
        let room = buffers.get(buffer).and_then(|b| b.size.checked_sub(offset)).filter(|&room| len <= room);
        let room = room.ok_or_else(|| Error::bug(format!("{arg:?} lies outside its buffer")))?;
        Ok(Binding { buffer, offset, size: if len == 0 { room } else { len } })
    }

    /// One set of values with what should come out, as files.
    fn values(&mut self, name: &str, specimen: &Specimen, failure: &Failure) -> Result<Values> {
        let mut values =
            Values { name: name.into(), inputs: Vec::new(), expected: Vec::new(), sums: Vec::new() };
        for (buffer, tensor) in specimen.call.inputs.iter().enumerate() {
            let file = self.put(format!("data/{name}/input{buffer}.bin"), tensor.bytes().to_vec());
            values.inputs.push(Given { buffer, dtype: tensor.dtype(), shape: tensor.shape().to_vec(), file });
        }
        // A call that cannot be run has no outputs to compare.
        let Failure::Wrong(wrong) = failure else { return Ok(values) };
        for (i, (exact, observed)) in wrong.exact.iter().zip(&wrong.observed).enumerate() {
            let allowed = Allowed::new(exact, observed.dtype(), wrong.precision, None);
            let errors: Vec<f64> = (0..exact.values.len()).map(|e| allowed.allowed_at(e)).collect();
            let mut put =
                |what: &str, values: &[f64]| self.floats(&format!("{name}/output{i}.{what}"), values);
            values.expected.push(Expected {
                exact: put("exact", &exact.values),
                rounded: put("rounded", &allowed.rounded),
                allowed: put("allowed", &errors),
            });
            // Where a single element decides, the sums have nothing to add.
            if wrong.judgement.element_ratio <= 1.0 {
                values.sums.extend(self.sums(name, i, wrong, observed, &allowed));
            }
        }
        Ok(values)
    }

    /// The tests on many elements that decided, where no single element did.
    fn sums(
        &mut self,
        name: &str,
        output: usize,
        wrong: &Wrong,
        observed: &Tensor,
        allowed: &Allowed,
    ) -> Vec<Sum> {
        let tests = SumTest::all(&wrong.exact[output], observed.dtype(), allowed);
        let decided = tests.into_iter().filter(|t| t.criterion == wrong.judgement.criterion).enumerate();
        decided
            .map(|(i, test)| Sum {
                output,
                criterion: test.criterion.name().into(),
                power: test.power,
                limit: test.limit,
                weights: self.floats(&format!("{name}/output{output}.weights{i}"), &test.weights),
            })
            .collect()
    }

    /// Adds a file of `f64`, little-endian.
    fn floats(&mut self, name: &str, values: &[f64]) -> String {
        self.put(format!("data/{name}.bin"), values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }

    /// Adds a file and gives its name.
    fn put(&mut self, file: String, bytes: Vec<u8>) -> String {
        self.files.insert(file.clone(), bytes);
        file
    }
}

/// Whether two kernels differ at most in the name of their file.
fn are_same(a: &Kernel, b: &Kernel) -> bool {
    Kernel { file: String::new(), ..a.clone() } == Kernel { file: String::new(), ..b.clone() }
}

/// A buffer is a multiple of 4 bytes long, and not empty.
fn padded_size(size: usize) -> u64 {
    (size as u64).max(4).next_multiple_of(4)
}
