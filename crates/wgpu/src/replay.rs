//! Running command lists: sizes and encoding, one submission for a run or for several. What a list's next run will most
//! likely be is encoded while the device is still at the last one.
//!
//! Sizes of all steps are computed and checked before anything is encoded. A command buffer of wgpu can be submitted once, so each run
//! needs one of its own.

use crate::list::{ListStep, WgpuList};
use crate::parts::DeviceParts;
use crate::transfer::Piece;
use tapml_device::RecordedList;
use tapml_graph::{Error, Result, Symbols};

/// A write of a turn, from where it waits to where it goes.
pub(crate) struct PlannedWrite {
    /// Where its bytes begin in the source buffer.
    pub(crate) from: u64,
    /// Where they go.
    pub(crate) target: wgpu::Buffer,
    /// Offset in the target, a multiple of 4.
    pub(crate) to: u64,
    /// Bytes, a multiple of 4.
    pub(crate) len: u64,
}

/// A run of a list, and what is written in front of it.
pub(crate) struct PlannedTurn<'a> {
    /// Copied before the steps run.
    pub(crate) writes: Vec<PlannedWrite>,
    /// Values of the symbols in this run.
    pub(crate) symbols: &'a Symbols,
}

impl WgpuList {
    /// Runs the list and then copies these pieces, all in one submission.
    pub(crate) fn replay(
        &mut self,
        parts: &mut DeviceParts,
        symbols: &Symbols,
        pieces: &[Piece],
    ) -> Result<wgpu::SubmissionIndex> {
        self.check_parts(parts)?;
        let ready = self.advance(parts, symbols)?;
        self.submit(parts, pieces, |list, raw, commands| {
            commands.push(match ready {
                Some(ready) => ready,
                None => list.encode(raw),
            });
        })
    }

    /// Runs the list once for each turn and then copies these pieces, all in one submission. A turn's own writes are copied
    /// from `source` in front of its steps.
    pub(crate) fn replay_steps(
        &mut self,
        parts: &mut DeviceParts,
        source: &wgpu::Buffer,
        turns: &[PlannedTurn<'_>],
        pieces: &[Piece],
    ) -> Result<wgpu::SubmissionIndex> {
        self.check_parts(parts)?;
        let mut runs = Vec::with_capacity(turns.len());
        // All turns are checked before one is encoded.
        for turn in turns {
            let ready = self.advance(parts, turn.symbols)?;
            runs.push((ready, self.runs.last.clone()));
        }
        self.submit(parts, pieces, |list, raw, commands| {
            let mut encoder = raw.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            for (turn, (ready, sizes)) in turns.iter().zip(runs) {
                for put in &turn.writes {
                    encoder.copy_buffer_to_buffer(source, put.from, &put.target, put.to, put.len);
                }
                match ready {
                    Some(ready) => {
                        let fresh = raw.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
                        // The steps are encoded already; the writes in front of them need a command buffer before it.
                        commands.extend([std::mem::replace(&mut encoder, fresh).finish(), ready]);
                    }
                    None => encode(&mut encoder, &list.steps, &sizes),
                }
            }
            commands.push(encoder.finish());
        })
    }

    /// Encodes the next run, if it can be expected to be like the last ones. It costs nothing while the device is busy.
    pub(crate) fn prepare(&mut self, parts: &DeviceParts) -> Result<()> {
        // Runs of equal sizes tend to follow each other, such as those of single tokens.
        if self.runs.repeats && self.runs.ready.is_none() {
            let ready = parts.gpu.call(|| "encode a command list".into(), |raw, _| self.encode(raw))?;
            self.runs.ready = Some(ready);
        }
        Ok(())
    }

    /// The steps at the sizes of the last run, as a command buffer.
    fn encode(&self, raw: &wgpu::Device) -> wgpu::CommandBuffer {
        let mut encoder = raw.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        encode(&mut encoder, &self.steps, &self.runs.last);
        encoder.finish()
    }

    /// Submits what `commands` encodes, and copies of the pieces behind it.
    fn submit(
        &self,
        parts: &mut DeviceParts,
        pieces: &[Piece],
        commands: impl FnOnce(&WgpuList, &wgpu::Device, &mut Vec<wgpu::CommandBuffer>),
    ) -> Result<wgpu::SubmissionIndex> {
        // Before the call, so that an error in it names these commands.
        parts.gpu.remember(&self.labels);
        let submission = parts.gpu.call(
            || "run a command list".into(),
            |raw, queue| {
                let mut all = Vec::new();
                commands(self, raw, &mut all);
                if !pieces.is_empty() {
                    let mut encoder = raw.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
                    pieces.iter().for_each(|piece| piece.encode(&mut encoder));
                    all.push(encoder.finish());
                }
                queue.submit(all)
            },
        )?;
        // wgpu puts pending writes in front of the next submission.
        parts.transfers.note_submitted();
        Ok(submission)
    }

    /// Fails if a buffer or kernel of this list was destroyed.
    fn check_parts(&mut self, parts: &DeviceParts) -> Result<()> {
        if self.checked_at == parts.destroyed {
            return Ok(());
        }
        // It may refer to what is gone.
        self.runs.ready = None;
        if let Some(gone) = self.buffers.iter().find(|b| !parts.buffers.contains_key(b)) {
            return Err(Error::invalid(format!("the list uses buffer {}, which was destroyed", gone.0)));
        }
        if let Some(gone) = self.kernels.iter().find(|k| !parts.kernels.contains_key(k)) {
            return Err(Error::invalid(format!("the list uses kernel {}, which was destroyed", gone.0)));
        }
        self.checked_at = parts.destroyed;
        Ok(())
    }

    /// All sizes before anything is encoded, so that a replay that fails here has run nothing; gives the steps if they are
    /// encoded at these sizes already.
    fn advance(&mut self, parts: &DeviceParts, symbols: &Symbols) -> Result<Option<wgpu::CommandBuffer>> {
        let limit = parts.info.limits.max_groups_per_dim;
        let mut sizes = Vec::with_capacity(self.steps.len());
        for (step, name) in self.steps.iter().zip(&self.labels) {
            sizes.push(match step {
                ListStep::Dispatch { label, grid, .. } => {
                    RecordedList::groups_within(limit, label, grid, symbols)?.map(u64::from)
                }
                ListStep::Copy { src, dst, len } => {
                    let named = |e: Error| e.context(name.to_string());
                    let len = len.eval(symbols).map_err(named)?;
                    let from = src.place(len, symbols).map_err(named)?;
                    [from, dst.place(len, symbols).map_err(named)?, len]
                }
                ListStep::Clear { .. } => [0; 3],
            });
        }
        // Taken in any case: encoded at other sizes it is of no use.
        let ready = self.runs.ready.take();
        self.runs.repeats = sizes == self.runs.last;
        self.runs.last = sizes;
        Ok(ready.filter(|_| self.runs.repeats))
    }
}

/// Consecutive dispatches share a pass; copies and clears stand between passes.
fn encode(encoder: &mut wgpu::CommandEncoder, steps: &[ListStep], sizes: &[[u64; 3]]) {
    let mut at = 0;
    while at < steps.len() {
        match &steps[at] {
            ListStep::Dispatch { .. } => at += encode_pass(encoder, &steps[at..], &sizes[at..]),
            ListStep::Copy { src, dst, .. } => {
                let [from, to, len] = sizes[at];
                // WebGPU takes copies of 0 bytes; leaving them out saves a command.
                if len > 0 {
                    encoder.copy_buffer_to_buffer(&src.raw, from, &dst.raw, to, len);
                }
                at += 1;
            }
            ListStep::Clear { buffer } => {
                encoder.clear_buffer(buffer, 0, None);
                at += 1;
            }
        }
    }
}

/// Encodes the dispatches at the start of `steps` and returns how many they are.
fn encode_pass(encoder: &mut wgpu::CommandEncoder, steps: &[ListStep], sizes: &[[u64; 3]]) -> usize {
    let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
    let mut current = None;
    let mut count = 0;
    for (step, &[x, y, z]) in steps.iter().zip(sizes) {
        let ListStep::Dispatch { pipeline, group, .. } = step else { break };
        count += 1;
        // Nothing to run, and no state to set for it.
        if x == 0 || y == 0 || z == 0 {
            continue;
        }
        if current != Some(pipeline) {
            pass.set_pipeline(pipeline);
            current = Some(pipeline);
        }
        pass.set_bind_group(0, group, &[]);
        // `RecordedList::groups` has compared each with a limit of 32 bits.
        pass.dispatch_workgroups(x as u32, y as u32, z as u32);
    }
    count
}
