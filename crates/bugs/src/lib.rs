//! Bugs on purpose: mutants of kernels and programs, the bench that diagnosis is measured with, and the score of suites.
#![warn(missing_docs)]
