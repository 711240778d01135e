//! What it takes to run one node on a device: kernels, launches, scratch and constants.

use crate::kernel::settings::{self, Setting};
use crate::kernel::{KERNELS, KernelRow, Request, VARIANTS};
use crate::overrides::Overrides;
use serde::{Deserialize, Serialize};
use tapml_device::{DeviceInfo, Grid, KernelDesc};
use tapml_graph::{Context, DType, Dim, Error, ErrorKind, Extent, Op, Result, Symbol, Symbols, TensorType};

/// The symbols in the order of the uniform block `struct Symbols { n: u32, p: u32, … }` that every kernel binds last.
pub const SYMBOLS: [Symbol; 2] = [Symbol::N, Symbol::P];

/// The uniform block's bytes for these values: each symbol of [`SYMBOLS`] as a little-endian `u32`, padded to 16 bytes.
/// A symbol that is not bound counts as 0.
pub fn symbol_bytes(symbols: &Symbols) -> Result<[u8; 16]> {
    let mut bytes = [0; 16];
    for (slot, symbol) in bytes.chunks_exact_mut(4).zip(SYMBOLS) {
        let value = symbols.get(symbol).unwrap_or(0);
        let word = u32::try_from(value)
            .map_err(|_| Error::invalid(format!("{symbol} = {value} is beyond 32 bits")))?;
        slot.copy_from_slice(&word.to_le_bytes());
    }
    Ok(bytes)
}

/// What one binding of a launch is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arg {
    /// An input of the operator, or bytes `offset..offset+len` of it; `len` 0 means all of it. Offsets are multiples of
    /// 256, so the range may be bound within a larger buffer or be a buffer of its own.
    Input {
        /// Which input.
        index: usize,
        /// First byte.
        offset: u64,
        /// Number of bytes; 0 means to the end.
        len: u64,
    },
    /// An output of the operator.
    Output(usize),
    /// A buffer of [`NodePlan::scratch`].
    Scratch(usize),
    /// Bytes of [`NodePlan::constants`].
    Constant(usize),
    /// The uniform block; see [`symbol_bytes`].
    Symbols,
}

/// At which number of rows a launch is performed: kernels for a single row stand beside those for any number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// At any.
    #[default]
    Always,
    /// Only in a run of one row, `n = 1`.
    OneRow,
    /// Only in a run of another number of rows.
    ManyRows,
}

impl When {
    /// Whether the launch is performed at these symbols.
    pub fn holds(self, symbols: &Symbols) -> bool {
        let one = symbols.get(Symbol::N) == Some(1);
        match self {
            When::Always => true,
            When::OneRow => one,
            When::ManyRows => !one,
        }
    }

    /// Whether it is performed at any number of rows.
    pub fn is_always(&self) -> bool {
        *self == When::Always
    }
}

/// One dispatch.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// The kernel.
    pub desc: KernelDesc,
    /// One per binding.
    pub args: Vec<Arg>,
    /// The number of workgroups.
    pub groups: Grid,
    /// At which number of rows it is performed.
    pub when: When,
}

/// How the kernel adds up: what a verdict needs to know of its arithmetic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accumulate {
    /// The dtype of sums.
    pub dtype: DType,
    /// The longest serial chain of additions between steps of a tree; 0 if nothing is added up. A recurrence adds to its
    /// state once for each row, so that its chain grows with them.
    pub chain: Dim,
}

/// That an output may lie in the buffer of an input, which is then extended or advanced in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InPlace {
    /// Which input.
    pub input: usize,
    /// Which output.
    pub output: usize,
    /// When both share one buffer, launches before this one must be left out: they only copy the input.
    pub first_launch: usize,
}

/// How to run one node. With separate buffers for all inputs and outputs, perform all launches in order.
///
/// A buffer of zero bytes cannot be bound: give empty tensors at least 4 bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct NodePlan {
    /// Name for people: operator and variant, such as `linear/portable`, or operator and file of a user's kernel.
    pub kernel: String,
    /// BLAKE3 of sources, constants and geometry, in hexadecimal: equal hashes compute the same.
    pub hash: String,
    /// The dispatches in order; each may read what earlier ones wrote.
    pub launches: Vec<Launch>,
    /// Sizes in bytes of buffers that live during this node only.
    pub scratch: Vec<Extent>,
    /// Bytes of constant buffers; each a multiple of 4 long.
    pub constants: Vec<Vec<u8>>,
    /// How the kernel adds up.
    pub accumulate: Accumulate,
    /// Whether an output may lie in the buffer of an input.
    pub in_place: Option<InPlace>,
}

impl NodePlan {
    /// Whether a run with these symbols performs the same launches by both plans, whatever they are called.
    pub fn same_at(&self, other: &NodePlan, symbols: &Symbols) -> bool {
        let performed = |plan: &NodePlan| -> Vec<Launch> {
            let mut launches: Vec<Launch> = plan.launches.clone();
            launches.retain(|launch| launch.when.holds(symbols));
            launches.iter_mut().for_each(|launch| launch.desc.name.clear());
            launches
        };
        performed(self) == performed(other)
    }

    /// The hash of everything that decides what the launches compute; names and paths do not.
    fn hash_of(launches: &[Launch], constants: &[Vec<u8>]) -> Result<String> {
        let mut hasher = blake3::Hasher::new();
        let mut add = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        };
        for Launch { desc, args, groups, when } in launches {
            let source = &desc.source;
            let facts =
                (&source.prelude, &source.text, &desc.entry, &desc.constants, &desc.bindings, desc.workgroup);
            let facts = serde_json::to_vec(&(facts, groups, when));
            add(&facts.map_err(|e| Error::bug(format!("kernel `{}`: {e}", desc.name)))?);
            add(format!("{args:?}").as_bytes());
        }
        constants.iter().for_each(|constant| add(constant));
        Ok(hasher.finalize().to_hex().to_string())
    }
}

/// Plans one node: chooses the kernel, specialises it and checks it against the device's limits and features.
///
/// `inputs` are types with symbolic sizes, as in the graph. The user's kernel is taken if there is one, else the one that
/// [`Overrides::choose`] tells of, else the first that is preferred on such a device. Fails with
/// [`tapml_graph::ErrorKind::Unsupported`] if the device or the kernels cannot serve this operator at these types; the
/// details name `op` and, where one is the reason, `limit`, `asked` and `offered`.
pub fn plan_node(
    op: &Op,
    inputs: &[TensorType],
    info: &DeviceInfo,
    overrides: &Overrides,
) -> Result<NodePlan> {
    let outputs = op.infer(inputs)?;
    // A user's kernel serves any number of rows alone.
    let portable = overrides.serves(op.name()).then(|| without_cuda(info));
    let alone = portable.is_some();
    let info = portable.as_ref().unwrap_or(info);
    let request = Request { op, inputs, outputs: &outputs, info, alone, setting: Setting::default() };
    let planned = row(op).and_then(|row| {
        let plan = match chosen(&request, overrides)? {
            Some(variant) => variant,
            None => (row.plan)(&request)?,
        };
        finished(plan, &request, overrides)
    });
    planned.map_err(|e| e.with_detail("op", op.name())).context(|| op.name().to_string())
}

/// Every kernel for one node on a device: the default, which every device takes, and then the variants that apply here. Fails as [`plan_node`] if even the first does not.
pub fn plan_variants(op: &Op, inputs: &[TensorType], info: &DeviceInfo) -> Result<Vec<NodePlan>> {
    let outputs = op.infer(inputs)?;
    let request = Request { op, inputs, outputs: &outputs, info, alone: false, setting: Setting::default() };
    let none = Overrides::default();
    let first = row(op).and_then(|row| finished((row.plan)(&request)?, &request, &none));
    let first = first.map_err(|e| e.with_detail("op", op.name())).context(|| op.name().to_string())?;
    let mut plans = vec![first];
    for row in VARIANTS.iter().filter(|row| row.op() == op.name()) {
        if let Some(plan) = applied(row.plan, &request)? {
            plans.push(finished(plan, &request, &none)?);
        }
    }
    Ok(plans)
}

/// As [`plan_variants`], each kernel followed by itself with those settings that make a difference at these types.
pub fn plan_settings(op: &Op, inputs: &[TensorType], info: &DeviceInfo) -> Result<Vec<NodePlan>> {
    let outputs = op.infer(inputs)?;
    let request = Request { op, inputs, outputs: &outputs, info, alone: false, setting: Setting::default() };
    let mut all: Vec<NodePlan> = Vec::new();
    for plan in plan_variants(op, inputs, info)? {
        let kernel = plan.kernel.clone();
        all.push(plan);
        for row in settings::rows_of(&kernel) {
            let Some(set) = with_setting(&kernel, row.setting, &request)? else { continue };
            let set = finished(set, &request, &Overrides::default())?;
            if all.iter().all(|known| known.hash != set.hash) {
                all.push(set);
            }
        }
    }
    Ok(all)
}

fn row(op: &Op) -> Result<&'static KernelRow> {
    let row = KERNELS.iter().find(|row| row.op == op.name());
    row.ok_or_else(|| Error::unsupported(format!("no kernel for operator `{}`", op.name())))
}

/// The variant to take, if any: the one that the user's kernel of the operator replaces, if there is such a kernel.
fn chosen(request: &Request, overrides: &Overrides) -> Result<Option<NodePlan>> {
    let op = request.op.name();
    let own = overrides.files().any(|(own, _)| own == op);
    let choice = overrides.choice(request.op, request.inputs);
    for (kernel, setting) in settings::of_op(op) {
        let name = setting.name(kernel);
        let wanted = if own { overrides.replaces(&name) } else { choice == Some(name.as_str()) };
        if wanted && let Some(plan) = with_setting(kernel, setting, request)? {
            return Ok(Some(plan));
        }
    }
    // A setting that there is not, or not here, is the default.
    let choice = choice.map(|name| Setting::of(name).0);
    for row in VARIANTS.iter().filter(|row| row.op() == op) {
        let wanted = match choice {
            _ if own => overrides.replaces(row.kernel),
            Some(kernel) => row.kernel == kernel,
            None => (row.preferred)(request),
        };
        if wanted && let Some(plan) = applied(row.plan, request)? {
            return Ok(Some(plan));
        }
    }
    Ok(None)
}

/// The plan of a kernel with a setting, named so; `None` if it does not apply here, or if others do all its work.
fn with_setting(kernel: &str, setting: Setting, request: &Request) -> Result<Option<NodePlan>> {
    let request = Request { setting, ..*request };
    let variant = VARIANTS.iter().find(|row| row.kernel == kernel).map(|row| row.plan);
    let plan = variant.map_or_else(|| row(request.op).map(|row| row.plan), Ok)?;
    let Some(mut plan) = applied(plan, &request)? else { return Ok(None) };
    let mut named = 0;
    for launch in plan.launches.iter_mut().filter(|launch| launch.desc.name == kernel) {
        launch.desc.name = setting.name(kernel);
        named += 1;
    }
    plan.kernel = setting.name(kernel);
    Ok((named > 0).then_some(plan))
}

/// The plan of a variant; `None` if it does not apply to these types or this device.
fn applied(plan: fn(&Request) -> Result<NodePlan>, request: &Request) -> Result<Option<NodePlan>> {
    let checked = plan(request).and_then(|plan| {
        plan.launches.iter().try_for_each(|launch| launch.desc.check_limits(request.info))?;
        Ok(plan)
    });
    match checked {
        Ok(plan) => Ok(Some(plan)),
        Err(e) if e.kind() == ErrorKind::Unsupported => Ok(None),
        Err(e) => Err(e),
    }
}

fn finished(mut plan: NodePlan, request: &Request, overrides: &Overrides) -> Result<NodePlan> {
    overrides.apply(request.op.name(), &mut plan)?;
    plan.launches.iter().try_for_each(|launch| launch.desc.check_limits(request.info))?;
    plan.hash = NodePlan::hash_of(&plan.launches, &plan.constants)?;
    Ok(plan)
}

/// The same device as one that takes no CUDA kernels.
fn without_cuda(info: &DeviceInfo) -> DeviceInfo {
    let mut info = info.clone();
    info.features.cuda = None;
    info
}
