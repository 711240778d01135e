//! Resampling of images as Pillow does it: two passes, first along rows, then along columns, with weights in fixed point
//! and samples rounded to 8 bits between. When an image shrinks, the filter widens, so that every pixel counts.

use serde::Serialize;
use std::ops::Range;

/// Fractional bits of weights: products with 8-bit samples and their sums stay within 32 bits and a sign.
const BITS: u32 = 22;

/// A resampling filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Filter {
    /// Windowed sinc over three lobes: Lanczos, "Applied Analysis", 1956.
    Lanczos,
    /// Triangle.
    Bilinear,
    /// Cubic convolution with a = −1/2: Keys, "Cubic Convolution Interpolation for Digital Image Processing", 1981,
    /// equation 15.
    Bicubic,
}

impl Filter {
    /// Distance beyond which samples do not count, in pixels.
    fn support(self) -> f64 {
        match self {
            Filter::Lanczos => 3.0,
            Filter::Bilinear => 1.0,
            Filter::Bicubic => 2.0,
        }
    }

    /// The filter at a distance from its middle; not normalised.
    fn weight(self, distance: f64) -> f64 {
        let x = distance.abs();
        let sinc = |x: f64| {
            if x == 0.0 { 1.0 } else { (x * std::f64::consts::PI).sin() / (x * std::f64::consts::PI) }
        };
        match self {
            _ if x >= self.support() => 0.0,
            Filter::Lanczos => sinc(x) * sinc(x / 3.0),
            Filter::Bilinear => 1.0 - x,
            Filter::Bicubic if x < 1.0 => (1.5 * x - 2.5) * x * x + 1.0,
            Filter::Bicubic => ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0,
        }
    }
}

/// An image of three channels of 8 bits, row by row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rgb {
    /// Columns.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// `height · width · 3` samples.
    pub samples: Vec<u8>,
}

/// What one sample of the result takes of the source: weights of consecutive samples.
struct Taps {
    /// The first sample that counts.
    first: usize,
    /// In fixed point of [`BITS`] bits.
    weights: Vec<i64>,
}

/// The samples `wanted` of a line of `from` samples resampled to `to`.
fn taps(filter: Filter, from: usize, to: usize, wanted: Range<usize>) -> Vec<Taps> {
    let step = from as f64 / to as f64;
    let widened = step.max(1.0);
    let support = filter.support() * widened;
    let one = |at: usize| {
        let center = (at as f64 + 0.5) * step;
        // Rounded as Pillow does, so that the same samples count.
        let first = (center - support + 0.5).max(0.0) as usize;
        let end = ((center + support + 0.5) as usize).clamp(first + 1, from.max(first + 1));
        let distance = |i: usize| (i as f64 - center + 0.5) / widened;
        let weights: Vec<f64> = (first..end).map(|i| filter.weight(distance(i))).collect();
        let sum: f64 = weights.iter().sum();
        let fixed = |w: &f64| (w / sum * f64::from(1u32 << BITS)).round() as i64;
        Taps { first, weights: weights.iter().map(fixed).collect() }
    };
    wanted.map(one).collect()
}

/// Sums `sample(i)` with the weights of a tap, rounded to 8 bits.
fn weigh(taps: &Taps, sample: impl Fn(usize) -> u8) -> u8 {
    let terms = taps.weights.iter().enumerate().map(|(i, w)| w * i64::from(sample(taps.first + i)));
    ((terms.sum::<i64>() + (1 << (BITS - 1))) >> BITS).clamp(0, 255) as u8
}

/// The part of `image`, resampled to `[height, width]`, that lies in these rows and columns: a small part of an image
/// that becomes large costs little.
pub fn resize(
    image: &Rgb,
    [height, width]: [usize; 2],
    filter: Filter,
    rows: Range<usize>,
    columns: Range<usize>,
) -> Rgb {
    let down = taps(filter, image.height, height, rows);
    let across = taps(filter, image.width, width, columns);
    // Only lines that the result needs are resampled.
    let first = down.first().map_or(0, |taps| taps.first);
    let end = down.last().map_or(0, |taps| taps.first + taps.weights.len());
    let narrow = across.len() * 3;
    let mut lines = Vec::with_capacity((end - first) * narrow);
    for line in image.samples.chunks_exact(image.width * 3).take(end).skip(first) {
        for (taps, channel) in across.iter().flat_map(|taps| (0..3).map(move |channel| (taps, channel))) {
            lines.push(weigh(taps, |i| line[3 * i + channel]));
        }
    }
    let mut samples = Vec::with_capacity(down.len() * narrow);
    for taps in &down {
        samples.extend((0..narrow).map(|at| weigh(taps, |i| lines[(i - first) * narrow + at])));
    }
    Rgb { width: across.len(), height: down.len(), samples }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waves(height: usize, width: usize) -> Rgb {
        let sample = |i: usize| (127.5 + 127.5 * (i as f64 * 0.7).sin()) as u8;
        Rgb { width, height, samples: (0..height * width * 3).map(sample).collect() }
    }

    #[test]
    fn an_image_of_the_wanted_size_stays_what_it_is() {
        let image = waves(5, 7);
        for filter in [Filter::Lanczos, Filter::Bilinear, Filter::Bicubic] {
            assert_eq!(resize(&image, [5, 7], filter, 0..5, 0..7), image, "{filter:?}");
        }
    }

    #[test]
    fn a_part_is_the_same_as_cut_from_the_whole() {
        let image = waves(9, 13);
        let whole = resize(&image, [21, 6], Filter::Bicubic, 0..21, 0..6);
        let part = resize(&image, [21, 6], Filter::Bicubic, 4..11, 2..5);
        for (row, line) in part.samples.chunks(9).enumerate() {
            assert_eq!(line, &whole.samples[((row + 4) * 6 + 2) * 3..][..9]);
        }
    }

    #[test]
    fn shrinking_takes_the_mean_of_what_a_pixel_covers() {
        let image =
            Rgb { width: 4, height: 1, samples: [0u8, 0, 0, 255].iter().flat_map(|&v| [v; 3]).collect() };
        // Half the width: the triangle reaches two pixels to each side, with weights 1, 3, 3 inside the image.
        let half = resize(&image, [1, 2], Filter::Bilinear, 0..1, 0..2);
        assert_eq!(half.samples, [0, 0, 0, 109, 109, 109], "255 · 3 / 7");
    }
}
