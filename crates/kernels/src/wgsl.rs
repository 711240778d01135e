//! Reads WGSL with naga: what a kernel's source declares, or where it is wrong.
//!
//! Places in errors are those of the kernel's own text: lines of the prelude in front of it are subtracted.

use naga::proc::Layouter;
use naga::valid::{Capabilities, ModuleInfo, ShaderStages, SubgroupOperationSet, ValidationFlags, Validator};
use naga::{AddressSpace, GlobalVariable, Handle, Module, ShaderStage, SourceLocation, Span, StorageAccess};
use tapml_device::{BindingKind, Source};
use tapml_graph::{Error, ErrorKind, Result};

/// What a source declares.
#[derive(Clone, Debug, PartialEq)]
pub struct WgslDeclarations {
    /// Names of the compute entry points with their workgroup sizes.
    pub entries: Vec<(String, [u32; 3])>,
    /// Every resource of group 0, by number.
    pub bindings: Vec<DeclaredBinding>,
    /// Names of the `override` constants, and whether each has a default.
    pub overrides: Vec<(String, bool)>,
    /// Bytes of workgroup memory that the entry points use; `None` if they depend on overrides.
    /// Each variable counts in whole words.
    pub workgroup_memory: Option<u32>,
}

/// A resource that a source declares.
#[derive(Clone, Debug, PartialEq)]
pub struct DeclaredBinding {
    /// Of the binding.
    pub number: u32,
    /// `None` if no kernel may use it.
    pub kind: Option<BindingKind>,
    /// Of the variable.
    pub name: String,
}

/// Parses and validates prelude and text. `f16` tells whether the prelude names that type.
///
/// Errors are of kind [`ErrorKind::Compile`] and begin with file, line and column within the text; the details hold
/// `file`, `line`, `column`, `source` (the line's text) and `log`.
pub fn parse_declarations(source: &Source, f16: bool) -> Result<WgslDeclarations> {
    let (module, info) = parse(source, f16)?;
    Ok(describe(&module, &info))
}

/// As [`parse_declarations`]: the module itself, with what its validation found out.
///
/// # Errors
/// [`ErrorKind::Compile`], also for text that nests too deep for the parser.
pub fn parse(source: &Source, f16: bool) -> Result<(Module, ModuleInfo)> {
    // The directive stands within the text of a kernel, where WGSL does not allow it.
    const MATRICES: &str = "enable wgpu_cooperative_matrix;";
    // The parser recurses with the nesting of a text: a hostile one would exhaust the stack.
    source.check_nesting()?;
    let front = if f16 { "enable f16;" } else { "" };
    let full = source.full();
    // Directives stand in front of everything; lines keep their numbers.
    let full = if full.contains(MATRICES) {
        format!("{front}{MATRICES}{}", full.replacen(MATRICES, "", 1))
    } else {
        format!("{front}{full}")
    };
    let module = naga::front::wgsl::parse_str(&full).map_err(|e| {
        let (text, file) = source.for_log(&full, e.labels().filter_map(|(span, _)| first_byte(span)));
        let log = e.emit_to_string_with_path(&text, &file);
        compile_error(source, &full, e.location(&full), e.message(), log)
    })?;
    // What the device can do is checked elsewhere; here everything that WGSL has is allowed.
    let mut validator = Validator::new(ValidationFlags::all(), Capabilities::all());
    validator.subgroup_stages(ShaderStages::COMPUTE).subgroup_operations(SubgroupOperationSet::all());
    let info = validator.validate(&module).map_err(|e| {
        let (text, file) = source.for_log(&full, e.spans().filter_map(|(span, _)| first_byte(*span)));
        let log = e.emit_to_string_with_path(&text, &file);
        let causes = std::iter::successors(Some(e.as_inner() as &dyn std::error::Error), |e| e.source());
        let message: Vec<String> = causes.map(ToString::to_string).collect();
        compile_error(source, &full, e.location(&full), &message.join(": "), log)
    })?;
    Ok((module, info))
}

/// Where a span begins, if it is known.
fn first_byte(span: Span) -> Option<usize> {
    Some(span.to_range()?.start)
}

/// An error at a place of the full text, told in lines of the kernel's own.
fn compile_error(
    source: &Source,
    full: &str,
    at: Option<SourceLocation>,
    message: &str,
    log: String,
) -> Error {
    let within = at.and_then(|at| Some((source.line_in_text(at.line_number)?, at.line_position)));
    let place = match (within, at) {
        (Some((line, column)), _) => format!("{}:{line}:{column}", source.file),
        // The mistake is in the prelude, or shows there.
        (None, Some(at)) => format!("{} (what stands before it, line {})", source.file, at.line_number),
        (None, None) => source.file.clone(),
    };
    let mut error =
        Error::new(ErrorKind::Compile, format!("{place}: {message}")).with_detail("file", &source.file);
    if let Some((line, column)) = within {
        error = error.with_detail("line", line.to_string()).with_detail("column", column.to_string());
    }
    let text = at.and_then(|at| full.lines().nth(at.line_number as usize - 1));
    if let Some(text) = text {
        error = error.with_detail("source", text.trim());
    }
    error.with_detail("log", log)
}

/// What a parsed and validated source declares.
/// Bindings of other groups than 0 are left out.
pub fn describe(module: &Module, info: &ModuleInfo) -> WgslDeclarations {
    let compute = module.entry_points.iter().filter(|e| e.stage == ShaderStage::Compute);
    // The prelude declares memory that not every text uses.
    let entries = 0..module.entry_points.len();
    let used = |variable: Handle<GlobalVariable>| {
        entries.clone().any(|e| !info.get_entry_point(e)[variable].is_empty())
    };
    let mut layouter = Layouter::default();
    // Layouts cannot be computed while array lengths depend on constants without values.
    let sized = layouter.update(module.to_ctx()).is_ok();
    let (mut bindings, mut memory) = (Vec::new(), sized.then_some(0u32));
    for (handle, variable) in module.global_variables.iter() {
        if let Some(binding) = variable.binding.as_ref().filter(|b| b.group == 0) {
            let kind = match variable.space {
                AddressSpace::Storage { access } if access == StorageAccess::LOAD => Some(BindingKind::Read),
                AddressSpace::Storage { .. } => Some(BindingKind::ReadWrite),
                AddressSpace::Uniform => Some(BindingKind::Uniform),
                _ => None,
            };
            let name = variable.name.clone().unwrap_or_default();
            bindings.push(DeclaredBinding { number: binding.binding, kind, name });
        }
        if variable.space == AddressSpace::WorkGroup && sized && used(handle) {
            memory = memory.and_then(|sum| sum.checked_add(layouter[variable.ty].size.next_multiple_of(4)));
        }
    }
    bindings.sort_by_key(|b| b.number);
    let overrides =
        module.overrides.iter().map(|(_, o)| (o.name.clone().unwrap_or_default(), o.init.is_some()));
    WgslDeclarations {
        entries: compute.map(|e| (e.name.clone(), e.workgroup_size)).collect(),
        bindings,
        overrides: overrides.collect(),
        workgroup_memory: memory,
    }
}
