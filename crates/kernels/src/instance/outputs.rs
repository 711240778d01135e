//! Runs that give outputs, whole or some of their rows.

use super::Instance;
use crate::output_rows::OutputRows;
use std::ops::Range;
use tapml_device::{BufferId, Device, Get};
use tapml_graph::{Bytes, Context, DType, Error, Result, Symbols, Tensor};

/// Where an output's rows lie in a buffer.
struct OutputPlace {
    dtype: DType,
    shape: Vec<usize>,
    buffer: BufferId,
    offset: u64,
    len: usize,
}

impl OutputPlace {
    /// Memory for what a device reads.
    /// Devices read whole words: a buffer is longer than the tensor where elements are shorter than a word.
    fn memory(&self) -> Vec<u8> {
        vec![0; self.len.next_multiple_of(4)]
    }

    /// How a device reads it.
    fn get<'m>(&self, memory: &'m mut [u8]) -> Get<'m> {
        Get { buffer: self.buffer, offset: self.offset, out: memory }
    }

    /// The tensor of what was read.
    fn tensor(self, mut memory: Vec<u8>) -> Result<Tensor> {
        // The padding of the last word is not part of the tensor.
        memory.truncate(self.len);
        Tensor::new(self.dtype, self.shape, Bytes::new(memory))
    }
}

impl Instance {
    /// As [`Instance::run`], but waits and reads these outputs, with the sizes they have at these symbols.
    ///
    /// Outputs come in the order in which they are named.
    pub fn step(
        &mut self,
        device: &mut dyn Device,
        symbols: &Symbols,
        inputs: &[(&str, &Tensor)],
        outputs: &[OutputRows<'_>],
    ) -> Result<Vec<Tensor>> {
        let places =
            outputs.iter().map(|output| self.output_place(output, symbols)).collect::<Result<Vec<_>>>()?;
        let mut held: Vec<Vec<u8>> = places.iter().map(OutputPlace::memory).collect();
        let mut gets: Vec<Get<'_>> =
            places.iter().zip(&mut held).map(|(place, out)| place.get(out)).collect();
        self.start(device, symbols, inputs, &mut gets)
            .context(|| format!("program `{}`", self.program().name))?;
        places.into_iter().zip(held).map(|(place, bytes)| place.tensor(bytes)).collect()
    }

    /// Waits for the runs so far and reads an output, with the sizes it has at these symbols: those of the last run.
    ///
    /// Traces are read in the same way, under the names of [`crate::trace_port`].
    pub fn read(&self, device: &mut dyn Device, output: &str, symbols: &Symbols) -> Result<Tensor> {
        self.read_rows(device, &OutputRows::whole(output), symbols)
    }

    /// Where rows of an output lie, with its sizes at these symbols.
    fn output_place(&self, wanted: &OutputRows<'_>, symbols: &Symbols) -> Result<OutputPlace> {
        let port = self.output(wanted.name)?;
        let (mut shape, mut len) = self.sizes(port.buffer, &port.ty, symbols)?;
        let mut offset = 0;
        if let Some(Range { start, end }) = wanted.rows.clone() {
            let error = || wanted.range_error(&shape);
            let all = shape.first().copied().filter(|&all| start <= end && end <= all).ok_or_else(error)?;
            let row = len / all.max(1);
            if !row.is_multiple_of(4) {
                let text =
                    format!("rows of output `{}` have {row} bytes, which are no whole words", port.name);
                return Err(Error::unsupported(text).with_hint("read the whole output"));
            }
            (offset, len) = (start as u64 * row as u64, (end - start) * row);
            shape[0] = end - start;
        }
        Ok(OutputPlace { dtype: port.ty.dtype, shape, buffer: self.buffer(port.buffer), offset, len })
    }

    /// Waits for the runs so far and reads these elements of one row of an output, with the sizes it has at these symbols: those of
    /// the last run. Gives `[1, columns]`.
    ///
    /// # Errors
    /// `InvalidInput` if the output has no such row or elements, is no matrix, or has elements of other than 4 bytes.
    pub fn read_row(
        &self,
        device: &mut dyn Device,
        wanted: &OutputRows<'_>,
        columns: Range<usize>,
        symbols: &Symbols,
    ) -> Result<Tensor> {
        let mut place = self.output_place(wanted, symbols)?;
        let (&[1, all], size) = (&place.shape[..], place.dtype.size()) else {
            return Err(wanted.range_error(&place.shape));
        };
        if columns.start > columns.end || columns.end > all || size != 4 {
            let name = wanted.name;
            return Err(Error::invalid(format!(
                "elements {columns:?} of a row of output `{name}`, which has {all} of {size} bytes"
            )));
        }
        place.offset += (columns.start * size) as u64;
        place.len = columns.len() * size;
        place.shape = vec![1, columns.len()];
        let mut memory = place.memory();
        device.read(place.buffer, place.offset, &mut memory)?;
        place.tensor(memory)
    }

    /// Waits for the runs so far and reads rows of an output of the last one.
    pub(crate) fn read_rows(
        &self,
        device: &mut dyn Device,
        wanted: &OutputRows<'_>,
        symbols: &Symbols,
    ) -> Result<Tensor> {
        let place = self.output_place(wanted, symbols)?;
        let mut memory = place.memory();
        device.read(place.buffer, place.offset, &mut memory)?;
        place.tensor(memory)
    }
}
