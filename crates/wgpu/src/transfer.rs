//! Moving bytes between host and device: bounded upload memory, a pool of buffers to read through.
//!
//! The buffers that kernels use cannot be mapped. A read is a copy to a buffer that can be, and a wait for that copy.

use crate::gpu::Gpu;
use std::collections::VecDeque;
use std::sync::mpsc;
use tapml_graph::{Error, Result};

/// Largest piece of one transfer. Two pieces are in flight while a large buffer is read.
/// It bounds the memory beside the buffers themselves.
const PIECE: u64 = 16 << 20;
/// Smallest buffer to read through, so that small reads share one.
const SMALL: u64 = 64 << 10;
/// Uploads are handed to the device after this many bytes; at most twice as many wait in host memory.
/// wgpu keeps written data on the host until something is submitted.
const PENDING: u64 = 64 << 20;

/// Uploads not yet handed over, and buffers to read through.
#[derive(Default)]
pub(crate) struct Transfers {
    /// Bytes written since the last submission.
    pending: u64,
    /// The last submission that only handed written data over, if nothing was submitted since.
    flushed: Option<wgpu::SubmissionIndex>,
    /// Buffers to read through that are not in use and not mapped.
    idle: Vec<wgpu::Buffer>,
    /// What waits for its place in a submission.
    source: Option<wgpu::Buffer>,
}

/// A piece of a read on its way.
struct Flight {
    /// The buffer that is mapped when the copy is done.
    staging: wgpu::Buffer,
    /// The submission that copies.
    submission: wgpu::SubmissionIndex,
    /// Where the mapping callback tells how it went.
    mapped: mpsc::Receiver<std::result::Result<(), wgpu::BufferAsyncError>>,
    /// First byte in the buffer that is read, a multiple of 4.
    start: u64,
    /// Bytes, a multiple of 4.
    len: u64,
}

/// A range of a buffer and what it is read through.
pub(crate) struct Piece {
    /// What is read.
    buffer: wgpu::Buffer,
    staging: wgpu::Buffer,
    start: u64,
    len: u64,
}

impl Piece {
    /// Copies the range at this place of a command list.
    pub(crate) fn encode(&self, encoder: &mut wgpu::CommandEncoder) {
        encoder.copy_buffer_to_buffer(&self.buffer, self.start, &self.staging, 0, self.len);
    }

    /// Asks for the copy once it was submitted.
    fn take_off(self, gpu: &Gpu, submission: wgpu::SubmissionIndex) -> Result<Flight> {
        let Piece { staging, start, len, .. } = self;
        let (sender, mapped) = mpsc::channel();
        // The receiver may be gone after an earlier piece failed; then nobody waits for this one.
        gpu.call(
            || format!("read {len} bytes"),
            |_, _| staging.map_async(wgpu::MapMode::Read, 0..len, move |result| drop(sender.send(result))),
        )?;
        Ok(Flight { staging, submission, mapped, start, len })
    }
}

/// A range of a buffer that is to be read.
pub(crate) struct ReadRange {
    pub(crate) buffer: wgpu::Buffer,
    /// Its first byte.
    pub(crate) offset: u64,
    /// Bytes.
    pub(crate) len: u64,
}

impl Transfers {
    /// Writes `data` at `offset`, a multiple of 4. A last piece shorter than a word is padded with zeros.
    pub(crate) fn write(&mut self, gpu: &Gpu, buffer: &wgpu::Buffer, offset: u64, data: &[u8]) -> Result<()> {
        let whole = data.len() & !3;
        for (i, piece) in data[..whole].chunks(PIECE as usize).enumerate() {
            self.put(gpu, buffer, offset + i as u64 * PIECE, piece)?;
        }
        if whole < data.len() {
            let mut word = [0; 4];
            word[..data.len() - whole].copy_from_slice(&data[whole..]);
            self.put(gpu, buffer, offset + whole as u64, &word)?;
        }
        Ok(())
    }

    /// Writes one piece. Every [`PENDING`] bytes the data is handed over, and the hand-over before that is waited for.
    fn put(&mut self, gpu: &Gpu, buffer: &wgpu::Buffer, offset: u64, data: &[u8]) -> Result<()> {
        gpu.call(
            || format!("write {} bytes", data.len()),
            |_, queue| queue.write_buffer(buffer, offset, data),
        )?;
        // Counted, because wgpu does not tell how much waits.
        self.pending += data.len() as u64;
        if self.pending >= PENDING {
            if let Some(earlier) = self.flushed.take() {
                gpu.finish(Some(earlier))?;
            }
            self.flushed = Some(gpu.call(|| "hand over written data".into(), |_, queue| queue.submit([]))?);
            self.pending = 0;
        }
        Ok(())
    }

    /// Hands written data over, so that waiting for the device waits for it too.
    pub(crate) fn flush(&mut self, gpu: &Gpu) -> Result<()> {
        if self.pending > 0 {
            gpu.call(|| "hand over written data".into(), |_, queue| queue.submit([]))?;
            self.note_submitted();
        }
        Ok(())
    }

    /// Tells that a submission has carried all written data along.
    pub(crate) fn note_submitted(&mut self) {
        self.pending = 0;
        self.flushed = None;
    }

    /// Fills `out` from `offset` on; `size` is the buffer's size, a multiple of 4, and holds the range.
    pub(crate) fn read(
        &mut self,
        gpu: &Gpu,
        buffer: &wgpu::Buffer,
        offset: u64,
        out: &mut [u8],
    ) -> Result<()> {
        // Copies are of whole words: the range is widened, and `land` takes what was asked for.
        let end = (offset + out.len() as u64).next_multiple_of(4);
        let mut next = offset & !3;
        let mut flights = VecDeque::new();
        loop {
            // One piece is copied while the one before is taken over.
            while next < end && flights.len() < 2 {
                let len = PIECE.min(end - next);
                flights.push_back(self.depart(gpu, buffer, next, len)?);
                next += len;
            }
            match flights.pop_front() {
                Some(flight) => self.land(gpu, flight, offset, out)?,
                None => return Ok(()),
            }
        }
    }

    /// Submits the copy of one piece.
    fn depart(&mut self, gpu: &Gpu, buffer: &wgpu::Buffer, start: u64, len: u64) -> Result<Flight> {
        let piece = self.piece(gpu, buffer, start, len)?;
        let submission = gpu.call(
            || format!("read {len} bytes"),
            |device, queue| {
                let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
                piece.encode(&mut encoder);
                queue.submit([encoder.finish()])
            },
        )?;
        self.note_submitted();
        piece.take_off(gpu, submission)
    }

    /// A range of at most [`PIECE`] bytes, multiples of 4, with a buffer to read it through.
    fn piece(&mut self, gpu: &Gpu, buffer: &wgpu::Buffer, start: u64, len: u64) -> Result<Piece> {
        Ok(Piece { buffer: buffer.clone(), staging: self.staging(gpu, len)?, start, len })
    }

    /// Pieces for all these ranges of buffers, to be read by the submission that writes them; `None` if
    /// they are so large that they are better read piece by piece.
    pub(crate) fn pieces(&mut self, gpu: &Gpu, ranges: &[ReadRange]) -> Result<Option<Vec<Piece>>> {
        let bounds = |range: &ReadRange| (range.offset & !3, (range.offset + range.len).next_multiple_of(4));
        let total: u64 = ranges.iter().map(bounds).map(|(start, end)| end - start).sum();
        // An empty range has nothing to map.
        if total > PIECE || ranges.iter().any(|range| range.len == 0) {
            return Ok(None);
        }
        let piece = |range: &ReadRange| {
            let (start, end) = bounds(range);
            self.piece(gpu, &range.buffer, start, end - start)
        };
        ranges.iter().map(piece).collect::<Result<_>>().map(Some)
    }

    /// Waits for the submission that copied these pieces and fills their places, each from its `offset` on.
    pub(crate) fn collect<'a>(
        &mut self,
        gpu: &Gpu,
        pieces: Vec<Piece>,
        submission: &wgpu::SubmissionIndex,
        places: impl Iterator<Item = (u64, &'a mut [u8])>,
    ) -> Result<()> {
        let flights = pieces.into_iter().map(|piece| piece.take_off(gpu, submission.clone()));
        let flights = flights.collect::<Result<Vec<_>>>()?;
        flights
            .into_iter()
            .zip(places)
            .try_for_each(|(flight, (offset, out))| self.land(gpu, flight, offset, out))
    }

    /// Waits for a piece and copies the part of it that lies in `out`.
    fn land(&mut self, gpu: &Gpu, flight: Flight, offset: u64, out: &mut [u8]) -> Result<()> {
        gpu.finish(Some(flight.submission))?;
        let unmapped = |why: String| {
            let bug = || gpu.trace(Error::bug(format!("could not map {} bytes to read: {why}", flight.len)));
            gpu.alive().err().unwrap_or_else(bug)
        };
        // The wait has run the callbacks of the submission, so an answer is there.
        match flight.mapped.try_recv() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(unmapped(error.to_string())),
            Err(error) => return Err(unmapped(error.to_string())),
        }
        let view = flight.staging.get_mapped_range(0..flight.len).map_err(|e| unmapped(e.to_string()))?;
        let from = flight.start.max(offset);
        let to = (flight.start + flight.len).min(offset + out.len() as u64);
        out[(from - offset) as usize..(to - offset) as usize]
            .copy_from_slice(&view[(from - flight.start) as usize..(to - flight.start) as usize]);
        drop(view);
        flight.staging.unmap();
        // Only after it was unmapped: a mapped buffer cannot be copied to.
        self.idle.push(flight.staging);
        Ok(())
    }

    /// A buffer of at least `len` bytes, from which a submission copies what it writes.
    /// It grows by powers of two and is kept.
    pub(crate) fn source(&mut self, gpu: &Gpu, len: u64) -> Result<wgpu::Buffer> {
        if let Some(source) = self.source.as_ref().filter(|source| source.size() >= len) {
            return Ok(source.clone());
        }
        let desc = wgpu::BufferDescriptor {
            label: Some("written by turns"),
            size: len.next_power_of_two().max(SMALL),
            usage: wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        };
        let doing = || format!("create a buffer to write {len} bytes through");
        let made = gpu.call(doing, |device, _| device.create_buffer(&desc))?;
        Ok(self.source.insert(made).clone())
    }

    /// An idle buffer of at least `len` bytes, or a new one.
    /// Sizes are powers of two, so that reads of similar sizes share buffers.
    fn staging(&mut self, gpu: &Gpu, len: u64) -> Result<wgpu::Buffer> {
        if let Some(at) = self.idle.iter().position(|b| b.size() >= len) {
            return Ok(self.idle.swap_remove(at));
        }
        // Buffers that are too small would never be used again once larger reads have begun.
        self.idle.clear();
        let desc = wgpu::BufferDescriptor {
            label: Some("staging"),
            size: len.next_power_of_two().max(SMALL),
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        };
        gpu.call(
            || format!("create a buffer to read {len} bytes through"),
            |device, _| device.create_buffer(&desc),
        )
    }
}
