//! `attention`: launch planner. Workgroup `(x, y)` treats head `x` of query row `y`. Four zero bytes are bound in the
//! place of sinks and slopes where there are none.
//!
//! The portable kernel is the online softmax (Milakov and Gimelshein, "Online normalizer calculation for softmax",
//! 2018) that FlashAttention builds on: any number of keys needs the same workgroup memory. The other files of this
//! folder hold kernels that share keys out, that use tensor cores, and that serve fused operators with rotations and
//! appending in front.

pub mod matrix;
pub mod rope_kv_write;
pub mod row;
pub mod split;

use super::body::FusedBody;
use super::compose::{FixedComposition, joined};
use super::source::{
    KernelSource, LaunchBuilder, affine, elements, plan as planned, rows_and_width, single_workgroup,
    wrong_op,
};
use super::{Request, append};
use crate::axis::Axis;
use crate::plan::{Arg, InPlace, NodePlan};
use tapml_graph::op::Attention;
use tapml_graph::{DType, Dim, Error, Extent, Op, Result, Symbol, TensorType, ValueId};

/// Elements of a head that fit the kernel's workgroup memory.
const MAX_HEAD_DIM: u32 = 1024;
/// Invocations of a workgroup, and keys that it treats at a time.
const LANES: u32 = 64;
/// Additions to the running sums that are counted in the declared chain: one for every [`LANES`] keys, here of a
/// context of a thousand.
const RUNNING: u32 = 16;

/// The kernel that serves every attention whose heads are small enough.
const KERNEL: KernelSource = portable("attention/portable", &TEXT, 0);
/// Keys that lie one behind the other.
const TEXT: FixedComposition = joined!("attention/portable.wgsl", "attention/portable_bindings.wgsl");

/// A kernel of the portable text with bindings behind it, which declare so many bytes of workgroup memory.
pub const fn portable(name: &'static str, text: &FixedComposition, memory: u32) -> KernelSource {
    KernelSource {
        name,
        file: text.file,
        text: text.text,
        weights: true,
        norm: false,
        formula: "",
        math: true,
        lanes: LANES,
        workgroup_memory: 4 * (2 * MAX_HEAD_DIM + 2 * LANES) + memory,
    }
}

/// The plan of `attention/portable`.
///
/// # Errors
/// As [`check`].
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::Attention(op) = request.op else { return Err(wrong_op(request)) };
    check(op, request)?;
    let launch = bound(&KERNEL, op, request, |launch| launch.output(0))?;
    let groups = [
        Extent::from_dim(u64::from(op.heads)),
        Extent::from_dim(request.inputs[0].shape[0].clone()),
        single_workgroup(),
    ];
    let plan = planned(&KERNEL, vec![launch.groups(groups)], chain(op)).with_axes(axes(
        op,
        &request.inputs[1].shape[0],
        LANES,
    ));
    Ok(NodePlan { constants: slopes(op), ..plan })
}

/// The longest chain of additions of the portable text. Scores add products four at a time. Results add the keys of a round,
/// four at a time too, and then one sum for each round.
pub fn chain(op: &Attention) -> u32 {
    (op.head_dim.div_ceil(4) + 3).max(LANES / 4 + 2 + RUNNING)
}

/// A launch of this kernel: queries, keys, values, sinks, results as `results` binds them, and slopes; with the constants
/// that say which keys a query sees and how scores are made.
///
/// The symbols are not bound yet: a caller may set further constants.
fn bound(
    kernel: &KernelSource,
    op: &Attention,
    request: &Request,
    results: impl FnOnce(LaunchBuilder) -> LaunchBuilder,
) -> Result<LaunchBuilder> {
    let (q, k, sinks) = (&request.inputs[0], &request.inputs[1], request.inputs.get(3));
    let launch = kernel.launch(q.dtype, q.dtype)?.input(0).input(1).input(2);
    let launch = match sinks {
        Some(sinks) => launch.input(3).weight_dtype(sinks.dtype)?,
        None => launch.read(Arg::Constant(0)),
    };
    let launch = results(launch).read(Arg::Constant(0)).rows(&q.shape[0])?;
    Ok(masks(launch, op, affine(&k.shape[0])?, sinks.is_some()))
}

/// Sets the constants that say which of `n * keys[0] + p * keys[1] + keys[2]` keys a query sees, and how scores are made.
fn masks(launch: LaunchBuilder, op: &Attention, keys: [u32; 3], sinks: bool) -> LaunchBuilder {
    let launch = launch.set("KEYS_N", keys[0]).set("KEYS_P", keys[1]).set("KEYS_C", keys[2]);
    scores(launch, op, sinks)
}

/// Sets the constants that say how scores are made and which of the keys before it a query sees.
pub fn scores(launch: LaunchBuilder, op: &Attention, sinks: bool) -> LaunchBuilder {
    let launch = launch.set("HEADS", op.heads).set("KV_HEADS", op.kv_heads).set("HEAD_DIM", op.head_dim);
    let launch = launch.set("VALUE_DIM", op.value_size()).set("SCALE", op.scale);
    let launch = launch.set("CAUSAL", u32::from(op.causal)).set("WINDOW", op.window.unwrap_or(0));
    let launch = launch.set("CHUNK", op.chunk.unwrap_or(u32::MAX)).set("SOFTCAP", op.softcap.unwrap_or(0.0));
    let launch = launch.set("HAS_SINKS", u32::from(sinks));
    // 0 stands for no window and no cap, and the largest number for a single chunk: no mask needs a case of its own.
    launch.set("HAS_ALIBI", u32::from(op.alibi.is_some()))
}

/// What changes along so many keys, of which a kernel treats some at a time: its steps, and what attention sees of them.
/// Calls on both sides of a window or of a chunk's end are regimes of their own.
pub fn axes(op: &Attention, keys: &Dim, at_a_time: u32) -> Vec<Axis> {
    let window = op.window.map(|window| Axis::limit("keys", keys.clone(), u64::from(window)));
    let chunk = op.chunk.map(|chunk| Axis::steps("keys", keys.clone(), u64::from(chunk)));
    let steps = Axis::steps("keys", keys.clone(), u64::from(at_a_time));
    [steps].into_iter().chain(window).chain(chunk).collect()
}

/// The rows of a run and those before it, which a causal attention sees.
pub fn keys_of_run() -> Result<Dim> {
    let keys = Dim::symbol(Symbol::N).checked_add(&Dim::symbol(Symbol::P));
    keys.ok_or_else(|| Error::bug("n + p overflows"))
}

/// The constants of a plan: slopes, or what is bound in their place.
/// Slopes are those of ALiBi (Press, Smith and Lewis, 2021), one for each head, as f32.
pub fn slopes(op: &Attention) -> Vec<Vec<u8>> {
    let slopes = op.alibi.as_deref().unwrap_or(&[0.0]);
    vec![slopes.iter().flat_map(|s| s.to_le_bytes()).collect()]
}

/// The attention of a fused operator's body, with what stands in front of it: rotations of queries and keys, and the
/// appending of keys and values.
///
/// All arguments are those of the fused operator, not of the body's nodes.
pub struct Appending<'a> {
    /// The attention.
    pub op: &'a Attention,
    /// Queries, new keys, new values, angles.
    pub new: [Arg; 4],
    /// The inputs that are the caches of keys and values before.
    pub caches: [usize; 2],
    /// The caches after.
    pub grown: [Arg; 2],
    /// Type of the queries.
    pub q: &'a TensorType,
    /// Type of a cache before.
    pub cache: &'a TensorType,
    /// The result.
    pub y: Arg,
}

impl<'a> Appending<'a> {
    /// Fails if the body is no such, or if activations and caches differ in dtype.
    pub fn from_body(body: &FusedBody<'a>) -> Result<Appending<'a>> {
        let node = body.only_node("attention", |op| matches!(op, Op::Attention(_)))?;
        let (Op::Attention(op), [q, keys, values]) = (&node.op, &node.inputs[..]) else {
            return Err(Error::unsupported("the kernel needs attention without sinks"));
        };
        let wrong = || Error::unsupported("the kernel needs rotations and appending in front of attention");
        let inputs = |value: ValueId| body.maker(value).map(|node| &node.inputs).ok_or_else(wrong);
        // Only the numbers of inputs are looked at, not which operators these nodes are.
        let ([raw, angles], [k_cache, k], [v_cache, v]) =
            (&inputs(*q)?[..], &inputs(*keys)?[..], &inputs(*values)?[..])
        else {
            return Err(wrong());
        };
        let raw_keys = inputs(*k)?.first().copied().ok_or_else(wrong)?;
        let alike = [raw_keys, *v, *k_cache, *v_cache];
        if alike.iter().any(|&value| body.ty(value).dtype != body.ty(*raw).dtype) {
            return Err(Error::unsupported("the kernel needs caches of the activations' dtype"));
        }
        let cache = |value| body.input(value).ok_or_else(wrong);
        let new = [*raw, raw_keys, *v, *angles].map(|value| body.read(value));
        let [new_q, new_k, new_v, turn] = new;
        Ok(Appending {
            op,
            new: [new_q?, new_k?, new_v?, turn?],
            caches: [cache(*k_cache)?, cache(*v_cache)?],
            grown: [body.write(*keys)?, body.write(*values)?],
            q: body.ty(*raw),
            cache: body.ty(*k_cache),
            y: body.write(node.outputs[0])?,
        })
    }

    /// The caches with where they grow to.
    pub fn pairs(&self) -> [(usize, Arg); 2] {
        [(self.caches[0], self.grown[0]), (self.caches[1], self.grown[1])]
    }
}

/// The plan with copies of caches of this type, which are inputs, to where the outputs are extended, in front: each is left
/// out where the cache is extended in place.
///
/// Copies come first, so that `in_place` names them by their own places among the launches.
pub fn with_copies(mut plan: NodePlan, cache: &TensorType, pairs: [(usize, Arg); 2]) -> Result<NodePlan> {
    let (rows, width) = rows_and_width(cache)?;
    let mut copies = Vec::new();
    for (input, grown) in pairs {
        let Arg::Output(output) = grown else { return Err(Error::bug("a cache grows into no output")) };
        let copy = append::COPY.launch(cache.dtype, cache.dtype)?.input(input).output(output);
        plan.in_place.push(InPlace { input, output, copy: Some(copies.len()) });
        copies.push(copy.rows(&rows)?.set("K", width).flat(elements(&rows, width)?));
    }
    // The kernel's own launches follow the copies, which the compiler leaves out together or one by one.
    plan.launches.splice(0..0, copies);
    Ok(plan)
}

/// Whether a node is attention of f16 alone with as many queries as the run has rows, and no sinks.
pub fn is_plain_f16(request: &Request) -> bool {
    let halves = request.inputs.len() == 3 && request.inputs.iter().all(|ty| ty.dtype == DType::F16);
    halves && request.inputs[0].shape.first() == Some(&Dim::symbol(Symbol::N))
}

/// Fails on what the kernel does not take.
///
/// A causal attention must have exactly as many keys as there are rows of this run and rows before it: the kernel
/// places queries at the end of the keys.
fn check(op: &Attention, request: &Request) -> Result<()> {
    check_heads(op, request)?;
    let (q, k) = (&request.inputs[0], &request.inputs[1]);
    let rows = &q.shape[0];
    let seen = rows.checked_add(&Dim::symbol(Symbol::P));
    if op.causal && seen.as_ref() != Some(&k.shape[0]) {
        return Err(Error::unsupported(format!("{} keys for {rows} queries", k.shape[0])));
    }
    Ok(())
}

/// Fails on heads that the portable text does not take, and on keys of another dtype than queries.
pub fn check_heads(op: &Attention, request: &Request) -> Result<()> {
    let (q, k) = (&request.inputs[0], &request.inputs[1]);
    let asked = op.head_dim.max(op.value_size());
    if asked > MAX_HEAD_DIM {
        return Err(Error::unsupported(format!(
            "a head of {asked} elements: the kernel takes {MAX_HEAD_DIM}"
        ))
        .with_detail("limit", "head_dim")
        .with_detail("asked", asked.to_string())
        .with_detail("offered", MAX_HEAD_DIM.to_string()));
    }
    if k.dtype != q.dtype {
        return Err(Error::unsupported(format!("keys of {} for queries of {}", k.dtype, q.dtype)));
    }
    Ok(())
}
