//! Tensors in a device's memory.
//!
//! Buffers are multiples of 4 bytes, which is what devices copy; the last bytes of a tensor are padded on
//! the way.

use super::device::{Device, Dropped, write};
use tapml_device::{BufferId, Command};
use tapml_graph::{Bytes, DType, Error, Result, Symbols, Tensor as Host, byte_len};

/// A tensor in a device's memory, in row-major order. Its memory is freed when it is dropped.
#[derive(Debug)]
pub struct DeviceTensor {
    device: Device,
    buffer: BufferId,
    dtype: DType,
    /// The slowest axis first.
    shape: Vec<usize>,
}

impl DeviceTensor {
    /// A tensor of zeros. They are meant to be read: a checking device takes them as written, unlike the memory that a
    /// function's own outputs begin with.
    pub fn allocate(device: &Device, shape: Vec<usize>, dtype: DType) -> Result<DeviceTensor> {
        let tensor = DeviceTensor::reserve(device, shape, dtype)?;
        let mut state = device.lock();
        let zeros = state.device.record(&[Command::Fill { buffer: tensor.buffer, word: 0 }])?;
        let filled = state.device.replay(zeros, &Symbols::new());
        filled.and(state.device.destroy_list(zeros))?;
        drop(state);
        Ok(tensor)
    }

    /// Memory for a tensor that something is going to write.
    pub(super) fn reserve(device: &Device, shape: Vec<usize>, dtype: DType) -> Result<DeviceTensor> {
        let bytes = byte_len(dtype, &shape)
            .ok_or_else(|| Error::invalid(format!("{dtype}{shape:?} has more bytes than can be counted")))?;
        let size = (bytes as u64).max(4).next_multiple_of(4);
        let label = format!("tensor {dtype}{shape:?}");
        let buffer = device.lock().device.create_buffer(&label, size)?;
        Ok(DeviceTensor { device: device.clone(), buffer, dtype, shape })
    }

    /// A copy of a host tensor.
    pub fn new(device: &Device, value: &Host) -> Result<DeviceTensor> {
        DeviceTensor::from_bytes(device, value.shape().to_vec(), value.dtype(), value.bytes())
    }

    /// A tensor with these bytes, which are read once and not kept.
    pub fn from_bytes(
        device: &Device,
        shape: Vec<usize>,
        dtype: DType,
        bytes: &[u8],
    ) -> Result<DeviceTensor> {
        let tensor = DeviceTensor::reserve(device, shape, dtype)?;
        tensor.write(bytes)?;
        Ok(tensor)
    }

    /// Replaces the contents: as many bytes as the tensor has.
    ///
    /// # Errors
    /// If the number of bytes differs or the device fails.
    pub fn write(&self, bytes: &[u8]) -> Result<()> {
        if bytes.len() != self.bytes() {
            let (want, have) = (self.bytes(), bytes.len());
            return Err(Error::invalid(format!("a tensor of {want} bytes takes no {have} bytes")));
        }
        write(self.device.lock().device.as_mut(), self.buffer, bytes)
    }

    /// Waits for all work so far, and copies the contents into `out`, of as many bytes as the tensor has.
    pub fn read_into(&self, out: &mut [u8]) -> Result<()> {
        if out.len() != self.bytes() {
            let (have, want) = (self.bytes(), out.len());
            return Err(Error::invalid(format!("a tensor of {have} bytes does not fill {want} bytes")));
        }
        let mut state = self.device.lock();
        // Devices read multiples of 4 bytes; the rest goes through a word.
        let (whole, rest) = out.split_at_mut(out.len() / 4 * 4);
        if whole.is_empty() {
            state.device.wait()?
        } else {
            state.device.read(self.buffer, 0, whole)?
        }
        if !rest.is_empty() {
            let mut last = [0; 4];
            state.device.read(self.buffer, whole.len() as u64, &mut last)?;
            rest.copy_from_slice(&last[..rest.len()]);
        }
        Ok(())
    }

    /// Waits for all work so far, and copies the tensor to the host.
    pub fn read(&self) -> Result<Host> {
        let mut bytes = vec![0; self.bytes()];
        self.read_into(&mut bytes)?;
        Host::new(self.dtype, self.shape.clone(), Bytes::new(bytes))
    }

    /// Where it is.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Sizes, the slowest first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of bytes of the elements.
    pub fn bytes(&self) -> usize {
        byte_len(self.dtype, &self.shape).unwrap_or(0)
    }

    pub(super) fn buffer(&self) -> BufferId {
        self.buffer
    }
}

impl Drop for DeviceTensor {
    fn drop(&mut self) {
        self.device.give_back([Dropped::Buffer(self.buffer)]);
    }
}
