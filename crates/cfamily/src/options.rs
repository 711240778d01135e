//! Choices of the printer: the dialect, and which guarantees of WGSL its text keeps.

/// A dialect of the C family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// CUDA C++ as NVRTC compiles it, without any header.
    Cuda,
    /// HIP as hipRTC compiles it, and clang for AMD's processors without ROCm.
    Hip,
    /// OpenCL C 1.2.
    OpenCl,
}

/// What is done about indices outside an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bounds {
    /// They are moved to the last element.
    Clamp,
    /// The kernel is trusted.
    Unchecked,
}

/// Choices of the printer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PrintOptions {
    /// The dialect.
    pub dialect: Dialect,
    /// Indices.
    pub bounds: Bounds,
    /// Whether workgroup memory is cleared at a kernel's start.
    pub zero_workgroup: bool,
    /// Whether subgroup operations of OpenCL C go through workgroup memory: subgroups of 8. One that perhaps not all
    /// invocations of a workgroup reach together is unsupported.
    pub emulate_subgroups: bool,
}

impl PrintOptions {
    /// What WGSL guarantees, in a dialect.
    pub fn new(dialect: Dialect) -> PrintOptions {
        PrintOptions { dialect, bounds: Bounds::Clamp, zero_workgroup: true, emulate_subgroups: false }
    }
}
