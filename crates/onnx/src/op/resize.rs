//! `Resize` and `Upsample`: the numbers between those of a tensor, axis by axis.
//!
//! Places are computed in `f64` for `f32` too: which neighbours a place has is part of the operator's meaning.

use super::movement::gather;
use crate::array::{Array, axis, axis_sizes, volume};
use crate::call::{Call, Outputs};
use crate::facts::{CallFacts, InputSizes, exact, terms};
use crate::real::Real;
use tapml_graph::{Error, Result, Tensor};

/// How places of the result are mapped to places of the input.
///
/// Names are those of the attributes of ONNX's `Resize`.
struct Mapping<'a> {
    /// `nearest`, `linear` or `cubic`.
    mode: &'a str,
    /// `nearest_mode`; `simple` is that of versions before 11.
    nearest: &'a str,
    /// `coordinate_transformation_mode`.
    coordinates: &'a str,
    /// `cubic_coeff_a`, the parameter of Keys' kernel.
    cubic: f64,
    /// Whether neighbours outside have no weight; else they repeat the border.
    exclude_outside: bool,
    /// Whether the kernel is widened where the result is smaller.
    antialias: bool,
    /// What `tf_crop_and_resize` gives outside of the input.
    extrapolation: f64,
}

/// An axis: its size, that of the result, their ratio, and the region of interest.
struct ResizeAxis {
    /// Elements of the input.
    from: usize,
    /// Elements of the result.
    to: usize,
    /// `to / from`, or what the input `scales` says.
    scale: f64,
    /// Whether the scale is `to / from`, which is then not rounded.
    sized: bool,
    /// Beginning and end of the region of interest, as parts of the axis.
    region: (f64, f64),
}

impl ResizeAxis {
    /// `x / scale`.
    /// A scale that follows from sizes is not rounded in between.
    fn unscale(&self, x: f64) -> f64 {
        if self.sized { x * self.from as f64 / self.to as f64 } else { x / self.scale }
    }
}

/// Most neighbours of a place.
const MAX_NEIGHBOURS: f64 = (1 << 24) as f64;

/// Most elements of an axis of the result that is not copied: each has a list of neighbours.
const MAX_AXIS: usize = 1 << 26;

/// The neighbours of a place with their weights; none if it lies outside of the input and is extrapolated.
type Neighbours = Vec<(usize, f64)>;

impl<'a> Mapping<'a> {
    /// From the attributes, with the defaults of the call's version.
    ///
    /// # Errors
    /// If the mode is unknown.
    fn read(call: &Call<'a>) -> Result<Mapping<'a>> {
        // Before version 11 places are `x / scale`, and the nearest is above in a smaller result, below in a larger one.
        let old = call.version() < 11;
        Ok(Mapping {
            mode: match call.text_or("mode", "nearest")? {
                "bilinear" | "trilinear" => "linear",
                mode @ ("nearest" | "linear" | "cubic") => mode,
                mode => return Err(unknown("mode", mode)),
            },
            nearest: call.text_or("nearest_mode", if old { "simple" } else { "round_prefer_floor" })?,
            coordinates: call
                .text_or("coordinate_transformation_mode", if old { "asymmetric" } else { "half_pixel" })?,
            cubic: call.float_or("cubic_coeff_a", -0.75)?,
            exclude_outside: call.flag("exclude_outside", false)?,
            antialias: call.flag("antialias", false)?,
            extrapolation: call.float_or("extrapolation_value", 0.0)?,
        })
    }

    /// Where element `x` of the result lies in the input.
    fn place(&self, axis: &ResizeAxis, x: usize) -> Result<f64> {
        let (x, from, to, scale) = (x as f64, axis.from as f64, axis.to as f64, axis.scale);
        Ok(match self.coordinates {
            "half_pixel" => axis.unscale(x + 0.5) - 0.5,
            "half_pixel_symmetric" => {
                let offset = from / 2.0 * (1.0 - to / (scale * from));
                offset + axis.unscale(x + 0.5) - 0.5
            }
            "pytorch_half_pixel" if axis.to == 1 => 0.0,
            "pytorch_half_pixel" => axis.unscale(x + 0.5) - 0.5,
            "align_corners" if axis.to == 1 => 0.0,
            "align_corners" => x * (from - 1.0) / (to - 1.0),
            "asymmetric" => axis.unscale(x),
            "tf_half_pixel_for_nn" => axis.unscale(x + 0.5),
            "tf_crop_and_resize" => {
                let (start, end) = axis.region;
                match axis.to {
                    1 => 0.5 * (start + end) * (from - 1.0),
                    _ => start * (from - 1.0) + x * (end - start) * (from - 1.0) / (to - 1.0),
                }
            }
            other => return Err(unknown("coordinate_transformation_mode", other)),
        })
    }

    /// The elements of the input that element `x` of the result is computed from.
    ///
    /// # Errors
    /// If a mode is unknown, or antialiasing needs more than [`MAX_NEIGHBOURS`].
    fn neighbours(&self, axis: &ResizeAxis, x: usize) -> Result<Neighbours> {
        // Only `tf_crop_and_resize` extrapolates; all others continue the border.
        let place = self.place(axis, x)?;
        let last = axis.from as f64 - 1.0;
        if self.coordinates == "tf_crop_and_resize" && !(0.0..=last).contains(&place) {
            return Ok(Vec::new());
        }
        let clamped = |at: f64| at.clamp(0.0, last) as usize;
        if self.mode == "nearest" {
            let at = match self.nearest {
                "round_prefer_floor" => (place - 0.5).ceil(),
                "round_prefer_ceil" => (place + 0.5).floor(),
                "simple" if axis.scale < 1.0 => place.ceil(),
                "floor" | "simple" => place.floor(),
                "ceil" => place.ceil(),
                other => return Err(unknown("nearest_mode", other)),
            };
            return Ok(vec![(clamped(at), 1.0)]);
        }
        // With antialiasing the kernel is as wide as an element of the result.
        let squeeze = if self.antialias { axis.scale.min(1.0) } else { 1.0 };
        let reach = if self.mode == "linear" { 1.0 } else { 2.0 };
        let first = (-reach / squeeze).floor() + 1.0;
        let count = 2.0 - 2.0 * first;
        if count.is_nan() || count > MAX_NEIGHBOURS {
            return Err(Error::invalid(format!("a scale of {} is too small", axis.scale)));
        }
        // Neighbours lie at whole numbers around the place.
        let (floor, ratio) = (place.floor(), place - place.floor());
        let mut list = Vec::with_capacity(count as usize);
        for step in 0..count as usize {
            let offset = first + step as f64;
            let weight = self.kernel((offset - ratio) * squeeze);
            let at = floor + offset;
            let outside = self.exclude_outside && !(0.0..=last).contains(&at);
            if weight != 0.0 && !outside {
                list.push((clamped(at), weight));
            }
        }
        if self.antialias || self.exclude_outside {
            // Weights that were left out or stretched have to sum up to 1 again.
            let sum: f64 = list.iter().map(|(_, weight)| weight).sum();
            list.iter_mut().for_each(|(_, weight)| *weight /= sum);
        }
        Ok(list)
    }

    /// The weight of a neighbour at this distance; for cubic that of Keys, "Cubic convolution interpolation for digital image
    /// processing", 1981, equation 15.
    fn kernel(&self, distance: f64) -> f64 {
        let (x, a) = (distance.abs(), self.cubic);
        match self.mode {
            "linear" => (1.0 - x).max(0.0),
            _ if x <= 1.0 => ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0,
            _ if x < 2.0 => ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a,
            _ => 0.0,
        }
    }
}

/// An error that shows at most 80 characters of a value that is not served.
fn unknown(name: &str, found: &str) -> Error {
    let found: String = found.chars().take(80).collect();
    Error::unsupported(format!("attribute `{name}`: `{}` is not served", found.escape_debug()))
}

/// Axes with sizes by `scales`. The product is rounded to `f32`, as ONNX infers shapes.
///
/// # Errors
/// If there are other numbers of scales than of axes, or one is not positive or too large.
fn by_scales(shape: &[usize], axes: &[usize], scales: &[f64]) -> Result<Vec<ResizeAxis>> {
    if scales.len() != axes.len() {
        return Err(Error::invalid(format!("{} scales for {} axes", scales.len(), axes.len())));
    }
    let mut result: Vec<ResizeAxis> = shape
        .iter()
        .map(|&size| ResizeAxis { from: size, to: size, scale: 1.0, sized: false, region: (0.0, 1.0) })
        .collect();
    for (&axis, &scale) in axes.iter().zip(scales) {
        // In `f32`, as shape inference has it: in `f64` some sizes would be one less.
        let size = (shape[axis] as f32 * scale as f32).floor();
        if !(scale > 0.0 && scale.is_finite()) || size >= 2f32.powi(31) {
            return Err(Error::invalid(format!("a scale of {scale} for an axis of {}", shape[axis])));
        }
        result[axis].scale = scale;
        result[axis].to = size as usize;
    }
    Ok(result)
}

/// Axes with these sizes, perhaps with one scale for all.
///
/// # Errors
/// If there are other numbers of sizes than of axes, one is negative or too large, or the policy is unknown.
fn by_sizes(shape: &[usize], axes: &[usize], sizes: &[i64], policy: &str) -> Result<Vec<ResizeAxis>> {
    if sizes.len() != axes.len() || sizes.iter().any(|&size| !(0..1 << 31).contains(&size)) {
        return Err(Error::invalid(format!("`sizes` {sizes:?} for {} axes", axes.len())));
    }
    let scale = |(&axis, &size): (&usize, &i64)| size as f64 / shape[axis] as f64;
    let scales: Vec<f64> = axes.iter().zip(sizes).map(scale).collect();
    let mut result: Vec<ResizeAxis> = shape
        .iter()
        .map(|&size| ResizeAxis { from: size, to: size, scale: 1.0, sized: false, region: (0.0, 1.0) })
        .collect();
    // Both other policies take one scale for all axes that are given, and round the sizes by it.
    let common = match policy {
        "stretch" => None,
        "not_larger" => Some(scales.iter().copied().fold(f64::INFINITY, f64::min)),
        "not_smaller" => Some(scales.iter().copied().fold(0.0, f64::max)),
        other => return Err(unknown("keep_aspect_ratio_policy", other)),
    };
    for ((&axis, &size), scale) in axes.iter().zip(sizes).zip(scales) {
        let own = &mut result[axis];
        own.scale = common.unwrap_or(scale);
        own.sized = common.is_none();
        own.to = common.map_or(size as usize, |scale| (scale * shape[axis] as f64 + 0.5).floor() as usize);
    }
    Ok(result)
}

/// What happens to each axis, from the inputs and attributes of the version.
///
/// # Errors
/// If neither or both of scales and sizes are given, or a result has too many elements.
fn plan(call: &Call<'_>, shape: &[usize]) -> Result<Vec<ResizeAxis>> {
    let rank = shape.len();
    let axes = match call.ints("axes")? {
        None => (0..rank).collect(),
        Some(axes) => axes.iter().map(|&one| axis(one, rank)).collect::<Result<Vec<usize>>>()?,
    };
    let policy = call.text_or("keep_aspect_ratio_policy", "stretch")?;
    let given = |place: usize| call.optional(place).filter(|tensor| !tensor.is_empty());
    let scales = if call.has("scales") {
        call.floats("scales")?
    } else {
        given(if call.version() < 11 { 1 } else { 2 }).map(Tensor::to_f64)
    };
    let sizes = if call.version() < 11 { None } else { given(3) };
    let mut plan = match (scales, sizes) {
        (Some(scales), None) => by_scales(shape, &axes, &scales)?,
        (None, Some(sizes)) => by_sizes(shape, &axes, &sizes.to_i64()?, policy)?,
        _ => return Err(Error::invalid("expected either `scales` or `sizes`")),
    };
    if call.version() >= 11
        && let Some(roi) = given(1)
    {
        let roi = roi.to_f64();
        if roi.len() != 2 * axes.len() {
            return Err(Error::invalid(format!("`roi` has {} numbers for {} axes", roi.len(), axes.len())));
        }
        for (at, &axis) in axes.iter().enumerate() {
            plan[axis].region = (roi[at], roi[at + axes.len()]);
        }
    }
    let to: Vec<usize> = plan.iter().map(|axis| axis.to).collect();
    let changed = to.iter().zip(shape).filter(|(to, from)| to != from).map(|(to, _)| *to);
    if let Some(size) = changed.into_iter().find(|&to| to > MAX_AXIS) {
        return Err(Error::invalid(format!("an axis of {size} elements, at most 2^26 are served")));
    }
    let empty = |axis: &ResizeAxis| axis.from == 0 && axis.to != 0;
    if volume(&to)? > 0 && plan.iter().any(empty) {
        Err(Error::invalid(format!("{shape:?} has no elements to make {to:?} of")))
    } else {
        Ok(plan)
    }
}

/// Neighbours of each place along an axis; `None` if the axis stays as it is.
///
/// # Errors
/// As [`Mapping::neighbours`].
fn table(mapping: &Mapping<'_>, axis: &ResizeAxis) -> Result<Option<Vec<Neighbours>>> {
    // `tf_half_pixel_for_nn` would move axes that are not resized, such as the batch, by half an element.
    if axis.from == axis.to && axis.scale == 1.0 && mapping.coordinates != "tf_crop_and_resize" {
        return Ok(None);
    }
    let table = (0..axis.to).map(|x| mapping.neighbours(axis, x)).collect::<Result<Vec<Neighbours>>>()?;
    // A table that changes nothing is left out, so that such axes are not rounded.
    let same = |(x, list): (usize, &Neighbours)| matches!(list.as_slice(), [(at, weight)] if *at == x && *weight == 1.0);
    Ok((axis.from != axis.to || !table.iter().enumerate().all(same)).then_some(table))
}

/// `Resize` from version 10, `Upsample` from version 7.
///
/// Nearest neighbours are copied in any dtype; all else is computed in floats.
pub fn resize(call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let mapping = Mapping::read(call)?;
    let plan = plan(call, x.shape())?;
    let extrapolates = mapping.coordinates == "tf_crop_and_resize";
    if mapping.mode == "nearest" && !extrapolates {
        let mut tensor = x.clone();
        for (at, axis) in plan.iter().enumerate() {
            let Some(table) = table(&mapping, axis)? else { continue };
            let [before, size, behind] = axis_sizes(tensor.shape(), at);
            let mut shape = tensor.shape().to_vec();
            shape[at] = table.len();
            volume(&shape)?;
            let places = (0..before).flat_map(|outer| {
                let row = table.iter().map(move |list| (outer * size + list[0].0) * behind);
                row.flat_map(move |first| first..first + behind)
            });
            tensor = gather(&tensor, shape, places)?;
        }
        return Ok(vec![Some(call.store_moved(tensor)?)]);
    }
    if call.is_double() {
        interpolate::<f64>(call, &mapping, &plan)
    } else {
        interpolate::<f32>(call, &mapping, &plan)
    }
}

/// `linear` and `cubic`: axis by axis, as the weights of a place are products of those along its axes.
fn interpolate<T: Real>(call: &Call<'_>, mapping: &Mapping<'_>, plan: &[ResizeAxis]) -> Outputs {
    let mut x = call.array::<T>(0)?;
    // What lies outside along one axis is extrapolated whatever the others say.
    let mut outside: Vec<(usize, Vec<usize>)> = Vec::new();
    for (at, axis) in plan.iter().enumerate() {
        let Some(table) = table(mapping, axis)? else { continue };
        let missing = |(x, list): (usize, &Neighbours)| list.is_empty().then_some(x);
        outside.push((at, table.iter().enumerate().filter_map(missing).collect()));
        let [before, size, behind] = axis_sizes(&x.shape, at);
        let mut shape = x.shape.clone();
        shape[at] = table.len();
        let mut y = Array::<T>::zeros(shape)?;
        for outer in 0..before {
            for (to, list) in table.iter().enumerate() {
                let y = &mut y.data[(outer * table.len() + to) * behind..][..behind];
                for &(from, weight) in list {
                    let x = &x.data[(outer * size + from) * behind..][..behind];
                    let weight = T::nearest(weight);
                    y.iter_mut().zip(x).for_each(|(y, &x)| *y += weight * x);
                }
            }
        }
        x = y;
    }
    for (at, places) in outside {
        let [before, size, behind] = axis_sizes(&x.shape, at);
        for outer in 0..before {
            for &place in &places {
                x.data[(outer * size + place) * behind..][..behind].fill(T::nearest(mapping.extrapolation));
            }
        }
    }
    call.like_first(x)
}

/// Neighbours along each axis that changes; a nearest neighbour is chosen.
pub fn facts(sizes: &InputSizes<'_>) -> CallFacts {
    let mode = sizes.op.attributes().get("mode").and_then(serde_json::Value::as_str);
    let scaled = sizes.shape(0).len().min(3) as u32;
    match mode {
        None | Some("nearest") => exact(sizes),
        Some("cubic") => terms(4usize.pow(scaled)),
        _ => terms(2usize.pow(scaled)),
    }
}
