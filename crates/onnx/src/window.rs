//! Windows that slide over the spatial axes of a tensor: their attributes, their places, what lies in each of them.
//!
//! Convolutions, pools and `Col2Im` share it. Attributes and formulas are those of `Conv` and `MaxPool` in ONNX's Operators.md.
//! All sizes are at most [`MAX_ELEMENTS`], so that products of an index with a stride do not overflow `usize`.

use crate::array::{MAX_ELEMENTS, volume};
use crate::call::Call;
use tapml_graph::{Error, Result};

/// Windows over spatial axes. Along an axis, element `k` of window `o` lies at `o·stride + k·dilation − begin` of the input.
#[derive(Clone, Debug)]
pub struct Windows {
    /// Sizes of what the windows slide over.
    pub input: Vec<usize>,
    /// Windows along each axis.
    pub output: Vec<usize>,
    /// Elements of a window along each axis.
    pub kernel: Vec<usize>,
    /// Elements between windows.
    pub strides: Vec<usize>,
    /// Elements between those of a window.
    pub dilations: Vec<usize>,
    /// Padding before the input and behind it.
    pub begin: Vec<usize>,
    /// Padding behind the input along each axis.
    pub end: Vec<usize>,
}

/// How padding is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AutoPad {
    /// `NOTSET`: the attribute `pads` says it.
    NotSet,
    /// `VALID`: none.
    Valid,
    /// `SAME_UPPER`: so much that there are `⌈size / stride⌉` windows, an odd element at the end.
    SameUpper,
    /// `SAME_LOWER`: the same, with an odd element at the beginning.
    SameLower,
}

impl AutoPad {
    /// The attribute `auto_pad`. An empty text stands for its default.
    ///
    /// # Errors
    /// If the attribute has another value.
    pub fn read(call: &Call<'_>) -> Result<AutoPad> {
        Ok(match call.text_or("auto_pad", "NOTSET")? {
            "NOTSET" | "" => AutoPad::NotSet,
            "VALID" => AutoPad::Valid,
            "SAME_UPPER" => AutoPad::SameUpper,
            "SAME_LOWER" => AutoPad::SameLower,
            other => {
                return Err(Error::invalid(format!(
                    "attribute `auto_pad`: there is no `{}`",
                    other.escape_debug()
                )));
            }
        })
    }

    /// Padding before and behind, of so much in all.
    pub fn split(self, total: usize) -> (usize, usize) {
        let half = total / 2;
        if self == AutoPad::SameLower { (total - half, half) } else { (half, total - half) }
    }
}

/// An attribute that is a list of sizes, of at least `least` each; `default` if it is absent.
pub fn sizes(
    call: &Call<'_>,
    name: &'static str,
    count: usize,
    least: usize,
    default: usize,
) -> Result<Vec<usize>> {
    let Some(list) = call.ints(name)? else { return Ok(vec![default; count]) };
    let size =
        |&value: &i64| usize::try_from(value).ok().filter(|size| (least..=MAX_ELEMENTS).contains(size));
    list.iter().map(size).collect::<Option<Vec<usize>>>().filter(|list| list.len() == count).ok_or_else(
        || {
            Error::invalid(format!(
                "attribute `{name}`: expected {count} integers of at least {least}, found {list:?}"
            ))
        },
    )
}

impl Windows {
    /// Windows of a convolution or a pool: `strides`, `dilations`, `pads`, `auto_pad` are read.
    ///
    /// # Errors
    /// If an attribute does not fit, or a window does not fit in the padded input.
    pub fn new(call: &Call<'_>, input: &[usize], kernel: Vec<usize>, ceil: bool) -> Result<Windows> {
        let rank = input.len();
        // An empty window would have no first element.
        if kernel.len() != rank || kernel.contains(&0) {
            return Err(Error::invalid(format!("a kernel {kernel:?} over the spatial sizes {input:?}")));
        }
        // A window is gone through element by element.
        volume(&kernel)?;
        let strides = sizes(call, "strides", rank, 1, 1)?;
        let dilations = sizes(call, "dilations", rank, 1, 1)?;
        let pads = sizes(call, "pads", 2 * rank, 0, 0)?;
        let auto = AutoPad::read(call)?;
        let (mut begin, mut end) = (pads[..rank].to_vec(), pads[rank..].to_vec());
        let mut output = Vec::with_capacity(rank);
        for axis in 0..rank {
            let (size, stride) = (input[axis], strides[axis]);
            let span = span(kernel[axis], dilations[axis])?;
            // `auto_pad` wins over `pads`: the standard does not allow both.
            if auto == AutoPad::Valid {
                (begin[axis], end[axis]) = (0, 0);
            }
            if matches!(auto, AutoPad::SameUpper | AutoPad::SameLower) {
                let windows = size.div_ceil(stride);
                // Dilation counts: the span is what a window covers.
                let total = (windows.saturating_sub(1) * stride + span).saturating_sub(size);
                (begin[axis], end[axis]) = auto.split(total);
                output.push(windows);
                continue;
            }
            // `⌊(size + pads − span) / stride⌋ + 1`, or rounded up with `ceil_mode`.
            let room = (size + begin[axis] + end[axis]).checked_sub(span).ok_or_else(|| {
                let text = format!(
                    "a window of {span} elements does not fit in {size} with padding {} and {}",
                    begin[axis], end[axis]
                );
                Error::invalid(text)
            })?;
            let mut windows = if ceil { room.div_ceil(stride) } else { room / stride } + 1;
            // A window that would begin in the padding behind the input is left out.
            if ceil && (windows - 1) * stride >= size + begin[axis] {
                windows -= 1;
            }
            output.push(windows);
        }
        volume(&output)?;
        Ok(Windows { input: input.to_vec(), output, kernel, strides, dilations, begin, end })
    }

    /// Elements of a window.
    pub fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Where element `tap` of window `window` lies along an axis; `None` in the padding.
    #[inline]
    pub fn tap_index(&self, axis: usize, window: usize, tap: usize) -> Option<usize> {
        let at = (window * self.strides[axis] + tap * self.dilations[axis]).checked_sub(self.begin[axis])?;
        (at < self.input[axis]).then_some(at)
    }

    /// Elements of each window that lie in the input, one window after the other: `visit` is given the place of the window,
    /// of the element within it, and of the element in the input.
    pub fn visit(&self, mut visit: impl FnMut(usize, usize, usize)) {
        let rank = self.input.len();
        let (windows, taps) = (self.output.iter().product::<usize>(), self.taps());
        let mut window = vec![0; rank];
        for o in 0..windows {
            let mut tap = vec![0; rank];
            for k in 0..taps {
                // One axis in the padding puts the whole element there.
                let place = (0..rank).try_fold(0, |place, axis| {
                    Some(place * self.input[axis] + self.tap_index(axis, window[axis], tap[axis])?)
                });
                if let Some(place) = place {
                    visit(o, k, place);
                }
                advance(&mut tap, &self.kernel);
            }
            advance(&mut window, &self.output);
        }
    }

    /// Elements of each window that lie in the input or in its padding. A window that reaches beyond both, as the last one of a
    /// pool that rounds up may, has fewer.
    pub fn padded_taps(&self) -> Vec<usize> {
        let rank = self.input.len();
        let inside = |axis: usize, window: usize| {
            let limit = self.begin[axis] + self.input[axis] + self.end[axis];
            let at = |tap: &usize| window * self.strides[axis] + tap * self.dilations[axis] < limit;
            (0..self.kernel[axis]).filter(at).count()
        };
        let mut window = vec![0; rank];
        let mut result = Vec::new();
        for _ in 0..self.output.iter().product::<usize>() {
            result.push((0..rank).map(|axis| inside(axis, window[axis])).product());
            advance(&mut window, &self.output);
        }
        result
    }
}

/// From the first element of a window to the last.
pub fn span(kernel: usize, dilation: usize) -> Result<usize> {
    let span = (kernel - 1).checked_mul(dilation).filter(|&span| span < MAX_ELEMENTS);
    span.map(|span| span + 1).ok_or_else(|| {
        Error::invalid(format!("a window of {kernel} elements, {dilation} apart, is too large"))
    })
}

/// The next index in row-major order; the first one after the last.
pub fn advance(index: &mut [usize], shape: &[usize]) {
    for axis in (0..shape.len()).rev() {
        index[axis] += 1;
        if index[axis] < shape[axis] {
            return;
        }
        index[axis] = 0;
    }
}
