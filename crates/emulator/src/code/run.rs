//! A run of instructions that do the same to neighbouring registers, as those of a vector's components do.

/// Instructions from one on that apply one operation, each to the registers after those of the one before.
///
/// A jump into a run is harmless: every instruction has the run that begins with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InstRun {
    /// How many instructions.
    pub count: u32,
    /// Of each operand, whether it is the next register in each instruction; else it is the same in all.
    pub steps: [bool; 3],
}

impl InstRun {
    /// An instruction by itself.
    pub const ONE: InstRun = InstRun { count: 1, steps: [false; 3] };
}
