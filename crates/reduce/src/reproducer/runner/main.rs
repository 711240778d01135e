//! Runs the kernels of this folder on one adapter and compares what they give with what they should.
//!
//!     cargo run -- --list                 adapters here
//!     cargo run -- [ADAPTER]              by number, or by a part of its name; the first if not given
//!         --values simplified             another set of inputs of `case.json`
//!         --runs N                        how often; 3 if not given
//!         --folder DIR                    where `case.json` is; `.` if not given
//!
//! Exit code 0: every run passes; 1: some fail; 2: it could not run.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

/// `case.json`, as far as it is needed here.
#[derive(Deserialize)]
struct Case {
    op: String,
    buffers: Vec<Buffer>,
    kernels: Vec<Kernel>,
    launches: Vec<Launch>,
    outputs: Vec<Output>,
    values: Vec<Values>,
}

/// Its bytes are in a set of values, in a file, or all one word.
#[derive(Deserialize)]
struct Buffer {
    name: String,
    size: u64,
    file: Option<String>,
    fill: Option<u32>,
}

/// The text is in `file`; constants are WGSL's overrides.
#[derive(Deserialize)]
struct Kernel {
    file: String,
    entry: String,
    constants: BTreeMap<String, f64>,
    f16: bool,
    subgroups: bool,
    bindings: Vec<String>,
}

/// Indices into `kernels` and `buffers`.
#[derive(Deserialize)]
struct Launch {
    kernel: usize,
    bindings: Vec<Binding>,
    groups: [u32; 3],
}

#[derive(Deserialize)]
struct Binding {
    buffer: usize,
    offset: u64,
    size: u64,
}

#[derive(Deserialize)]
struct Output {
    buffer: usize,
    dtype: String,
}

#[derive(Deserialize)]
struct Values {
    name: String,
    inputs: Vec<Given>,
    expected: Vec<Expected>,
    sums: Vec<Sum>,
}

#[derive(Deserialize)]
struct Given {
    buffer: usize,
    file: String,
}

/// Files of one `f64` per element.
#[derive(Deserialize)]
struct Expected {
    exact: String,
    rounded: String,
    allowed: String,
}

/// A test on all elements of an output: |Σ weight · (y − rounded)^power| must not exceed the limit.
#[derive(Deserialize)]
struct Sum {
    output: usize,
    criterion: String,
    power: i32,
    limit: f64,
    weights: String,
}

/// What the command line says.
struct Options {
    list: bool,
    adapter: String,
    values: String,
    runs: usize,
    folder: PathBuf,
}

fn main() -> ExitCode {
    match run(std::env::args().skip(1)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// Whether every run passes.
pub fn run(args: impl Iterator<Item = String>) -> Result<bool, String> {
    let options = parse(args)?;
    let adapters = adapters();
    if options.list {
        adapters.iter().enumerate().for_each(|(i, a)| println!("{i}: {}", describe(a)));
        return Ok(true);
    }
    let text = read(&options.folder, "case.json")?;
    let case: Case = serde_json::from_slice(&text).map_err(|e| format!("case.json: {e}"))?;
    let values = case.values.iter().find(|v| v.name == options.values);
    let values = values.ok_or_else(|| format!("case.json has no values `{}`", options.values))?;
    let adapter = choose(&adapters, &options.adapter)?;
    println!("{} on {}", case.op, describe(adapter));
    let gpu = Gpu::open(adapter, &case)?;
    let mut failed = 0;
    for _ in 0..options.runs {
        let outputs = gpu.launch(&options.folder, &case, values)?;
        let faults = outputs.and_then(|outputs| compare(&options.folder, &case, values, &outputs));
        let faults = faults.unwrap_or_else(|error| vec![error]);
        // Of several runs the faults of the first failing one are enough.
        if failed == 0 {
            faults.iter().take(8).for_each(|fault| println!("  {fault}"));
        }
        failed += usize::from(!faults.is_empty());
    }
    let verdict = if failed == 0 { "PASS" } else { "FAIL" };
    println!("{verdict}: {failed} of {} runs fail", options.runs);
    Ok(failed == 0)
}

/// Reads the command line. The last adapter that is named counts.
fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options =
        Options { list: false, adapter: "0".into(), values: "real".into(), runs: 3, folder: ".".into() };
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--list" => options.list = true,
            "--values" => options.values = value()?,
            "--runs" => {
                options.runs = value()?.parse().map_err(|e| format!("--runs: {e}"))?;
            }
            "--folder" => options.folder = value()?.into(),
            flag if flag.starts_with('-') => return Err(format!("unknown flag {flag}")),
            adapter => options.adapter = adapter.into(),
        }
    }
    Ok(options)
}

/// A file of the folder; the error names it.
fn read(folder: &Path, file: &str) -> Result<Vec<u8>, String> {
    let path = folder.join(file);
    std::fs::read(&path).map_err(|e| format!("could not read {}: {e}", path.display()))
}

/// All adapters of this machine, in wgpu's order.
fn adapters() -> Vec<wgpu::Adapter> {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    pollster::block_on(instance.enumerate_adapters(wgpu::Backends::all()))
}

/// An adapter in one line: name, API and driver.
fn describe(adapter: &wgpu::Adapter) -> String {
    let info = adapter.get_info();
    let driver = format!("{} {}", info.driver, info.driver_info);
    format!("{} ({:?}, {})", info.name, info.backend, driver.trim())
}

/// An adapter by its number, or else by a part of what [`describe`] says.
fn choose<'a>(adapters: &'a [wgpu::Adapter], wanted: &str) -> Result<&'a wgpu::Adapter, String> {
    let by_number = wanted.parse::<usize>().ok().and_then(|i| adapters.get(i));
    let by_name = || adapters.iter().find(|a| describe(a).to_lowercase().contains(&wanted.to_lowercase()));
    by_number.or_else(by_name).ok_or_else(|| format!("no adapter `{wanted}`; --list shows those here"))
}

/// A device that keeps what wgpu reports.
struct Gpu {
    device: wgpu::Device,
    queue: wgpu::Queue,
    /// What was reported since it was last taken.
    errors: Arc<Mutex<Vec<String>>>,
}

impl Gpu {
    /// A device with the features that the kernels need and all limits of the adapter.
    fn open(adapter: &wgpu::Adapter, case: &Case) -> Result<Gpu, String> {
        let mut required_features = wgpu::Features::empty();
        required_features.set(wgpu::Features::SHADER_F16, case.kernels.iter().any(|k| k.f16));
        required_features.set(wgpu::Features::SUBGROUP, case.kernels.iter().any(|k| k.subgroups));
        let desc = wgpu::DeviceDescriptor {
            required_features,
            // Buffers of weights may exceed the default limits.
            required_limits: adapter.limits(),
            ..wgpu::DeviceDescriptor::default()
        };
        let (device, queue) =
            pollster::block_on(adapter.request_device(&desc)).map_err(|e| format!("no device: {e}"))?;
        let errors = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&errors);
        device.on_uncaptured_error(Arc::new(move |error| {
            if let Ok(mut errors) = sink.lock() {
                errors.push(error.to_string());
            }
        }));
        Ok(Gpu { device, queue, errors })
    }

    /// The outputs' bytes; within, what the device refused.
    fn launch(
        &self,
        folder: &Path,
        case: &Case,
        values: &Values,
    ) -> Result<Result<Vec<Vec<u8>>, String>, String> {
        let buffers = self.buffers(folder, case, values)?;
        let kernels: Vec<_> =
            case.kernels.iter().map(|k| self.kernel(folder, k)).collect::<Result<_, _>>()?;
        let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        for launch in &case.launches {
            let (layout, pipeline) = &kernels[launch.kernel];
            let bound = |(i, b): (u32, &Binding)| wgpu::BindGroupEntry {
                binding: i,
                resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                    buffer: &buffers[b.buffer],
                    offset: b.offset,
                    size: wgpu::BufferSize::new(b.size),
                }),
            };
            let entries: Vec<_> = (0..).zip(&launch.bindings).map(bound).collect();
            let group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: None,
                layout,
                entries: &entries,
            });
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
            pass.set_pipeline(pipeline);
            pass.set_bind_group(0, &group, &[]);
            let [x, y, z] = launch.groups;
            pass.dispatch_workgroups(x, y, z);
        }
        let staged: Vec<_> =
            case.outputs.iter().map(|o| self.stage(&mut encoder, &buffers[o.buffer])).collect();
        self.queue.submit([encoder.finish()]);
        staged.iter().for_each(|s| s.map_async(wgpu::MapMode::Read, .., |_| {}));
        let wait = wgpu::PollType::Wait { submission_index: None, timeout: None };
        let waited = self.device.poll(wait).map_err(|e| e.to_string());
        // Errors come before the results, which are of no use then.
        let refused = self.errors.lock().ok().and_then(|mut errors| errors.drain(..).next());
        if let Some(error) = refused.or(waited.err()) {
            return Ok(Err(error));
        }
        let bytes = |s: &wgpu::Buffer| s.get_mapped_range(..).map(|v| v.to_vec()).map_err(|e| e.to_string());
        Ok(staged.iter().map(bytes).collect())
    }

    /// All buffers with their bytes, made anew for each run: a run must not see what another left.
    fn buffers(&self, folder: &Path, case: &Case, values: &Values) -> Result<Vec<wgpu::Buffer>, String> {
        let usage = wgpu::BufferUsages::COPY_SRC
            | wgpu::BufferUsages::COPY_DST
            | wgpu::BufferUsages::STORAGE
            | wgpu::BufferUsages::UNIFORM;
        let mut buffers = Vec::new();
        for (i, buffer) in case.buffers.iter().enumerate() {
            let desc = wgpu::BufferDescriptor {
                label: Some(&buffer.name),
                size: buffer.size,
                usage,
                mapped_at_creation: false,
            };
            let made = self.device.create_buffer(&desc);
            let given = values.inputs.iter().find(|g| g.buffer == i).map(|g| &g.file);
            let mut bytes = match given.or(buffer.file.as_ref()) {
                Some(file) => read(folder, file)?,
                None => buffer.fill.unwrap_or(0).to_le_bytes().repeat(buffer.size as usize / 4),
            };
            // Files may be shorter than their buffers, which are whole words.
            bytes.resize(buffer.size as usize, 0);
            self.queue.write_buffer(&made, 0, &bytes);
            buffers.push(made);
        }
        Ok(buffers)
    }

    /// The kernel's layout and pipeline. wgpu wants `enable f16;` and knows no `enable subgroups;`.
    fn kernel(
        &self,
        folder: &Path,
        kernel: &Kernel,
    ) -> Result<(wgpu::BindGroupLayout, wgpu::ComputePipeline), String> {
        let text =
            String::from_utf8(read(folder, &kernel.file)?).map_err(|e| format!("{}: {e}", kernel.file))?;
        let text = if kernel.f16 { format!("enable f16; {text}") } else { text };
        let module = self.device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: Some(&kernel.file),
            source: wgpu::ShaderSource::Wgsl(text.into()),
        });
        let entry = |(binding, kind): (u32, &String)| wgpu::BindGroupLayoutEntry {
            binding,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer {
                ty: match kind.as_str() {
                    "uniform" => wgpu::BufferBindingType::Uniform,
                    kind => wgpu::BufferBindingType::Storage { read_only: kind == "read" },
                },
                has_dynamic_offset: false,
                min_binding_size: None,
            },
            count: None,
        };
        let entries: Vec<_> = (0..).zip(&kernel.bindings).map(entry).collect();
        let desc = wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries };
        let layout = self.device.create_bind_group_layout(&desc);
        let pipeline_layout = self.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: &[Some(&layout)],
            immediate_size: 0,
        });
        let constants: Vec<_> =
            kernel.constants.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        let pipeline = self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(&kernel.file),
            layout: Some(&pipeline_layout),
            module: &module,
            entry_point: Some(&kernel.entry),
            compilation_options: wgpu::PipelineCompilationOptions {
                constants: &constants,
                ..wgpu::PipelineCompilationOptions::default()
            },
            cache: None,
        });
        Ok((layout, pipeline))
    }

    /// A copy of a buffer that can be mapped; the copy is encoded behind the launches.
    fn stage(&self, encoder: &mut wgpu::CommandEncoder, from: &wgpu::Buffer) -> wgpu::Buffer {
        let staging = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: from.size(),
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        encoder.copy_buffer_to_buffer(from, 0, &staging, 0, from.size());
        staging
    }
}

/// What is wrong, one line each.
fn compare(folder: &Path, case: &Case, values: &Values, outputs: &[Vec<u8>]) -> Result<Vec<String>, String> {
    let mut faults = Vec::new();
    for (i, (expected, output)) in values.expected.iter().zip(&case.outputs).enumerate() {
        let [exact, rounded, allowed] = [&expected.exact, &expected.rounded, &expected.allowed]
            .map(|file| Ok::<_, String>(numbers("f64", &read(folder, file)?)));
        let (exact, rounded, allowed) = (exact?, rounded?, allowed?);
        let found = numbers(&output.dtype, &outputs[i]);
        // f16, f32, f64 and bf16; all other types are integers.
        let float = output.dtype.contains('f');
        for (e, &exact) in exact.iter().enumerate() {
            if !passes(float, found[e], exact, rounded[e], allowed[e]) {
                let (found, allowed) = (found[e], allowed[e]);
                faults.push(format!(
                    "output {i}[{e}]: expected {exact:e}, found {found:e}, allowed error {allowed:e}"
                ));
            }
        }
        for sum in values.sums.iter().filter(|s| s.output == i) {
            let weights = numbers("f64", &read(folder, &sum.weights)?);
            let terms = weights.iter().zip(&found).zip(&rounded).filter(|((w, _), _)| **w != 0.0);
            let total: f64 = terms.map(|((w, y), r)| w * (y - r).powi(sum.power)).sum();
            // A NaN fails, too.
            if total.abs().partial_cmp(&sum.limit).is_none_or(|o| o.is_gt()) {
                let (name, limit) = (&sum.criterion, sum.limit);
                faults.push(format!("output {i}: {name}: sum {:e}, limit {limit:e}", total.abs()));
            }
        }
    }
    Ok(faults)
}

/// Whether one element is right. An integer must be the exact one, unless rounding decides it.
fn passes(float: bool, found: f64, exact: f64, rounded: f64, allowed: f64) -> bool {
    if !float {
        return found == exact || allowed >= 1.0;
    }
    let near = exact.is_finite() && found.is_finite() && (found - exact).abs() <= allowed;
    if found.is_finite() && rounded.is_finite() {
        return near || allowed.is_nan();
    }
    let same = found == rounded || found.is_nan() && rounded.is_nan();
    same || near || found.is_infinite() && rounded.is_finite() && allowed.is_infinite()
}

/// The numbers of little-endian bytes.
fn numbers(dtype: &str, bytes: &[u8]) -> Vec<f64> {
    let words = |b: &[u8]| b.iter().rev().fold(0u64, |word, &byte| word << 8 | u64::from(byte));
    let of =
        |size: usize, number: fn(u64) -> f64| bytes.chunks_exact(size).map(|b| number(words(b))).collect();
    match dtype {
        "f64" => of(8, f64::from_bits),
        "f16" => of(2, |w| half(w as u16)),
        "bf16" => of(2, |w| f64::from(f32::from_bits((w as u32) << 16))),
        "u32" => of(4, |w| w as f64),
        "i32" => of(4, |w| f64::from(w as u32 as i32)),
        _ => of(4, |w| f64::from(f32::from_bits(w as u32))),
    }
}

/// IEEE 754 binary16.
fn half(bits: u16) -> f64 {
    let (exponent, mantissa) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    let magnitude = match exponent {
        0 => mantissa * 2f64.powi(-24),
        31 if mantissa == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + mantissa) * 2f64.powi(exponent - 25),
    };
    if bits >> 15 == 1 { -magnitude } else { magnitude }
}
