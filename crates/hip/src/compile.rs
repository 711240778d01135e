//! From a kernel description to a kernel of HIP, and its compiler's messages to lines of the kernel's own file.

use crate::error::failed;
use crate::options::Options;
use crate::rtc::{self, Refusal};
use crate::runtime::{Kernel, Stream};
use crate::sys::Rtc;
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
    (stream, rtc): (&Arc<Stream>, &Rtc),
    desc: &KernelDesc,
    info: &DeviceInfo,
    options: Options,
) -> Result<Compiled> {
    let bounds = if options.checks { Bounds::Clamp } else { Bounds::Unchecked };
    let printing = tapml_cfamily::Options { bounds, ..tapml_cfamily::Options::new(Dialect::Hip) };
    let printed = print(desc, info, printing)?;
    let code = rtc::compile(rtc, &printed.text).map_err(|refusal| match refusal {
        Refusal::Log(log) => refused(desc, &printed, &log),
        Refusal::Status(status) => {
            Error::bug(format!("could not compile kernel `{}`: hipRTC status {status}", desc.name))
                .with_detail("kernel", &desc.name)
        }
    })?;
    let doing = format!("load kernel `{}`", desc.name);
    let kernel = stream.kernel(&code, &printed.name);
    let kernel = kernel.map_err(|failure| failed(&doing, failure).with_detail("kernel", &desc.name))?;
    Ok(Compiled { kernel, printed, workgroup: desc.workgroup, name: desc.name.clone() })
}

/// The compiler does not take what was printed. It writes `FILE:LINE:COLUMN: error: …`.
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
