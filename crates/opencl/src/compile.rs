//! From a kernel description to a kernel of OpenCL, and its compiler's messages to lines of the kernel's own file.

use crate::error::failed;
use crate::options::Options;
use crate::queue::{Kernel, Queue, Refusal};
use std::sync::Arc;
use tapml_cfamily::{Bounds, Dialect, Printed, print};
use tapml_device::{DeviceInfo, KernelDesc};
use tapml_graph::{Error, ErrorKind, Result};

/// A compiled kernel and how to launch it.
pub(crate) struct Compiled {
    pub(crate) kernel: Kernel,
    pub(crate) printed: Printed,
    pub(crate) workgroup: [u32; 3],
    pub(crate) name: String,
}

/// Compiles a kernel that fits the device's limits.
pub(crate) fn compile(
    queue: &Arc<Queue>,
    desc: &KernelDesc,
    info: &DeviceInfo,
    options: Options,
) -> Result<Compiled> {
    let bounds = if options.checks { Bounds::Clamp } else { Bounds::Unchecked };
    let printing = tapml_cfamily::Options { bounds, ..tapml_cfamily::Options::new(Dialect::OpenCl) };
    let printed = print(desc, info, printing)?;
    let doing = format!("compile kernel `{}`", desc.name);
    match queue.kernel(&printed.text, flags(info), &printed.name) {
        Ok(kernel) => Ok(Compiled { kernel, printed, workgroup: desc.workgroup, name: desc.name.clone() }),
        Err(Refusal::Call(failure)) => Err(failed(&doing, failure).with_detail("kernel", &desc.name)),
        Err(Refusal::Log(log)) => Err(refused(desc, &printed, &log)),
    }
}

/// What the driver's compiler is told. PoCL 3.1 (over LLVM 14), when it optimises, lets invocations store in a loop
/// behind conditions that are false for them: the kernel of `linear` then writes outputs past the end of a row.
fn flags(info: &DeviceInfo) -> &'static str {
    let pocl = info.driver.starts_with("Portable Computing Language");
    if pocl { "-cl-std=CL1.2 -cl-opt-disable" } else { "-cl-std=CL1.2" }
}

/// The driver's compiler does not take what was printed.
fn refused(desc: &KernelDesc, printed: &Printed, log: &str) -> Error {
    let first = log.lines().find(|line| line.contains("error")).unwrap_or("no message");
    let place = first.split(':').filter_map(|part| part.trim().parse::<u32>().ok()).next();
    let at = place.and_then(|line| printed.locate(line));
    let text = match &at {
        Some(at) => format!("kernel `{}`: {}:{}: {first}: `{}`", desc.name, at.file, at.line, at.source),
        None => format!("kernel `{}`: {first}", desc.name),
    };
    let error = Error::new(ErrorKind::Compile, text).with_detail("kernel", &desc.name);
    let error = match at {
        Some(at) => error.with_detail("line", at.line.to_string()),
        None => error,
    };
    error.with_detail("log", log).with_detail("source", &printed.text)
}
