//! `Attention` of the standard: <https://onnx.ai/onnx/operators/onnx__Attention.html>, and what those of ONNX Runtime share with it.
//! Keys and values that are kept, and what is turned or has a bias, is moved by the kernel of heads first.

use super::heads::{HeadRotation, HeadRows, Moved, Past, alias};
use super::{OnnxNode, Placed, broadcast_strides, count, plan_with, whole};
use crate::kernel::Request;
use crate::kernel::source::{KernelSource, LaunchBuilder};
use crate::plan::{Arg, Launch, NodePlan, Scratch};
use tapml_device::BindingKind;
use tapml_graph::{DType, Error, Extent, Result};

/// Workgroup memory holds vectors of four rows: two arrays of the elements of a head, two of one vector for each lane.
const KERNEL: KernelSource = KernelSource {
    math: true,
    lanes: 64,
    workgroup_memory: (384 + 384 + 64 + 64) * 16,
    ..KernelSource::flat("onnx/attention", "onnx/integers.wgsl+onnx/attention.wgsl", "")
};

/// Most elements of a head: `WIDTH` of the kernel.
const MOST: u32 = 384;
/// Rows of queries of a workgroup.
const ROWS: u32 = 4;

/// Where something is that a launch reads.
/// An input is bound as its node gives it; outputs and scratch are what launches before have written.
#[derive(Clone, Copy)]
pub(super) enum ReadPlace<'a> {
    /// An input of the node.
    Given(Placed<'a>),
    /// An output that a launch before has written.
    Output(usize),
    /// Scratch memory that a launch before has written.
    Scratch(usize),
}

impl ReadPlace<'_> {
    /// The dtype of what is there: scratch holds f32, so that nothing is rounded on the way.
    fn dtype(self, dtype: DType) -> DType {
        if matches!(self, ReadPlace::Scratch(_)) { DType::F32 } else { dtype }
    }

    /// Binds it for reading; constant 0 stands for an input without elements, which cannot be bound.
    fn read(self, launch: LaunchBuilder) -> LaunchBuilder {
        match self {
            ReadPlace::Given(input) if input.count().is_ok_and(|count| count > 0) => {
                launch.read(whole(input))
            }
            ReadPlace::Given(_) => launch.read(Arg::Constant(0)),
            ReadPlace::Output(index) => launch.read(Arg::Output(index)),
            ReadPlace::Scratch(index) => launch.scratch(index, BindingKind::Read),
        }
    }

    /// Binds it for writing; an input is never written.
    pub fn write(self, launch: LaunchBuilder) -> LaunchBuilder {
        match self {
            ReadPlace::Scratch(index) => launch.scratch(index, BindingKind::ReadWrite),
            ReadPlace::Output(index) => launch.output(index),
            ReadPlace::Given(_) => launch,
        }
    }
}

/// Heads in a buffer.
#[derive(Clone, Copy)]
pub(super) struct HeadsBuffer<'a> {
    /// The buffer.
    pub place: ReadPlace<'a>,
    /// Where rows lie in it.
    pub rows: HeadRows,
    /// How many heads there are.
    pub heads: u32,
    /// Rows of a head.
    pub length: u32,
    /// Elements of a row.
    pub size: u32,
}

impl<'a> HeadsBuffer<'a> {
    /// Of an input of three dimensions with so many heads, or of four.
    pub fn from_input(node: &OnnxNode<'a>, place: usize, heads: u32) -> Result<HeadsBuffer<'a>> {
        let input = node.input(place)?;
        // Three dimensions have the heads side by side in a row, four have them one behind the other.
        let told = |length, heads, size, rows| HeadsBuffer {
            place: ReadPlace::Given(input),
            rows,
            heads,
            length,
            size,
        };
        match *input.sizes()?.as_slice() {
            [_, heads, length, size] => Ok(told(length, heads, size, HeadRows::by_head(heads, length, size))),
            [_, length, width] if heads > 0 && width % heads == 0 => {
                let size = width / heads;
                Ok(told(length, heads, size, HeadRows::by_row(length, width, size, 0)))
            }
            _ => Err(Error::invalid(format!("{heads} heads of {}", input.ty))),
        }
    }

    /// Heads by the side of others in an input of three dimensions, from this head on.
    pub fn part(self, first: u32, heads: u32) -> HeadsBuffer<'a> {
        let rows = HeadRows { from: self.rows.from + first * self.size, ..self.rows };
        HeadsBuffer { rows, heads, ..self }
    }
}

/// A plan that grows: launches, and scratch that they write.
pub(super) struct Steps {
    /// Dtype of the node's activations.
    pub dtype: DType,
    /// Elements of the batch.
    pub batch: u32,
    /// In the order in which they run.
    pub launches: Vec<Launch>,
    /// What they leave for each other.
    pub scratch: Vec<Scratch>,
}

impl Steps {
    /// No launches yet.
    pub fn new(dtype: DType, batch: u32) -> Steps {
        Steps { dtype, batch, launches: Vec::new(), scratch: Vec::new() }
    }

    /// Scratch for so many elements of f32.
    /// Returns its index.
    pub fn room(&mut self, elements: u32) -> usize {
        self.scratch.push(Scratch::Temporary(Extent::from_dim(4 * u64::from(elements.max(1)))));
        self.scratch.len() - 1
    }

    /// Moves heads to this place, or to scratch.
    /// What is returned describes the heads where they then are.
    pub fn move_heads<'a>(
        &mut self,
        side: HeadsBuffer<'a>,
        to: Option<(usize, u32)>,
        how: HeadsMove<'a>,
    ) -> Result<HeadsBuffer<'a>> {
        // Without cached rows the result is as long as what is moved.
        let room = how.room.unwrap_or(side.length);
        // Counting fails for sizes whose elements 32 bits cannot count.
        let volume = count(&[self.batch, side.heads, room, side.size])?;
        let (place, from) = match to {
            Some((index, from)) => (ReadPlace::Output(index), from),
            None => (ReadPlace::Scratch(self.room(volume)), 0),
        };
        let rows = HeadRows { from, ..HeadRows::by_head(side.heads, room, side.size) };
        let moved = Moved {
            batch: self.batch,
            heads: side.heads,
            size: side.size,
            length: side.length,
            room,
            x: side.rows,
            y: rows,
            past: how.past,
            keeps: how.room.is_some(),
            turn: how.turn,
            added: how.added,
        };
        let dtypes = [side.place.dtype(self.dtype), self.dtype, place.dtype(self.dtype)];
        let launch = moved.launch(dtypes, |launch| side.place.read(launch), |launch| place.write(launch))?;
        self.launches.push(launch);
        Ok(HeadsBuffer { place, rows, length: room, ..side })
    }

    /// The plan that attends last; a launch before it has sums of so many terms.
    pub fn plan(self, attend: &ReadyAttention, terms: u32) -> Result<NodePlan> {
        let Steps { dtype, batch, mut launches, scratch } = self;
        launches.push(attend.launch(dtype, batch)?);
        // Scores add products of a head, results add keys; the longer of both counts.
        let chain = attend.q.size.max(attend.keys).max(terms);
        Ok(NodePlan { scratch, ..plan_with(&KERNEL, launches, vec![vec![0; 8]], chain) })
    }
}

/// How heads are moved: rows that the result has room for if it keeps cached ones, angles, and a bias.
#[derive(Clone, Copy, Default)]
pub(super) struct HeadsMove<'a> {
    /// Rows that the result has room for; those of the heads themselves if nothing is cached.
    pub room: Option<u32>,
    /// Rows in front of the new ones.
    pub past: Past<'a>,
    /// The rotation of new rows.
    pub turn: Option<HeadRotation<'a>>,
    /// A bias for new rows, and its first element that counts.
    pub added: Option<(Placed<'a>, u32)>,
}

/// What is added to scores.
#[derive(Clone, Copy)]
pub(super) struct Bias<'a> {
    /// The input: of the activations' dtype.
    pub given: Placed<'a>,
    /// Elements from one to the next of the batch, heads, queries and keys.
    pub strides: [u32; 4],
}

/// What hides keys.
#[derive(Clone, Copy)]
pub(super) struct Mask<'a> {
    /// The input: truths or integers.
    pub given: Placed<'a>,
    /// What `MASK` means in the kernel.
    pub kind: u32,
    /// Elements from one to the next of the batch, heads, queries and keys.
    pub strides: [u32; 4],
    /// What is added to a score that is hidden, where the kind does not hide it altogether.
    pub filter: f64,
}

/// Attention of heads that are ready.
pub(super) struct ReadyAttention<'a> {
    /// Queries.
    pub q: HeadsBuffer<'a>,
    /// Keys, the cached ones first.
    pub k: HeadsBuffer<'a>,
    /// Values, as the keys.
    pub v: HeadsBuffer<'a>,
    /// The output, and where its rows lie.
    pub y: (usize, HeadRows),
    /// Most keys that are there.
    pub keys: u32,
    /// Keys before that of the first query.
    pub ahead: u32,
    /// How many keys each of the batch has, and what `LENGTHS` means in the kernel.
    pub lengths: Option<(Placed<'a>, u32)>,
    /// The factor of scores.
    pub scale: f64,
    /// The cap of scores; 0 for none.
    pub softcap: f64,
    /// Whether a query sees only keys up to its own place.
    pub causal: bool,
    /// Keys that a query sees at most; 0 for all.
    pub window: u32,
    /// What is added to scores.
    pub bias: Option<Bias<'a>>,
    /// What hides keys.
    pub mask: Option<Mask<'a>>,
    /// What `SINKS` means in the kernel, and those that are given.
    pub sinks: (u32, Option<Placed<'a>>),
}

impl ReadyAttention<'_> {
    /// The launch: a workgroup for each head, each four rows of queries, and each of the batch.
    fn launch(&self, dtype: DType, batch: u32) -> Result<Launch> {
        let ReadyAttention { q, k, v, .. } = self;
        let given = |input: Option<Placed>| input.map_or(Arg::Constant(0), whole);
        // Heads that were moved to scratch are f32 there, so that each side has a type of its own.
        let sides = [("asked", q), ("kept_key", k), ("kept_value", v)];
        let mut text: String =
            sides.iter().map(|(name, side)| alias(name, dtype, side.place.dtype(dtype))).collect();
        text += concat!(include_str!("integers.wgsl"), include_str!("attention.wgsl"));
        let launch = KERNEL.launch(dtype, dtype)?.text(text);
        let launch = sides.iter().fold(launch, |launch, (_, side)| side.place.read(launch));
        let launch = launch.read(given(self.bias.map(|bias| bias.given)));
        let launch = launch.read(given(self.mask.map(|mask| mask.given)));
        let launch = launch.read(given(self.lengths.map(|lengths| lengths.0))).read(given(self.sinks.1));
        let launch = launch.output(self.y.0).set("HEADS", q.heads).set("KV_HEADS", k.heads);
        let launch = launch.set("HEAD_DIM", q.size).set("VALUE_DIM", v.size).set("QUERIES", q.length);
        let launch = launch.set("KEYS", self.keys).set("SCALE", self.scale).set("SOFTCAP", self.softcap);
        let launch = launch.set("CAUSAL", u32::from(self.causal)).set("WINDOW", self.window);
        let launch =
            launch.set("AHEAD", self.ahead).set("LENGTHS", self.lengths.map_or(0, |lengths| lengths.1));
        let launch = v.rows.set("V", k.rows.set("K", q.rows.set("Q", launch)));
        let launch = self.y.1.set("Y", launch).set("HAS_BIAS", u32::from(self.bias.is_some()));
        let named = |launch: LaunchBuilder, name: &str, strides: [u32; 4]| {
            let parts = ["BATCH", "HEAD", "ROW", "KEY"].into_iter().zip(strides);
            parts.fold(launch, |launch, (part, value)| launch.set(&format!("{name}_{part}"), value))
        };
        let launch = named(launch, "BIAS", self.bias.map_or([0; 4], |bias| bias.strides));
        let launch = named(launch, "MASK", self.mask.map_or([0; 4], |mask| mask.strides));
        let launch = launch.set("MASK", self.mask.map_or(0, |mask| mask.kind));
        let launch =
            launch.set("FILTER", self.mask.map_or(0.0, |mask| mask.filter)).set("SINKS", self.sinks.0);
        let groups = |size: u32| Extent::from_dim(u64::from(size));
        Ok(launch.groups([groups(q.heads), groups(q.length.div_ceil(ROWS)), groups(batch)]))
    }
}

/// A count that an attribute gives; 0 if it is absent.
pub(super) fn heads(node: &OnnxNode, name: &str) -> Result<u32> {
    let value = node.int(name, 0)?;
    u32::try_from(value).map_err(|_| Error::invalid(format!("attribute `{name}` is {value}")))
}

/// The factor of scores: 1/√size if the attribute is absent or 0.
pub(super) fn scale(node: &OnnxNode, size: u32) -> Result<f64> {
    let given = node.float("scale", 0.0)?;
    Ok(if given == 0.0 { 1.0 / f64::from(size.max(1)).sqrt() } else { given })
}

/// Strides of what stretches to `[batch, heads, queries, keys]`.
pub(super) fn strides_of(given: &Placed, to: [u32; 4]) -> Result<[u32; 4]> {
    match *broadcast_strides(&given.sizes()?, &to)?.as_slice() {
        [batch, head, row, key] => Ok([batch, head, row, key]),
        _ => Err(Error::invalid(format!("{} for scores of {to:?}", given.ty))),
    }
}

/// Refuses heads that the kernel does not take, or that do not fit each other.
///
/// # Errors
/// `InvalidInput` for sizes that contradict each other, `Unsupported` for what only this kernel refuses.
pub(super) fn check(
    node: &OnnxNode,
    batch: u32,
    q: &HeadsBuffer,
    k: &HeadsBuffer,
    v: &HeadsBuffer,
) -> Result<()> {
    let dtype = node.float_dtype()?;
    for side in [q, k, v] {
        if let ReadPlace::Given(input) = side.place
            && (input.dtype() != dtype || input.sizes()?.first() != Some(&batch))
        {
            return Err(Error::invalid(format!(
                "`{}` takes {} for a batch of {batch}",
                node.op.kind(),
                input.ty
            )));
        }
    }
    let fits = q.size == k.size && k.heads == v.heads && k.length == v.length && k.heads > 0;
    if !fits || !q.heads.is_multiple_of(k.heads) {
        return Err(Error::invalid(format!("queries, keys and values of `{}` do not fit", node.op.kind())));
    }
    if q.size > MOST || v.size > MOST || [batch, q.heads, q.length, q.size, k.length, v.size].contains(&0) {
        return Err(
            node.unserved_error(&format!("heads of {} and {} elements, or an empty tensor", q.size, v.size))
        );
    }
    Ok(())
}

/// Cached keys or values of an input of `[batch, heads, room, size]`, at most; none if it is absent.
pub(super) fn cached_rows<'a>(
    node: &OnnxNode<'a>,
    place: usize,
    batch: u32,
    side: &HeadsBuffer,
) -> Result<Past<'a>> {
    let Some(past) = node.optional(place) else { return Ok(Past::default()) };
    let room = past.sizes()?.get(2).copied().unwrap_or(0);
    node.takes(place, node.float_dtype()?, &[batch, side.heads, room, side.size])?;
    Ok(Past { cached: Some(past), room, ..Past::default() })
}

/// The output at a place if it is asked for, which then has to be of `[batch, heads, room, size]`.
pub(super) fn cache_output(
    node: &OnnxNode,
    place: usize,
    batch: u32,
    side: &HeadsBuffer,
    room: u32,
) -> Result<Option<(usize, u32)>> {
    match node.outputs.get(place).copied().flatten() {
        None => Ok(None),
        Some(_) => {
            let sizes = [batch, side.heads, room, side.size];
            Ok(Some((node.gives(place, node.float_dtype()?, &sizes)?.index, 0)))
        }
    }
}

/// The first output, of as many dimensions as the queries.
pub(super) fn result(node: &OnnxNode, batch: u32, q: &HeadsBuffer, value: u32) -> Result<(usize, HeadRows)> {
    let dtype = node.float_dtype()?;
    if node.input(0)?.sizes()?.len() == 4 {
        let y = node.gives(0, dtype, &[batch, q.heads, q.length, value])?;
        return Ok((y.index, HeadRows::by_head(q.heads, q.length, value)));
    }
    // The heads of a row lie side by side, as in the input.
    let width = count(&[q.heads, value])?;
    let y = node.gives(0, dtype, &[batch, q.length, width])?;
    Ok((y.index, HeadRows::by_row(q.length, width, value, 0)))
}

/// Keys and values behind cached ones where these are given or asked for: at places of inputs and of outputs.
pub(super) fn append_cached<'a>(
    node: &OnnxNode<'a>,
    steps: &mut Steps,
    sides: [HeadsBuffer<'a>; 2],
    inputs: [usize; 2],
    added: [Option<(Placed<'a>, u32)>; 2],
) -> Result<([HeadsBuffer<'a>; 2], u32)> {
    let mut moved = sides;
    let mut before = [0; 2];
    for at in 0..2 {
        let side = sides[at];
        let past = cached_rows(node, inputs[at], steps.batch, &side)?;
        let room = past.room.checked_add(side.length);
        let room = room.ok_or_else(|| node.unserved_error("so many keys"))?;
        let to = cache_output(node, at + 1, steps.batch, &side, room)?;
        before[at] = past.room;
        // Without a cache, an output for it, or a bias, keys and values stay where they are.
        if past.room > 0 || to.is_some() || added[at].is_some() {
            let how = HeadsMove { room: Some(room), past, added: added[at], turn: None };
            moved[at] = steps.move_heads(side, to, how)?;
        }
    }
    if before[0] == before[1] {
        Ok((moved, before[0]))
    } else {
        Err(Error::invalid(format!("{} cached keys and {} values", before[0], before[1])))
    }
}

/// `Attention` of the standard.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    let known = ["q_num_heads", "kv_num_heads", "scale", "softcap", "is_causal", "softmax_precision"];
    node.reads(&[&known[..], &["qk_matmul_output_mode"]].concat())?;
    let dtype = node.float_dtype()?;
    let (q_heads, kv_heads) = (heads(&node, "q_num_heads")?, heads(&node, "kv_num_heads")?);
    let q = HeadsBuffer::from_input(&node, 0, q_heads)?;
    let (k, v) = (HeadsBuffer::from_input(&node, 1, kv_heads)?, HeadsBuffer::from_input(&node, 2, kv_heads)?);
    let batch = node.input(0)?.sizes()?[0];
    check(&node, batch, &q, &k, &v)?;
    if node.outputs.get(3).copied().flatten().is_some()
        || node.optional(4).is_some() != node.optional(5).is_some()
    {
        return Err(node.unserved_error("scores as an output, or cached keys without values"));
    }
    let mut steps = Steps::new(dtype, batch);
    let ([k, v], ahead) = append_cached(&node, &mut steps, [k, v], [4, 5], [None; 2])?;
    let lengths = node.may_take(6, DType::I64, &[batch])?;
    // The standard allows one or the other: lengths are for caches outside of the operator.
    if lengths.is_some() && ahead > 0 {
        return Err(node.unserved_error("lengths of cached keys"));
    }
    let (mut keys, mut bias, mut mask) = (k.length, None, None);
    if let Some(given) = node.optional(3) {
        // A mask that is too short hides the keys behind it.
        let own = given.sizes()?.last().copied().unwrap_or(1);
        // A mask of one element stretches over all keys.
        keys = if own == 1 { keys } else { keys.min(own) };
        let strides = strides_of(&given, [batch, q.heads, q.length, keys])?;
        match given.dtype() {
            DType::Bool => mask = Some(Mask { given, kind: 1, strides, filter: 0.0 }),
            found if found == dtype => bias = Some(Bias { given, strides }),
            // Truths hide keys; floats are added to scores.
            _ => return Err(node.unserved_error(&format!("a mask of {}", given.ty))),
        }
    }
    let attend = ReadyAttention {
        q,
        k,
        v,
        y: result(&node, batch, &q, v.size)?,
        keys,
        ahead,
        lengths: lengths.map(|lengths| (lengths, 2)),
        scale: scale(&node, q.size)?,
        softcap: node.float("softcap", 0.0)?.max(0.0),
        causal: node.int("is_causal", 0)? != 0,
        window: 0,
        bias,
        mask,
        sinks: (0, None),
    };
    steps.plan(&attend, 0)
}
