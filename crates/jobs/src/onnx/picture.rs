//! An image as an input: which axes are rows, columns and channels, and what becomes of a sample.
//!
//! The order is that of usual preprocessing: decode, resize, choose channels, scale, normalise, lay out.

use super::options::wrong;
use super::source::{Filled, InputSource};
use tapml_engine::{Filter, Rgb};
use tapml_graph::{Bytes, Error, Result, Tensor};

pub(super) const OPTIONS: [&str; 7] = ["size", "layout", "channels", "filter", "scale", "mean", "std"];

/// The axes that a layout has, by the letters of ONNX's documents: a batch of one, channels, rows, columns.
const LAYOUTS: [(&str, &str); 5] =
    [("nchw", "nchw"), ("nhwc", "nhwc"), ("chw", "chw"), ("hwc", "hwc"), ("hw", "hw")];
/// As Pillow names them.
const FILTERS: [(&str, Filter); 3] =
    [("bilinear", Filter::Bilinear), ("bicubic", Filter::Bicubic), ("lanczos", Filter::Lanczos)];

/// The sizes of what is made.
struct Axes {
    /// A letter for each axis.
    /// `n`, `c`, `h` and `w`, outermost first.
    layout: &'static str,
    channels: usize,
    height: usize,
    width: usize,
}

/// Fills an input of 1 or 3 channels. Options: `size=HEIGHTxWIDTH`; `layout`; `channels=rgb|bgr|grey`; `filter`, by which the
/// picture is resized as Pillow does it; a sample `s` of 0 to 255 becomes `(s · scale - mean) / std`. Without `scale` it is
/// 1/255 for floats and 1 for integers.
pub(super) fn read(source: &InputSource<'_>) -> Result<Filled> {
    let picture = Rgb::open(source.path)?;
    let (found, options) = ([picture.height, picture.width], source.options);
    let axes = axes(source, found)?;
    let filter = options.word("filter", &FILTERS)?.unwrap_or(Filter::Bilinear);
    let to = [axes.height, axes.width];
    // A picture of the right size keeps its bytes.
    let same = found == to;
    let picture = if same { picture } else { picture.resize(to, filter)? };
    let order = order(source, axes.channels)?;
    let float = source.wanted.dtype.is_none_or(|dtype| dtype.is_float());
    let scale = options.number("scale")?.unwrap_or(if float { 1.0 / 255.0 } else { 1.0 });
    let mean = options.numbers("mean", axes.channels)?.unwrap_or(vec![0.0; axes.channels]);
    let std = options.numbers("std", axes.channels)?.unwrap_or(vec![1.0; axes.channels]);
    if let Some(zero) = std.iter().find(|std| **std == 0.0) {
        return Err(wrong("std", &zero.to_string(), "numbers other than 0"));
    }
    // A channel has 256 samples: their elements are made once.
    let tables = (0..axes.channels).map(|channel| {
        let value = |sample: u8| (f64::from(sample) * scale - mean[channel]) / std[channel];
        let values: Vec<f64> = (0..=255).map(value).collect();
        source.elements(vec![256], &values)
    });
    let tables: Vec<Tensor> = tables.collect::<Result<_>>()?;
    let planes = channels(&picture, order);
    let tensor = arrange(&axes, &tables, &planes)?;
    let resized = if same {
        format!("{}×{} pixels", found[0], found[1])
    } else {
        let name = FILTERS.iter().find(|(_, known)| *known == filter).map_or("", |(name, _)| name);
        format!("{}×{} pixels resized to {}×{} ({name})", found[0], found[1], to[0], to[1])
    };
    let how = format!(
        "{resized}, channels {}, layout {}, each sample (s · {scale} - {mean:?}) / {std:?}",
        order.name(),
        axes.layout
    );
    Ok(Filled { tensor, how, ids: None })
}

/// Which channels, in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Rgb,
    Bgr,
    Grey,
}

impl Order {
    /// The option's word.
    fn name(self) -> &'static str {
        match self {
            Order::Rgb => "rgb",
            Order::Bgr => "bgr",
            Order::Grey => "grey",
        }
    }
}

/// The channels that are asked for, else those that the number of channels means.
fn order(source: &InputSource<'_>, channels: usize) -> Result<Order> {
    let all = [Order::Rgb, Order::Bgr, Order::Grey].map(|order| (order.name(), order));
    let asked = source.options.word("channels", &all)?;
    let order = asked.unwrap_or(if channels == 1 { Order::Grey } else { Order::Rgb });
    if (order == Order::Grey) == (channels == 1) {
        Ok(order)
    } else {
        Err(source.unfit(&format!("has {channels} channels, and not those of `{}`", order.name())))
    }
}

/// The axes of the input for a picture of these sizes.
fn axes(source: &InputSource<'_>, found: [usize; 2]) -> Result<Axes> {
    let asked = source.options.word("layout", &LAYOUTS)?;
    let declared = source.wanted.shape.as_deref();
    let layout = match (asked, declared) {
        (Some(layout), _) => layout,
        (None, Some(shape)) => layout_of(shape).ok_or_else(|| no_image(source))?,
        (None, None) => "nchw",
    };
    if declared.is_some_and(|shape| shape.len() != layout.len()) {
        return Err(source.unfit(&format!("has another number of sizes than the layout `{layout}`")));
    }
    let declared = |axis: char| declared.and_then(|shape| shape.get(layout.find(axis)?).copied().flatten());
    if let Some(batch) = declared('n').filter(|batch| *batch != 1) {
        return Err(source
            .unfit(&format!("has a batch of {batch}: a file is one picture"))
            .with_hint("give an array: `numpy.save` of the pictures"));
    }
    // The option decides only where the model leaves the channels free.
    let grey = source.options.get("channels") == Some("grey");
    let free = if grey || !layout.contains('c') { 1 } else { 3 };
    let channels = declared('c').unwrap_or(free);
    if ![1, 3].contains(&channels) {
        return Err(no_image(source));
    }
    let size = match source.options.sizes("size")? {
        None => None,
        Some(sizes) => Some(
            <[usize; 2]>::try_from(sizes)
                .map_err(|sizes| wrong("size", &format!("{sizes:?}"), "height and width, such as 480x640"))?,
        ),
    };
    // The model's own size wins, the option fills in what is free, else the picture's size stands.
    let side = |axis: char, at: usize| match (declared(axis), size.map(|size| size[at])) {
        (Some(declared), Some(asked)) if declared != asked => {
            Err(source.unfit(&format!("has {declared} where `size` asks for {asked}")))
        }
        (Some(side), _) | (None, Some(side)) => Ok(side),
        (None, None) => Ok(found[at]),
    };
    Ok(Axes { layout, channels, height: side('h', 0)?, width: side('w', 1)? })
}

/// The layout that these sizes say: where there are 1 or 3 channels; in front where that is free.
fn layout_of(shape: &[Option<usize>]) -> Option<&'static str> {
    let is_channel = |at: usize| matches!(shape[at], Some(1 | 3));
    match shape.len() {
        2 => Some("hw"),
        3 if is_channel(0) => Some("chw"),
        3 if is_channel(2) => Some("hwc"),
        3 if shape[0].is_none() => Some("chw"),
        4 if is_channel(1) => Some("nchw"),
        4 if is_channel(3) => Some("nhwc"),
        4 if shape[1].is_none() => Some("nchw"),
        _ => None,
    }
}

/// The error of an input that has none of the layouts.
fn no_image(source: &InputSource<'_>) -> Error {
    let hint = "an image has the sizes [1, C, H, W], [1, H, W, C], [C, H, W], [H, W, C] or [H, W], with 1 or 3 channels C; \
        `layout=nhwc` says which";
    source.unfit("is no image").with_hint(hint)
}

/// The channels of a picture, each row by row. Grey is the luma of ITU-R BT.601, as Pillow computes it.
fn channels(picture: &Rgb, order: Order) -> Vec<Vec<u8>> {
    let channel = |at: usize| picture.samples.iter().skip(at).step_by(3).copied().collect();
    match order {
        Order::Rgb => vec![channel(0), channel(1), channel(2)],
        Order::Bgr => vec![channel(2), channel(1), channel(0)],
        Order::Grey => {
            let luma = |p: &[u8; 3]| {
                let [r, g, b] = p.map(u32::from);
                // 0.299, 0.587 and 0.114 in fixed point of 16 bits, rounded.
                ((19595 * r + 38470 * g + 7471 * b + 0x8000) >> 16) as u8
            };
            vec![picture.samples.as_chunks::<3>().0.iter().map(luma).collect()]
        }
    }
}

/// The elements of all samples, in the order of the layout.
fn arrange(axes: &Axes, tables: &[Tensor], planes: &[Vec<u8>]) -> Result<Tensor> {
    let Some(dtype) = tables.first().map(Tensor::dtype) else {
        return Err(Error::bug("a picture without channels"));
    };
    let width = dtype.size();
    let pixels = axes.height * axes.width;
    let mut bytes = Vec::with_capacity(pixels * planes.len() * width);
    let mut add = |channel: usize, pixel: usize| {
        let at = usize::from(planes[channel][pixel]) * width;
        bytes.extend_from_slice(&tables[channel].bytes()[at..at + width]);
    };
    if axes.layout.ends_with('c') {
        (0..pixels).for_each(|pixel| (0..planes.len()).for_each(|channel| add(channel, pixel)))
    } else {
        (0..planes.len()).for_each(|channel| (0..pixels).for_each(|pixel| add(channel, pixel)))
    }
    let size = |axis: char| match axis {
        'h' => axes.height,
        'w' => axes.width,
        'c' => axes.channels,
        _ => 1,
    };
    Tensor::new(dtype, axes.layout.chars().map(size).collect(), Bytes::new(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_say_where_channels_are() {
        let of = |shape: &[i64]| {
            layout_of(&shape.iter().map(|&size| usize::try_from(size).ok()).collect::<Vec<_>>())
        };
        assert_eq!(of(&[1, 3, 640, 640]), Some("nchw"));
        assert_eq!(of(&[1, 28, 28, 1]), Some("nhwc"));
        assert_eq!(of(&[-1, -1, -1, -1]), Some("nchw"));
        assert_eq!(of(&[-1, -1, -1, 3]), Some("nhwc"));
        assert_eq!(of(&[3, 8, 8]), Some("chw"));
        assert_eq!(of(&[8, 8, 3]), Some("hwc"));
        assert_eq!(of(&[8, 8]), Some("hw"));
        assert_eq!((of(&[1, 16, 8, 8]), of(&[4]), of(&[])), (None, None, None));
    }

    #[test]
    fn grey_is_pillows() {
        let picture = Rgb { width: 2, height: 1, samples: vec![255, 0, 0, 10, 200, 30] };
        // Image.convert("L") gives 76 and 124.
        assert_eq!(channels(&picture, Order::Grey), [[76, 124]]);
        assert_eq!(channels(&picture, Order::Bgr), [[0, 30], [0, 200], [255, 10]]);
    }
}
