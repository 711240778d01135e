//! Operators whose elements stand at other places of their input: rearranged as the sizes tell, chosen by indices that the kernel
//! reads, or on one side of a diagonal.

use super::movement::{finish, int_words, moved, start, strided_over};
use super::{MAX_RANK, OnnxNode, count, strides, whole, words};
use crate::kernel::Request;
use crate::kernel::source::{KernelSource, LaunchBuilder};
use crate::plan::{Arg, NodePlan};
use tapml_graph::{DType, Error, Result, Tensor};

/// Elements on one side of a diagonal; zeros elsewhere.
const TRILU: KernelSource = moved!("trilu", "integers.wgsl", "trilu.wgsl");
/// A one on a diagonal; zeros elsewhere.
const EYE: KernelSource = moved!("eye", "eye.wgsl");
/// One of two values for each element.
const ONE_HOT: KernelSource = moved!("one_hot", "integers.wgsl", "one_hot.wgsl");
/// An index for each element of the output.
const GATHER_ELEMENTS: KernelSource = moved!("gather_elements", "integers.wgsl", "gather_elements.wgsl");
/// A row of indices for each slice of the output.
const GATHER_ND: KernelSource = moved!("gather_nd", "integers.wgsl", "slices.wgsl", "gather_nd.wgsl");

/// `Tile`. The repeats are an input, which the declared sizes tell.
pub fn plan_tile(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    node.reads(&[])?;
    let (x, y) = (node.input(0)?, node.output(0)?);
    let (from, to) = (x.sizes()?, y.sizes()?);
    let fits = |(&from, &to): (&u32, &u32)| if from == 0 { to == 0 } else { to % from == 0 };
    if node.version() < 6 {
        return Err(node.unserved_error("tiles along one axis"));
    }
    if from.len() != to.len() || x.dtype() != y.dtype() || !from.iter().zip(&to).all(fits) {
        return Err(Error::invalid(format!("`Tile` declares {} from {}", y.ty, x.ty)));
    }
    // Each dimension becomes two, how often it is repeated and its size; the repeated one has a stride of 0.
    let repeats = from.iter().zip(&to).flat_map(|(&from, &to)| [to.checked_div(from).unwrap_or(0), from]);
    let along = strides(&from).into_iter().flat_map(|stride| [0, stride]);
    strided_over(&node, &repeats.collect::<Vec<_>>(), along.collect())
}

/// `DepthToSpace` and `SpaceToDepth`: the dimensions of a finer shape in another order.
pub fn plan_blocks(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    node.reads(&["blocksize", "mode"])?;
    let x = node.input(0)?;
    // The bound keeps the square within 32 bits.
    let b = u32::try_from(node.int("blocksize", 0)?).ok().filter(|&b| b > 0 && b <= 1 << 15);
    let (&[n, c, h, w], Some(b)) = (x.sizes()?.as_slice(), b) else {
        return Err(node.unserved_error(&format!("such blocks of {}", x.ty)));
    };
    let by_rows = match node.text("mode", "DCR")? {
        "DCR" => false,
        "CRD" => true,
        other => return Err(node.unserved_error(&format!("the mode `{other}`"))),
    };
    let to_space = node.op.name() == "DepthToSpace";
    let divides = if to_space { c % (b * b) == 0 } else { h % b == 0 && w % b == 0 };
    if !divides {
        return Err(Error::invalid(format!("{} has no whole blocks of {b}", x.ty)));
    }
    // The finer shape has a dimension for each part of a block; the order is that of the standard's transposition.
    let (finer, order, sizes) = match (to_space, by_rows) {
        (true, false) => (
            [n, b, b, c / (b * b), h, w],
            [0, 3, 4, 1, 5, 2],
            [n, c / (b * b), h.saturating_mul(b), w.saturating_mul(b)],
        ),
        (true, true) => (
            [n, c / (b * b), b, b, h, w],
            [0, 1, 4, 2, 5, 3],
            [n, c / (b * b), h.saturating_mul(b), w.saturating_mul(b)],
        ),
        (false, false) => {
            ([n, c, h / b, b, w / b, b], [0, 3, 5, 1, 2, 4], [n, c.saturating_mul(b * b), h / b, w / b])
        }
        (false, true) => {
            ([n, c, h / b, b, w / b, b], [0, 1, 3, 5, 2, 4], [n, c.saturating_mul(b * b), h / b, w / b])
        }
    };
    node.gives(0, x.dtype(), &sizes)?;
    // A dimension of the output has the stride of the one that it comes from.
    let own = strides(&finer);
    let dims: Vec<u32> = order.iter().map(|&d: &usize| finer[d]).collect();
    strided_over(&node, &dims, order.iter().map(|&d| own[d]).collect())
}

/// `Trilu`. The diagonal is an input, which the kernel reads; it is 0 if absent.
pub fn plan_trilu(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    node.reads(&["upper"])?;
    let x = node.input(0)?;
    let sizes = x.sizes()?;
    let y = node.gives(0, x.dtype(), &sizes)?;
    let [.., rows, columns] = sizes[..] else {
        return Err(Error::invalid(format!("{} is no matrix", x.ty)));
    };
    let k = node.optional(1);
    if k.map_or(Ok(1), |k| k.count())? != 1 {
        return Err(Error::invalid("a diagonal is one number"));
    }
    // Every binding needs a buffer: four zero bytes stand in for an absent diagonal.
    let launch = start(&TRILU)?.read(whole(x)).read(k.map_or(Arg::Constant(0), whole));
    let launch = launch.set("ROWS", rows.max(1)).set("COLUMNS", columns.max(1));
    let launch = launch.set("UPPER", u32::from(node.int("upper", 1)? != 0));
    let launch = launch.set("HAS_K", u32::from(k.is_some()));
    let launch = launch.set("INT_WORDS", k.map_or(Ok(2), |k| int_words(&node, &k))?);
    finish(&TRILU, launch, &y, vec![vec![0; 4]])
}

/// `EyeLike`.
pub fn plan_eye(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    // The dtype is that of the declared output.
    node.reads(&["dtype", "k"])?;
    let sizes = node.input(0)?.sizes()?;
    let y = node.gives(0, node.output(0)?.dtype(), &sizes)?;
    let &[_, columns] = sizes.as_slice() else {
        return Err(Error::invalid(format!("{} is no matrix", node.input(0)?.ty)));
    };
    let k = i32::try_from(node.int("k", 0)?).map_err(|_| node.unserved_error("such a diagonal"))?;
    // The one element of the diagonal, in the dtype of the output.
    let mut bytes = Tensor::from_f64(y.dtype(), vec![1], &[1.0])?.bytes().to_vec();
    // Buffers are whole words.
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    let launch = start(&EYE)?.read(Arg::Constant(0)).set("COLUMNS", columns.max(1)).set("K", k);
    finish(&EYE, launch, &y, vec![bytes])
}

/// `OneHot`. The depth is an input, which the declared sizes tell.
pub fn plan_one_hot(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    node.reads(&["axis"])?;
    let indices = node.input(0)?;
    let mut sizes = indices.sizes()?;
    // The axis is one of the output, which has one dimension more than the indices.
    let axis = node.axis(node.int("axis", -1)?, sizes.len() + 1)?;
    let depth = node.output(0)?.sizes()?.get(axis).copied().unwrap_or(0);
    sizes.insert(axis, depth);
    let values = node.takes(2, node.output(0)?.dtype(), &[2])?;
    let y = node.gives(0, values.dtype(), &sizes)?;
    if node.input(1)?.count()? != 1 {
        return Err(Error::invalid(format!("a depth of {}", node.input(1)?.ty)));
    }
    // The standard allows indices of any number type.
    let floats = indices.dtype() == DType::F32;
    let words = if floats { 1 } else { int_words(&node, &indices)? };
    let launch = start(&ONE_HOT)?.read(whole(values)).read(whole(indices)).set("DEPTH", depth.max(1));
    let launch = launch.set("INNER", count(&sizes[axis + 1..])?.max(1)).set("FLOATS", u32::from(floats));
    finish(&ONE_HOT, launch.set("INT_WORDS", words), &y, Vec::new())
}

/// `GatherElements`.
pub fn plan_gather_elements(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    node.reads(&["axis"])?;
    let (x, indices) = (node.input(0)?, node.input(1)?);
    let (from, sizes) = (x.sizes()?, indices.sizes()?);
    let axis = node.axis(node.int("axis", 0)?, from.len())?;
    fits_along(&from, &sizes, axis)?;
    let y = node.gives(0, x.dtype(), &sizes)?;
    let constant = words(sizes.iter().copied().chain(strides(&from)));
    let launch = start(&GATHER_ELEMENTS)?.read(whole(x)).read(whole(indices)).read(Arg::Constant(0));
    let launch = launch.set("RANK", from.len() as u32).set("AXIS", axis as u32);
    let launch = launch.set("AXIS_SIZE", from[axis]).set("INT_WORDS", int_words(&node, &indices)?);
    finish(&GATHER_ELEMENTS, launch, &y, vec![constant])
}

/// Fails unless indices stand at places of a tensor along every axis but this one.
pub fn fits_along(from: &[u32], indices: &[u32], axis: usize) -> Result<()> {
    let fits = (0..from.len()).all(|d| d == axis || indices.get(d).is_some_and(|&size| size <= from[d]));
    if fits && indices.len() == from.len() {
        Ok(())
    } else {
        Err(Error::invalid(format!("indices {indices:?} for {from:?} along axis {axis}")))
    }
}

/// Slices of a tensor that rows of indices name.
pub struct Slices {
    /// Indices of a row.
    depth: u32,
    /// Elements of a slice.
    pub slice: u32,
    /// Rows of indices for each of the batch.
    rows: u32,
    /// Elements of the tensor for each of the batch.
    batch_size: u32,
    /// Sizes and strides of the dimensions that are indexed.
    pub table: Vec<u8>,
    /// Sizes of all slices together.
    pub sizes: Vec<u32>,
}

impl Slices {
    /// Of a tensor of these sizes, with the first dimensions in common with the indices.
    pub fn from_sizes(from: &[u32], indices: &[u32], batch: usize) -> Result<Slices> {
        let wrong = || Error::invalid(format!("indices {indices:?} for {from:?} with {batch} batch axes"));
        let [outer @ .., depth] = indices else { return Err(wrong()) };
        let whole = usize::try_from(*depth).ok().and_then(|depth| batch.checked_add(depth));
        let whole = whole.filter(|&whole| whole <= from.len()).ok_or_else(wrong)?;
        if outer.len() < batch || outer[..batch] != from[..batch] {
            return Err(wrong());
        }
        let own = strides(from);
        let table = from[batch..whole].iter().chain(&own[batch..whole]).copied();
        Ok(Slices {
            depth: *depth,
            slice: count(&from[whole..])?,
            rows: count(&outer[batch..])?,
            batch_size: count(&from[batch..])?,
            table: words(table),
            sizes: [outer, &from[whole..]].concat(),
        })
    }

    /// Sets the constants of the text.
    pub fn set(&self, launch: LaunchBuilder) -> LaunchBuilder {
        let launch = launch.set("DEPTH", self.depth).set("SLICE", self.slice.max(1));
        launch.set("ROWS", self.rows.max(1)).set("BATCH_SIZE", self.batch_size)
    }
}

/// `GatherND`.
pub fn plan_gather_nd(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    node.reads(&["batch_dims"])?;
    let (x, indices) = (node.input(0)?, node.input(1)?);
    let batch = usize::try_from(node.int("batch_dims", 0)?).ok().filter(|&batch| batch <= MAX_RANK);
    let batch = batch.ok_or_else(|| node.unserved_error("such batch dimensions"))?;
    let slices = Slices::from_sizes(&x.sizes()?, &indices.sizes()?, batch)?;
    let y = node.gives(0, x.dtype(), &slices.sizes)?;
    let launch = start(&GATHER_ND)?.read(whole(x)).read(whole(indices)).read(Arg::Constant(0));
    let launch = slices.set(launch).set("INT_WORDS", int_words(&node, &indices)?);
    finish(&GATHER_ND, launch, &y, vec![slices.table])
}
