//! What wgpu itself leaves unchecked in a kernel: that its workgroup is the one described, and that its workgroup memory
//! fits. A driver that is given more than it has may crash.
//!
//! The text is parsed and validated once more with naga, which wgpu re-exports, so both see the same version.

use tapml_device::KernelDesc;
use wgpu::naga::back::{PipelineConstants, pipeline_constants::process_overrides};
use wgpu::naga::proc::Layouter;
use wgpu::naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use wgpu::naga::{AddressSpace, Module, ShaderStage};

/// Line and column of the smallest part of a text that the validator names; `None` if it accepts or cannot parse it.
/// wgpu tells the first part, often a whole function.
pub(crate) fn innermost_place(text: &str) -> Option<(u32, u32)> {
    let module = wgpu::naga::front::wgsl::parse_str(text).ok()?;
    let error = validator().validate(&module).err()?;
    // Errors hold a chain of places, from the function down to the expression.
    let spans = error.spans().filter_map(|(span, _)| span.to_range().map(|range| (range.len(), *span)));
    let (_, span) = spans.min_by_key(|(len, _)| *len)?;
    let location = span.location(text);
    Some((location.line_number, location.line_position))
}

/// Compares the text's workgroup with the description. `None` means that they agree, or that wgpu's own checks will refuse
/// the kernel.
pub(crate) fn disagreement(text: &str, desc: &KernelDesc) -> Option<String> {
    let module = wgpu::naga::front::wgsl::parse_str(text).ok()?;
    let info = validator().validate(&module).ok()?;
    let mut constants = PipelineConstants::default();
    for (name, value) in &desc.constants {
        constants.insert(name.clone(), *value);
    }
    let entry = Some((ShaderStage::Compute, desc.entry.as_str()));
    let (module, info) = process_overrides(&module, &info, entry, &constants).ok()?;
    compare(&module, &info, desc)
}

/// It accepts all extensions: wgpu itself refuses those that the device lacks.
fn validator() -> Validator {
    Validator::new(ValidationFlags::all(), Capabilities::all())
}

/// What the entry point says against what the description says. Without the entry point wgpu refuses the pipeline.
fn compare(module: &Module, info: &ModuleInfo, desc: &KernelDesc) -> Option<String> {
    let is_entry = |e: &wgpu::naga::EntryPoint| e.stage == ShaderStage::Compute && e.name == desc.entry;
    let entry = module.entry_points.iter().position(is_entry)?;
    let size = module.entry_points[entry].workgroup_size;
    if size != desc.workgroup {
        return Some(format!(
            "the workgroup size is {size:?} in the text but {:?} in the description",
            desc.workgroup
        ));
    }
    let mut layouter = Layouter::default();
    layouter.update(module.to_ctx()).ok()?;
    let used = info.get_entry_point(entry);
    let shared = module.global_variables.iter();
    // Variables that the entry point and its callees do not use take no memory.
    let shared = shared.filter(|(at, v)| v.space == AddressSpace::WorkGroup && !used[*at].is_empty());
    let bytes: u64 = shared.map(|(_, v)| u64::from(layouter[v.ty].size)).sum();
    (bytes > u64::from(desc.workgroup_memory)).then(|| {
        let described = desc.workgroup_memory;
        format!("the text declares {bytes} bytes of workgroup memory, the description says {described}")
    })
}
