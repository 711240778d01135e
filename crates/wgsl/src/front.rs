//! From a kernel description to a module: parsing, validation, override constants, and the checks that the text fits its
//! description.
//!
//! Overrides are resolved here, so that what comes behind sees constants alone. Sizes of bindings and of
//! workgroup memory are then known and are compared with the description, on which planning rests.

use crate::source::SourceMap;
use naga::back::{PipelineConstants, pipeline_constants::process_overrides};
use naga::proc::Layouter;
use naga::valid::{Capabilities, ModuleInfo, ShaderStages, SubgroupOperationSet, ValidationFlags, Validator};
use naga::{
    AddressSpace, ArraySize, GlobalVariable, Handle, ShaderStage, Span, StorageAccess, Type, TypeInner,
};
use tapml_device::{BindingKind, DeviceInfo, Error, ErrorKind, KernelDesc, Result};

/// Stack of the thread that compiles: front ends and what comes behind them recurse over nested source.
///
/// [`Source::check_nesting`](tapml_device::Source::check_nesting) bounds the depth; the stack has room for
/// it.
const COMPILE_STACK: usize = 64 << 20;

/// A construct that is not taken, and where it stands.
pub struct Fail {
    /// Its place; undefined if it is not known yet.
    pub span: Span,
    /// What it is, such as `a pointer to a pointer`.
    pub what: String,
}

impl Fail {
    /// A failure whose place is not known yet.
    pub fn new(what: impl Into<String>) -> Fail {
        Fail { span: Span::UNDEFINED, what: what.into() }
    }
}

/// A kernel's text as a valid module that fits the kernel's description, its override constants resolved.
pub struct Module {
    /// The module.
    pub naga: naga::Module,
    /// What the validator found out about it.
    pub info: ModuleInfo,
    /// Sizes and alignments of its types.
    pub layouter: Layouter,
    /// Index of the kernel among the entry points.
    pub entry: usize,
    /// Fewest bytes that each binding of the description must have.
    pub min_sizes: Vec<u32>,
    /// Places in the kernel's file.
    pub source: SourceMap,
}

/// Reads a kernel and hands it to `back`, which makes something of it. Both run on a thread with a large stack.
///
/// Fails as a compiler does: with [`ErrorKind::Unsupported`] if the kernel is beyond the device's limits or features, else
/// with [`ErrorKind::Compile`], which names kernel, file and line. What `back` does not take is unsupported: the message
/// is `refusal` followed by what it is.
pub fn compile<T: Send>(
    desc: &KernelDesc,
    info: &DeviceInfo,
    refusal: &str,
    back: impl FnOnce(&Module) -> std::result::Result<T, Fail> + Send,
) -> Result<(Module, T)> {
    desc.check_limits(info)?;
    // Before the front end sees the text: overflowing the stack would end the process.
    desc.source.check_nesting().map_err(|e| e.with_detail("kernel", &desc.name))?;
    let work = || {
        let module =
            WgslFront { desc, info, source: SourceMap::new(&desc.source, desc.needs_f16) }.module()?;
        let made = back(&module).map_err(|fail| {
            let message = format!("{refusal} {}", fail.what);
            module.source.error(ErrorKind::Unsupported, &desc.name, fail.span, &message)
        })?;
        Ok((module, made))
    };
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("wgsl".into()).stack_size(COMPILE_STACK);
        let thread = builder.spawn_scoped(scope, work).map_err(|e| {
            Error::new(ErrorKind::OutOfMemory, format!("could not start the compiler's thread: {e}"))
        })?;
        let crashed = || Error::bug(format!("the compiler crashed on kernel `{}`", desc.name));
        // A panic of the front end is a bug of the compiler, not of the caller.
        thread.join().unwrap_or_else(|_| Err(crashed()))
    })
}

/// What all steps need.
struct WgslFront<'a> {
    desc: &'a KernelDesc,
    info: &'a DeviceInfo,
    source: SourceMap,
}

impl WgslFront<'_> {
    /// Parse, validate, resolve overrides, compare with the description.
    fn module(self) -> Result<Module> {
        if self.source.wants_f16 && !self.info.features.f16 {
            let text =
                format!("kernel `{}` enables f16, which {} does not have", self.desc.name, self.info.name);
            return Err(Error::unsupported(text)
                .with_detail("kernel", &self.desc.name)
                .with_detail("feature", "f16"));
        }
        let declared = self.parse()?;
        // Resolving overrides needs a module that is known to be valid.
        let declared_info = self.validate(&declared)?;
        let constants = self.constants(&declared)?;
        let entry = (ShaderStage::Compute, self.desc.entry.as_str());
        // Looked for before overrides are resolved, which needs it.
        self.find_entry(&declared)?;
        let resolved = process_overrides(&declared, &declared_info, Some(entry), &constants);
        let (naga, info) = resolved.map_err(|e| self.fail(Span::UNDEFINED, &chain(&e), &chain(&e)))?;
        let (naga, info) = (naga.into_owned(), info.into_owned());
        let entry = self.find_entry(&naga)?;
        let mut layouter = Layouter::default();
        // Sizes are final only when overrides are resolved.
        layouter.update(naga.to_ctx()).map_err(|e| self.fail(Span::UNDEFINED, &e.to_string(), ""))?;
        let min_sizes = self.check_bindings(&declared, (&naga, &layouter), &info, entry)?;
        self.check_workgroup((&naga, &layouter), &info, entry)?;
        Ok(Module { naga, info, layouter, entry, min_sizes, source: self.source })
    }

    /// An error with a place; `log` is the compiler's whole text.
    fn fail(&self, span: Span, message: &str, log: &str) -> Error {
        self.source.error(ErrorKind::Compile, &self.desc.name, span, message).with_detail("log", log)
    }

    /// See [`tapml_device::Source::for_log`].
    fn for_log(&self, spans: impl Iterator<Item = Span>) -> (String, String) {
        let places = spans.filter_map(|span| Some(span.to_range()?.start));
        self.desc.source.for_log(&self.source.text, places)
    }

    /// The first label of naga's error is the place of the fault.
    fn parse(&self) -> Result<naga::Module> {
        naga::front::wgsl::parse_str(&self.source.text).map_err(|error| {
            let span = error.labels().next().map_or(Span::UNDEFINED, |(span, _)| span);
            let (text, file) = self.for_log(error.labels().map(|(span, _)| span));
            let log = error.emit_to_string_with_path(&text, &file);
            self.fail(span, &lower_first(error.message()), &log)
        })
    }

    /// With the capabilities that the device has and no others.
    fn validate(&self, module: &naga::Module) -> Result<ModuleInfo> {
        // `unpack2x16float` and its kin need no f16.
        let mut capabilities = Capabilities::SHADER_FLOAT16_IN_FLOAT32;
        capabilities.set(Capabilities::SHADER_FLOAT16, self.info.features.f16);
        let subgroups = Capabilities::SUBGROUP | Capabilities::SUBGROUP_BARRIER;
        capabilities.set(subgroups, self.info.features.subgroups.is_some());
        capabilities.set(Capabilities::COOPERATIVE_MATRIX, self.info.features.matrices);
        let mut validator = Validator::new(ValidationFlags::all(), capabilities);
        validator.subgroup_stages(ShaderStages::COMPUTE).subgroup_operations(SubgroupOperationSet::all());
        validator.validate(module).map_err(|error| {
            let span = error.spans().next().map_or(Span::UNDEFINED, |(span, _)| *span);
            let (text, file) = self.for_log(error.spans().map(|(span, _)| *span));
            let log = error.emit_to_string_with_path(&text, &file);
            self.fail(span, &lower_first(&chain(error.as_inner())), &log)
        })
    }

    /// The description's constants, keyed as naga wants them.
    fn constants(&self, module: &naga::Module) -> Result<PipelineConstants> {
        let mut constants = PipelineConstants::default();
        for (name, value) in &self.desc.constants {
            let known = || module.overrides.iter().map(|(_, o)| o);
            let found = known()
                .find(|o| o.name.as_deref() == Some(name) || o.id.is_some_and(|id| id.to_string() == *name));
            let Some(found) = found else {
                let names: Vec<_> = known().filter_map(|o| o.name.as_deref()).collect();
                let text = format!("kernel `{}` has no override constant `{name}`", self.desc.name);
                let hint = if names.is_empty() {
                    "it has none".into()
                } else {
                    format!("it has {}", names.join(", "))
                };
                return Err(Error::invalid(text).with_hint(hint).with_detail("kernel", &self.desc.name));
            };
            // naga looks constants with an `@id` up by that number.
            let key = found.id.map_or_else(|| name.clone(), |id| id.to_string());
            constants.insert(key, *value);
        }
        Ok(constants)
    }

    /// Index of the compute entry point of the description's name.
    fn find_entry(&self, module: &naga::Module) -> Result<usize> {
        let is_entry = |e: &naga::EntryPoint| e.stage == ShaderStage::Compute && e.name == self.desc.entry;
        module.entry_points.iter().position(is_entry).ok_or_else(|| {
            let message = format!("no compute entry point `{}`", self.desc.entry);
            self.fail(Span::UNDEFINED, &message, "")
        })
    }

    /// Compares the text's bindings with the description's; the fewest bytes of each.
    fn check_bindings(
        &self,
        declared: &naga::Module,
        (module, layouter): (&naga::Module, &Layouter),
        info: &ModuleInfo,
        entry: usize,
    ) -> Result<Vec<u32>> {
        let mut min_sizes = vec![0; self.desc.bindings.len()];
        // A file may hold several kernels, each with bindings of its own.
        let used = info.get_entry_point(entry);
        for (handle, var) in module.global_variables.iter() {
            let Some(binding) = &var.binding else { continue };
            // What the entry point does not reach is not bound.
            if used[handle].is_empty() {
                continue;
            }
            let span = module.global_variables.get_span(handle);
            let index = binding.binding as usize;
            if binding.group != 0 || index >= self.desc.bindings.len() {
                let message = format!(
                    "binding {index} of group {} is used, but the kernel is described with {} bindings of group 0",
                    binding.group,
                    self.desc.bindings.len()
                );
                return Err(self.fail(span, &message, ""));
            }
            let (found, wanted) = (kind_of(var), self.desc.bindings[index]);
            if found != Some(wanted) {
                let found = found.map_or("something else".into(), |k| format!("{k:?}"));
                let message =
                    format!("binding {index} is {found} in the text but {wanted:?} in the description");
                return Err(self.fail(span, &message, ""));
            }
            min_sizes[index] = min_size(module, layouter, var.ty);
        }
        for index in 0..self.desc.bindings.len() {
            let is_it = |v: &GlobalVariable| {
                v.binding.as_ref().is_some_and(|b| b.group == 0 && b.binding as usize == index)
            };
            // Looked for in the text as declared: resolving drops what is not used.
            if !declared.global_variables.iter().any(|(_, v)| is_it(v)) {
                let message = format!("the description has binding {index}, which the text does not declare");
                return Err(self.fail(Span::UNDEFINED, &message, ""));
            }
        }
        Ok(min_sizes)
    }

    /// Compares workgroup size and memory with the description.
    fn check_workgroup(
        &self,
        (module, layouter): (&naga::Module, &Layouter),
        info: &ModuleInfo,
        entry: usize,
    ) -> Result<()> {
        let point = &module.entry_points[entry];
        if point.workgroup_size != self.desc.workgroup {
            let message = format!(
                "the workgroup size is {:?} in the text but {:?} in the description",
                point.workgroup_size, self.desc.workgroup
            );
            return Err(self.fail(Span::UNDEFINED, &message, ""));
        }
        let used = info.get_entry_point(entry);
        let globals = module.global_variables.iter();
        let shared = globals.filter(|(h, v)| v.space == AddressSpace::WorkGroup && !used[*h].is_empty());
        let bytes: u64 = shared.map(|(_, v)| u64::from(layouter[v.ty].size)).sum();
        // Less is allowed: the description may be rounded up.
        if bytes > u64::from(self.desc.workgroup_memory) {
            let message = format!(
                "the text declares {bytes} bytes of workgroup memory, the description says {}",
                self.desc.workgroup_memory
            );
            return Err(self.fail(Span::UNDEFINED, &message, ""));
        }
        Ok(())
    }
}

/// How a global is bound; `None` for what no binding can be.
fn kind_of(var: &GlobalVariable) -> Option<BindingKind> {
    match var.space {
        AddressSpace::Uniform => Some(BindingKind::Uniform),
        AddressSpace::Storage { access } if access.contains(StorageAccess::STORE) => {
            Some(BindingKind::ReadWrite)
        }
        AddressSpace::Storage { .. } => Some(BindingKind::Read),
        _ => None,
    }
}

/// Fewest bytes that a binding of this type must have: one element for a runtime-sized array.
fn min_size(module: &naga::Module, layouter: &Layouter, ty: Handle<Type>) -> u32 {
    match module.types[ty].inner {
        TypeInner::Array { size: ArraySize::Dynamic, stride, .. } => stride,
        TypeInner::Struct { ref members, span } => match members.last() {
            Some(last)
                if matches!(
                    module.types[last.ty].inner,
                    TypeInner::Array { size: ArraySize::Dynamic, .. }
                ) =>
            {
                // A struct may end in a runtime-sized array.
                last.offset + min_size(module, layouter, last.ty)
            }
            _ => span,
        },
        _ => layouter[ty].size,
    }
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    lower_first(&text)
}

/// An acronym such as `WGSL` stays as it is.
fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) if !chars.as_str().starts_with(char::is_uppercase) => {
            format!("{}{}", first.to_lowercase(), chars.as_str())
        }
        _ => text.to_string(),
    }
}
