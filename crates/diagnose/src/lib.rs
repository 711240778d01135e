//! Diagnosis: every faulty operator and every fault between operators of a model on a platform, with its cause.
#![warn(missing_docs)]
