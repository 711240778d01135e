//! Between the wire's messages and the types of [`tapml_device`].
//!
//! Both directions stand side by side. What goes out is bounded here, because the schema's integers stop at 2^53 - 1;
//! what comes in has been checked by the decoder, and unknown values are refused or become the most general one.

use super::limits::{MAX_DETAILS, MAX_INTEGER, MAX_REPORT_BYTES};
use crate::wire;
use tapml_device as device;
use tapml_device::{BufferId, KernelDesc, KernelId};
use tapml_graph::{Dim, Error, ErrorKind, Extent, Result, Symbol, Symbols};

/// A handle on the wire.
///
/// # Errors
/// `Unsupported` beyond 32 bits: handles are given out in order, and none a second time.
pub fn handle(id: u64) -> Result<u32> {
    u32::try_from(id).map_err(|_| {
        Error::unsupported("this connection has used all its handles")
            .with_hint("connect to the device again")
    })
}

/// A number that the wire carries.
///
/// # Errors
/// `Unsupported` beyond [`MAX_INTEGER`]; `what` names the number.
pub fn integer(what: &str, value: u64) -> Result<u64> {
    if value <= MAX_INTEGER {
        Ok(value)
    } else {
        Err(Error::unsupported(format!("{what} is {value}, a remote device takes up to {MAX_INTEGER}")))
    }
}

/// Identity, limits and features, for the wire.
///
/// Larger limits are told as [`MAX_INTEGER`]. The operators stay empty: a device of commands announces none.
pub fn info_to_wire(info: &device::DeviceInfo) -> wire::DeviceInfo {
    let kind = match info.kind {
        device::AdapterKind::Discrete => wire::AdapterKind::Discrete,
        device::AdapterKind::Integrated => wire::AdapterKind::Integrated,
        device::AdapterKind::Cpu => wire::AdapterKind::Cpu,
        device::AdapterKind::Other => wire::AdapterKind::Other,
    };
    let l = &info.limits;
    let [x, y, z] = l.max_workgroup_size;
    wire::DeviceInfo {
        platform: info.platform.clone(),
        name: info.name.clone(),
        driver: info.driver.clone(),
        kind: kind.into(),
        limits: Some(wire::Limits {
            max_buffer_size: l.max_buffer_size.min(MAX_INTEGER),
            max_binding_size: l.max_binding_size.min(MAX_INTEGER),
            max_uniform_size: l.max_uniform_size.min(MAX_INTEGER),
            max_storage_buffers: l.max_storage_buffers,
            max_invocations: l.max_invocations,
            max_workgroup_size_x: x,
            max_workgroup_size_y: y,
            max_workgroup_size_z: z,
            max_workgroup_memory: l.max_workgroup_memory,
            max_groups_per_dim: l.max_groups_per_dim,
            min_offset_alignment: l.min_offset_alignment,
        }),
        features: features_to_wire(&info.features),
        ops: Vec::new(),
    }
}

/// Identity, limits and features, from the wire.
///
/// # Errors
/// `InvalidInput` if limits are missing, or a feature is not written as the schema says.
pub fn info_from_wire(info: &wire::DeviceInfo) -> Result<device::DeviceInfo> {
    let l = info.limits.as_ref().ok_or_else(|| Error::invalid("the device tells no limits"))?;
    Ok(device::DeviceInfo {
        platform: info.platform.clone(),
        name: info.name.clone(),
        driver: info.driver.clone(),
        kind: match info.kind() {
            wire::AdapterKind::Discrete => device::AdapterKind::Discrete,
            wire::AdapterKind::Integrated => device::AdapterKind::Integrated,
            wire::AdapterKind::Cpu => device::AdapterKind::Cpu,
            wire::AdapterKind::Other => device::AdapterKind::Other,
        },
        limits: device::Limits {
            // An agent may be of another make: a limit beyond the wire's numbers could not be used anyway.
            max_buffer_size: l.max_buffer_size.min(MAX_INTEGER),
            max_binding_size: l.max_binding_size.min(MAX_INTEGER),
            max_uniform_size: l.max_uniform_size.min(MAX_INTEGER),
            max_storage_buffers: l.max_storage_buffers,
            max_invocations: l.max_invocations,
            max_workgroup_size: [l.max_workgroup_size_x, l.max_workgroup_size_y, l.max_workgroup_size_z],
            max_workgroup_memory: l.max_workgroup_memory,
            max_groups_per_dim: l.max_groups_per_dim,
            min_offset_alignment: l.min_offset_alignment,
        },
        features: features_from_wire(&info.features)?,
    })
}

/// All features that the device has: they have names and values by being serialised, so that none is forgotten here.
fn features_to_wire(features: &device::Features) -> Vec<wire::Feature> {
    let all = serde_json::to_value(features).unwrap_or_default();
    // Absent means null or false on the other side.
    let there = all.as_object().into_iter().flatten().filter(|(_, v)| !v.is_null() && **v != false);
    there.map(|(name, value)| wire::Feature { name: name.clone(), value: value.to_string() }).collect()
}

/// Features, from the wire. Names that this build does not know are taken and left out by `Features`.
fn features_from_wire(features: &[wire::Feature]) -> Result<device::Features> {
    let bad = |name: &str, value: &str, e: serde_json::Error| {
        let [name, value] =
            // Texts of the other side may be long, and hold signs that command a terminal.
            [name, value].map(|text| text.chars().take(60).collect::<String>().escape_debug().to_string());
        Error::invalid(format!("the device's feature `{name}` is `{value}`: {e}"))
            .with_hint("the schema (crates/rpc/proto/tapml.proto) says how each feature is written")
    };
    let mut all = serde_json::Map::new();
    for wire::Feature { name, value } in features {
        let read = serde_json::from_str(value).map_err(|e| bad(name, value, e))?;
        let one = serde_json::Map::from_iter([(name.clone(), read)]);
        // Each is tried alone first, so that the error names it.
        serde_json::from_value::<device::Features>(one.clone().into()).map_err(|e| bad(name, value, e))?;
        all.extend(one);
    }
    serde_json::from_value(all.into()).map_err(|e| Error::invalid(format!("the device's features: {e}")))
}

/// A kernel, for the wire.
/// `id` is the handle that the client chose.
pub fn kernel_to_wire(id: u32, desc: &KernelDesc) -> wire::CreateKernel {
    let language = match desc.source.language {
        device::Language::Wgsl => wire::Language::Wgsl,
        device::Language::Cuda => wire::Language::Cuda,
    };
    let constant = |(name, value): &(String, f64)| wire::Constant { name: name.clone(), value: *value };
    let binding = |kind: &device::BindingKind| match kind {
        device::BindingKind::Read => wire::BindingKind::Read.into(),
        device::BindingKind::ReadWrite => wire::BindingKind::ReadWrite.into(),
        device::BindingKind::Uniform => wire::BindingKind::Uniform.into(),
    };
    let [workgroup_x, workgroup_y, workgroup_z] = desc.workgroup;
    wire::CreateKernel {
        kernel: id,
        name: desc.name.clone(),
        language: language.into(),
        file: desc.source.file.clone(),
        prelude: desc.source.prelude.clone(),
        text: desc.source.text.clone(),
        entry: desc.entry.clone(),
        constants: desc.constants.iter().map(constant).collect(),
        bindings: desc.bindings.iter().map(binding).collect(),
        workgroup_x,
        workgroup_y,
        workgroup_z,
        workgroup_memory: desc.workgroup_memory,
        needs_f16: desc.needs_f16,
        needs_subgroups: desc.needs_subgroups,
        overlaps: desc.dependent_launch,
    }
}

/// A kernel, from the wire.
///
/// # Errors
/// `Unsupported` for a language or a kind of binding that this build does not know.
pub fn kernel_from_wire(k: wire::CreateKernel) -> Result<KernelDesc> {
    let unknown = |what: &str| Error::unsupported(format!("kernel `{}`: {what}", k.name));
    // Protocol Buffers let numbers through that an enumeration does not have.
    let language = match wire::Language::try_from(k.language) {
        Ok(wire::Language::Wgsl) => device::Language::Wgsl,
        Ok(wire::Language::Cuda) => device::Language::Cuda,
        Err(_) => return Err(unknown("its language is unknown here")),
    };
    let binding = |&kind: &i32| match wire::BindingKind::try_from(kind) {
        Ok(wire::BindingKind::Read) => Ok(device::BindingKind::Read),
        Ok(wire::BindingKind::ReadWrite) => Ok(device::BindingKind::ReadWrite),
        Ok(wire::BindingKind::Uniform) => Ok(device::BindingKind::Uniform),
        Err(_) => Err(unknown("a binding is of a kind unknown here")),
    };
    let bindings = k.bindings.iter().map(binding).collect::<Result<_>>()?;
    let workgroup = [k.workgroup_x, k.workgroup_y, k.workgroup_z];
    Ok(KernelDesc {
        name: k.name,
        source: device::Source { language, file: k.file, prelude: k.prelude, text: k.text },
        entry: k.entry,
        constants: k.constants.into_iter().map(|c| (c.name, c.value)).collect(),
        bindings,
        workgroup,
        workgroup_memory: k.workgroup_memory,
        needs_f16: k.needs_f16,
        needs_subgroups: k.needs_subgroups,
        dependent_launch: k.overlaps,
    })
}

/// A command, for the wire.
///
/// # Errors
/// `Unsupported` for handles and numbers that the wire does not carry.
pub fn command_to_wire(command: &device::Command) -> Result<wire::Command> {
    let work = match command {
        device::Command::Dispatch { label, kernel, bindings, groups } => {
            let binding = |b: &device::Binding| {
                Ok(wire::Binding {
                    buffer: handle(b.buffer.0)?,
                    offset: integer("an offset", b.offset)?,
                    size: integer("a size", b.size)?,
                })
            };
            let [x, y, z] = groups;
            wire::Work::Dispatch(wire::Dispatch {
                label: label.clone(),
                kernel: handle(kernel.0)?,
                bindings: bindings.iter().map(binding).collect::<Result<_>>()?,
                x: Some(size_to_wire(x)?),
                y: Some(size_to_wire(y)?),
                z: Some(size_to_wire(z)?),
            })
        }
        device::Command::Copy { src, src_offset, dst, dst_offset, len } => wire::Work::Copy(wire::Copy {
            src: handle(src.0)?,
            src_offset: Some(size_to_wire(src_offset)?),
            dst: handle(dst.0)?,
            dst_offset: Some(size_to_wire(dst_offset)?),
            size: Some(size_to_wire(len)?),
        }),
        device::Command::Fill { buffer, word } => {
            wire::Work::Fill(wire::Fill { buffer: handle(buffer.0)?, word: *word })
        }
    };
    Ok(wire::Command { work: Some(work) })
}

/// A command, from the wire, with the handles that the device itself has given.
///
/// `buffer` and `kernel` fail for handles that the client has not made.
pub fn command_from_wire(
    command: &wire::Command,
    buffer: impl Fn(u32) -> Result<BufferId>,
    kernel: impl Fn(u32) -> Result<KernelId>,
) -> Result<device::Command> {
    match command.work.as_ref().ok_or_else(|| Error::invalid("a command holds nothing"))? {
        wire::Work::Dispatch(d) => {
            let bind = |b: &wire::Binding| {
                Ok(device::Binding { buffer: buffer(b.buffer)?, offset: b.offset, size: b.size })
            };
            let parts = || -> Result<device::Command> {
                Ok(device::Command::Dispatch {
                    label: d.label.clone(),
                    kernel: kernel(d.kernel)?,
                    bindings: d.bindings.iter().map(bind).collect::<Result<_>>()?,
                    groups: [size_from_wire(&d.x)?, size_from_wire(&d.y)?, size_from_wire(&d.z)?],
                })
            };
            // The label is what a person knows of the command.
            parts().map_err(|e| e.context(format!("dispatch `{}`", d.label)))
        }
        wire::Work::Copy(c) => Ok(device::Command::Copy {
            src: buffer(c.src)?,
            src_offset: size_from_wire(&c.src_offset)?,
            dst: buffer(c.dst)?,
            dst_offset: size_from_wire(&c.dst_offset)?,
            len: size_from_wire(&c.size)?,
        }),
        wire::Work::Fill(f) => Ok(device::Command::Fill { buffer: buffer(f.buffer)?, word: f.word }),
    }
}

/// An affine size is known by its value at zero and at one of each symbol.
fn size_to_wire(extent: &Extent) -> Result<wire::Size> {
    let names: Vec<Symbol> = extent.dim.symbols().collect();
    // All symbols are zero but this one, which is one.
    let at = |one: Option<Symbol>| {
        let symbols =
            names.iter().fold(Symbols::new(), |all, &s| all.with_symbol(s, u64::from(Some(s) == one)));
        extent.dim.eval(&symbols)
    };
    let constant = at(None)?;
    let term = |&symbol: &Symbol| {
        let factor = integer("a factor", at(Some(symbol))? - constant)?;
        Ok(wire::Term { symbol: symbol.to_string(), factor })
    };
    let terms = names.iter().map(term).collect::<Result<_>>()?;
    Ok(wire::Size { constant: integer("a size", constant)?, terms, divisor: extent.divisor })
}

/// A size, from the wire. Fails where factors overflow, since they come from the other side.
fn size_from_wire(size: &Option<wire::Size>) -> Result<Extent> {
    let size = size.as_ref().ok_or_else(|| Error::invalid("a size is missing"))?;
    let mut dim = Dim::from(size.constant);
    for term in &size.terms {
        let product = Dim::symbol(symbol(&term.symbol)?).checked_mul(term.factor);
        let sum = product.and_then(|product| dim.checked_add(&product));
        dim = sum.ok_or_else(|| Error::invalid("a size overflows"))?;
    }
    Ok(Extent::ceil_div(dim, size.divisor))
}

/// A symbol by its name, which may be any that the graph allows.
fn symbol(name: &str) -> Result<Symbol> {
    Symbol::new(name).ok_or_else(|| Error::invalid(format!("`{}` is no symbol", name.escape_debug())))
}

/// Values of symbols, for the wire.
pub fn symbols_to_wire(symbols: &Symbols) -> Result<Vec<wire::Symbol>> {
    let one = |(symbol, value): (Symbol, u64)| {
        Ok(wire::Symbol { name: symbol.to_string(), value: integer("a symbol's value", value)? })
    };
    symbols.iter().map(one).collect()
}

/// Values of symbols, from the wire.
pub fn symbols_from_wire(symbols: &[wire::Symbol]) -> Result<Symbols> {
    symbols.iter().try_fold(Symbols::new(), |all, s| Ok(all.with_symbol(symbol(&s.name)?, s.value)))
}

/// Names of findings on the wire.
const KINDS: [(device::FindingKind, &str); 7] = [
    (device::FindingKind::OutOfBounds, "out_of_bounds"),
    (device::FindingKind::UninitializedRead, "uninitialized_read"),
    (device::FindingKind::RaceInWorkgroup, "race_in_workgroup"),
    (device::FindingKind::RaceAcrossWorkgroups, "race_across_workgroups"),
    (device::FindingKind::DivergentBarrier, "divergent_barrier"),
    (device::FindingKind::NonFinite, "non_finite"),
    (device::FindingKind::LimitExceeded, "limit_exceeded"),
];

/// A finding, for the wire.
pub fn finding_to_wire(f: device::Finding) -> wire::Finding {
    // A kind that the list lacks would have no name, and be refused on the other side.
    let kind = KINDS.iter().find(|(kind, _)| *kind == f.kind).map_or("", |(_, name)| name);
    let [workgroup_x, workgroup_y, workgroup_z] = f.workgroup;
    wire::Finding {
        kind: kind.into(),
        kernel: f.kernel,
        label: f.label,
        file: f.file,
        line: f.line,
        column: f.column,
        source: f.source,
        message: f.message,
        workgroup_x,
        workgroup_y,
        workgroup_z,
        invocation: f.invocation,
        // A kernel may find the same thing in every invocation.
        count: f.count.min(MAX_INTEGER),
    }
}

/// A finding, from the wire. Fails on a kind that this build does not know.
pub fn finding_from_wire(f: wire::Finding) -> Result<device::Finding> {
    let kind = KINDS.iter().find(|(_, name)| *name == f.kind).map(|(kind, _)| *kind);
    let kind = kind.ok_or_else(|| {
        Error::unsupported(format!(
            "the agent reports a finding of the unknown kind `{}`: {}",
            brief(f.kind),
            brief(f.message.clone())
        ))
    })?;
    Ok(device::Finding {
        kind,
        kernel: brief(f.kernel),
        label: brief(f.label),
        file: brief(f.file),
        line: f.line,
        column: f.column,
        source: brief(f.source),
        message: brief(f.message),
        workgroup: [f.workgroup_x, f.workgroup_y, f.workgroup_z],
        invocation: f.invocation,
        count: f.count,
    })
}

/// Kinds of errors here and on the wire, one for one.
const ERRORS: [(ErrorKind, wire::ErrorKind); 10] = [
    (ErrorKind::Bug, wire::ErrorKind::Bug),
    (ErrorKind::InvalidInput, wire::ErrorKind::InvalidInput),
    (ErrorKind::Unsupported, wire::ErrorKind::Unsupported),
    (ErrorKind::Io, wire::ErrorKind::Io),
    (ErrorKind::Unavailable, wire::ErrorKind::Unavailable),
    (ErrorKind::Compile, wire::ErrorKind::Compile),
    (ErrorKind::OutOfMemory, wire::ErrorKind::OutOfMemory),
    (ErrorKind::DeviceLost, wire::ErrorKind::DeviceLost),
    (ErrorKind::Interrupted, wire::ErrorKind::Interrupted),
    (ErrorKind::Timeout, wire::ErrorKind::Timeout),
];

/// An error, for the wire. Contexts become part of the message.
/// A kind that is not listed becomes a bug.
pub fn error_to_wire(error: &Error) -> wire::Failed {
    let kind =
        ERRORS.iter().find(|(kind, _)| *kind == error.kind()).map_or(wire::ErrorKind::Bug, |(_, k)| *k);
    let detail = |(name, value): &(String, String)| wire::Detail { name: name.clone(), value: value.clone() };
    wire::Failed {
        kind: kind.into(),
        message: error.to_string(),
        hint: error.hint().unwrap_or_default().into(),
        details: error.details().iter().map(detail).collect(),
    }
}

/// An error, from the wire.
/// Long texts are cut, and details beyond [`MAX_DETAILS`] dropped.
pub fn error_from_wire(failed: wire::Failed) -> Error {
    let kind = ERRORS.iter().find(|(_, kind)| *kind == failed.kind()).map_or(ErrorKind::Bug, |(k, _)| *k);
    let mut error = Error::new(kind, brief(failed.message));
    if !failed.hint.is_empty() {
        error = error.with_hint(brief(failed.hint));
    }
    let details = failed.details.into_iter().take(MAX_DETAILS);
    details.fold(error, |error, d| error.with_detail(brief(d.name), brief(d.value)))
}

/// The beginning of a text of an error or a finding, which is for people.
fn brief(mut text: String) -> String {
    if text.len() > MAX_REPORT_BYTES {
        // A text is cut between characters, which have up to four bytes.
        let end = (0..=MAX_REPORT_BYTES).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        let more = text.len() - end;
        text.truncate(end);
        text += &format!("… ({more} more bytes)");
    }
    text
}

#[cfg(test)]
mod tests;
