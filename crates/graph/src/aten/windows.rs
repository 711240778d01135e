//! Convolutions, pools and sampling, as `Conv`, `ConvTranspose`, `MaxPool`, `AveragePool` and `Resize` of ONNX.
//!
//! All need a batch and channels in front. PyTorch pads both ends of a dimension alike, while ONNX has a number for each.
//! Sizes from arguments are at most 32767 (see [`Arguments::sizes`]), so that the product of two of them fits in `usize`.

use super::arguments::Arguments;
use super::arithmetic::Defined;
use super::builder::{Builder, Operand};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use serde_json::json;

/// Batch, channels, and this many dimensions behind them.
///
/// # Errors
/// Of kind `Unsupported` for other numbers of dimensions, and for inputs without a batch.
fn spatial(x: &Operand, count: Option<usize>) -> Result<&[usize]> {
    match x.shape.get(2..) {
        Some(rest) if !rest.is_empty() && count.is_none_or(|count| rest.len() == count) => Ok(rest),
        _ => Err(Error::unsupported(format!("{}, without a batch or of other dimensions", x.ty()))),
    }
}

/// How far windows reach along one dimension.
#[derive(Clone, Copy)]
struct Reach {
    /// Elements of the input.
    size: usize,
    /// Elements of a window, at least 1.
    kernel: usize,
    /// Elements between windows, at least 1.
    stride: usize,
    /// Elements in front of the input, and as many behind it.
    padding: usize,
    /// Elements between those of a window, at least 1.
    dilation: usize,
}

impl Reach {
    /// From the first element of a window to behind its last.
    fn span(&self) -> usize {
        self.dilation * (self.kernel - 1) + 1
    }

    /// Windows, as PyTorch counts them: with `ceil` also one that begins in the input or in front of it, and does not end there.
    fn windows(&self, ceil: bool) -> Option<usize> {
        // A window that is larger than the padded input has no place.
        let room = (self.size + 2 * self.padding).checked_sub(self.span())?;
        let more = if ceil { self.stride - 1 } else { 0 };
        let count = (room + more) / self.stride + 1;
        // A window that would begin behind the input, in its padding, is left out.
        let beyond = ceil && (count - 1) * self.stride >= self.size + self.padding;
        Some(if beyond { count - 1 } else { count })
    }

    /// What is missing behind the input for so many windows.
    fn missing_behind(&self, windows: usize) -> usize {
        let end = (windows - 1) * self.stride + self.span();
        end.saturating_sub(self.size + self.padding)
    }
}

/// A convolution; `transposed` where its gradient is meant.
pub fn convolution(builder: &mut Builder, arguments: &Arguments, dims: Option<usize>) -> Defined {
    let (x, weight) = (arguments.floats("input")?, arguments.floats("weight")?);
    let bias = arguments.optional("bias");
    let size = spatial(&x, dims)?.to_vec();
    let count = size.len();
    // `convolution` needs every argument; `conv1d` and `conv2d` have defaults.
    let default = dims.map(|_| 1);
    let stride = arguments.sizes("stride", count, default, 1)?;
    let padding = arguments.sizes("padding", count, dims.map(|_| 0), 0)?;
    let dilation = arguments.sizes("dilation", count, default, 1)?;
    let more = arguments.sizes("output_padding", count, Some(0), 0)?;
    let (transposed, groups) = (arguments.flag("transposed", false)?, arguments.int("groups")?.unwrap_or(1));
    let groups = usize::try_from(groups).ok().filter(|groups| *groups > 0);
    let groups = groups.ok_or_else(|| Error::invalid("`groups` is no positive integer"))?;
    let wrong =
        || Error::invalid(format!("a convolution of {} with {} in {groups} groups", x.ty(), weight.ty()));
    let [first, second, kernel @ ..] = weight.shape.as_slice() else { return Err(wrong()) };
    // A weight is `[outputs, inputs / groups, …]`, but `[inputs, outputs / groups, …]` where it is transposed.
    let grouped = second.checked_mul(groups).ok_or_else(wrong)?;
    let (taken, given) = if transposed { (*first, grouped) } else { (grouped, *first) };
    if taken != x.shape[1] || kernel.len() != count || kernel.contains(&0) || !given.is_multiple_of(groups) {
        return Err(wrong());
    }
    let mut shape = vec![x.shape[0], given];
    for d in 0..count {
        let (stride, padding, dilation) = (stride[d], padding[d], dilation[d]);
        let reach = Reach { size: size[d], kernel: kernel[d], stride, padding, dilation };
        let found = if transposed {
            size[d].checked_sub(1).and_then(|last| {
                // `(size − 1)·stride − 2·padding + dilation·(kernel − 1) + output_padding + 1`.
                (last * stride + reach.span() + more[d]).checked_sub(2 * padding).filter(|size| *size > 0)
            })
        } else {
            reach.windows(false)
        };
        shape.push(found.ok_or_else(wrong)?);
    }
    // Begins of all dimensions, then their ends.
    let pads = [padding.clone(), padding].concat();
    let mut attributes = json!({"dilations": dilation, "group": groups, "kernel_shape": kernel, "pads": pads, "strides": stride});
    if transposed {
        attributes["output_padding"] = json!(more);
    } else if more.iter().any(|&size| size > 0) {
        return Err(Error::invalid("`output_padding` of a convolution that is not transposed"));
    }
    let inputs = [Some(&x), Some(&weight), bias.as_ref()];
    let taken = if bias.is_some() { 3 } else { 2 };
    let kind = if transposed { "onnx.ConvTranspose@11" } else { "onnx.Conv@11" };
    builder.step(kind, attributes, &inputs[..taken], &[(x.dtype, shape)])
}

/// Windows of a pool.
struct PoolWindows {
    /// Sizes of the result.
    shape: Vec<usize>,
    /// How far each dimension reaches.
    reaches: Vec<Reach>,
    /// Whether windows may end behind the border.
    ceil: bool,
}

fn windows(x: &Operand, arguments: &Arguments, dims: usize, dilates: bool) -> Result<PoolWindows> {
    let size = spatial(x, Some(dims))?;
    let kernel = arguments.sizes("kernel_size", dims, None, 1)?;
    // Windows that do not overlap are PyTorch's default.
    let stride = if arguments.ints("stride")?.is_none_or(|stride| stride.is_empty()) {
        kernel.clone()
    } else {
        arguments.sizes("stride", dims, None, 1)?
    };
    let padding = arguments.sizes("padding", dims, Some(0), 0)?;
    let dilation = if dilates { arguments.sizes("dilation", dims, Some(1), 1)? } else { vec![1; dims] };
    let ceil = arguments.flag("ceil_mode", false)?;
    let mut shape = x.shape[..2].to_vec();
    let mut reaches = Vec::new();
    for d in 0..dims {
        let (kernel, stride, padding) = (kernel[d], stride[d], padding[d]);
        let reach = Reach { size: size[d], kernel, stride, padding, dilation: dilation[d] };
        // PyTorch refuses a padding of more than half a window.
        let windows = reach.windows(ceil).filter(|windows| *windows > 0 && 2 * reach.padding <= reach.kernel);
        let wrong = || {
            Error::invalid(format!(
                "windows of {} with a padding of {} over {}",
                reach.kernel,
                reach.padding,
                x.ty()
            ))
        };
        shape.push(windows.ok_or_else(wrong)?);
        reaches.push(reach);
    }
    Ok(PoolWindows { shape, reaches, ceil })
}

/// The largest number of each window, and where it is in its plane.
pub fn max_pool(builder: &mut Builder, arguments: &Arguments, dims: usize) -> Defined {
    let x = arguments.floats("self")?;
    let PoolWindows { shape, reaches, .. } = windows(&x, arguments, dims, true)?;
    // No number is smaller than a border's: as much of it stands behind as the windows reach.
    let behind: Vec<usize> =
        reaches.iter().zip(&shape[2..]).map(|(reach, &windows)| reach.missing_behind(windows)).collect();
    let list = |of: fn(&Reach) -> usize| reaches.iter().map(of).collect::<Vec<usize>>();
    let begin = list(|reach| reach.padding);
    for ((reach, &behind), &windows) in reaches.iter().zip(&behind).zip(&shape[2..]) {
        let room = (reach.size + reach.padding + behind).checked_sub(reach.span());
        if room.map(|room| room / reach.stride + 1) != Some(windows) {
            return Err(Error::unsupported("windows that end in front of the border"));
        }
    }
    let pads = [begin, behind].concat();
    let attributes = json!({
        "kernel_shape": list(|reach| reach.kernel), "strides": list(|reach| reach.stride),
        "dilations": list(|reach| reach.dilation), "pads": pads,
    });
    let asked = builder.asks(1);
    let outputs = [(x.dtype, shape.clone()), (DType::I64, shape)];
    let count = if asked { 2 } else { 1 };
    let mut found = builder.step("onnx.MaxPool@12", attributes, &[Some(&x)], &outputs[..count])?;
    if asked {
        // The standard counts elements of the whole tensor.
        let plane = builder.number(x.shape[2..].iter().product::<usize>() as f64, DType::I64)?;
        found[1] = builder.pair("onnx.Mod@13", &found[1], &plane)?;
    }
    Ok(found)
}

/// The mean of each window.
pub fn average_pool(builder: &mut Builder, arguments: &Arguments, dims: usize) -> Defined {
    let x = arguments.floats("self")?;
    let PoolWindows { shape, reaches, ceil } = windows(&x, arguments, dims, false)?;
    let counts = arguments.flag("count_include_pad", true)?;
    let divisor = arguments.number("divisor_override")?;
    let floor: Vec<Option<usize>> = reaches.iter().map(|reach| reach.windows(false)).collect();
    // PyTorch does not count elements behind the padding in the divisor of such a window.
    if ceil && !floor.iter().copied().eq(shape[2..].iter().map(|&size| Some(size))) {
        return Err(Error::unsupported("`ceil_mode` with windows that end behind the border"));
    }
    let list = |of: fn(&Reach) -> usize| reaches.iter().map(of).collect::<Vec<usize>>();
    let pads = [list(|reach| reach.padding), list(|reach| reach.padding)].concat();
    // With a divisor of its own every window is a sum over all of its elements.
    let counts = counts || divisor.is_some();
    let attributes = json!({
        "kernel_shape": list(|reach| reach.kernel), "strides": list(|reach| reach.stride), "pads": pads,
        "count_include_pad": i32::from(counts),
    });
    let mean = builder.add_operator("onnx.AveragePool@11", attributes, &[&x], (x.dtype, shape))?;
    let Some(divisor) = divisor else { return Ok(vec![mean]) };
    // The mean counts all elements of a window, so that this takes its divisor back.
    let elements = reaches.iter().map(|reach| reach.kernel).product::<usize>() as f64;
    let factor = builder.number(elements / divisor.value, x.dtype)?;
    Ok(vec![builder.pair("onnx.Mul@14", &mean, &factor)?])
}

/// The means of as many windows as are asked for.
pub fn adaptive_average_pool(builder: &mut Builder, arguments: &Arguments, dims: usize) -> Defined {
    let x = arguments.floats("self")?;
    let size = spatial(&x, Some(dims))?.to_vec();
    let asked = arguments.sizes("output_size", dims, None, 1)?;
    let shape = [&x.shape[..2], asked.as_slice()].concat();
    // One window is the whole plane, whatever its size.
    if asked.iter().all(|&size| size == 1) {
        return Ok(vec![builder.add_operator(
            "onnx.GlobalAveragePool@1",
            json!({}),
            &[&x],
            (x.dtype, shape),
        )?]);
    }
    // Otherwise windows overlap and differ in size, which no pool of ONNX does.
    if !size.iter().zip(&asked).all(|(size, asked)| size.is_multiple_of(*asked)) {
        return Err(Error::unsupported(format!("windows of several sizes: {asked:?} of {}", x.ty())));
    }
    let kernel: Vec<usize> = size.iter().zip(&asked).map(|(size, asked)| size / asked).collect();
    let attributes = json!({"kernel_shape": kernel, "strides": kernel});
    Ok(vec![builder.add_operator("onnx.AveragePool@11", attributes, &[&x], (x.dtype, shape))?])
}

/// A picture in another size, by the nearest neighbour or linear.
///
/// Linear interpolation has half-pixel centres unless corners are aligned. The nearest neighbour is `floor(x / scale)`.
///
/// # Errors
/// If sizes and factors are both missing, or a size would be 0 or more than 32767.
pub fn upsample(builder: &mut Builder, arguments: &Arguments, linear: bool) -> Defined {
    let x = arguments.floats("input")?;
    let size = spatial(&x, None)?.to_vec();
    let corners = linear && arguments.flag("align_corners", false)?;
    let factors = arguments.numbers("scale_factors")?;
    let sizes = match (arguments.ints("output_size")?, &factors) {
        (Some(_), _) => arguments.sizes("output_size", size.len(), None, 1)?,
        (None, Some(factors)) if factors.len() == size.len() => {
            let scaled = size.iter().zip(factors).map(|(&size, factor)| (size as f64 * factor).floor());
            // The same bound as that of sizes from arguments.
            let scaled = scaled.map(|size| (1.0..32768.0).contains(&size).then_some(size as usize));
            scaled
                .collect::<Option<_>>()
                .ok_or_else(|| Error::invalid(format!("`scale_factors` of {factors:?}")))?
        }
        _ => return Err(Error::invalid("needs `output_size` or `scale_factors` of each dimension")),
    };
    // With corners aligned the sizes alone say where each element comes from, as where no factors are given.
    let factors = factors.filter(|_| !corners && !arguments.has("output_size"));
    let shape = [&x.shape[..2], sizes.as_slice()].concat();
    let mode = if linear { "linear" } else { "nearest" };
    let place = match (linear, corners) {
        (false, _) => "asymmetric",
        (true, true) => "align_corners",
        (true, false) => "half_pixel",
    };
    let attributes = json!({"mode": mode, "coordinate_transformation_mode": place, "nearest_mode": "floor"});
    let ty = [(x.dtype, shape.clone())];
    match factors {
        Some(factors) => {
            let factors: Vec<f32> =
                [1.0, 1.0].into_iter().chain(factors).map(|factor| factor as f32).collect();
            let factors = builder.constant(Tensor::from_f32(vec![factors.len()], factors)?);
            builder.step("onnx.Resize@13", attributes, &[Some(&x), None, Some(&factors)], &ty)
        }
        None => {
            let sizes: Vec<i64> = shape.iter().map(|&size| size as i64).collect();
            let sizes = builder.ints(&sizes)?;
            builder.step("onnx.Resize@13", attributes, &[Some(&x), None, None, Some(&sizes)], &ty)
        }
    }
}
