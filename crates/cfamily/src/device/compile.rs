//! From a kernel description to a kernel of the driver, and its compiler's messages to lines of the kernel's own file.

use super::{Driver, DriverOptions, Refusal, call_error};
use crate::{Bounds, Printed, print};
use tapml_device::{DeviceInfo, KernelDesc};
use tapml_graph::{Error, ErrorKind, Result};

/// A compiled kernel and how to launch it.
pub struct Compiled<D: Driver> {
    /// The driver's kernel.
    pub kernel: D::Kernel,
    /// What it was compiled from.
    pub printed: Printed,
    /// Invocations of a workgroup along each axis.
    pub workgroup: [u32; 3],
    /// The name in the description.
    pub name: String,
}

/// Compiles a kernel that fits the device's limits.
pub fn compile<D: Driver>(
    driver: &D,
    desc: &KernelDesc,
    info: &DeviceInfo,
    options: DriverOptions,
) -> Result<Compiled<D>> {
    let bounds = if options.checks { Bounds::Clamp } else { Bounds::Unchecked };
    let emulate_subgroups = options.subgroups;
    let options = crate::PrintOptions { bounds, emulate_subgroups, ..crate::PrintOptions::new(D::DIALECT) };
    let printed = print(desc, info, options)?;
    match driver.kernel(&printed, info) {
        Ok(kernel) => Ok(Compiled { kernel, printed, workgroup: desc.workgroup, name: desc.name.clone() }),
        Err(Refusal::Call(doing, failure)) => {
            Err(call_error(&format!("{doing} kernel `{}`", desc.name), failure)
                .with_detail("kernel", &desc.name))
        }
        // Without messages nothing can be said of the kernel's text.
        Err(Refusal::Compiler(why)) => {
            Err(Error::bug(format!("could not compile kernel `{}`: {why}", desc.name))
                .with_detail("kernel", &desc.name))
        }
        Err(Refusal::Log(log)) => Err(compile_error(desc, &printed, &log)),
    }
}

/// The driver's compiler does not take what was printed.
///
/// The first line with an error is told with its place in the kernel's file; the whole log and text are details.
fn compile_error(desc: &KernelDesc, printed: &Printed, log: &str) -> Error {
    // Warnings may stand before it.
    let first = log.lines().find(|line| line.contains("error")).unwrap_or("no message");
    // `FILE:LINE:…`: the first number between colons is the line.
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
