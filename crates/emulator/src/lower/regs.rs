//! Register allocation: lowest free registers first, so that a kernel's working set stays small.
//!
//! A register that is given back may be taken again by the next value. Values are freed as soon as their last use is lowered.

use crate::code::Reg;

/// One class of registers.
///
/// The list only grows. Its length is the number of registers that the VM must have.
#[derive(Default)]
struct RegisterClass {
    /// Whether each register is in use.
    used: Vec<bool>,
}

impl RegisterClass {
    /// The first of `n` consecutive free registers.
    fn take(&mut self, n: u32) -> u32 {
        let n = n as usize;
        let mut run = 0;
        for i in 0..self.used.len() {
            run = if self.used[i] { 0 } else { run + 1 };
            if run == n {
                let first = i + 1 - n;
                self.used[first..=i].fill(true);
                return first as u32;
            }
        }
        // Free registers at the end begin the run; the list grows by what is missing.
        let first = self.used.len() - run;
        self.used[first..].fill(true);
        self.used.resize(first + n, true);
        first as u32
    }
}

/// Both classes of registers.
#[derive(Default)]
pub struct Regs {
    uniform: RegisterClass,
    varying: RegisterClass,
}

impl Regs {
    /// `n` consecutive registers.
    /// The content is undefined: an earlier value may have left its own.
    pub fn take(&mut self, varying: bool, n: u32) -> Reg {
        if varying { Reg::varying(self.varying.take(n)) } else { Reg::uniform(self.uniform.take(n)) }
    }

    /// A register that was never in use: what it holds before the first instruction stays until it is read.
    /// It may be freed only when nothing reads it any more, in any iteration of a loop.
    pub fn take_untouched(&mut self, varying: bool) -> Reg {
        let class = if varying { &mut self.varying } else { &mut self.uniform };
        // Behind all others, although lower ones may be free: these have been used.
        class.used.push(true);
        let index = class.used.len() as u32 - 1;
        if varying { Reg::varying(index) } else { Reg::uniform(index) }
    }

    /// Gives registers back.
    pub fn free(&mut self, regs: &[Reg]) {
        for reg in regs {
            let class = if reg.is_varying() { &mut self.varying } else { &mut self.uniform };
            class.used[reg.index()] = false;
        }
    }

    /// How many registers of each class were in use at once.
    /// Uniform first, then varying.
    pub fn counts(&self) -> (u32, u32) {
        (self.uniform.used.len() as u32, self.varying.used.len() as u32)
    }
}
