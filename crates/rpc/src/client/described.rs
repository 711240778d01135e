//! Whether a kernel's text has the workgroup that its description says. Browsers do not tell what a text declares, so that
//! an agent there cannot compare; a wrong grid would go unnoticed until results are wrong.

use naga::back::{PipelineConstants, pipeline_constants::process_overrides};
use naga::proc::Layouter;
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{AddressSpace, Module, ShaderStage};
use tapml_device::{KernelDesc, Language};
use tapml_graph::{Error, ErrorKind, Result};

/// Fails if text and description differ. A text that is refused here may be right for the device, which judges it itself.
pub fn check(desc: &KernelDesc) -> Result<()> {
    match disagreement(desc) {
        None => Ok(()),
        Some(why) => {
            let text = format!("kernel `{}` does not compile: {}: {why}", desc.name, desc.source.file);
            Err(Error::new(ErrorKind::Compile, text)
                .with_detail("kernel", &desc.name)
                .with_detail("file", &desc.source.file))
        }
    }
}

fn disagreement(desc: &KernelDesc) -> Option<String> {
    if desc.source.language != Language::Wgsl {
        return None;
    }
    let enable = if desc.needs_f16 { "enable f16; " } else { "" };
    let module = naga::front::wgsl::parse_str(&format!("{enable}{}", desc.source.full())).ok()?;
    let validate =
        |module: &Module| Validator::new(ValidationFlags::all(), Capabilities::all()).validate(module).ok();
    let info = validate(&module)?;
    let mut constants = PipelineConstants::default();
    for (name, value) in &desc.constants {
        constants.insert(name.clone(), *value);
    }
    let entry = Some((ShaderStage::Compute, desc.entry.as_str()));
    let (module, info) = process_overrides(&module, &info, entry, &constants).ok()?;
    compare(&module, &info, desc)
}

fn compare(module: &Module, info: &ModuleInfo, desc: &KernelDesc) -> Option<String> {
    let is_entry = |e: &naga::EntryPoint| e.stage == ShaderStage::Compute && e.name == desc.entry;
    let entry = module.entry_points.iter().position(is_entry)?;
    let size = module.entry_points[entry].workgroup_size;
    if size != desc.workgroup {
        let described = desc.workgroup;
        return Some(format!(
            "the workgroup size is {size:?} in the text but {described:?} in the description"
        ));
    }
    let mut layouter = Layouter::default();
    layouter.update(module.to_ctx()).ok()?;
    let used = info.get_entry_point(entry);
    let shared = module.global_variables.iter();
    let shared = shared.filter(|(at, v)| v.space == AddressSpace::WorkGroup && !used[*at].is_empty());
    let bytes: u64 = shared.map(|(_, v)| u64::from(layouter[v.ty].size)).sum();
    let described = desc.workgroup_memory;
    (bytes > u64::from(described)).then(|| {
        format!("the text declares {bytes} bytes of workgroup memory, the description says {described}")
    })
}
