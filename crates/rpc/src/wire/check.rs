//! Bounds that hold for the values of a decoded message.

use super::limits::{
    MAX_AGENT_DEVICES, MAX_ATTRIBUTES, MAX_BINDINGS, MAX_HASHES, MAX_INTEGER, MAX_LABEL, MAX_NAME, MAX_OPS,
    MAX_OUTPUTS, MAX_RANK, MAX_TEXT, MAX_TURNS, MAX_VERSION, PIECE,
};
use super::{
    AgentWord, CallGraph, Command, CreateKernel, DeviceInfo, Offer, Read, Register, Reply, Request, Size,
    Symbol, Tensor, ToAgent, ToClient, Work, Write,
};
use tapml_graph::{Context, Error, Result};

/// Checks what a client sent.
pub fn request(message: &ToAgent) -> Result<()> {
    integer("seq", message.seq)?;
    let request = message.request.as_ref().ok_or_else(|| Error::invalid("the message holds no request"))?;
    match request {
        Request::Hello(r) => {
            name("client", &r.client)?;
            name("token", &r.token)?;
            name("target", &r.target)?;
            integer("deadline_ms", r.deadline_ms)?;
            integer("wait_ms", r.wait_ms)
        }
        Request::Cancel(r) => integer("request", r.request).and(integer("grace_ms", r.grace_ms)),
        Request::CreateBuffer(r) => name("label", &r.label).and(integer("size", r.size)),
        Request::Write(r) => integer("offset", r.offset),
        Request::Read(r) => integer("offset", r.offset).and(integer("size", r.size)),
        Request::CreateKernel(r) => kernel(r),
        Request::Record(r) => r.commands.iter().try_for_each(one_command),
        Request::Replay(r) => symbols(&r.symbols),
        Request::Step(r) => {
            turn(&r.writes, &r.symbols)?;
            reads(&r.reads)
        }
        Request::Turns(r) => {
            at_most("turns", r.turns.len(), MAX_TURNS)?;
            r.turns.iter().try_for_each(|r| turn(&r.writes, &r.symbols))?;
            reads(&r.reads)
        }
        Request::HasBlobs(r) if r.hashes.len() > MAX_HASHES => {
            Err(Error::invalid(format!("{} hashes, at most {MAX_HASHES}", r.hashes.len())))
        }
        Request::HasBlobs(r) => r.hashes.iter().try_for_each(|h| hash(h)),
        Request::PutBlob(r) if r.data.len() > PIECE => {
            Err(Error::invalid(format!("a blob of {} bytes, at most {PIECE}", r.data.len())))
        }
        Request::PutBlob(r) if !r.hash.is_empty() => hash(&r.hash),
        Request::WriteBlob(r) => integer("offset", r.offset).and(hash(&r.hash)),
        Request::LoadProgram(r) => {
            r.pieces.iter().try_for_each(|h| hash(h))?;
            r.weights.iter().try_for_each(|w| {
                name("weight", &w.name)?;
                integer("size", w.size)?;
                w.pieces.iter().try_for_each(|h| hash(h))
            })
        }
        Request::RunProgram(r) => {
            symbols(&r.symbols)?;
            r.inputs.iter().try_for_each(|i| name("input", &i.name))?;
            r.outputs.iter().try_for_each(|o| name("output", o))
        }
        Request::PutTensor(r) => {
            let held = r.tensor.as_ref().filter(|t| t.handle > 0 && t.data.len() <= PIECE);
            tensor(held.ok_or_else(|| {
                Error::invalid(format!("a tensor to hold needs a handle, and at most {PIECE} bytes at once"))
            })?)
        }
        Request::CallNode(r) => {
            name("node", &r.node)?;
            name("op", &r.op)?;
            at_most("bytes of attributes", r.attributes.len(), MAX_ATTRIBUTES)?;
            symbols(&r.symbols)?;
            few("inputs", r.inputs.len())?;
            at_most("outputs to keep", r.keep.len(), MAX_OUTPUTS)?;
            at_most("outputs", r.outputs.len(), MAX_OUTPUTS)?;
            r.inputs.iter().chain(&r.outputs).try_for_each(tensor)
        }
        Request::CallGraph(r) => graph(r),
        _ => Ok(()),
    }
}

/// Checks what an agent sent.
pub fn reply(message: &ToClient) -> Result<()> {
    integer("seq", message.seq)?;
    match message.reply.as_ref().ok_or_else(|| Error::invalid("the message holds no reply"))? {
        Reply::Welcome(r) => {
            name("agent", &r.agent)?;
            r.device.iter().chain(r.devices.iter().filter_map(|d| d.info.as_ref())).try_for_each(info)?;
            let limits = r.limits.as_ref().ok_or_else(|| Error::invalid("the welcome names no limits"))?;
            integer("max_message", limits.max_message)?;
            integer("window", limits.window)?;
            integer("deadline_ms", limits.deadline_ms)?;
            integer("idle_ms", limits.idle_ms)
        }
        Reply::NodeResult(r) => {
            at_most("outputs", r.outputs.len(), MAX_OUTPUTS)?;
            r.outputs.iter().try_for_each(tensor)
        }
        Reply::Queued(r) => label("trouble", &r.trouble),
        Reply::Leased(r) => label("device", &r.device).and(label("agent", &r.agent)),
        Reply::PostMortem(r) => integer("request", r.request).and(integer("busy_ms", r.busy_ms)),
        _ => Ok(()),
    }
}

fn info(info: &DeviceInfo) -> Result<()> {
    name("name", &info.name)?;
    name("driver", &info.driver)?;
    name("platform", &info.platform)?;
    few("features", info.features.len())?;
    info.features.iter().try_for_each(|f| name("feature", &f.name).and(name("value", &f.value)))?;
    at_most("operators", info.ops.len(), MAX_OPS)?;
    info.ops.iter().try_for_each(|op| {
        name("op", &op.name)?;
        few("dtypes", op.dtypes.len())?;
        name("accumulate", &op.accumulate)?;
        at_most("bytes of version", op.version.len(), MAX_VERSION)
    })
}

fn graph(r: &CallGraph) -> Result<()> {
    name("graph", &r.name)?;
    symbols(&r.symbols)?;
    for node in &r.nodes {
        name("node", &node.node)?;
        name("op", &node.op)?;
        at_most("bytes of attributes", node.attributes.len(), MAX_ATTRIBUTES)?;
        node.inputs.iter().chain(&node.outputs).try_for_each(|value| name("value", value))?;
    }
    r.inputs.iter().chain(&r.outputs).try_for_each(|value| name("value", value))?;
    for (what, names, values) in [("inputs", &r.inputs, &r.values), ("outputs", &r.outputs, &r.types)] {
        if names.len() != values.len() {
            let text = format!("{} names of {what}, {} of their tensors", names.len(), values.len());
            return Err(Error::invalid(text));
        }
    }
    at_most("outputs to keep", r.keep.len(), r.outputs.len())?;
    r.values.iter().chain(&r.types).try_for_each(tensor)
}

fn tensor(tensor: &Tensor) -> Result<()> {
    name("dtype", &tensor.dtype)?;
    at_most("sizes", tensor.shape.len(), MAX_RANK)?;
    tensor.shape.iter().try_for_each(|&size| integer("size", size))
}

/// Checks what an agent says to a hub.
pub fn agent_word(word: &AgentWord) -> Result<()> {
    match word {
        AgentWord::Register(r) => register(r),
        AgentWord::Heartbeat(_) => Ok(()),
        AgentWord::Refused(r) => label("session", &r.session),
    }
}

fn register(r: &Register) -> Result<()> {
    name("token", &r.token)?;
    label("agent", &r.agent)?;
    label("instance", &r.instance)?;
    if !r.name.is_empty() {
        plain("an agent", &r.name, "")?;
    }
    if r.devices.len() > MAX_AGENT_DEVICES || r.capabilities.len() > MAX_AGENT_DEVICES {
        let text = format!("{} devices, {} capabilities", r.devices.len(), r.capabilities.len());
        return Err(Error::invalid(format!("{text}, at most {MAX_AGENT_DEVICES} of either")));
    }
    r.capabilities.iter().try_for_each(|c| plain("a capability", c, ""))?;
    r.devices.iter().try_for_each(offer)?;
    let mut names: Vec<&str> = r.devices.iter().map(|d| d.name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        None => Ok(()),
        Some(pair) => Err(Error::invalid(format!("the device `{}` is offered twice", pair[0]))),
    }
}

fn offer(offer: &Offer) -> Result<()> {
    plain("a device", &offer.name, ":")?;
    if let Some(device) = &offer.info {
        label("name", &device.name)?;
        label("driver", &device.driver)?;
        plain("a platform", &device.platform, "")?;
        info(device)?;
    }
    label("reason", &offer.reason)
}

/// What is shown to people: short, and without signs that command a terminal.
fn label(what: &str, value: &str) -> Result<()> {
    match value.len() <= MAX_LABEL && !value.chars().any(char::is_control) {
        true => Ok(()),
        false => Err(Error::invalid(format!(
            "`{what}` is longer than {MAX_LABEL} bytes or holds control characters"
        ))),
    }
}

/// A name that can be part of an address.
fn plain(what: &str, value: &str, more: &str) -> Result<()> {
    let sign = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c) || more.contains(c);
    match (1..=64).contains(&value.len()) && value.chars().all(sign) {
        true => Ok(()),
        false => {
            let text =
                format!("`{}` is no name of {what}", value.escape_debug().take(80).collect::<String>());
            Err(Error::invalid(text)
                .with_hint(format!("names have 1 to 64 letters, digits, `.`, `_`, `-`{more}")))
        }
    }
}

fn turn(writes: &[Write], values: &[Symbol]) -> Result<()> {
    few("writes", writes.len())?;
    writes.iter().try_for_each(|w| integer("offset", w.offset))?;
    symbols(values)
}

fn reads(reads: &[Read]) -> Result<()> {
    few("reads", reads.len())?;
    reads.iter().try_for_each(|r| integer("offset", r.offset).and(integer("size", r.size)))
}

fn kernel(kernel: &CreateKernel) -> Result<()> {
    name("kernel", &kernel.name)?;
    name("file", &kernel.file)?;
    name("entry", &kernel.entry)?;
    if kernel.prelude.len() + kernel.text.len() > MAX_TEXT {
        let len = kernel.prelude.len() + kernel.text.len();
        return Err(Error::invalid(format!("the kernel's text has {len} bytes, at most {MAX_TEXT}")));
    }
    few("bindings", kernel.bindings.len())?;
    few("constants", kernel.constants.len())?;
    kernel.constants.iter().try_for_each(|c| name("constant", &c.name))
}

fn one_command(command: &Command) -> Result<()> {
    match command.work.as_ref().ok_or_else(|| Error::invalid("a command holds nothing"))? {
        Work::Dispatch(d) => {
            name("label", &d.label)?;
            few("bindings", d.bindings.len())?;
            d.bindings.iter().try_for_each(|b| integer("offset", b.offset).and(integer("size", b.size)))?;
            [&d.x, &d.y, &d.z].into_iter().try_for_each(size)
        }
        Work::Copy(c) => [&c.src_offset, &c.dst_offset, &c.size].into_iter().try_for_each(size),
        Work::Fill(_) => Ok(()),
    }
    .context(|| "a command".into())
}

fn size(size: &Option<Size>) -> Result<()> {
    let size = size.as_ref().ok_or_else(|| Error::invalid("a size is missing"))?;
    integer("constant", size.constant)?;
    few("terms", size.terms.len())?;
    size.terms.iter().try_for_each(|t| name("symbol", &t.symbol).and(integer("factor", t.factor)))
}

fn symbols(symbols: &[Symbol]) -> Result<()> {
    few("symbols", symbols.len())?;
    symbols.iter().try_for_each(|s| name("symbol", &s.name).and(integer("value", s.value)))
}

fn integer(what: &str, value: u64) -> Result<()> {
    match value <= MAX_INTEGER {
        true => Ok(()),
        false => Err(Error::invalid(format!("`{what}` is {value}, at most {MAX_INTEGER}"))),
    }
}

fn name(what: &str, value: &str) -> Result<()> {
    match value.len() <= MAX_NAME {
        true => Ok(()),
        false => Err(Error::invalid(format!("`{what}` has {} bytes, at most {MAX_NAME}", value.len()))),
    }
}

fn few(what: &str, count: usize) -> Result<()> {
    at_most(what, count, MAX_BINDINGS)
}

fn at_most(what: &str, count: usize, most: usize) -> Result<()> {
    match count <= most {
        true => Ok(()),
        false => Err(Error::invalid(format!("{count} {what}, at most {most}"))),
    }
}

fn hash(hash: &[u8]) -> Result<()> {
    match hash.len() {
        32 => Ok(()),
        other => Err(Error::invalid(format!("a hash of {other} bytes, expected 32"))),
    }
}
