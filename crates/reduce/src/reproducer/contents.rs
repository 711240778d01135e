//! The files of a reproducer's folder, and which of them run the call.

use std::collections::BTreeMap;

/// The model in the folder.
pub(super) const MODEL: &str = "model.onnx";
/// The exported program of PyTorch in the folder.
pub(super) const PROGRAM: &str = "module.pt2";
/// The files in which operators stand.
pub const PROGRAM_FILES: [&str; 2] = [MODEL, PROGRAM];

/// Files by their path in a folder.
pub type Files = BTreeMap<String, Vec<u8>>;

/// What in a folder runs the call.
#[derive(Clone, Copy, Debug)]
pub struct Contents {
    /// `model.onnx`.
    pub model: bool,
    /// `module.pt2`.
    pub program: bool,
    /// `repro.py`.
    pub script: bool,
}

impl Contents {
    /// What these files hold.
    pub(super) fn new(files: &Files, script: bool) -> Contents {
        Contents { model: files.contains_key(MODEL), program: files.contains_key(PROGRAM), script }
    }
}
