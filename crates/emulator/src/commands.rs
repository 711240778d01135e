//! What WebGPU checks of commands, and commands with everything resolved. A list is prepared as a whole before any of
//! it runs, so that a refused replay leaves no trace.
//!
//! The rules are those of WebGPU's validation of bind groups, copies and dispatches. Nothing in this file changes a buffer.

use crate::device::{Emulator, Stored};
use crate::front::ReadyKernel;
use tapml_device::{Binding, BindingKind, BufferId, Command, Error, KernelId, RecordedList, Result, Symbols};

/// A binding resolved against its buffer: words from `first` to `first + len`.
///
/// It lies within the buffer: `resolve_one` has checked that.
#[derive(Clone, Copy)]
pub struct Range {
    /// The buffer that is bound.
    pub buffer: BufferId,
    /// Its first word.
    pub first: usize,
    /// Number of words, at least 1.
    pub len: usize,
    /// Whether the kernel may write to it.
    pub writes: bool,
}

/// A command that can no longer be refused.
///
/// The ranges of a dispatch are in the order of the kernel's bindings. A dispatch may have no workgroups along an axis.
pub enum CheckedCommand {
    Dispatch {
        label: String,
        kernel: KernelId,
        ranges: Vec<Range>,
        groups: [u32; 3],
    },
    /// Words `from` of `src` to `dst` from word `to` on.
    Copy {
        src: BufferId,
        from: std::ops::Range<usize>,
        dst: BufferId,
        to: usize,
    },
    /// Every word of a buffer becomes `word`.
    Fill {
        buffer: BufferId,
        word: u32,
    },
}

impl Emulator {
    /// Checks what does not depend on symbols.
    ///
    /// # Errors
    ///
    /// Handles that do not exist, bindings that do not fit the kernel, and copies within one buffer.
    pub(crate) fn check(&self, command: &Command) -> Result<()> {
        match command {
            Command::Dispatch { label, kernel, bindings, .. } => {
                self.resolve(label, self.kernel(label, *kernel)?, bindings).map(|_| ())
            }
            Command::Copy { src, dst, .. } => self.check_copy(*src, *dst).map(|_| ()),
            Command::Fill { buffer, .. } => self.stored_buffer(*buffer).map(|_| ()),
        }
    }

    /// The source and the destination of a copy, which must differ.
    fn check_copy(&self, src: BufferId, dst: BufferId) -> Result<(&Stored, &Stored)> {
        let (source, target) = (self.stored_buffer(src)?, self.stored_buffer(dst)?);
        if src == dst {
            let text = format!("buffer `{}` is both source and destination of a copy", source.label);
            return Err(Error::invalid(text).with_hint("copy through a buffer of its own"));
        }
        Ok((source, target))
    }

    /// Checks a command under these symbols and resolves it.
    ///
    /// # Errors
    ///
    /// As [`Emulator::check`], and extents that have no value, exceed the limits or leave their buffer.
    pub(crate) fn prepare(&self, command: &Command, symbols: &Symbols) -> Result<CheckedCommand> {
        match command {
            Command::Dispatch { label, kernel, bindings, groups } => {
                // Handles are looked up again: a buffer or kernel may be gone since the list was recorded.
                let ranges = self.resolve(label, self.kernel(label, *kernel)?, bindings)?;
                let groups = RecordedList::groups(self, label, groups, symbols)?;
                Ok(CheckedCommand::Dispatch { label: label.clone(), kernel: *kernel, ranges, groups })
            }
            Command::Copy { src, src_offset, dst, dst_offset, len } => {
                let (source, target) = self.check_copy(*src, *dst)?;
                let [from, to, len] = [src_offset, dst_offset, len].map(|e| e.eval(symbols));
                let len = len?;
                let (from, to) = (words_of(source, from?, len)?, words_of(target, to?, len)?);
                Ok(CheckedCommand::Copy { src: *src, from, dst: *dst, to: to.start })
            }
            Command::Fill { buffer, word } => {
                self.stored_buffer(*buffer)?;
                Ok(CheckedCommand::Fill { buffer: *buffer, word: *word })
            }
        }
    }

    /// Checks the bindings of a dispatch as WebGPU does.
    fn resolve(&self, label: &str, kernel: &ReadyKernel, bindings: &[Binding]) -> Result<Vec<Range>> {
        let desc = &kernel.desc;
        if desc.bindings.len() != bindings.len() {
            let (given, wanted) = (bindings.len(), desc.bindings.len());
            return Err(Error::invalid(format!(
                "dispatch `{label}` binds {given} buffers, kernel `{}` has {wanted}",
                desc.name
            )));
        }
        let mut ranges = Vec::with_capacity(bindings.len());
        for (index, binding) in bindings.iter().enumerate() {
            let range = self.resolve_one(desc.bindings[index], kernel.min_sizes[index], binding);
            ranges.push(
                range.map_err(|e| {
                    e.context(format!("dispatch `{label}`, binding {index} of `{}`", desc.name))
                })?,
            );
        }
        check_aliasing(label, &desc.name, &ranges)?;
        Ok(ranges)
    }

    /// Resolves one binding. A size of 0 binds the rest of the buffer, as WebGPU does where no size is given.
    ///
    /// # Errors
    ///
    /// Ranges outside the buffer, wrong alignment, more than the limits allow, or fewer bytes than the kernel's type needs.
    fn resolve_one(&self, kind: BindingKind, min_size: u32, binding: &Binding) -> Result<Range> {
        let stored = self.stored_buffer(binding.buffer)?;
        let limits = &self.info.limits;
        let total = stored.words.len() as u64 * 4;
        // A size of 0 means the rest.
        let size = if binding.size == 0 { total.saturating_sub(binding.offset) } else { binding.size };
        if binding.offset.checked_add(size).is_none_or(|end| end > total) {
            let text = format!(
                "{size} bytes at {} do not fit buffer `{}` of {total} bytes",
                binding.offset, stored.label
            );
            return Err(Error::invalid(text));
        }
        // A range of words needs at least an alignment of 4, even where limits ask for less.
        let align = u64::from(limits.min_offset_alignment.max(4));
        if !binding.offset.is_multiple_of(align) || !size.is_multiple_of(4) {
            return Err(Error::invalid(format!(
                "offset {} must be a multiple of {align} and size {size} of 4",
                binding.offset
            )));
        }
        let max =
            if kind == BindingKind::Uniform { limits.max_uniform_size } else { limits.max_binding_size };
        if size > max {
            let text = format!(
                "{size} bytes of buffer `{}` are bound, {} allows {max}",
                stored.label, self.info.name
            );
            let limit = if kind == BindingKind::Uniform { "max_uniform_size" } else { "max_binding_size" };
            return Err(Error::unsupported(text)
                .with_detail("limit", limit)
                .with_detail("asked", size.to_string())
                .with_detail("offered", max.to_string()));
        }
        // An empty range has no last element that an index could be clamped to.
        if size < u64::from(min_size) || size == 0 {
            return Err(Error::invalid(format!(
                "{size} bytes of buffer `{}` are bound, the kernel's type needs at least {}",
                stored.label,
                min_size.max(4)
            )));
        }
        let (first, len) = (binding.offset as usize / 4, size as usize / 4);
        Ok(Range { buffer: binding.buffer, first, len, writes: kind == BindingKind::ReadWrite })
    }
}

/// A range of bytes as words of a buffer; an error if it is unaligned or reaches past the end.
fn words_of(stored: &Stored, offset: u64, len: u64) -> Result<std::ops::Range<usize>> {
    let total = stored.words.len() as u64 * 4;
    let end = offset.checked_add(len).filter(|&end| end <= total && (offset | len).is_multiple_of(4));
    end.map(|end| offset as usize / 4..end as usize / 4).ok_or_else(|| {
        let text = format!("copy of {len} bytes at {offset} of buffer `{}` of {total} bytes", stored.label);
        Error::invalid(text).with_hint("offsets and length are multiples of 4 within the buffer")
    })
}

/// WebGPU's usage rules: a buffer that a dispatch writes may not be bound read-only as well, and ranges written may not
/// overlap.
fn check_aliasing(label: &str, kernel: &str, ranges: &[Range]) -> Result<()> {
    for (i, a) in ranges.iter().enumerate() {
        // All pairs: kernels have few bindings.
        for (j, b) in ranges.iter().enumerate().skip(i + 1) {
            let overlap = a.first < b.first + b.len && b.first < a.first + a.len;
            if a.buffer == b.buffer && (a.writes != b.writes || (a.writes && overlap)) {
                let text = format!(
                    "dispatch `{label}` binds buffer {} both as binding {i} and as binding {j} of `{kernel}` and writes to it",
                    a.buffer.0
                );
                return Err(Error::invalid(text).with_hint("give the output a buffer of its own"));
            }
        }
    }
    Ok(())
}
