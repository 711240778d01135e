//! Requests that others answer: the agent itself, and devices that run operators.
//!
//! Every request needs an answer here, so that the compiler finds one that was forgotten.

use super::requests::{Answer, Execute, Executor};
use crate::wire::{self, Reply};
use tapml_graph::{Error, Result};

/// Refuses these requests with a reason.
macro_rules! refuse {
    ($reason:literal: $($message:ident)*) => {
        $(impl Execute for wire::$message {
            fn execute(self, _: &mut Executor, _: &mut Answer<'_>) -> Result<Option<Reply>> {
                Err(Error::unsupported($reason))
            }
        })*
    };
}

refuse!("this device runs kernels, no operators": PutTensor DropTensor CallNode CallGraph);
refuse!("a request that has no place here": Hello Ping Cancel);
