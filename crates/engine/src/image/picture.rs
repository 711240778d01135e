//! Pictures as they are: read from a file and brought to a size, without an image processor.

use super::resize::{Filter, Rgb, resize};
use super::{MAX_FILE, MAX_PIXELS, MAX_SIDE, decode};
use std::io::Cursor;
use std::path::Path;
use tapml_graph::{Context, Error, Result};

impl Rgb {
    /// The pixels of a PNG, JPEG or WebP file of up to 16384 pixels along a side and 134 million in all, upright. Samples of 16
    /// bits lose the lower ones, and transparency is dropped.
    pub fn open(path: &Path) -> Result<Rgb> {
        let bytes = tapml_files::read(path, MAX_FILE, "an image")?;
        decode(Cursor::new(bytes), MAX_PIXELS).context(|| path.display().to_string())
    }

    /// The whole picture in `[height, width]` pixels.
    ///
    /// # Errors
    /// A side is 0, or there would be more pixels than [`Rgb::open`] reads.
    pub fn resize(&self, to: [usize; 2], filter: Filter) -> Result<Rgb> {
        let [height, width] = to;
        let pixels = (height as u64).saturating_mul(width as u64);
        if !(1..=MAX_PIXELS).contains(&pixels) || height.max(width) > MAX_SIDE as usize {
            return Err(Error::invalid(format!("a picture of {height}×{width} pixels")).with_hint(format!(
                "its sides are 1 to {MAX_SIDE} pixels, and it has at most {MAX_PIXELS} in all"
            )));
        }
        Ok(resize(self, to, filter, 0..height, 0..width))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::{ExtendedColorType, ImageEncoder};

    #[test]
    fn every_format_is_read_and_damage_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let samples: Vec<u8> = (0..4 * 3 * 3).map(|i| (i * 7) as u8).collect();
        let mut png = Vec::new();
        let write = image::codecs::png::PngEncoder::new(&mut png);
        write.write_image(&samples, 4, 3, ExtendedColorType::Rgb8).unwrap();
        let mut webp = Vec::new();
        let write = image::codecs::webp::WebPEncoder::new_lossless(&mut webp);
        write.write_image(&samples, 4, 3, ExtendedColorType::Rgb8).unwrap();
        for bytes in [png, webp] {
            let path = folder.path().join("file");
            std::fs::write(&path, &bytes).unwrap();
            let picture = Rgb::open(&path).unwrap();
            assert_eq!((picture.width, picture.height, &picture.samples), (4, 3, &samples));
            std::fs::write(&path, &bytes[..bytes.len() * 2 / 3]).unwrap();
            let told = Rgb::open(&path).unwrap_err().to_string();
            assert!(told.contains("could not read the image") && told.contains("file"), "{told}");
        }
    }

    #[test]
    fn sizes_that_no_picture_has_are_refused() {
        let picture = Rgb { width: 1, height: 1, samples: vec![1, 2, 3] };
        assert_eq!(picture.resize([1, 2], Filter::Bilinear).unwrap().samples, [1, 2, 3, 1, 2, 3]);
        for to in [[0, 1], [1, 20_000], [16_000, 16_000], [usize::MAX, 2]] {
            let error = picture.resize(to, Filter::Bilinear).unwrap_err();
            assert!(error.hint().is_some_and(|hint| hint.contains("16384")), "{error}");
        }
    }
}
