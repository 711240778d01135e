//! Images of requests: which tokens stand for them, and what the model's encoder made of them.
//!
//! An image is encoded once while requests use it, whoever sent it: equal pixels are one image.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock, Weak};
use tapml_graph::{Result, Tensor};

/// What the encoder of a model takes and gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageLimits {
    /// The shape of an image's pixels, which are `f32`.
    pub pixels: Vec<usize>,
    /// Rows that an image becomes.
    pub rows: usize,
}

/// An image, with its rows once they are there.
pub struct SharedImage {
    pixels: Tensor,
    /// Of the pixels.
    hash: [u8; 32],
    rows: OnceLock<Tensor>,
}

impl SharedImage {
    /// An image that is not encoded yet.
    pub fn new(pixels: Tensor) -> SharedImage {
        let hash = *blake3::hash(pixels.bytes()).as_bytes();
        SharedImage { pixels, hash, rows: OnceLock::new() }
    }

    /// What the encoder takes: `f32[channels, height, width]`.
    pub fn pixels(&self) -> &Tensor {
        &self.pixels
    }

    /// Whether the encoder has run.
    pub(super) fn is_encoded(&self) -> bool {
        self.rows.get().is_some()
    }

    /// The hash of the pixels.
    pub(super) fn hash(&self) -> &[u8; 32] {
        &self.hash
    }

    /// What the encoder made of the image, `[rows, hidden]`; it runs if that is not known yet.
    pub(super) fn encoded_rows(&self, encode: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<&Tensor> {
        match self.rows.get() {
            Some(rows) => Ok(rows),
            None => {
                let rows = encode(&self.pixels)?;
                Ok(self.rows.get_or_init(|| rows))
            }
        }
    }
}

impl fmt::Debug for SharedImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (shape, encoded) = (self.pixels.shape(), self.is_encoded());
        write!(f, "SharedImage({shape:?}, encoded: {encoded})")
    }
}

/// An image in a prompt.
#[derive(Clone, Debug)]
pub struct PlacedImage {
    /// The first token that stands for it.
    pub start: usize,
    /// For this token and those behind it, the row of the encoder's result that takes its place.
    pub rows: Vec<u32>,
    /// The image.
    pub image: Arc<SharedImage>,
}

impl PlacedImage {
    /// The tokens that stand for it.
    pub fn tokens(&self) -> Range<usize> {
        self.start..self.start.saturating_add(self.rows.len())
    }

    /// Those of its tokens that lie within `range`.
    pub(super) fn tokens_within(&self, range: &Range<usize>) -> Range<usize> {
        let tokens = self.tokens();
        let start = tokens.start.clamp(range.start, range.end);
        start..tokens.end.clamp(start, range.end)
    }
}

impl PartialEq for PlacedImage {
    fn eq(&self, other: &PlacedImage) -> bool {
        (self.start, &self.rows, self.image.hash()) == (other.start, &other.rows, other.image.hash())
    }
}

impl Eq for PlacedImage {}

/// The images that requests use, by their hash.
#[derive(Debug, Default)]
pub struct ImageStore {
    known: HashMap<[u8; 32], Weak<SharedImage>>,
}

impl ImageStore {
    /// Takes those of these images that are known from other requests from there.
    pub fn share(&mut self, images: &mut [PlacedImage]) {
        if images.is_empty() {
            return;
        }
        self.known.retain(|_, image| image.strong_count() > 0);
        for placed in images {
            match self.known.get(placed.image.hash()).and_then(Weak::upgrade) {
                Some(known) => placed.image = known,
                None => {
                    self.known.insert(*placed.image.hash(), Arc::downgrade(&placed.image));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapml_graph::Error;

    fn image_at(start: usize, value: f32) -> PlacedImage {
        let pixels = Tensor::from_f32(vec![1], vec![value]).expect("one pixel");
        PlacedImage { start, rows: vec![0, 2, 1], image: Arc::new(SharedImage::new(pixels)) }
    }

    #[test]
    fn equal_pixels_are_one_image_while_somebody_uses_it() {
        let mut store = ImageStore::default();
        let (mut first, mut other) = (vec![image_at(0, 1.0), image_at(5, 1.0)], vec![image_at(0, 2.0)]);
        store.share(&mut first);
        store.share(&mut other);
        assert!(Arc::ptr_eq(&first[0].image, &first[1].image));
        assert!(!Arc::ptr_eq(&first[0].image, &other[0].image));
        let rows = |_: &Tensor| Tensor::from_f32(vec![1, 1], vec![7.0]);
        first[0].image.encoded_rows(rows).expect("it is encoded");
        let mut later = vec![image_at(3, 1.0)];
        store.share(&mut later);
        assert!(later[0].image.encoded_rows(|_| Err(Error::bug("it runs again"))).is_ok());
        drop((first, later));
        let mut late = vec![image_at(3, 1.0)];
        store.share(&mut late);
        assert!(late[0].image.encoded_rows(|_| Err(Error::bug("it is forgotten"))).is_err());
    }

    #[test]
    fn tokens_are_cut_to_a_range() {
        let image = image_at(4, 0.0);
        for (range, expected) in [(0..5, 4..5), (5..6, 5..6), (6..20, 6..7), (0..4, 4..4), (9..12, 9..9)] {
            assert_eq!(image.tokens_within(&range), expected);
        }
    }
}
