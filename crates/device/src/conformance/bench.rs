//! What cases are written with: a device that remembers what was made on it, and checks that end a case.
//!
//! Whatever a case makes is noted, so that it is freed however the case ends.

use crate::{
    Binding, BindingKind, BufferId, Command, Device, ErrorKind, Extent, KernelDesc, KernelId, Language,
    ListId, Source,
};
use tapml_graph::{Error, Symbols};

/// Why a case ended early.
/// An error of the device counts as a failure, except for a lost device.
pub(super) enum EarlyEnd {
    /// What was wrong, in words.
    Failed(String),
    /// Why the device cannot run the case.
    Skipped(String),
    /// An error that the case did not expect.
    Device(Error),
}

impl From<Error> for EarlyEnd {
    fn from(error: Error) -> EarlyEnd {
        EarlyEnd::Device(error)
    }
}

/// The end of a case or of one of its checks.
pub(super) type Check<T = ()> = std::result::Result<T, EarlyEnd>;

/// A failed check.
pub(super) fn fail<T>(text: impl Into<String>) -> Check<T> {
    Err(EarlyEnd::Failed(text.into()))
}

/// A case that this device cannot run.
pub(super) fn skip<T>(reason: impl Into<String>) -> Check<T> {
    Err(EarlyEnd::Skipped(reason.into()))
}

/// Checks that a call failed with one of these kinds, and returns its error.
pub(super) fn expect_refusal<T>(what: &str, kinds: &[ErrorKind], result: crate::Result<T>) -> Check<Error> {
    match result {
        Ok(_) => fail(format!("{what} was accepted")),
        Err(error) if kinds.contains(&error.kind()) => Ok(error),
        Err(error) => {
            let expected = kinds.iter().map(|k| k.name()).collect::<Vec<_>>().join(" or ");
            fail(format!(
                "{what}: expected an error of kind {expected}, found {}: {error}",
                error.kind().name()
            ))
        }
    }
}

/// Checks a named detail of an error.
pub(super) fn has_detail(what: &str, error: &Error, name: &str, value: &str) -> Check {
    match error.detail(name) {
        Some(found) if found == value => Ok(()),
        found => fail(format!("{what}: expected the detail {name} = {value}, found {found:?} in: {error}")),
    }
}

/// A device, and what the case made on it.
pub(super) struct Bench<'a> {
    pub(super) device: &'a mut dyn Device,
    /// Names kernels and files in messages.
    case: &'static str,
    /// Not freed yet.
    buffers: Vec<BufferId>,
    /// Not freed yet.
    kernels: Vec<KernelId>,
    /// Not freed yet.
    lists: Vec<ListId>,
}

impl<'a> Bench<'a> {
    /// Nothing made yet.
    pub(super) fn new(case: &'static str, device: &'a mut dyn Device) -> Bench<'a> {
        Bench { device, case, buffers: Vec::new(), kernels: Vec::new(), lists: Vec::new() }
    }

    /// A zeroed buffer.
    pub(super) fn create_zeroed(&mut self, label: &str, bytes: u64) -> Check<BufferId> {
        let id = self.device.create_buffer(label, bytes)?;
        self.buffers.push(id);
        Ok(id)
    }

    /// A buffer that holds these words.
    pub(super) fn create_holding(&mut self, label: &str, words: &[u32]) -> Check<BufferId> {
        let id = self.create_zeroed(label, words.len() as u64 * 4)?;
        self.device.write(id, 0, &bytes_of(words))?;
        Ok(id)
    }

    /// Frees a buffer before the case ends.
    pub(super) fn destroy_buffer(&mut self, id: BufferId) -> crate::Result<()> {
        // Also if the device fails to free it: it must not be freed twice.
        self.buffers.retain(|&b| b != id);
        self.device.destroy_buffer(id)
    }

    /// Frees a kernel before the case ends.
    pub(super) fn destroy_kernel(&mut self, id: KernelId) -> crate::Result<()> {
        self.kernels.retain(|&k| k != id);
        self.device.destroy_kernel(id)
    }

    /// Frees a list before the case ends.
    pub(super) fn destroy_list(&mut self, id: ListId) -> crate::Result<()> {
        self.lists.retain(|&l| l != id);
        self.device.destroy_list(id)
    }

    /// A description of a kernel with entry point `main` and no constants.
    pub(super) fn desc(&self, bindings: &[BindingKind], workgroup: [u32; 3], text: &str) -> KernelDesc {
        KernelDesc {
            name: format!("conformance/{}", self.case),
            source: Source {
                language: Language::Wgsl,
                file: format!("{}.wgsl", self.case),
                prelude: String::new(),
                text: text.into(),
            },
            entry: "main".into(),
            constants: Vec::new(),
            bindings: bindings.to_vec(),
            workgroup,
            workgroup_memory: 0,
            needs_f16: false,
            needs_subgroups: false,
            dependent_launch: false,
        }
    }

    /// Compiles a kernel.
    pub(super) fn kernel(&mut self, desc: &KernelDesc) -> Check<KernelId> {
        let id = self.device.create_kernel(desc)?;
        self.kernels.push(id);
        Ok(id)
    }

    /// Records a list.
    pub(super) fn record(&mut self, commands: &[Command]) -> Check<ListId> {
        let id = self.device.record(commands)?;
        self.lists.push(id);
        Ok(id)
    }

    /// Runs commands once without symbols.
    pub(super) fn run(&mut self, commands: &[Command]) -> Check {
        let list = self.record(commands)?;
        self.device.replay(list, &Symbols::new())?;
        Ok(())
    }

    /// Compiles `text`, runs it on `groups` workgroups with whole buffers bound, read-only ones first, the last one
    /// writable, and returns the words of the last.
    pub(super) fn compute(
        &mut self,
        text: &str,
        width: u32,
        groups: u32,
        buffers: &[BufferId],
        words: usize,
    ) -> Check<Vec<u32>> {
        let mut kinds = vec![BindingKind::Read; buffers.len()];
        if let Some(last) = kinds.last_mut() {
            *last = BindingKind::ReadWrite;
        }
        let desc = self.desc(&kinds, [width, 1, 1], text);
        self.compute_with(&desc, groups, buffers, words)
    }

    /// As [`Bench::compute`] with a description of one's own.
    pub(super) fn compute_with(
        &mut self,
        desc: &KernelDesc,
        groups: u32,
        buffers: &[BufferId],
        words: usize,
    ) -> Check<Vec<u32>> {
        let kernel = self.kernel(desc)?;
        self.run(&[dispatch("compute", kernel, buffers, groups)])?;
        match buffers.last() {
            Some(&last) => self.words(last, words),
            None => fail("a kernel without buffers computes nothing"),
        }
    }

    /// The first words of a buffer.
    pub(super) fn words(&mut self, buffer: BufferId, count: usize) -> Check<Vec<u32>> {
        // Not zeros: a read that does nothing must not pass.
        let mut bytes = vec![0xa5; count * 4];
        self.device.read(buffer, 0, &mut bytes)?;
        Ok(words_of(&bytes))
    }

    /// Checks the first words of a buffer.
    pub(super) fn holds(&mut self, what: &str, buffer: BufferId, expected: &[u32]) -> Check {
        let found = self.words(buffer, expected.len())?;
        equal(what, &found, expected)
    }

    /// Frees what the case has left.
    pub(super) fn clean(&mut self) -> Check {
        // All parts are freed, then the first error is told.
        let mut first = Ok(());
        // Lists first: they refer to kernels and buffers.
        for list in self.lists.drain(..) {
            first = first.and(self.device.destroy_list(list));
        }
        for kernel in self.kernels.drain(..) {
            first = first.and(self.device.destroy_kernel(kernel));
        }
        for buffer in self.buffers.drain(..) {
            first = first.and(self.device.destroy_buffer(buffer));
        }
        first.map_err(|e| EarlyEnd::Failed(format!("cleaning up: {e}")))
    }
}

/// Checks words, and names the first that differs.
pub(super) fn equal(what: &str, found: &[u32], expected: &[u32]) -> Check {
    if found.len() != expected.len() {
        return fail(format!("{what}: {} words, expected {}", found.len(), expected.len()));
    }
    match found.iter().zip(expected).position(|(f, e)| f != e) {
        None => Ok(()),
        Some(at) => {
            let (f, e) = (found[at], expected[at]);
            fail(format!("{what}: word {at} of {} is {f} ({f:#x}), expected {e} ({e:#x})", found.len()))
        }
    }
}

/// A dispatch of `groups` workgroups in x with whole buffers bound.
pub(super) fn dispatch(label: &str, kernel: KernelId, buffers: &[BufferId], groups: u32) -> Command {
    let bindings = buffers.iter().map(|&b| Binding::whole(b)).collect();
    bound(label, kernel, bindings, Extent::from_dim(u64::from(groups)))
}

/// A dispatch in x with these bindings.
pub(super) fn bound(label: &str, kernel: KernelId, bindings: Vec<Binding>, groups: Extent) -> Command {
    Command::Dispatch {
        label: label.into(),
        kernel,
        bindings,
        groups: [groups, Extent::from_dim(1u64), Extent::from_dim(1u64)],
    }
}

/// Little-endian bytes of words.
pub(super) fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// Words of little-endian bytes.
pub(super) fn words_of(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect()
}

/// Bits of floats.
pub(super) fn bits(floats: &[f32]) -> Vec<u32> {
    floats.iter().map(|f| f.to_bits()).collect()
}
