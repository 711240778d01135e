//! Kernels.
//!
//! Creating a kernel is answered, because compiling may fail: the client learns it at the call.

use super::bounds::{bounded_list, name};
use super::{Answered, Names, Note, RequestMessage};
use crate::wire::limits::MAX_TEXT;
use crate::wire::{CreateKernel, DestroyKernel};
use tapml_graph::{Error, Result};

impl RequestMessage for CreateKernel {
    const ANSWERED: Answered = Answered::Always;

    fn check(&self) -> Result<()> {
        name("kernel", &self.name)?;
        name("file", &self.file)?;
        name("entry", &self.entry)?;
        // The prelude counts: it is compiled as well.
        let len = self.prelude.len() + self.text.len();
        if len > MAX_TEXT {
            return Err(Error::invalid(format!("the kernel's text has {len} bytes, at most {MAX_TEXT}")));
        }
        bounded_list("bindings", self.bindings.len())?;
        bounded_list("constants", self.constants.len())?;
        self.constants.iter().try_for_each(|constant| name("constant", &constant.name))
    }

    fn note(&self, _: &Names) -> Note {
        Note::Kernel { kernel: self.kernel, name: self.name.clone() }
    }

    // A post-mortem prints the text of the kernel that ran.
    fn remember(&self, names: &mut Names, len: usize) {
        names.add_kernel(self, len);
    }
}

impl RequestMessage for DestroyKernel {
    const ANSWERED: Answered = Answered::Never;

    fn note(&self, _: &Names) -> Note {
        Note::Text(format!("destroy kernel {}", self.kernel))
    }
}
