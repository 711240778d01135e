//! Images for models that see: from a file to what the encoder takes, as the checkpoint's image processor says.
//!
//! The steps are those of Transformers' image processors, in its order: resize, cut out the middle,
//! rescale, normalise. Sizes are checked before memory is taken.

mod crops;
mod picture;
mod pixels;
mod resize;

pub use pixels::Pixels;
pub use resize::{Filter, Rgb};

use crops::Crops;
use image::error::{LimitError, LimitErrorKind};
use image::{DynamicImage, ImageDecoder, ImageError, ImageReader, Limits};
use resize::resize;
use serde::Serialize;
use std::io::{BufRead, Cursor, Seek};
use std::path::Path;
use tapml_graph::{Error, ErrorKind, Result, Tensor};
use tapml_import::{Config, Layout, Section};

/// The largest file that is read, in bytes.
const MAX_FILE: u64 = 256 << 20;
/// Most pixels along one side.
pub(crate) const MAX_SIDE: u32 = 1 << 14;
/// Most pixels of an image.
const MAX_PIXELS: u64 = 1 << 27;
/// Most bytes that decoding may take for each of these pixels: four channels of 16 bits fit.
const PIXEL_BYTES: u64 = 8;
/// Sizes that a configuration may ask for, and most pixels along a side of what the encoder takes.
pub(crate) const SIZES: std::ops::RangeInclusive<u32> = 1..=1 << 12;

/// Mean and standard deviation of each channel of CLIP's images.
const CLIP: [[f64; 2]; 3] = [[0.48145466, 0.26862954], [0.4578275, 0.26130258], [0.40821073, 0.27577711]];

/// Turns image files into what a model's encoder takes. Serialised it is read by `web/src/site/image.ts`, which does the same.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ImageProcessor {
    /// Size and filter; none if images are taken as they are.
    resize: Option<(ImageSize, Filter)>,
    /// Height and width of the middle part that is kept.
    crop: Option<[u32; 2]>,
    /// How the image is cut in parts, instead of both.
    #[serde(skip)]
    crops: Option<Crops>,
    /// Factor on samples of 0 to 255.
    rescale: f64,
    /// Mean and standard deviation of each channel after that.
    normal: [[f64; 2]; 3],
}

/// The size that an image is brought to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum ImageSize {
    /// The shorter side; the other keeps the shape.
    Shortest(u32),
    /// Height and width.
    Exact([u32; 2]),
}

impl ImageProcessor {
    /// Reads `preprocessor_config.json` of a model folder, else `image_processor` of `processor_config.json`, for a model
    /// that takes images in this layout. Fails if there is neither, or on what it asks for beyond resizing, cutting out
    /// the middle or cutting in parts, scaling and normalising.
    pub fn open(dir: &Path, layout: Layout) -> Result<ImageProcessor> {
        if let Some(config) = Config::read_if_present(&dir.join("preprocessor_config.json"))? {
            return ImageProcessor::read(&config.root(), layout);
        }
        let config = Config::read_if_present(&dir.join("processor_config.json"))?;
        let section = config.as_ref().map(|c| c.root().section("image_processor")).transpose()?.flatten();
        let missing = || {
            let text = format!("{}: there is no preprocessor_config.json", dir.display());
            Error::invalid(text).with_hint("images need the file that came with the weights")
        };
        ImageProcessor::read(&section.ok_or_else(missing)?, layout)
    }

    /// # Errors
    /// If the processor is of another family or asks for a step that is not served.
    fn read(json: &Section, layout: Layout) -> Result<ImageProcessor> {
        if let Some(crops) = Crops::read(json, layout)? {
            let normal = normal(json, Some(CLIP))?;
            return Ok(ImageProcessor {
                resize: None,
                crop: None,
                crops: Some(crops),
                rescale: 1.0 / 255.0,
                normal,
            });
        }
        let key = "image_processor_type";
        let kind = json.text_or(key, "CLIPImageProcessor")?;
        // Others resize or normalise in another order or way.
        if !["CLIP", "Siglip", "Llava"].iter().any(|family| is_of(kind, family)) {
            return Err(json
                .unsupported(key, &format!("image processor `{kind}` is not supported"))
                .with_hint("supported: those of CLIP, SigLIP and LLaVA"));
        }
        if json.flag_or("do_pad", false)? {
            return Err(json.unsupported("do_pad", "padding images is not supported"));
        }
        let resize = if json.flag_or("do_resize", true)? { Some((size(json)?, filter(json)?)) } else { None };
        // Left out, it follows from whether there is a size to crop to.
        let crop = if json.flag_or("do_center_crop", json.get("crop_size").is_some())? {
            Some(exact(json, "crop_size")?)
        } else {
            None
        };
        let rescale = if json.flag_or("do_rescale", true)? {
            json.number_or("rescale_factor", 1.0 / 255.0, 1e-9..=1.0)?
        } else {
            1.0
        };
        let normal = if json.flag_or("do_normalize", true)? { normal(json, None)? } else { [[0.0, 1.0]; 3] };
        Ok(ImageProcessor { resize, crop, crops: None, rescale, normal })
    }

    /// What the encoder takes of the image in a file. The file may be PNG, JPEG or WebP of up to 16384 pixels along a
    /// side and 134 million in all.
    pub fn file(&self, path: &Path) -> Result<Pixels> {
        let bytes = tapml_files::read(path, MAX_FILE, "an image")?;
        self.bytes(&bytes).map_err(|e| e.context(path.display().to_string()))
    }

    /// The same for an image in memory.
    pub fn bytes(&self, bytes: &[u8]) -> Result<Pixels> {
        self.bytes_within(bytes, MAX_PIXELS)
    }

    /// The same for an image of at most so many pixels, such as one of a stranger.
    pub fn bytes_within(&self, bytes: &[u8], most_pixels: u64) -> Result<Pixels> {
        let image = decode(Cursor::new(bytes), most_pixels.min(MAX_PIXELS))?;
        if let Some(crops) = &self.crops {
            let image = crops.resample(&image)?;
            return crops.cut([image.height, image.width], &self.normalise(&image));
        }
        let image = self.resample(&image)?;
        let values = self.normalise(&image).concat();
        Ok(Pixels { values: Tensor::from_f32(vec![3, image.height, image.width], values)?, parts: [1, 1] })
    }

    /// The channels, row by row.
    fn normalise(&self, image: &Rgb) -> [Vec<f32>; 3] {
        [0, 1, 2].map(|channel: usize| {
            let [mean, deviation] = self.normal[channel];
            let samples = image.samples.iter().skip(channel).step_by(3);
            // In f64, rounded one time at the end.
            samples.map(|&v| ((f64::from(v) * self.rescale - mean) / deviation) as f32).collect()
        })
    }

    /// The image resized, and its middle part.
    fn resample(&self, image: &Rgb) -> Result<Rgb> {
        let found = [image.height, image.width];
        let (to, filter) = match self.resize {
            // The size may depend on the image.
            Some((size, filter)) => (size.for_image(found)?, filter),
            // Without a change of size the filter does nothing.
            None => (found, Filter::Bicubic),
        };
        let kept = self.crop.map_or(to, |crop| crop.map(|size| size as usize));
        if kept.iter().any(|&side| side > *SIZES.end() as usize) {
            return Err(Error::unsupported(format!(
                "the processor makes {}×{} pixels of {}×{}, more than {} along a side",
                kept[0],
                kept[1],
                found[0],
                found[1],
                SIZES.end()
            ))
            .with_hint("give an image that is not as long and narrow"));
        }
        // Transformers would pad here, which is not served.
        if kept[0] > to[0] || kept[1] > to[1] {
            return Err(Error::unsupported(format!(
                "the processor cuts {}×{} pixels out of {}×{}: padding is not supported",
                kept[0], kept[1], to[0], to[1]
            )));
        }
        let part = |side: usize| (to[side] - kept[side]) / 2..(to[side] - kept[side]) / 2 + kept[side];
        Ok(resize(image, to, filter, part(0), part(1)))
    }
}

impl ImageSize {
    /// The size, `[height, width]`, for an image of this one.
    fn for_image(self, [height, width]: [usize; 2]) -> Result<[usize; 2]> {
        let short = match self {
            ImageSize::Exact(size) => return Ok(size.map(|side| side as usize)),
            ImageSize::Shortest(short) => short as usize,
        };
        // Rounded down, as Transformers does. Sides are at most 2^14 and sizes 2^12, so the product fits.
        let long = short * height.max(width) / height.min(width).max(1);
        Ok(if height <= width { [short, long] } else { [long, short] })
    }
}

/// Whether an image processor's name is of this family: `CLIPImageProcessor`, `CLIPImageProcessorFast`,
/// `CLIPFeatureExtractor`.
fn is_of(kind: &str, family: &str) -> bool {
    let rest = kind.strip_prefix(family);
    rest.is_some_and(|rest| rest.starts_with("ImageProcessor") || rest.starts_with("FeatureExtractor"))
}

/// `size`: a number or `shortest_edge` for the shorter side, or `height` and `width`.
fn size(json: &Section) -> Result<ImageSize> {
    // Old files have a number, newer ones an object.
    let nested = json.get("size").is_some_and(serde_json::Value::is_object);
    let Some(section) = json.section("size").ok().flatten().filter(|_| nested) else {
        return Ok(ImageSize::Shortest(json.size("size", SIZES)?));
    };
    if section.get("shortest_edge").is_some() {
        return Ok(ImageSize::Shortest(section.size("shortest_edge", SIZES)?));
    }
    Ok(ImageSize::Exact(exact(json, "size")?))
}

/// A number for both sides, or `height` and `width`.
fn exact(json: &Section, key: &str) -> Result<[u32; 2]> {
    if json.get(key).is_some_and(serde_json::Value::is_number) {
        return Ok([json.size(key, SIZES)?; 2]);
    }
    let expected = || json.expected_error(key, "a number, or an object with `height` and `width`");
    let section = json.section(key)?.ok_or_else(expected)?;
    Ok([section.size("height", SIZES)?, section.size("width", SIZES)?])
}

/// `resample`, by Pillow's numbers.
fn filter(json: &Section) -> Result<Filter> {
    match json.size_or("resample", 3, 0..=5)? {
        1 => Ok(Filter::Lanczos),
        2 => Ok(Filter::Bilinear),
        3 => Ok(Filter::Bicubic),
        other => Err(json
            .unsupported("resample", &format!("resampling filter {other} is not supported"))
            .with_hint("supported: 1 (Lanczos), 2 (bilinear), 3 (bicubic)")),
    }
}

/// Mean and standard deviation of each channel; `default` for what the configuration leaves out.
fn normal(json: &Section, default: Option<[[f64; 2]; 3]>) -> Result<[[f64; 2]; 3]> {
    let mut normal = default.unwrap_or_default();
    for (place, (key, least)) in [("image_mean", -1e6), ("image_std", 1e-6)].into_iter().enumerate() {
        if json.get(key).is_none() && default.is_some() {
            continue;
        }
        let list = json.numbers(key, 3, least..=1e6)?;
        normal.iter_mut().zip(list).for_each(|(channel, value)| channel[place] = value);
    }
    Ok(normal)
}

/// The pixels of a PNG, JPEG or WebP file, upright. Its header is checked before memory is taken for it.
fn decode(bytes: impl BufRead + Seek, most_pixels: u64) -> Result<Rgb> {
    let mut limits = Limits::no_limits();
    limits.max_image_width = Some(MAX_SIDE);
    limits.max_image_height = Some(MAX_SIDE);
    limits.max_alloc = Some(PIXEL_BYTES * most_pixels);
    let mut reader =
        ImageReader::new(bytes).with_guessed_format().map_err(|e| image_error(&e.into(), most_pixels))?;
    reader.limits(limits);
    let read = || {
        let mut decoder = reader.into_decoder()?;
        let (width, height) = decoder.dimensions();
        if u64::from(width) * u64::from(height) > most_pixels {
            return Err(ImageError::Limits(LimitError::from_kind(LimitErrorKind::DimensionError)));
        }
        // Cameras store pictures as the sensor lay, and the turn beside them.
        let orientation = decoder.orientation()?;
        let mut image = DynamicImage::from_decoder(decoder)?;
        image.apply_orientation(orientation);
        Ok(image.into_rgb8())
    };
    let image = read().map_err(|e| image_error(&e, most_pixels))?;
    let (width, height) = (image.width() as usize, image.height() as usize);
    if width == 0 || height == 0 {
        return Err(Error::invalid("the image has no pixels"));
    }
    Ok(Rgb { width, height, samples: image.into_raw() })
}

/// Says what is read.
fn image_error(error: &ImageError, most_pixels: u64) -> Error {
    let kind = match error {
        ImageError::Unsupported(_) => ErrorKind::Unsupported,
        _ => ErrorKind::InvalidInput,
    };
    let text = format!("could not read the image: {error}");
    Error::new(kind, text).with_hint(format!(
        "give a PNG, JPEG or WebP file of at most {MAX_SIDE} pixels along a side and {most_pixels} in all"
    ))
}

#[cfg(test)]
mod tests;
