//! Windows of convolutions and pools, in up to three dimensions: <https://onnx.ai/onnx/operators/onnx__Conv.html>.

use super::OnnxNode;
use crate::kernel::source::LaunchBuilder;
use tapml_graph::{Error, Result};

/// A kernel whose text stands behind the constants of a window.
macro_rules! windowed {
    ($name:literal, $($file:literal),+) => {
        KernelSource::flat(
            concat!("onnx/", $name),
            concat!("onnx/window.wgsl", $("+onnx/", $file),+),
            concat!(include_str!("window.wgsl"), $(include_str!($file)),+),
        )
    };
}
pub(super) use windowed;

/// Dimensions of the kernels; fewer are led by sizes of 1.
const DIMS: usize = 3;

/// A window along each dimension.
pub struct Window {
    /// Sizes of what the window reads.
    pub input: Vec<u32>,
    /// Sizes of the result.
    pub output: Vec<u32>,
    /// Sizes of the window.
    pub kernel: Vec<u32>,
    /// Steps of the window.
    pub strides: Vec<u32>,
    /// Distances of its elements.
    pub dilations: Vec<u32>,
    /// In front.
    pub pads: Vec<i64>,
    /// Behind.
    pub ends: Vec<i64>,
    /// Whether the output is as large as the input, divided by the strides.
    same: bool,
}

/// Sizes behind batch and channels.
pub struct WindowSizes<'a> {
    pub input: &'a [u32],
    pub output: &'a [u32],
    pub kernel: &'a [u32],
}

impl Window {
    /// Of a node with these sizes behind batch and channels; `transposed` where the input is what the window writes to.
    ///
    /// # Errors
    /// `Unsupported` for more than three dimensions, `InvalidInput` for attributes that are no small integers.
    pub fn from_node(
        node: &OnnxNode,
        WindowSizes { input, output, kernel }: WindowSizes<'_>,
        transposed: bool,
    ) -> Result<Window> {
        let rank = input.len();
        if rank > DIMS || output.len() != rank || kernel.len() != rank {
            return Err(node.unserved_error(&format!("windows of {rank} dimensions")));
        }
        let list = |name: &str, count: usize, default: i64| -> Result<Vec<i64>> {
            let list = node.ints(name)?.unwrap_or_else(|| vec![default; count]);
            // 16 bits keep products with sizes within 64 bits.
            let fits = list.len() == count && list.iter().all(|v| i64::from(*v as i16) == *v);
            if fits {
                Ok(list)
            } else {
                Err(Error::invalid(format!("`{name}` is {list:?}, expected {count} small integers")))
            }
        };
        let steps = |name: &str| -> Result<Vec<u32>> {
            let list = list(name, rank, 1)?;
            if list.iter().all(|&v| v > 0) {
                Ok(list.iter().map(|&v| v as u32).collect())
            } else {
                Err(Error::invalid(format!("`{name}` is {list:?}, expected positive integers")))
            }
        };
        let (strides, dilations) = (steps("strides")?, steps("dilations")?);
        let given = list("pads", 2 * rank, 0)?;
        let (mut pads, mut ends) = (given[..rank].to_vec(), given[rank..].to_vec());
        let auto = node.text("auto_pad", "NOTSET")?;
        let upper = match auto {
            "NOTSET" | "VALID" => None,
            "SAME_UPPER" => Some(true),
            "SAME_LOWER" => Some(false),
            other => return Err(node.unserved_error(&format!("`auto_pad` of `{other}`"))),
        };
        // `pads` means nothing then.
        if auto == "VALID" {
            (pads, ends) = (vec![0; rank], vec![0; rank]);
        }
        if upper.is_some() || (transposed && node.op.attributes().contains_key("output_shape")) {
            let extra = list("output_padding", rank, 0)?;
            for d in 0..rank {
                let span = i64::from(kernel[d].saturating_sub(1)) * i64::from(dilations[d]) + 1;
                let (large, small) = if transposed { (output[d], input[d]) } else { (input[d], output[d]) };
                let reach = i64::from(small.saturating_sub(1)) * i64::from(strides[d]) + span;
                let total = reach - i64::from(large) + if transposed { extra[d] } else { 0 };
                let total = total.max(0);
                // An odd rest goes behind, for SAME_LOWER in front; a transposed convolution without a word has it in front.
                let front = if upper == Some(true) { total / 2 } else { total - total / 2 };
                (pads[d], ends[d]) = (front, total - front);
            }
        }
        let (input, output, kernel) = (input.to_vec(), output.to_vec(), kernel.to_vec());
        Ok(Window { input, output, kernel, strides, dilations, pads, ends, same: upper.is_some() })
    }

    /// Fails unless the output has the sizes of a convolution of the input: a model may declare others.
    pub fn expect_convolved(&self) -> Result<()> {
        let convolved = |d: usize| -> i64 {
            let (input, stride) = (i64::from(self.input[d]), i64::from(self.strides[d]));
            if self.same {
                return (input + stride - 1) / stride;
            }
            let span = i64::from(self.kernel[d].saturating_sub(1)) * i64::from(self.dilations[d]) + 1;
            // A negative room has no places: division would round it towards zero.
            let room = input + self.pads[d] + self.ends[d] - span;
            if room < 0 { 0 } else { room / stride + 1 }
        };
        let expected: Vec<i64> = (0..self.input.len()).map(convolved).collect();
        if expected.iter().zip(&self.output).all(|(expected, found)| *expected == i64::from(*found)) {
            return Ok(());
        }
        let text = format!(
            "an output of {:?} is declared, expected {expected:?} from {:?}",
            self.output, self.input
        );
        Err(Error::invalid(text))
    }

    /// Sets the constants of the window.
    pub fn set(&self, mut launch: LaunchBuilder) -> LaunchBuilder {
        let missing = DIMS - self.input.len();
        for d in 0..DIMS {
            let at = d.checked_sub(missing);
            // Places are divided by the sizes of y; where it is empty, nothing runs.
            let of = |list: &[u32]| at.map_or(1.0, |at| f64::from(list[at]));
            let divisor = at.map_or(1.0, |at| f64::from(self.output[at].max(1)));
            let pad = |list: &[i64]| at.map_or(0.0, |at| list[at] as f64);
            let values = [
                ("X", of(&self.input)),
                ("Y", divisor),
                ("K", of(&self.kernel)),
                ("S", of(&self.strides)),
                ("D", of(&self.dilations)),
                ("P", pad(&self.pads)),
                ("E", pad(&self.ends)),
            ];
            for (name, value) in values {
                launch = launch.set(&format!("{name}{d}"), value);
            }
        }
        launch
    }
}
