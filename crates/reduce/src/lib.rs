//! Reduction: a failing node call shrunk to a standalone reproducer that keeps real values.
#![warn(missing_docs)]
