//! Turning a [`KernelDesc`] into a pipeline, and compiler messages into errors that point into the kernel's own file.
//!
//! wgpu's front end and validator look at the text, then naga writes it for the driver, which compiles it. Each of these may refuse it.

use crate::gpu::Gpu;
use crate::inspect;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tapml_device::{BindingKind, KernelDesc, Source, compile_side_by_side};
use tapml_graph::{Error, ErrorKind, Result};

/// A compiled kernel.
pub(crate) struct WgpuKernel {
    /// For messages and labels.
    pub(crate) name: Arc<str>,
    /// Kinds of its bindings, by index.
    pub(crate) kinds: Vec<BindingKind>,
    /// Bind groups are made with it.
    pub(crate) layout: wgpu::BindGroupLayout,
    /// What dispatches run.
    pub(crate) pipeline: wgpu::ComputePipeline,
}

impl WgpuKernel {
    /// A kernel of this pipeline.
    fn new(desc: &KernelDesc, layout: wgpu::BindGroupLayout, pipeline: wgpu::ComputePipeline) -> WgpuKernel {
        WgpuKernel { name: desc.name.as_str().into(), kinds: desc.bindings.clone(), layout, pipeline }
    }
}

/// Layouts by binding kinds; most kernels share a few.
#[derive(Default)]
pub(crate) struct Layouts {
    /// Both layouts, since a pipeline layout here has one bind group.
    known: HashMap<Vec<BindingKind>, (wgpu::BindGroupLayout, wgpu::PipelineLayout)>,
}

impl Layouts {
    /// The layouts of these kinds, made on first use.
    ///
    /// # Errors
    ///
    /// More bindings of a kind than the device has.
    fn get(
        &mut self,
        gpu: &Gpu,
        kinds: &[BindingKind],
    ) -> Result<(wgpu::BindGroupLayout, wgpu::PipelineLayout)> {
        if let Some(known) = self.known.get(kinds) {
            return Ok(known.clone());
        }
        let entries: Vec<_> = kinds.iter().zip(0..).map(|(&kind, at)| layout_entry(at, kind)).collect();
        let made = gpu.call(
            || "lay out the bindings".into(),
            |device, _| {
                let desc = wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries };
                let layout = device.create_bind_group_layout(&desc);
                let desc = wgpu::PipelineLayoutDescriptor {
                    label: None,
                    bind_group_layouts: &[Some(&layout)],
                    immediate_size: 0,
                };
                let pipeline_layout = device.create_pipeline_layout(&desc);
                (layout, pipeline_layout)
            },
        )?;
        self.known.insert(kinds.to_vec(), made.clone());
        Ok(made)
    }
}

/// A binding of the layout. Its least size is left open: wgpu then takes it from the kernel when a dispatch is encoded.
fn layout_entry(binding: u32, kind: BindingKind) -> wgpu::BindGroupLayoutEntry {
    let ty = match kind {
        BindingKind::Read => wgpu::BufferBindingType::Storage { read_only: true },
        BindingKind::ReadWrite => wgpu::BufferBindingType::Storage { read_only: false },
        BindingKind::Uniform => wgpu::BufferBindingType::Uniform,
    };
    wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset: false, min_binding_size: None },
        count: None,
    }
}

/// Compiles a kernel that fits the device's limits. Without `checks`, indices, loops and divisors are taken on trust.
///
/// # Errors
///
/// [`ErrorKind::Compile`] with kernel, file and, if known, line; [`ErrorKind::DeviceLost`] and [`ErrorKind::OutOfMemory`] as they are.
pub(crate) fn compile(
    gpu: &Gpu,
    layouts: &mut Layouts,
    desc: &KernelDesc,
    checks: bool,
) -> Result<WgpuKernel> {
    let (layout, pipeline_layout) = layouts
        .get(gpu, &desc.bindings)
        .map_err(|e| compile_error(desc, CompilerFault { log: log_of(&e), ..CompilerFault::default() }, e))?;
    let module = module(gpu, desc, checks)?;
    let pipeline = gpu
        .compile(
            || format!("compile kernel `{}`", desc.name),
            |device, _| create_pipeline(device, desc, &pipeline_layout, &module),
        )
        .map_err(|e| compile_error(desc, CompilerFault { log: log_of(&e), ..CompilerFault::default() }, e))?;
    Ok(WgpuKernel::new(desc, layout, pipeline))
}

/// What the driver compiles.
fn create_pipeline(
    device: &wgpu::Device,
    desc: &KernelDesc,
    layout: &wgpu::PipelineLayout,
    module: &wgpu::ShaderModule,
) -> wgpu::ComputePipeline {
    let constants: Vec<_> = desc.constants.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some(&desc.name),
        layout: Some(layout),
        module,
        entry_point: Some(&desc.entry),
        compilation_options: wgpu::PipelineCompilationOptions {
            constants: &constants,
            ..wgpu::PipelineCompilationOptions::default()
        },
        cache: None,
    })
}

/// Kernels that were compiled before they are created.
#[derive(Default)]
pub(crate) struct Prepared {
    kernels: Vec<(KernelDesc, WgpuKernel)>,
}

impl Prepared {
    /// Compiles kernels that fit the device's limits, one on each of the host's processors at a time. What does not compile is left for
    /// [`compile`] to tell.
    pub(crate) fn compile(
        gpu: &Gpu,
        layouts: &mut Layouts,
        descs: &[KernelDesc],
        checks: impl Fn(&KernelDesc) -> bool + Sync,
    ) -> Prepared {
        // A kernel whose bindings have no layout is not compiled here.
        for desc in descs {
            drop(layouts.get(gpu, &desc.bindings));
        }
        let (layouts, kernels) = (&*layouts, Mutex::new(Vec::new()));
        compile_side_by_side(descs, |desc| {
            let Some((layout, pipeline_layout)) = layouts.known.get(&desc.bindings) else { return };
            let (text, _) = front(&desc.source, desc.needs_f16);
            let pipeline = gpu.compile_aside(|device| {
                let module = create_module(device, (&desc.name, &text), checks(desc));
                let agrees = inspect::disagreement(&text, desc).is_none();
                agrees.then(|| create_pipeline(device, desc, pipeline_layout, &module))
            });
            if let Some(pipeline) = pipeline {
                let kernel = WgpuKernel::new(desc, layout.clone(), pipeline);
                kernels.lock().unwrap_or_else(PoisonError::into_inner).push((desc.clone(), kernel));
            }
        });
        Prepared { kernels: kernels.into_inner().unwrap_or_else(PoisonError::into_inner) }
    }

    /// How many were not handed over.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.kernels.len()
    }

    /// The compiled kernel of a description, which is handed over.
    pub(crate) fn take(&mut self, desc: &KernelDesc) -> Option<WgpuKernel> {
        let at = self.kernels.iter().position(|(known, _)| known == desc)?;
        Some(self.kernels.swap_remove(at).1)
    }
}

/// The validated module. What wgpu accepts and the description contradicts is refused here, before the driver sees it.
fn module(gpu: &Gpu, desc: &KernelDesc, checks: bool) -> Result<wgpu::ShaderModule> {
    let (text, added) = front(&desc.source, desc.needs_f16);
    let mut messages = Vec::new();
    let compiled = gpu.compile(
        || format!("compile kernel `{}`", desc.name),
        |device, _| {
            let module = create_module(device, (&desc.name, &text), checks);
            // Messages are kept, because the error that wgpu reports has no place in the text.
            messages = pollster::block_on(module.get_compilation_info()).messages;
            module
        },
    );
    let module = compiled.map_err(|error| {
        let message = messages.into_iter().find(|m| m.message_type == wgpu::CompilationMessageType::Error);
        let fault = message.map(|m| {
            let place =
                inspect::innermost_place(&text).or(m.location.map(|l| (l.line_number, l.line_position)));
            // Columns of the first line count the directives that were put in front of it.
            let place = place.map(|(line, column)| match line {
                1 => (1, column.saturating_sub(added).max(1)),
                _ => (line, column),
            });
            CompilerFault { log: m.message, place }
        });
        compile_error(
            desc,
            fault.unwrap_or_else(|| CompilerFault { log: log_of(&error), place: None }),
            error,
        )
    })?;
    match inspect::disagreement(&text, desc) {
        None => Ok(module),
        Some(log) => Err(compile_error(
            desc,
            CompilerFault { log, place: None },
            Error::new(ErrorKind::Compile, "refused"),
        )),
    }
}

/// Creates the module of a kernel of this name and text, with WebGPU's guarantees, or without them.
#[allow(unsafe_code)]
fn create_module(device: &wgpu::Device, (name, text): (&str, &str), checks: bool) -> wgpu::ShaderModule {
    let source = wgpu::ShaderSource::Wgsl(text.into());
    let desc = wgpu::ShaderModuleDescriptor { label: Some(name), source };
    if checks {
        return device.create_shader_module(desc);
    }
    // SAFETY: whoever opens the device, with `checks=off` or as one that trusts, vouches for such kernels: no index outside
    // its array, no endless loop, no division by zero. Bindings stay validated.
    unsafe { device.create_shader_module_trusted(desc, wgpu::ShaderRuntimeChecks::unchecked()) }
}

/// naga's name for cooperative matrices.
const MATRICES: &str = "wgpu_cooperative_matrix";
/// Extensions that a kernel may enable.
const EXTENSIONS: [&str; 3] = ["f16", "subgroups", MATRICES];

/// The text as wgpu's front end wants it, and how many bytes stand before the first line. It demands `enable f16;`, knows
/// no `enable subgroups;`, and takes neither after the first declaration; lines keep their numbers.
fn front(source: &Source, needs_f16: bool) -> (String, u32) {
    let full = source.full();
    let (mut f16, mut matrices) = (needs_f16, false);
    let mut text = String::with_capacity(full.len() + 16);
    for line in full.split_inclusive('\n') {
        match enabled_names(line) {
            Some(names) if names.iter().all(|n| EXTENSIONS.contains(n)) => {
                f16 |= names.contains(&"f16");
                matrices |= names.contains(&MATRICES);
                // An empty line stands for the directive, so that later lines keep their numbers.
                text.push_str(if line.ends_with('\n') { "\n" } else { "" });
            }
            _ => text.push_str(line),
        }
    }
    let mut enable = String::from(if f16 { "enable f16; " } else { "" });
    if matrices {
        enable += "enable wgpu_cooperative_matrix; ";
    }
    text.insert_str(0, &enable);
    (text, enable.len() as u32)
}

/// The names in a line that is one `enable` directive and nothing else.
fn enabled_names(line: &str) -> Option<Vec<&str>> {
    let names = line.trim().strip_prefix("enable")?.strip_suffix(';')?;
    (names.starts_with(char::is_whitespace) && !names.contains(';'))
        .then(|| names.split(',').map(str::trim).filter(|n| !n.is_empty()).collect())
}

/// What a compiler said, and where in the full source.
#[derive(Default)]
struct CompilerFault {
    /// All that the compiler said.
    log: String,
    /// Line and column, from 1, in the source with its prelude.
    place: Option<(u32, u32)>,
}

/// All of what wgpu said, or the message if nothing more is known.
fn log_of(error: &Error) -> String {
    error.detail("log").unwrap_or(error.message()).to_string()
}

/// The error of a kernel that was refused; `error` is what wgpu's call returned.
fn compile_error(desc: &KernelDesc, fault: CompilerFault, error: Error) -> Error {
    // These say nothing about the kernel.
    if matches!(error.kind(), ErrorKind::DeviceLost | ErrorKind::OutOfMemory) {
        return error.context(format!("kernel `{}`", desc.name)).with_detail("kernel", &desc.name);
    }
    let source = &desc.source;
    // Errors of pipelines have no place, but often name a binding.
    let place = fault.place.or_else(|| binding_line(source, &fault.log).map(|line| (line, 1)));
    let text = place
        .and_then(|(line, _)| source.full().lines().nth(line as usize - 1).map(|l| l.trim().to_string()));
    // Lines of the prelude are in no file of the user's.
    let within = place.and_then(|(line, column)| Some((source.line_in_text(line)?, column)));
    let whereabouts = match (within, place) {
        (Some((line, column)), _) => format!("{}:{line}:{column}", source.file),
        (None, Some((line, column))) => format!("{} (prelude):{line}:{column}", source.file),
        (None, None) => source.file.clone(),
    };
    let message = format!("kernel `{}` does not compile: {whereabouts}: {}", desc.name, summary(&fault.log));
    let mut refused = Error::new(ErrorKind::Compile, message)
        .with_detail("kernel", &desc.name)
        .with_detail("file", &source.file);
    if let Some((line, column)) = within {
        refused = refused.with_detail("line", line.to_string()).with_detail("column", column.to_string());
    }
    if let Some(text) = text {
        refused = refused.with_detail("source", text);
    }
    refused.with_detail("log", fault.log)
}

/// One line of what the compiler says: the parser's message, the last note of the validator, or the innermost cause.
fn summary(log: &str) -> String {
    let parser = log.lines().find_map(|l| Some(l.split_once(" parsing error: ")?.1));
    let note = || log.lines().filter_map(|l| l.trim_start().strip_prefix("= ")).next_back();
    match parser.or_else(note) {
        Some(text) => text.trim().to_string(),
        None => crate::gpu::innermost(log),
    }
}

/// The line that declares the binding which a pipeline error names.
fn binding_line(source: &Source, log: &str) -> Option<u32> {
    let rest = log.split_once("ResourceBinding { group: 0, binding: ")?.1;
    let number: u32 = rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()?;
    let attribute = format!("@binding({number})");
    let full = source.full();
    full.lines().position(|l| l.contains(&attribute)).map(|at| at as u32 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapml_device::Language;

    fn source(prelude: &str, text: &str) -> Source {
        Source { language: Language::Wgsl, file: "a.wgsl".into(), prelude: prelude.into(), text: text.into() }
    }

    #[test]
    fn enables_move_to_the_front_and_lines_keep_their_numbers() {
        let source =
            source("alias T = f16;\n", "// a\nenable f16, subgroups;\n  enable subgroups;\nfn f() {}");
        let (text, added) = front(&source, false);
        assert_eq!(text, "enable f16; alias T = f16;\n// a\n\n\nfn f() {}");
        assert_eq!(added, 12);
    }

    #[test]
    fn other_lines_stay() {
        let text = "enable chromium_thing;\nlet enabled = 1;\nenable subgroups; fn f() {}\n";
        assert_eq!(front(&source("", text), false), (text.to_string(), 0));
        assert_eq!(front(&source("", "fn f() {}"), true).0, "enable f16; fn f() {}");
    }

    #[test]
    fn summary_is_the_most_telling_line() {
        let parsing =
            "\nShader 'x' parsing error: expected `;`\n  ┌─ wgsl:1:2\n  │\n1 │ a b\n  │   ^ expected\n\n";
        assert_eq!(summary(parsing), "expected `;`");
        let validation = "\nShader validation error: Function 'f' is invalid\n  ┌─ :1:2\n  │\n  = A is invalid\n  = B is why\n";
        assert_eq!(summary(validation), "B is why");
        assert_eq!(summary("Validation Error\n\nCaused by:\n  In f\n    the cause\n"), "the cause");
    }
}
