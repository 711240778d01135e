//! What a backend brings: its driver's calls, behind safe handles.

use super::DriverOptions;
use crate::{Dialect, Printed};
use std::fmt::Display;
use std::ops::Range;
use tapml_device::DeviceInfo;
use tapml_graph::{Error, ErrorKind};

/// The calls of an open device. Ranges were checked before, and are in bytes. Work runs in the order of the calls; a
/// failure of one that works on the device loses it.
pub trait Driver: Send + Sized {
    /// What is printed for it.
    const DIALECT: Dialect;
    /// Memory of the device, which is kept until the work that uses it has run.
    type Memory: Send;
    /// A loaded kernel.
    type Kernel: Send;
    /// A failed call.
    type Failure: Fault;

    /// Opens device `index` of those that the crate lists, and what it offers under these options.
    fn open(index: usize, options: DriverOptions) -> tapml_graph::Result<(Self, DeviceInfo)>;

    /// Makes the device that of this thread; before each call of the device.
    fn enter(&self) -> Result<(), Self::Failure> {
        Ok(())
    }

    /// Memory of so many bytes, a multiple of 4.
    fn memory(&self, bytes: usize) -> Result<Self::Memory, Self::Failure>;

    /// Compiles and loads a kernel.
    fn kernel(&self, printed: &Printed, info: &DeviceInfo) -> Result<Self::Kernel, Refusal<Self::Failure>>;

    /// Copies a range to another memory, from `to` on.
    fn copy(
        &self,
        src: &Self::Memory,
        dst: &Self::Memory,
        from: Range<usize>,
        to: usize,
    ) -> Result<(), Self::Failure>;

    /// Fills all bytes of a memory with a word.
    fn fill(&self, memory: &Self::Memory, bytes: usize, word: u32) -> Result<(), Self::Failure>;

    /// Writes bytes from `offset` on; they are taken over when the call returns.
    fn write(&self, memory: &Self::Memory, offset: usize, data: &[u8]) -> Result<(), Self::Failure>;

    /// Waits for all work so far and reads bytes from `offset` on.
    fn read(&self, memory: &Self::Memory, offset: usize, out: &mut [u8]) -> Result<(), Self::Failure>;

    /// Runs a kernel over so many workgroups of this size. The arguments have the types that the printer declared, in its
    /// order.
    fn run(
        &self,
        kernel: &Self::Kernel,
        arguments: &[Argument<'_, Self::Memory>],
        groups: [u32; 3],
        workgroup: [u32; 3],
    ) -> Result<(), Self::Failure>;

    /// Sees that the work so far is begun.
    fn flush(&self) -> Result<(), Self::Failure> {
        Ok(())
    }

    /// Waits for all work.
    fn finish(&self) -> Result<(), Self::Failure>;
}

/// An argument of a kernel.
pub enum Argument<'a, M> {
    /// The range of a memory from this byte on, or the memory if [`Argument::Offset`] follows.
    Memory(&'a M, u64),
    /// Where the range begins.
    Offset(u64),
    /// Its length.
    Bytes(u32),
}

/// Why a kernel was not made.
pub enum Refusal<F> {
    /// The compiler's messages, which begin `FILE:LINE:`.
    Log(String),
    /// The driver's call to do this with the kernel failed.
    Call(&'static str, F),
    /// The compiler failed without messages.
    Compiler(String),
}

/// A failed call, in the driver's words.
pub trait Fault: Display {
    /// Whether there was too little memory: the device goes on.
    fn out_of_memory(&self) -> bool;
}

/// A failed call: `doing` says what was tried.
pub fn call_error(doing: &str, failure: impl Fault) -> Error {
    // A device that is short of memory goes on; any other failure of such a call is a bug.
    let kind = if failure.out_of_memory() { ErrorKind::OutOfMemory } else { ErrorKind::Bug };
    Error::new(kind, format!("could not {doing}: {failure}"))
}

/// A failure of work that was handed over: nothing is known of the device's state any more.
pub fn device_lost(doing: &str, failure: impl Fault) -> Error {
    Error::new(ErrorKind::DeviceLost, format!("could not {doing}: {failure}"))
        .with_hint("open the device again")
}

/// Declares a table of a library's functions, `fn from(Library)` of which loads them. The scope has `libloading::Library`,
/// and allows unsafe code.
#[macro_export]
macro_rules! functions {
    ($(#[$doc:meta])* $api:ident $abi:literal { $($name:ident: fn($($argument:ty),*) -> $result:ty;)* }) => {
        $(#[$doc])*
        #[allow(non_snake_case, reason = "the names of the library")]
        pub(crate) struct $api {
            $(pub(crate) $name: unsafe extern $abi fn($($argument),*) -> $result,)*
            /// Keeps the functions where they are; none if they are part of the program.
            pub(crate) _library: Option<Library>,
        }

        impl $api {
            pub(crate) fn from(library: Library) -> Result<$api, libloading::Error> {
                // SAFETY: the types are those of the headers.
                unsafe {
                    Ok($api {
                        $($name: *library.get(concat!(stringify!($name), "\0").as_bytes())?,)*
                        _library: Some(library),
                    })
                }
            }
        }
    };
}
