//! Operators that cut, join, pad and rearrange tensors of any dtype.
//!
//! `Slice`, `Concat`, `Split`, `Pad`, `Tile`, `DepthToSpace`, `SpaceToDepth`. Elements are moved as bytes, and nothing rounds.

use crate::array::{StridedWalk, axis, axis_sizes, strides, volume};
use crate::call::{Call, Outputs};
use crate::op::movement::gather;
use crate::op::shape::sizes;
use tapml_graph::{Bytes, Error, Result, Tensor};

/// What is cut out along one axis: where it begins, in what steps, how many elements.
#[derive(Clone, Copy)]
struct AxisSlice {
    /// The first element.
    start: i64,
    /// Elements to the next one; negative steps go backwards.
    step: i64,
    /// Elements that are taken.
    count: usize,
}

impl AxisSlice {
    /// A cut of an axis of this size; bounds are counted from the end if they are negative, and clamped.
    ///
    /// # Errors
    /// If the step is 0.
    fn new(size: usize, start: i64, end: i64, step: i64) -> Result<AxisSlice> {
        let size = size as i64;
        let from_end = |at: i64| if at < 0 { at.saturating_add(size) } else { at };
        let (start, end) = match step {
            0 => return Err(Error::invalid("a slice with steps of 0")),
            1.. => (from_end(start).clamp(0, size), from_end(end).clamp(0, size)),
            // Backwards the end may lie before the first element: −1 after clamping.
            _ => (from_end(start).clamp(-1, size - 1), from_end(end).clamp(-1, size - 1)),
        };
        let span = if step > 0 { end - start } else { start - end };
        let count = span.max(0).unsigned_abs().div_ceil(step.unsigned_abs());
        Ok(AxisSlice { start, step, count: count as usize })
    }
}

/// Elements from `starts` to before `ends` in `steps` along `axes`; attributes before version 10.
pub fn slice(call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let rank = x.shape().len();
    let (starts, ends, axes, steps) = if call.version() < 10 {
        let (starts, ends) = (call.ints("starts")?, call.ints("ends")?);
        (
            call.require_attribute("starts", starts)?,
            call.require_attribute("ends", ends)?,
            call.ints("axes")?,
            None,
        )
    } else {
        let (axes, steps) = (call.optional_integers(3)?, call.optional_integers(4)?);
        (call.integers(1)?, call.integers(2)?, axes, steps)
    };
    let count = starts.len();
    let axes = axes.unwrap_or_else(|| (0..count as i64).collect());
    let steps = steps.unwrap_or_else(|| vec![1; count]);
    if [ends.len(), axes.len(), steps.len()] != [count; 3] {
        return Err(Error::invalid(format!(
            "starts {starts:?}, ends {ends:?}, axes {axes:?} and steps {steps:?} are not equally many"
        )));
    }
    let mut cuts: Vec<AxisSlice> =
        x.shape().iter().map(|&count| AxisSlice { start: 0, step: 1, count }).collect();
    crate::array::axes(&axes, rank)?;
    for (at, &given) in axes.iter().enumerate() {
        let axis = axis(given, rank)?;
        cuts[axis] = AxisSlice::new(x.shape()[axis], starts[at], ends[at], steps[at])?;
    }
    let own = strides(x.shape());
    let shape: Vec<usize> = cuts.iter().map(|cut| cut.count).collect();
    let places = cross_places(&shape, |axis, index| {
        usize::try_from(cuts[axis].start + index as i64 * cuts[axis].step).ok().map(|at| at * own[axis])
    })?;
    call.one_moved(gather(x, shape, places.into_iter().flatten())?)
}

/// The places of all elements of a shape, in row-major order: the sum of the places that `place` gives for each axis and each
/// index along it, or `None` if one is.
///
/// # Errors
/// If there are too many elements.
fn cross_places(
    shape: &[usize],
    place: impl Fn(usize, usize) -> Option<usize>,
) -> Result<Vec<Option<usize>>> {
    if volume(shape)? == 0 {
        return Ok(Vec::new());
    }
    let mut places = vec![Some(0)];
    for (axis, &size) in shape.iter().enumerate() {
        let along: Vec<Option<usize>> = (0..size).map(|index| place(axis, index)).collect();
        let next = places.iter().flat_map(|&sum| along.iter().map(move |&at| Some(sum? + at?)));
        places = next.collect();
    }
    Ok(places)
}

/// All inputs one behind the other along an axis.
pub fn concat(call: &Call<'_>) -> Outputs {
    let parts = call.all()?;
    let first = *parts.first().ok_or_else(|| Error::invalid("nothing to join"))?;
    let given = if call.version() < 4 {
        call.int_or("axis", 1)?
    } else {
        call.require_attribute("axis", call.int("axis")?)?
    };
    let at = axis(given, first.shape().len())?;
    let mut shape = first.shape().to_vec();
    shape[at] = 0;
    for part in &parts {
        let mut expected = part.shape().to_vec();
        if let Some(size) = expected.get_mut(at) {
            shape[at] += *size;
            *size = shape[at];
        }
        if expected != shape || part.dtype() != first.dtype() {
            return Err(Error::invalid(format!(
                "cannot join {}{:?} to {}{:?} along axis {at}",
                part.dtype(),
                part.shape(),
                first.dtype(),
                first.shape()
            )));
        }
    }
    volume(&shape)?;
    // Everything behind the axis is one run of bytes in each part.
    let [before, ..] = axis_sizes(&shape, at);
    let mut bytes = Vec::new();
    for outer in 0..before {
        for part in &parts {
            let row = part.bytes().len() / before;
            bytes.extend_from_slice(&part.bytes()[outer * row..(outer + 1) * row]);
        }
    }
    call.one_moved(Tensor::new(first.dtype(), shape, Bytes::new(bytes))?)
}

/// The elements from one place on along an axis, so many.
///
/// # Errors
/// If the tensor that they make is invalid; `start` and `count` have to lie within the axis.
fn part(x: &Tensor, at: usize, start: usize, count: usize) -> Result<Tensor> {
    let [before, size, behind] = axis_sizes(x.shape(), at);
    let row = behind * x.dtype().size();
    let mut bytes = Vec::with_capacity(before * count * row);
    for outer in 0..before {
        bytes.extend_from_slice(
            &x.bytes()[(outer * size + start) * row..(outer * size + start + count) * row],
        );
    }
    let mut shape = x.shape().to_vec();
    shape[at] = count;
    Tensor::new(x.dtype(), shape, Bytes::new(bytes))
}

/// Parts along an axis: of given sizes, or as many as there are outputs. Parts of no given size are equal; the last one is less
/// where the axis does not divide.
pub fn split(call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let at = axis(call.int_or("axis", 0)?, x.shape().len())?;
    let size = x.shape()[at];
    let given = match call.version() {
        1 if call.optional(1).is_some() => Some(call.integers(1)?),
        0..13 => call.ints("split")?,
        _ => call.optional_integers(1)?,
    };
    // Before version 18 there is no such attribute, and the node's outputs tell it.
    let parts = call.int("num_outputs")?.map_or(call.output_places() as i64, |count| count);
    let counts: Vec<usize> = match given {
        Some(list) => list.iter().map(|&count| usize::try_from(count).unwrap_or(usize::MAX)).collect(),
        None => {
            let parts =
                usize::try_from(parts).ok().filter(|&parts| parts > 0 && parts <= call.output_places());
            let parts = parts.ok_or_else(|| {
                Error::invalid(format!("attribute `num_outputs`: expected {} outputs", call.output_places()))
            })?;
            // The last part has what is left.
            let each = size.div_ceil(parts);
            (0..parts).map(|part| each.min(size.saturating_sub(part * each))).collect()
        }
    };
    let total = counts.iter().try_fold(0usize, |total, &count| total.checked_add(count));
    if total != Some(size) {
        return Err(Error::invalid(format!("parts {counts:?} of an axis of {size} elements")));
    }
    let mut start = 0;
    let mut outputs = Vec::with_capacity(counts.len());
    for count in counts {
        outputs.push(Some(call.store_moved(part(x, at, start, count)?)?));
        start += count;
    }
    Ok(outputs)
}

/// How elements outside are made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// One value for all of them.
    Constant,
    /// The nearest element.
    Edge,
    /// Mirrored at the outermost elements, which are not repeated.
    Reflect,
    /// From the other end.
    Wrap,
}

impl Mode {
    /// The place in an axis of this size that stands at a place outside; `None` for the constant.
    fn place(self, at: i64, size: i64) -> Option<usize> {
        if (0..size).contains(&at) {
            return Some(at as usize);
        }
        let place = match self {
            Mode::Constant => return None,
            Mode::Edge => at.clamp(0, size - 1),
            Mode::Wrap => at.rem_euclid(size),
            // One element has no others to reflect to.
            Mode::Reflect if size == 1 => 0,
            Mode::Reflect => {
                // The mirror image repeats after twice the size less its two ends.
                let turn = at.rem_euclid(2 * (size - 1));
                turn.min(2 * (size - 1) - turn)
            }
        };
        Some(place as usize)
    }
}

/// The paddings before and behind each axis; a negative one cuts.
///
/// # Errors
/// If they are missing, or not two for each axis.
fn pads(call: &Call<'_>, rank: usize) -> Result<Vec<[i64; 2]>> {
    let list = match call.version() {
        0..2 => call.ints("paddings")?,
        2..11 => call.ints("pads")?,
        _ => Some(call.integers(1)?),
    };
    let list = call.require_attribute("pads", list)?;
    let chosen = match call.optional_integers(3)? {
        Some(list) => list.iter().map(|&at| axis(at, rank)).collect::<Result<Vec<usize>>>()?,
        None => (0..rank).collect(),
    };
    let bound = crate::array::MAX_ELEMENTS as i64;
    if list.len() != 2 * chosen.len() || list.iter().any(|pad| !(-bound..=bound).contains(pad)) {
        return Err(Error::invalid(format!(
            "pads {list:?} for {} axes: expected two for each",
            chosen.len()
        )));
    }
    let mut pads = vec![[0; 2]; rank];
    for (at, &axis) in chosen.iter().enumerate() {
        pads[axis] = [list[at], list[at + chosen.len()]];
    }
    Ok(pads)
}

/// The elements with others around them: a constant, the edge repeated, mirrored at the edge, or from the other end.
pub fn pad(call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let mode = match call.text_or("mode", "constant")? {
        "constant" => Mode::Constant,
        "edge" => Mode::Edge,
        "reflect" => Mode::Reflect,
        "wrap" => Mode::Wrap,
        other => {
            return Err(Error::invalid(format!("attribute `mode`: there is no `{}`", other.escape_debug())));
        }
    };
    let fill = if call.version() < 11 {
        Tensor::from_f64(x.dtype(), vec![1], &[call.float_or("value", 0.0)?])?
    } else {
        match call.optional(2) {
            Some(value) if value.dtype() == x.dtype() && value.len() == 1 => value.clone(),
            Some(value) => {
                let (dtype, len) = (value.dtype(), value.len());
                return Err(Error::invalid(format!(
                    "input 2: expected one {}, found {len} {dtype}",
                    x.dtype()
                )));
            }
            None => Tensor::new(x.dtype(), vec![1], Bytes::new(vec![0u8; x.dtype().size()]))?,
        }
    };
    let pads = pads(call, x.shape().len())?;
    // Negative pads cut, so that a size may become too small.
    let sides = x.shape().iter().zip(&pads);
    let shape = sides.map(|(&size, &[begin, end])| usize::try_from(size as i64 + begin + end).ok());
    let shape = shape.collect::<Option<Vec<usize>>>();
    let shape = shape.ok_or_else(|| Error::invalid(format!("{:?} with padding {pads:?}", x.shape())))?;
    if volume(&shape)? > 0 && x.is_empty() && mode != Mode::Constant {
        return Err(Error::invalid(format!("{:?} has no elements to pad with", x.shape())));
    }
    let (own, width) = (strides(x.shape()), x.dtype().size());
    let mut bytes = Vec::new();
    let places = cross_places(&shape, |axis, index| {
        Some(mode.place(index as i64 - pads[axis][0], x.shape()[axis] as i64)? * own[axis])
    })?;
    for place in places {
        match place {
            Some(place) => bytes.extend_from_slice(&x.bytes()[place * width..(place + 1) * width]),
            None => bytes.extend_from_slice(fill.bytes()),
        }
    }
    call.one_moved(Tensor::new(x.dtype(), shape, Bytes::new(bytes))?)
}

/// The tensor repeated so often along each axis.
pub fn tile(call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let rank = x.shape().len();
    let repeats = if call.version() < 6 {
        let (tiles, at) = (call.integer(1)?, axis(call.integer(2)?, rank)?);
        let mut repeats = vec![1; rank];
        repeats[at] = usize::try_from(tiles).map_err(|_| Error::invalid(format!("{tiles} tiles")))?;
        repeats
    } else {
        sizes(call, 1)?
    };
    if repeats.len() != rank {
        return Err(Error::invalid(format!("repeats {repeats:?} of a tensor of rank {rank}")));
    }
    let shape: Vec<usize> =
        x.shape().iter().zip(&repeats).map(|(size, &count)| size.saturating_mul(count)).collect();
    volume(&shape)?;
    let own = strides(x.shape());
    let places = cross_places(&shape, |axis, index| Some(index % x.shape()[axis] * own[axis]))?;
    call.one_moved(gather(x, shape, places.into_iter().flatten())?)
}

/// The elements of a tensor seen in a finer shape, with the axes of that in another order.
///
/// `order` names axes of `finer`; their sizes multiplied to `shape` give the result.
fn rearrange(call: &Call<'_>, finer: &[usize], order: &[usize], shape: Vec<usize>) -> Outputs {
    let own = strides(finer);
    let moved: Vec<usize> = order.iter().map(|&axis| finer[axis]).collect();
    let steps: Vec<usize> = order.iter().map(|&axis| own[axis]).collect();
    call.one_moved(gather(call.input(0)?, shape, StridedWalk::new(&moved, &steps))?)
}

/// Sizes of an image `[n, c, h, w]`, and the size of a block.
///
/// # Errors
/// If the tensor has other axes, or the block is not from 1 to 2¹⁵.
fn image(call: &Call<'_>) -> Result<([usize; 4], usize)> {
    let shape = call.input(0)?.shape();
    let block = call.require_attribute("blocksize", call.int("blocksize")?)?;
    let fits = |block: &usize| *block > 0 && *block <= 1 << 15;
    match (shape, usize::try_from(block).ok().filter(fits)) {
        (&[n, c, h, w], Some(block)) => Ok(([n, c, h, w], block)),
        _ => Err(Error::invalid(format!("blocks of {block} of a tensor {shape:?}: expected one of rank 4"))),
    }
}

/// Channels moved to blocks of pixels: of `[n, c, h, w]`, to `[n, c / b², h·b, w·b]`.
pub fn depth_to_space(call: &Call<'_>) -> Outputs {
    let ([n, c, h, w], b) = image(call)?;
    if c % (b * b) != 0 {
        return Err(Error::invalid(format!("{c} channels are not blocks of {b} × {b}")));
    }
    let (depth, shape) = (c / (b * b), vec![n, c / (b * b), h.saturating_mul(b), w.saturating_mul(b)]);
    match call.text_or("mode", "DCR")? {
        // The two orders of the standard: depth, column, row, or column, row, depth.
        "DCR" => rearrange(call, &[n, b, b, depth, h, w], &[0, 3, 4, 1, 5, 2], shape),
        "CRD" => rearrange(call, &[n, depth, b, b, h, w], &[0, 1, 4, 2, 5, 3], shape),
        other => Err(Error::invalid(format!("attribute `mode`: there is no `{}`", other.escape_debug()))),
    }
}

/// Blocks of pixels moved to channels: of `[n, c, h, w]`, to `[n, c·b², h / b, w / b]`.
pub fn space_to_depth(call: &Call<'_>) -> Outputs {
    let ([n, c, h, w], b) = image(call)?;
    if h % b != 0 || w % b != 0 {
        return Err(Error::invalid(format!("{h} × {w} pixels are not blocks of {b} × {b}")));
    }
    let (finer, shape) = ([n, c, h / b, b, w / b, b], vec![n, c.saturating_mul(b * b), h / b, w / b]);
    match call.text_or("mode", "DCR")? {
        "DCR" => rearrange(call, &finer, &[0, 3, 5, 1, 2, 4], shape),
        "CRD" => rearrange(call, &finer, &[0, 1, 3, 5, 2, 4], shape),
        other => Err(Error::invalid(format!("attribute `mode`: there is no `{}`", other.escape_debug()))),
    }
}
