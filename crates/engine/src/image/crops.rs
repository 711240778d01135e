//! Images cut in parts of one size, with a view of the whole: Dong et al., "InternLM-XComposer2-4KHD", 2024, section 3.2, as
//! the authors of Phi-3-vision have it in their image processor.

use super::pixels::Pixels;
use super::resize::{Filter, Rgb, resize};
use tapml_graph::{Error, Result, Tensor};
use tapml_import::{Layout, Section};

/// How an image is cut.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Crops {
    /// Most parts of an image.
    pub parts: u32,
    /// Crops that the encoder takes, the view of the whole among them.
    pub most: u32,
    /// Height and width of a crop, pixels.
    pub side: u32,
}

impl Crops {
    /// Reads `num_crops`; `None` if the model takes whole images.
    pub fn read(json: &Section, layout: Layout) -> Result<Option<Crops>> {
        let Layout::Crops { most, pixels: side, .. } = layout else { return Ok(None) };
        let key = "image_processor_type";
        let kind = json.text_or(key, "Phi3VImageProcessor")?;
        if !kind.starts_with("Phi3VImageProcessor") {
            return Err(
                json.unsupported(key, &format!("image processor `{kind}` does not cut images in parts"))
            );
        }
        // The processor may be set to more parts than the model's graph has room for.
        let parts = json.size_or("num_crops", 1, 1..=1 << 10)?.min(most - 1);
        Ok(Some(Crops { parts, most, side }))
    }

    /// The image at the largest size that `parts` cover, with white above and below so that they cover it exactly. A high
    /// image is treated lying on its side.
    pub fn resample(&self, image: &Rgb) -> Result<Rgb> {
        if image.width < image.height {
            return Ok(transpose(&self.resample(&transpose(image))?));
        }
        let ratio = image.width as f64 / image.height as f64;
        let fits =
            |across: u32| f64::from(across) * (f64::from(across) / ratio).ceil() <= f64::from(self.parts);
        // As wide as the parts allow: each step is one part more across.
        let across = (1..=self.parts).take_while(|&across| fits(across)).last().unwrap_or(1);
        let width = (across * self.side) as usize;
        let height = (width as f64 / ratio) as usize;
        if height == 0 {
            let (width, height) = (image.width, image.height);
            return Err(Error::invalid(format!(
                "an image of {height}×{width} pixels is too narrow to be cut in parts"
            )));
        }
        let small = resize(image, [height, width], Filter::Bilinear, 0..height, 0..width);
        let padded = height.next_multiple_of(self.side as usize);
        let above = (padded - height) / 2 * width * 3;
        // White, as the authors' processor pads.
        let mut samples = vec![255; padded * width * 3];
        samples[above..above + small.samples.len()].copy_from_slice(&small.samples);
        Ok(Rgb { width, height: padded, samples })
    }

    /// The crops of an image of this size, `[height, width]`, given channel by channel: the whole, then the parts row by
    /// row, then zeros.
    pub fn cut(&self, [height, width]: [usize; 2], channels: &[Vec<f32>; 3]) -> Result<Pixels> {
        let (side, most) = (self.side as usize, self.most as usize);
        let (down, across) = (height / side, width / side);
        let mut values = Vec::with_capacity(3 * most * side * side);
        for (index, channel) in channels.iter().enumerate() {
            values.extend(shrink(channel, [height, width], side));
            for (row, column) in (0..down).flat_map(|row| (0..across).map(move |column| (row, column))) {
                let lines = channel.chunks_exact(width).skip(row * side).take(side);
                values.extend(lines.flat_map(|line| &line[column * side..(column + 1) * side]));
            }
            values.resize((index + 1) * most * side * side, 0.0);
        }
        let values = Tensor::from_f32(vec![3, most * side, side], values)?;
        Ok(Pixels { values, parts: [down as u32, across as u32] })
    }
}

/// Rows and columns exchanged.
fn transpose(image: &Rgb) -> Rgb {
    let places = (0..image.width).flat_map(|x| (0..image.height).map(move |y| 3 * (y * image.width + x)));
    let samples = places.flat_map(|at| image.samples[at..at + 3].iter().copied()).collect();
    Rgb { width: image.height, height: image.width, samples }
}

/// A channel brought to `side` by `side` by cubic convolution with a = −3/4 over the nearest 4 by 4 values, whatever lies
/// between them, as `interpolate` of PyTorch does.
fn shrink(channel: &[f32], [height, width]: [usize; 2], side: usize) -> Vec<f32> {
    let (rows, columns) = (taps(height, side), taps(width, side));
    let value = |row: &[(usize, f64); 4], column: &[(usize, f64); 4]| {
        let line = |y: usize| -> f64 {
            column.iter().map(|&(x, weight)| weight * f64::from(channel[y * width + x])).sum()
        };
        row.iter().map(|&(y, weight)| weight * line(y)).sum::<f64>() as f32
    };
    rows.iter().flat_map(|row| columns.iter().map(|column| value(row, column))).collect()
}

/// Places and weights of the four values that count for each of `to` values of a line of `from`.
fn taps(from: usize, to: usize) -> Vec<[(usize, f64); 4]> {
    const A: f64 = -0.75;
    let near = |x: f64| ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0;
    let far = |x: f64| ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A;
    let one = |at: usize| {
        let center = (at as f64 + 0.5) * from as f64 / to as f64 - 0.5;
        let (first, t) = (center.floor(), center - center.floor());
        let weights = [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)];
        [0, 1, 2, 3].map(|i: usize| {
            let place = (first + i as f64 - 1.0).clamp(0.0, from as f64 - 1.0);
            (place as usize, weights[i])
        })
    };
    (0..to).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(height: usize, width: usize) -> Rgb {
        Rgb { width, height, samples: (0..height * width * 3).map(|i| (i % 251) as u8).collect() }
    }

    #[test]
    fn images_are_cut_in_as_many_parts_as_fit() {
        let crops = Crops { parts: 7, most: 8, side: 4 };
        let parts =
            |height, width| crops.resample(&image(height, width)).map(|i| [i.height / 4, i.width / 4]);
        for (size, expected) in [
            ([35, 66], [2, 3]),
            ([66, 35], [3, 2]),
            ([50, 50], [2, 2]),
            ([31, 200], [1, 6]),
            ([1, 28], [1, 7]),
            ([47, 66], [2, 2]),
        ] {
            assert_eq!(parts(size[0], size[1]).unwrap(), expected, "{size:?}");
        }
        let error = parts(1, 29).unwrap_err().to_string();
        assert!(error.contains("1×29 pixels is too narrow"), "{error}");
    }

    #[test]
    fn a_high_image_is_a_wide_one_on_its_side() {
        let crops = Crops { parts: 6, most: 7, side: 5 };
        let (wide, high) = (image(9, 17), transpose(&image(9, 17)));
        assert_eq!(transpose(&high), wide);
        assert_eq!(crops.resample(&high).unwrap(), transpose(&crops.resample(&wide).unwrap()));
    }

    #[test]
    fn crops_follow_each_other_row_by_row() {
        let crops = Crops { parts: 6, most: 6, side: 2 };
        let channel: Vec<f32> = (0..16).map(|i| i as f32).collect();
        let cut = crops.cut([4, 4], &[channel.clone(), channel.clone(), channel]).unwrap();
        assert_eq!((cut.parts, cut.values.shape()), ([2, 2], &[3, 12, 2][..]));
        let values = cut.values.to_f32();
        assert_eq!(values[4..12], [0.0, 1.0, 4.0, 5.0, 2.0, 3.0, 6.0, 7.0]);
        assert_eq!(values[20..24], [0.0; 4], "room for one more part");
        assert_eq!(values[24..28], values[..4], "the next channel");
        // Halfway between the values in the middle; PyTorch's `interpolate` gives the same.
        assert_eq!(values[..4], [2.03125, 4.21875, 10.78125, 12.96875]);
    }
}
