//! Rows of heads: rotary embeddings, keys and values behind those of earlier steps. `RotaryEmbedding` of the standard and of ONNX
//! Runtime: <https://onnx.ai/onnx/operators/onnx__RotaryEmbedding.html>.

use super::{OnnxNode, Placed, count, plan_with, whole};
use crate::kernel::Request;
use crate::kernel::source::{KernelSource, LaunchBuilder};
use crate::plan::{Arg, Launch, NodePlan};
use tapml_graph::{DType, Dim, Error, Result};

/// An invocation for each element of the result.
const KERNEL: KernelSource = KernelSource::flat("onnx/heads", "onnx/integers.wgsl+onnx/heads.wgsl", "");

/// Where rows of heads lie within a buffer, in elements.
#[derive(Clone, Copy)]
pub struct HeadRows {
    /// The first element of all.
    pub from: u32,
    /// Elements from one of the batch to the next.
    pub batch: u32,
    /// Elements from one head to the next.
    pub head: u32,
    /// Elements from one row of a head to the next.
    pub row: u32,
}

impl HeadRows {
    /// `[batch, heads, length, size]`.
    pub fn by_head(heads: u32, length: u32, size: u32) -> HeadRows {
        let head = length.wrapping_mul(size);
        HeadRows { from: 0, batch: heads.wrapping_mul(head), head, row: size }
    }

    /// `[batch, length, width]`, the heads side by side in a row from this column on.
    pub fn by_row(length: u32, width: u32, size: u32, from: u32) -> HeadRows {
        HeadRows { from, batch: length.wrapping_mul(width), head: size, row: width }
    }

    /// Sets the constants of a name.
    pub fn set(self, name: &str, launch: LaunchBuilder) -> LaunchBuilder {
        let parts = [("FROM", self.from), ("BATCH", self.batch), ("HEAD", self.head), ("ROW", self.row)];
        parts.into_iter().fold(launch, |launch, (part, value)| launch.set(&format!("{name}_{part}"), value))
    }
}

/// Cosines and sines by which rows are turned.
#[derive(Clone, Copy)]
pub struct HeadRotation<'a> {
    /// `[rows, pairs]`, in any dimensions.
    pub cosines: Placed<'a>,
    /// As the cosines.
    pub sines: Placed<'a>,
    /// Pairs of elements that are turned; the rest of a head stays.
    pub pairs: u32,
    /// Rows of cosines.
    pub rows: u32,
    /// Whether partners are neighbours; else they are `pairs` elements apart.
    pub interleaved: bool,
    /// What `POSITIONS` means in the kernel.
    pub positions: u32,
    /// Those that are listed, of 64 bits.
    pub listed: Option<Placed<'a>>,
}

impl<'a> HeadRotation<'a> {
    /// By two inputs of one shape, whose last size is that of the pairs, for heads of this many elements.
    pub fn from_inputs(
        node: &OnnxNode<'a>,
        [cosines, sines]: [usize; 2],
        size: u32,
        interleaved: bool,
    ) -> Result<HeadRotation<'a>> {
        let (dtype, cosines) = (node.float_dtype()?, node.input(cosines)?);
        let sizes = cosines.sizes()?;
        let sines = node.takes(sines, dtype, &sizes)?;
        let pairs = sizes.last().copied().unwrap_or(0);
        let rows = cosines.count()?.checked_div(pairs).unwrap_or(0);
        if cosines.dtype() != dtype || pairs > size / 2 || rows == 0 || sizes.len() < 2 {
            return Err(Error::invalid(format!("angles of {} for heads of {size} elements", cosines.ty)));
        }
        Ok(HeadRotation { cosines, sines, pairs, rows, interleaved, positions: 0, listed: None })
    }
}

/// Rows cached before the new ones.
#[derive(Clone, Copy, Default)]
pub struct Past<'a> {
    /// Their buffer, `[batch, heads, room, size]`, its first element, and how many rows it has room for.
    pub cached: Option<Placed<'a>>,
    pub from: u32,
    pub room: u32,
    /// How many there are with the new ones, less one, for each of the batch; all that there is room for if absent.
    pub lengths: Option<Placed<'a>>,
}

/// Rows of heads from where they are to where they are kept.
pub struct Moved<'a> {
    /// Elements of the batch.
    pub batch: u32,
    /// Heads of each.
    pub heads: u32,
    /// Elements of a row.
    pub size: u32,
    /// New rows.
    pub length: u32,
    /// Rows that the result has room for.
    pub room: u32,
    /// Where new rows are.
    pub x: HeadRows,
    /// Where rows of the result go.
    pub y: HeadRows,
    /// Rows in front of the new ones.
    pub past: Past<'a>,
    /// Whether the result has the cached rows too.
    pub keeps: bool,
    /// The rotation of new rows, if they are turned.
    pub turn: Option<HeadRotation<'a>>,
    /// What is added to new rows, and the element that it begins with.
    pub added: Option<(Placed<'a>, u32)>,
}

impl Moved<'_> {
    /// The launch; constant 0 stands where an input is absent. The rows are of the first dtype, the result of the last.
    ///
    /// `x` binds what is read and `y` what is written; between them come the cache, the angles, the lengths and the
    /// bias.
    pub fn launch(
        &self,
        [given_dtype, dtype, out]: [DType; 3],
        x: impl Fn(LaunchBuilder) -> LaunchBuilder,
        y: impl Fn(LaunchBuilder) -> LaunchBuilder,
    ) -> Result<Launch> {
        let given = |input: Option<Placed>| match input {
            Some(input) if input.count().is_ok_and(|count| count > 0) => whole(input),
            _ => Arg::Constant(0),
        };
        let Moved { past, turn, .. } = self;
        let all = count(&[self.batch, self.heads, self.room, self.size])?;
        let text = format!(
            "{}{}{}",
            alias("given", dtype, given_dtype),
            include_str!("integers.wgsl"),
            include_str!("heads.wgsl")
        );
        let launch = x(KERNEL.launch(dtype, out)?.text(text)).read(given(past.cached));
        let launch = launch.read(given(turn.map(|turn| turn.cosines)));
        let launch = launch.read(given(turn.map(|turn| turn.sines)));
        let launch = launch.read(given(turn.and_then(|turn| turn.listed))).read(given(past.lengths));
        let launch = y(launch.read(given(self.added.map(|added| added.0))));
        let launch = launch.set("COUNT", all).set("HEADS", self.heads).set("SIZE", self.size);
        let launch = launch.set("LENGTH", self.length).set("ROOM", self.room);
        let launch = launch.set("KEEPS", u32::from(self.keeps)).set("CACHED", past.room);
        let launch = launch.set("BEFORE", past.room).set("HAS_LENGTHS", u32::from(past.lengths.is_some()));
        let launch = self.y.set("Y", self.x.set("X", launch)).set("PAST_FROM", past.from);
        let launch = launch.set("HAS_ADDED", u32::from(self.added.is_some()));
        let launch = launch.set("ADDED_FROM", self.added.map_or(0, |added| added.1));
        let launch = launch.set("PAIRS", turn.map_or(0, |turn| turn.pairs));
        let launch = launch.set("INTERLEAVED", turn.map_or(0, |turn| u32::from(turn.interleaved)));
        let launch = launch.set("ANGLES", turn.map_or(1, |turn| turn.rows));
        let launch = launch.set("POSITIONS", turn.map_or(0, |turn| turn.positions));
        Ok(launch.flat(Dim::from(u64::from(all))))
    }
}

/// The declaration of a name for a dtype, in a kernel whose activations are of another or the same.
pub fn alias(name: &str, act: DType, dtype: DType) -> String {
    format!("alias {name} = {};\n", if dtype == act { "act" } else { "f32" })
}

/// `RotaryEmbedding` of the standard and of ONNX Runtime, which have their inputs in another order.
pub fn plan_rotary(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    let is_standard = node.op.domain() == "onnx";
    node.reads(&["num_heads", "rotary_embedding_dim", "interleaved", "is_packed_batching", "scale"])?;
    if node.int("is_packed_batching", 0)? != 0 || node.float("scale", 1.0)? != 1.0 {
        return Err(node.unserved_error("packed batches, or the attribute `scale`"));
    }
    let (dtype, x) = (node.float_dtype()?, node.input(0)?);
    let sizes = x.sizes()?;
    let y = node.gives(0, dtype, &sizes)?;
    // The standard has cosines and sines behind the input; ONNX Runtime has the positions there.
    let angles = if is_standard { [1, 2] } else { [2, 3] };
    let pairs = node.input(angles[0])?.sizes()?.last().copied().unwrap_or(0);
    let (batch, heads, length, size, rows) = match *sizes.as_slice() {
        [batch, heads, length, size] => (batch, heads, length, size, HeadRows::by_head(heads, length, size)),
        [batch, length, width] => {
            let told = u32::try_from(node.int("num_heads", 0)?).unwrap_or(0);
            // ONNX Runtime tells the heads by the angles if it is not told.
            let heads = if told == 0 && !is_standard { width / (2 * pairs).max(1) } else { told };
            if heads == 0 || width % heads != 0 {
                return Err(Error::invalid(format!("{heads} heads of {}", x.ty)));
            }
            let size = width / heads;
            (batch, heads, length, size, HeadRows::by_row(length, width, size, 0))
        }
        _ => return Err(node.unserved_error(&format!("{}", x.ty))),
    };
    let turned = u32::try_from(node.int("rotary_embedding_dim", 0)?).unwrap_or(0);
    let turn = HeadRotation::from_inputs(&node, angles, size, node.int("interleaved", 0)? != 0)?;
    // Elements that are not turned have no angles.
    if 2 * turn.pairs != if turned == 0 { size } else { turned } {
        return Err(Error::invalid(format!("{} pairs of {size} elements are turned", turn.pairs)));
    }
    let listed = node.optional(if is_standard { 3 } else { 1 });
    // Angles for each row, listed positions, or the first position of all rows.
    let positions = match listed.map(|listed| listed.sizes()).transpose()? {
        None if is_standard && turn.rows == batch.saturating_mul(length) => 0,
        Some(list) if list == [batch, length] => 1,
        Some(list) if list == [1] && !is_standard => 2,
        _ => return Err(Error::invalid(format!("positions of {batch} times {length} rows"))),
    };
    if listed.is_some_and(|listed| listed.dtype() != DType::I64) || x.count()? == 0 {
        return Err(node.unserved_error("positions that are no i64, or an empty tensor"));
    }
    let turn = Some(HeadRotation { positions, listed, ..turn });
    let (past, added) = (Past::default(), None);
    let moved =
        Moved { batch, heads, size, length, room: length, x: rows, y: rows, past, keeps: false, turn, added };
    let launch = moved.launch([dtype; 3], |launch| launch.read(whole(x)), |launch| launch.output(y.index))?;
    // A rotation adds two products. The constant is as long as one position of 64 bits.
    Ok(plan_with(&KERNEL, vec![launch], vec![vec![0; 8]], 2))
}
