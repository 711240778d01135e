//! Building blocks of planners: sources, specialisation, sizes.
//!
//! A planner takes a [`KernelSource`], starts a launch with the dtypes of its activations, binds arguments in the
//! order of the text's `@binding` numbers, sets `override` constants, and ends with the grid. Sizes that depend on
//! the run reach the kernel by the symbols; all others are constants, which a compiler can unroll by.

use super::formula::Formula;
use super::request::Request;
use super::settings::Setting;
use crate::plan::{Accumulate, Arg, Launch, NodePlan, SYMBOLS};
use tapml_device::{BindingKind, Grid, KernelDesc, Language, Source};
use tapml_graph::{DType, Dim, Error, Extent, Packing, Result, Symbol, Symbols, TensorType};

/// Shared declarations that stand in front of kernels.
mod prelude {
    /// The uniform block of the symbols, and `row_count`.
    pub const SYMBOLS: &str = include_str!("../prelude/symbols.wgsl");
    /// Reading weights of f32, f16 and bf16 from words of 32 bits.
    pub const WEIGHTS: &str = include_str!("../prelude/weights.wgsl");
    /// Unpacking integers and floating-point codes of 4 and 8 bits with their scales and zero points.
    pub const PACKED: &str = include_str!("../prelude/packed.wgsl");
    /// `exp`, `tanh` and `log` of bounded error, which WGSL's own do not promise.
    pub const MATH: &str = include_str!("../prelude/math.wgsl");
    /// Sums over the lanes of a team, and the inverse square root.
    pub const NORM: &str = include_str!("../prelude/norm.wgsl");
    /// Rounding of f32 to the nearest f16, ties to even, which WGSL leaves open.
    pub const HALF: &str = include_str!("../prelude/half.wgsl");
    /// Activations are f32: `act` and `to_act`.
    pub const ACT_F32: &str = include_str!("../prelude/act_f32.wgsl");
    /// Activations are f16: `act` and `to_act`.
    pub const ACT_F16: &str = include_str!("../prelude/act_f16.wgsl");
    /// Results are f32.
    pub const OUT_F32: &str = include_str!("../prelude/out_f32.wgsl");
    /// Results are f16.
    pub const OUT_F16: &str = include_str!("../prelude/out_f16.wgsl");
}

/// Whether this text consists of shared declarations alone.
///
/// An empty text counts. Parts may come in any order and more than once, because only their content matters here.
pub fn is_prelude(mut text: &str) -> bool {
    let known = [
        prelude::SYMBOLS,
        prelude::WEIGHTS,
        prelude::PACKED,
        prelude::MATH,
        prelude::NORM,
        prelude::HALF,
        prelude::ACT_F32,
        prelude::ACT_F16,
        prelude::OUT_F32,
        prelude::OUT_F16,
    ];
    // Every part is non-empty, so that the text becomes shorter each time.
    while let Some(rest) = known.iter().find_map(|part| text.strip_prefix(part)) {
        text = rest;
    }
    text.is_empty()
}

/// Invocations of the kernels that treat elements one by one.
/// It is the largest workgroup that WebGPU promises on every device.
const FLAT_LANES: u32 = 256;
/// Elements that one workgroup of those kernels treats.
/// Four for each invocation: one dispatch then reaches four times as many elements within the limit of workgroups.
pub const FLAT_ELEMENTS: u32 = 1024;

/// A built-in kernel's source and what its text fixes.
pub struct KernelSource {
    /// Operator and variant.
    pub name: &'static str,
    /// File name in messages.
    pub file: &'static str,
    /// The text.
    pub text: &'static str,
    /// Whether it reads weights (the `weights` prelude).
    pub weights: bool,
    /// Whether it needs the `math` prelude.
    pub math: bool,
    /// Whether it needs the `norm` prelude.
    pub norm: bool,
    /// The function that it applies to single numbers, empty if none: the operator's own file, which stands behind the
    /// text; needs the `math` prelude.
    pub formula: &'static str,
    /// Invocations along x.
    /// The text's `@workgroup_size` must be the same; validation compares them.
    pub lanes: u32,
    /// Bytes of workgroup memory.
    /// At least what the text declares and uses; validation compares them.
    pub workgroup_memory: u32,
}

impl KernelSource {
    /// A kernel that treats elements one by one, [`FLAT_ELEMENTS`] in a workgroup.
    pub const fn flat(name: &'static str, file: &'static str, text: &'static str) -> KernelSource {
        KernelSource {
            name,
            file,
            text,
            weights: false,
            math: false,
            norm: false,
            formula: "",
            lanes: FLAT_LANES,
            workgroup_memory: 0,
        }
    }

    /// Starts a launch with activations `act` and results `out`, both `f32` or `f16`.
    ///
    /// # Errors
    /// `Unsupported` for any other dtype.
    pub fn launch(&self, act: DType, out: DType) -> Result<LaunchBuilder> {
        let act_text = pick(act, prelude::ACT_F32, prelude::ACT_F16)?;
        let out_text = pick(out, prelude::OUT_F32, prelude::OUT_F16)?;
        // The declaration of f16 is needed as soon as either side has it.
        let half = act == DType::F16 || out == DType::F16;
        // Declarations come before their uses in reading order only: WGSL itself allows any order within a module.
        let parts = [
            (true, prelude::SYMBOLS),
            (half, prelude::HALF),
            (true, act_text),
            (true, out_text),
            (self.weights, prelude::WEIGHTS),
            (self.math, prelude::MATH),
            (self.norm, prelude::NORM),
        ];
        let (file, text) = self.own_text();
        let desc = KernelDesc {
            name: self.name.into(),
            source: Source {
                language: Language::Wgsl,
                file,
                prelude: parts.iter().filter(|(used, _)| *used).map(|(_, text)| *text).collect(),
                text,
            },
            entry: "main".into(),
            constants: Vec::new(),
            bindings: Vec::new(),
            workgroup: [self.lanes, 1, 1],
            workgroup_memory: self.workgroup_memory,
            needs_f16: half,
            needs_subgroups: false,
            dependent_launch: false,
        };
        Ok(LaunchBuilder { desc, args: Vec::new() })
    }

    /// File and text with the formula.
    /// A formula of a foreign operator is written in the table of `onnx/map.rs`, one of the library's own in a file.
    fn own_text(&self) -> (String, String) {
        match (self.formula, self.name.split_once('/')) {
            ("", _) | (_, None) => (self.file.into(), self.text.into()),
            (formula, Some(("onnx", _))) => {
                (format!("{}+onnx/map.rs", self.file), format!("{}\n{formula}", self.text))
            }
            (formula, Some((op, _))) => {
                (format!("{}+{op}/formula.wgsl", self.file), format!("{}\n{formula}", self.text))
            }
        }
    }
}

/// The text for this dtype of activations; fails for any but f32 and f16.
fn pick(dtype: DType, f32_text: &'static str, f16_text: &'static str) -> Result<&'static str> {
    match dtype {
        DType::F32 => Ok(f32_text),
        DType::F16 => Ok(f16_text),
        other => Err(Error::unsupported(format!("activations of {other}: kernels take f32 and f16"))),
    }
}

/// A launch being built: bindings in order, then [`LaunchBuilder::groups`].
///
/// The n-th binding that is added is `@binding(n)` of group 0. Argument and kind are pushed together, so that both
/// lists have the same length.
pub struct LaunchBuilder {
    /// The kernel, with the constants and bindings so far.
    desc: KernelDesc,
    /// What the bindings so far are bound to.
    args: Vec<Arg>,
}

impl LaunchBuilder {
    /// Binds something that is read.
    pub fn read(mut self, arg: Arg) -> LaunchBuilder {
        self.desc.bindings.push(BindingKind::Read);
        self.args.push(arg);
        self
    }

    /// Binds a whole input.
    pub fn input(self, index: usize) -> LaunchBuilder {
        self.read(Arg::Input { index, offset: 0, len: 0 })
    }

    /// Binds a whole input that may be absent: the first constant stands in its place.
    pub fn optional(self, index: usize, given: Option<&TensorType>) -> LaunchBuilder {
        match given {
            Some(_) => self.input(index),
            None => self.read(Arg::Constant(0)),
        }
    }

    /// Binds an output.
    /// It is bound for reading and writing: WebGPU has no storage buffers that are only written.
    pub fn output(mut self, index: usize) -> LaunchBuilder {
        self.desc.bindings.push(BindingKind::ReadWrite);
        self.args.push(Arg::Output(index));
        self
    }

    /// Binds scratch memory, to write or to read.
    pub fn scratch(mut self, index: usize, kind: BindingKind) -> LaunchBuilder {
        self.desc.bindings.push(kind);
        self.args.push(Arg::Scratch(index));
        self
    }

    /// Binds something that is read, or written too.
    pub fn bind(mut self, written: bool, arg: Arg) -> LaunchBuilder {
        self.desc.bindings.push(if written { BindingKind::ReadWrite } else { BindingKind::Read });
        self.args.push(arg);
        self
    }

    /// Takes a text that was put together in the place of the kernel's own.
    pub fn text(mut self, text: String) -> LaunchBuilder {
        self.desc.source.text = text;
        self
    }

    /// Says that the kernel uses subgroup operations.
    pub fn subgroups(mut self) -> LaunchBuilder {
        self.desc.needs_subgroups = true;
        self
    }

    /// Sets an `override` constant.
    /// A name that is set twice is an error of [`crate::Program::check`]. Values pass as `f64`, the type of the
    /// WebGPU API.
    pub fn set(mut self, name: &str, value: impl Into<f64>) -> LaunchBuilder {
        self.desc.constants.push((name.into(), value.into()));
        self
    }

    /// Sets the sizes of a setting, each as the constant of its name.
    pub fn with_setting_sizes(self, setting: Setting) -> LaunchBuilder {
        setting.sizes().iter().fold(self, |launch, &(name, value)| launch.set(&name.to_uppercase(), value))
    }

    /// Sets the number of rows that the kernel asks `row_count` for.
    ///
    /// # Errors
    /// As [`affine`].
    pub fn rows(self, rows: &Dim) -> Result<LaunchBuilder> {
        let [n, p, s, constant] = factors(rows)?;
        let launch = self.set("ROWS_N", n).set("ROWS_P", p).set("ROWS_C", constant);
        // Most graphs have no such symbol, and the constant is 0 where it is not set.
        Ok(if s == 0 { launch } else { launch.set("ROWS_S", s) })
    }

    /// Sets how all weights are packed; the prelude then has the functions that unpack them.
    /// All weights of a kernel are packed alike: only the first call has an effect.
    pub fn with_packing(mut self, packing: Packing) -> LaunchBuilder {
        // Gate and up come through here one after the other.
        if self.has("GROUP") {
            return self;
        }
        // It stands behind the parts that `launch` put in front: it uses none of the text's own names.
        self.desc.source.prelude += prelude::PACKED;
        let Packing { code, group, zeros } = packing;
        let launch = self.set("BITS", packing.bits()).set("GROUP", group).set("ZEROS", u32::from(zeros));
        // The number is the order of the variants of `Code`, which the `packed` prelude repeats.
        launch.set("CODE", code as u32)
    }

    /// Whether a constant of this name is set.
    fn has(&self, constant: &str) -> bool {
        self.desc.constants.iter().any(|(name, _)| name == constant)
    }

    /// Sets the storage of all weights.
    /// Only the first call has an effect, because the constant is one for all weights of a kernel.
    pub fn weight_dtype(self, dtype: DType) -> Result<LaunchBuilder> {
        if self.has("W_DTYPE") {
            return Ok(self);
        }
        Ok(self.set("W_DTYPE", weight_code(dtype)?))
    }

    /// Sets the constants that say whether a weight or bias is given, and its storage.
    /// The names come in that order; an absent weight has storage 0, which the text does not look at.
    pub fn with_presence(
        self,
        [given, dtype]: [&str; 2],
        weight: Option<&TensorType>,
    ) -> Result<LaunchBuilder> {
        let code = weight.map_or(Ok(0), |ty| weight_code(ty.dtype))?;
        Ok(self.set(given, u32::from(weight.is_some())).set(dtype, code))
    }

    /// Sets the constants of a formula.
    pub fn formula(self, formula: &Formula) -> LaunchBuilder {
        formula.constants.iter().fold(self, |launch, &(name, value)| launch.set(name, value))
    }

    /// Adds the uniform block and the number of workgroups.
    /// The uniform block is the last binding of every kernel.
    pub fn groups(mut self, groups: Grid) -> Launch {
        self.desc.bindings.push(BindingKind::Uniform);
        self.args.push(Arg::Symbols);
        Launch { desc: self.desc, args: self.args, groups }
    }

    /// As [`LaunchBuilder::groups`] for a kernel that treats `elements` one by one.
    pub fn flat(self, elements: Dim) -> Launch {
        self.groups([Extent::ceil_div(elements, FLAT_ELEMENTS), single_workgroup(), single_workgroup()])
    }
}

/// The number by which kernels know the storage of weights.
///
/// The `weights` prelude reads it as the constant `W_DTYPE`.
pub fn weight_code(dtype: DType) -> Result<u32> {
    match dtype {
        DType::F32 => Ok(0),
        DType::F16 => Ok(1),
        DType::BF16 => Ok(2),
        other => Err(Error::unsupported(format!("weights of {other}: kernels take f32, f16 and bf16"))),
    }
}

/// One workgroup.
pub fn single_workgroup() -> Extent {
    Extent::from_dim(1u64)
}

/// The constants that [`LaunchBuilder::optional`] binds: four zero bytes if any input is absent.
/// A buffer of zero bytes cannot be bound, and a text binds the same number of buffers whether an input is given or
/// not.
pub fn stand_in(given: &[Option<&TensorType>]) -> Vec<Vec<u8>> {
    if given.iter().any(Option::is_none) { vec![vec![0; 4]] } else { Vec::new() }
}

/// A plan of these launches without scratch and constants.
/// `chain` is the longest chain of additions in f32; the hash is filled in when the plan is chosen.
pub fn plan(kernel: &KernelSource, launches: Vec<Launch>, chain: u32) -> NodePlan {
    NodePlan {
        kernel: kernel.name.into(),
        hash: String::new(),
        launches,
        scratch: Vec::new(),
        constants: Vec::new(),
        accumulate: Accumulate::new(DType::F32, Dim::from(u64::from(chain))),
        in_place: Vec::new(),
        axes: Vec::new(),
    }
}

/// A plan of one launch without scratch and constants, named as the launch.
pub fn plan_of(launch: Launch, chain: u32) -> NodePlan {
    NodePlan {
        kernel: launch.desc.name.clone(),
        hash: String::new(),
        launches: vec![launch],
        scratch: Vec::new(),
        constants: Vec::new(),
        accumulate: Accumulate::new(DType::F32, Dim::from(u64::from(chain))),
        in_place: Vec::new(),
        axes: Vec::new(),
    }
}

/// The error of a planner whose kernel does not serve such a node.
pub fn unserved_error(request: &Request) -> Error {
    Error::unsupported(format!("the kernel does not serve such `{}`", request.op.name()))
}

/// The error of a planner that was asked for another operator.
/// It is a bug of the kernel list, never the fault of a graph.
pub fn wrong_op(request: &Request) -> Error {
    Error::bug(format!("a planner was asked for `{}`", request.op.name()))
}

/// Whether these rows can be one: exactly `n`, or always one.
pub fn may_be_one(rows: &Dim) -> bool {
    rows.as_const() == Some(1) || *rows == Dim::symbol(Symbol::N)
}

/// A constant size that fits 32 bits.
/// `what` is for messages, such as "the row length".
pub fn constant(what: &str, dim: &Dim) -> Result<u32> {
    let value = dim
        .as_const()
        .ok_or_else(|| Error::unsupported(format!("{what} is {dim}: kernels need a constant")))?;
    u32::try_from(value).map_err(|_| Error::unsupported(format!("{what} is {value}, beyond 32 bits")))
}

/// Rows and row length of a value: its first size, and the product of the others. A vector of constant size is one row.
///
/// A vector of symbolic length is as many rows of width 1. A scalar is one row of width 1.
pub fn rows_and_width(ty: &TensorType) -> Result<(Dim, u32)> {
    let (rows, rest) = match ty.shape.as_slice() {
        [] => (Dim::from(1u64), ty.shape.as_slice()),
        // Its elements are taken as columns: `rest` is then the whole shape.
        [only] if only.as_const().is_some() => (Dim::from(1u64), ty.shape.as_slice()),
        [first, rest @ ..] => (first.clone(), rest),
    };
    // The dtype plays no part in counting elements.
    let width = TensorType::new(ty.dtype, rest.iter().cloned()).elements();
    let width = width.ok_or_else(|| Error::unsupported(format!("the sizes of {ty}")))?;
    Ok((rows, constant("the row length", &width)?))
}

/// The elements of a matrix of these rows and width.
pub fn elements(rows: &Dim, width: u32) -> Result<Dim> {
    rows.checked_mul(u64::from(width))
        .ok_or_else(|| Error::unsupported(format!("{rows} rows of {width} overflow")))
}

/// A size `a·n + b·p + c` as `[a, b, c]`.
/// The three numbers are the constants `ROWS_N`, `ROWS_P` and `ROWS_C` of the `symbols` prelude.
///
/// # Errors
/// `Unsupported` if the size depends on another symbol, or a factor needs more than 32 bits.
pub fn affine(dim: &Dim) -> Result<[u32; 3]> {
    match factors(dim)? {
        [n, p, 0, constant] => Ok([n, p, constant]),
        _ => {
            Err(Error::unsupported(format!("the size {dim}: the kernel knows the symbols `n` and `p` alone")))
        }
    }
}

/// `n * f[0] + p * f[1] + s * f[2] + f[3]` is the size.
///
/// # Errors
/// `Unsupported` if the size has other symbols, or a factor beyond 32 bits.
pub fn factors(dim: &Dim) -> Result<[u32; 4]> {
    // A size of a symbol that kernels are not given could not be computed.
    if let Some(other) = dim.symbols().find(|s| !SYMBOLS.contains(s)) {
        return Err(Error::unsupported(format!("the size {dim}: kernels know no symbol `{other}`")));
    }
    // A size is affine in its symbols, so that four values determine it.
    let at = |n, p, s| dim.eval(&Symbols::np(n, p).with_symbol(Symbol::S, s));
    let constant = at(0, 0, 0)?;
    let small = |value: u64| {
        u32::try_from(value)
            .map_err(|_| Error::unsupported(format!("the size {dim} has a factor beyond 32 bits")))
    };
    let factor = |n, p, s| small(at(n, p, s)? - constant);
    Ok([factor(1, 0, 0)?, factor(0, 1, 0)?, factor(0, 0, 1)?, small(constant)?])
}

/// The error of something that is larger than a binding can be.
/// The details name the limit, so that callers can react without reading the text.
pub fn too_large(what: &str, asked: u64, limit: u64) -> Error {
    Error::unsupported(format!("{what} takes {asked} bytes, the device binds at most {limit}"))
        .with_detail("tensor", what)
        .with_detail("limit", "max_binding_size")
        .with_detail("asked", asked.to_string())
        .with_detail("offered", limit.to_string())
}
