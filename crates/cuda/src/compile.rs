//! From a kernel description to a kernel of the driver, and the compiler's messages to lines of the kernel's own file.
//!
//! A kernel takes one of two ways: WGSL is printed as CUDA C++, CUDA C++ gets its constants as `#define`s.
//! From there both are compiled, cached, loaded and checked alike.

use crate::cache::Cache;
use crate::cluster::ClusterRule;
use crate::driver::{CudaKernel, Driver};
use crate::error::call_error;
use crate::map::Map;
use crate::nvrtc::{Compiler, Refusal};
use crate::options::CudaOptions;
use std::sync::Arc;
use tapml_cfamily::{Arg, Bounds, Dialect, Printed, print};
use tapml_device::{DeviceInfo, KernelDesc, Language, compile_side_by_side};
use tapml_graph::{Error, ErrorKind, Result};

// The architectures' limit for static shared memory.
/// Bytes of shared memory that a text itself may declare; more is for launches to give.
const MAX_STATIC_SHARED: u32 = 48 << 10;

/// A compiled kernel and how to launch it.
///
/// What a dispatch needs, without the description.
pub(crate) struct Compiled {
    /// Shared with calls that are made but not yet run.
    pub(crate) kernel: Arc<CudaKernel>,
    /// As the description has it.
    pub(crate) name: String,
    /// Its arguments in order.
    pub(crate) args: Vec<Arg>,
    /// Tensor maps behind them.
    pub(crate) maps: Vec<Map>,
    /// Fewest bytes of each binding; none are known of CUDA C++.
    pub(crate) min_sizes: Vec<u32>,
    /// Threads in x, y and z.
    pub(crate) workgroup: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub(crate) shared: u32,
    /// Whether it may begin before the kernel in front of it has ended.
    pub(crate) dependent_launch: bool,
    /// Which of its launches have clusters.
    pub(crate) cluster: Option<ClusterRule>,
}

/// What compiles for one device.
pub(crate) struct CudaFront {
    /// None in tests that compile nothing.
    /// Loaded one time in the process.
    pub(crate) compiler: Option<&'static Compiler>,
    /// Machine code of earlier processes.
    pub(crate) cache: Cache,
    /// Compute capability times ten.
    pub(crate) capability: u32,
    pub(crate) options: CudaOptions,
}

/// Text for the compiler, before anything of it was compiled.
struct CompilerText {
    /// What the compiler reads.
    text: String,
    /// Name of the kernel in it.
    entry: String,
    /// In the order of the declaration.
    args: Vec<Arg>,
    /// Fewest bytes of each binding.
    min_sizes: Vec<u32>,
    /// Dynamic shared memory in bytes.
    shared: u32,
    /// What was printed from WGSL.
    printed: Option<Printed>,
}

impl CudaFront {
    /// Compiles a kernel that fits the device's limits.
    pub(crate) fn compile(
        &self,
        driver: &Arc<Driver>,
        desc: &KernelDesc,
        info: &DeviceInfo,
    ) -> Result<Compiled> {
        let text = self.text(desc, info)?;
        let (maps, cluster) = if desc.source.language == Language::Cuda {
            (Map::all(desc)?, ClusterRule::from_desc(desc)?)
        } else {
            (Vec::new(), None)
        };
        let image = self.image(desc, &text)?;
        let doing = format!("load kernel `{}`", desc.name);
        let loaded = driver.kernel(&image, &text.entry).map_err(|failure| {
            let (major, minor) = self.compiler.map_or((0, 0), |compiler| compiler.version);
            call_error(&doing, failure).with_detail("kernel", &desc.name).with_hint(format!(
                "compiled by NVRTC {major}.{minor} for {}; the driver may be older",
                info.driver
            ))
        })?;
        let kernel = loaded.ok_or_else(|| {
            let text =
                format!("kernel `{}`: {} has no entry point `{}`", desc.name, desc.source.file, desc.entry);
            Error::new(ErrorKind::Compile, text)
                .with_detail("kernel", &desc.name)
                .with_hint("declare it `extern \"C\" __global__`")
        })?;
        // Registers and static memory are known only after the compiler ran.
        fit(&kernel, desc, &text, info)?;
        Ok(Compiled {
            kernel: Arc::new(kernel),
            name: desc.name.clone(),
            args: text.args,
            maps,
            min_sizes: text.min_sizes,
            workgroup: desc.workgroup,
            shared: text.shared,
            dependent_launch: desc.dependent_launch,
            cluster,
        })
    }

    /// Fills the cache with the machine code of these kernels, a text on each of the host's processors at a time. What cannot be
    /// compiled is left for [`CudaFront::compile`] to tell.
    pub(crate) fn prepare(&self, descs: &[KernelDesc], info: &DeviceInfo) {
        if !self.cache.keeps() {
            return;
        }
        compile_side_by_side(descs, |desc| {
            let image = self.text(desc, info).and_then(|text| self.image(desc, &text));
            log::debug!("kernel `{}` compiled ahead: {}", desc.name, image.is_ok());
        });
    }

    /// The text, its arguments and its memory.
    ///
    /// # Errors
    /// If the kernel is beyond the limits or its WGSL is not valid.
    fn text(&self, desc: &KernelDesc, info: &DeviceInfo) -> Result<CompilerText> {
        desc.check_limits(info)?;
        if desc.source.language == Language::Cuda {
            return Ok(CompilerText {
                text: cuda_text(desc)?,
                entry: desc.entry.clone(),
                args: (0..desc.bindings.len() as u32).map(Arg::Pointer).collect(),
                min_sizes: Vec::new(),
                // All shared memory of a CUDA kernel is dynamic, so the launch gives it.
                shared: desc.workgroup_memory,
                printed: None,
            });
        }
        let bounds = if self.options.checks { Bounds::Clamp } else { Bounds::Unchecked };
        let options =
            tapml_cfamily::PrintOptions { bounds, ..tapml_cfamily::PrintOptions::new(Dialect::Cuda) };
        let printed = print(desc, info, options)?;
        if desc.workgroup_memory > MAX_STATIC_SHARED {
            return Err(too_much(desc, "max_workgroup_memory", desc.workgroup_memory, MAX_STATIC_SHARED));
        }
        Ok(CompilerText {
            text: printed.text.clone(),
            entry: printed.name.clone(),
            args: printed.args.clone(),
            min_sizes: printed.min_sizes.clone(),
            // WGSL's workgroup memory is declared in the text.
            shared: 0,
            printed: Some(printed),
        })
    }

    /// Machine code, from the cache if it was compiled before.
    fn image(&self, desc: &KernelDesc, text: &CompilerText) -> Result<Vec<u8>> {
        let compiler = self.compiler.ok_or_else(|| Error::bug("there is no compiler"))?;
        let architecture = compiler.architecture(self.capability);
        let mut options = vec![format!("--gpu-architecture={architecture}"), "--std=c++17".into()];
        // Warnings would be about code that nobody wrote.
        if text.printed.is_some() {
            // The printer's own helpers are not all used by every kernel.
            options.push("--disable-warnings".into());
        }
        // Another compiler may make other code of the same text.
        let version = format!("{:?}", compiler.version);
        let mut parts: Vec<&str> = vec![&version, &text.text];
        parts.extend(options.iter().map(String::as_str));
        let key = Cache::key(&parts);
        if let Some(image) = self.cache.get(&key) {
            return Ok(image);
        }
        let image = compiler.compile(&text.text, &options).map_err(|refusal| match refusal {
            Refusal::Log(log) => compile_error(desc, text.printed.as_ref(), &log),
            Refusal::Status(status) => {
                Error::bug(format!("could not compile kernel `{}`: NVRTC status {status}", desc.name))
                    .with_detail("kernel", &desc.name)
            }
        })?;
        self.cache.put(&key, &image);
        Ok(image)
    }
}

/// The text of a kernel in CUDA C++: prelude, constants, text. So what the prelude declares has no name in common with constants
/// by chance. Lines of messages count within the file.
fn cuda_text(desc: &KernelDesc) -> Result<String> {
    let file = desc.source.file.replace(['"', '\\', '\n', '\r'], "_");
    let mut text = String::new();
    if !desc.source.prelude.is_empty() {
        text.push_str(&format!("#line 1 \"{file} (prelude)\"\n{}\n", desc.source.prelude));
    }
    for (name, value) in &desc.constants {
        let first = name.chars().next();
        let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !plain || first.is_none_or(|c| c.is_ascii_digit()) {
            let text = format!("kernel `{}`: `{}` is no name of a constant", desc.name, name.escape_debug());
            return Err(Error::invalid(text).with_detail("kernel", &desc.name));
        }
        // A plain name and a number: a constant cannot bring code along.
        text.push_str(&format!("#define {name} {}\n", number(*value)));
    }
    text.push_str(&format!("#line 1 \"{file}\"\n{}\n", desc.source.text));
    Ok(text)
}

/// The part of a prelude that a compiler's message calls by a file's name; all of it if no `#line` of the prelude does.
fn header<'a>(prelude: &'a str, file: &str) -> &'a str {
    let line = format!("#line 1 \"{file}\"\n");
    prelude.split_once(&line).map_or(prelude, |(_, behind)| behind)
}

/// A constant as C++ reads it: whole numbers without a fraction, others as doubles.
fn number(value: f64) -> String {
    match value {
        v if v.is_nan() => "(0.0 / 0.0)".into(),
        v if v.is_infinite() => if v > 0.0 { "(1.0 / 0.0)" } else { "(-1.0 / 0.0)" }.into(),
        v if v.fract() == 0.0 && v.abs() < 9e15 => {
            let digits = format!("{v:.0}");
            if v < 0.0 { format!("({digits})") } else { digits }
        }
        v if v < 0.0 => format!("({v:e})"),
        v => format!("{v:e}"),
    }
}

/// Checks what the compiler made against the launch, and allows it the shared memory.
fn fit(kernel: &CudaKernel, desc: &KernelDesc, text: &CompilerText, info: &DeviceInfo) -> Result<()> {
    let doing = format!("load kernel `{}`", desc.name);
    let fail = |failure| call_error(&doing, failure).with_detail("kernel", &desc.name);
    let (threads, declared) = kernel.limits().map_err(fail)?;
    let asked: u32 = desc.workgroup.iter().product();
    if asked > threads {
        return Err(too_much(desc, "max_invocations", asked, threads).with_hint(
            "the kernel takes too many registers for so many threads: `__launch_bounds__` limits them",
        ));
    }
    let most = info.limits.max_workgroup_memory;
    let shared = declared.saturating_add(text.shared);
    if shared > most {
        return Err(too_much(desc, "max_workgroup_memory", shared, most));
    }
    if text.shared > 0 { kernel.allow_shared(text.shared).map_err(fail) } else { Ok(()) }
}

/// With the details that dry runs and reports read.
fn too_much(desc: &KernelDesc, limit: &str, asked: u32, offered: u32) -> Error {
    let text =
        format!("kernel `{}` needs {limit} = {asked}, as compiled for CUDA it has {offered}", desc.name);
    Error::unsupported(text)
        .with_detail("kernel", &desc.name)
        .with_detail("limit", limit)
        .with_detail("asked", asked.to_string())
        .with_detail("offered", offered.to_string())
}

/// The compiler does not take the text. It writes `FILE(LINE): error: …`.
fn compile_error(desc: &KernelDesc, printed: Option<&Printed>, log: &str) -> Error {
    let first = log.lines().find(|line| line.contains("error")).unwrap_or("no message");
    let place = first.split_once('(').and_then(|(file, rest)| {
        let line = rest.split_once(')')?.0.parse::<u32>().ok()?;
        Some((file.trim(), line))
    });
    let message = first.split_once("error").map_or(first, |(_, rest)| rest);
    let message = message.trim_start_matches(|c: char| !c.is_alphabetic() && c != '"' && c != '\'');
    let mut whole = String::new();
    let (at, source) = match (printed, place) {
        (Some(printed), Some((_, line))) => match printed.locate(line) {
            Some(at) => (Some((at.file, at.line)), at.source),
            None => (None, String::new()),
        },
        (None, Some((file, line))) => {
            let text =
                if file == desc.source.file { &desc.source.text } else { header(&desc.source.prelude, file) };
            whole = text.lines().nth(line.saturating_sub(1) as usize).unwrap_or_default().to_string();
            (Some((file.to_string(), line)), whole.trim().to_string())
        }
        (_, None) => (None, String::new()),
    };
    // What was printed from WGSL has other columns than the kernel's own text.
    let column = if printed.is_none() { column(log, first, &whole) } else { None };
    let text = match &at {
        Some((file, line)) => {
            let column = column.map_or_else(String::new, |column| format!(":{column}"));
            format!("kernel `{}`: {file}:{line}{column}: {message}: `{source}`", desc.name)
        }
        None => format!("kernel `{}`: {first}", desc.name),
    };
    let error =
        Error::new(ErrorKind::Compile, text).with_detail("kernel", &desc.name).with_detail("log", log);
    let error = column.map_or(error.clone(), |column| error.with_detail("column", column.to_string()));
    match at {
        Some((file, line)) => error.with_detail("file", file).with_detail("line", line.to_string()),
        None => error,
    }
}

/// The column of an error within its line, from 1 on: the compiler shows the line below its message, indented in its own
/// way, and a caret below that.
fn column(log: &str, message: &str, line: &str) -> Option<usize> {
    let mut below = log.lines().skip_while(|l| *l != message).skip(1);
    let (shown, caret) = (below.next()?, below.find(|l| l.trim() == "^")?);
    let indented = shown.len() - shown.trim_start().len();
    let within = caret.find('^')?.checked_sub(indented)?;
    let start = line.find(shown.trim())?;
    Some(line.get(..start + within)?.chars().count() + 1)
}

#[cfg(test)]
mod tests;
