//! ONNX: the walk, the messages, the checks, and what is told of a model that passes them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tapml_import::onnx::File;

fuzz_target!(|data: &[u8]| {
    let path = tapml_fuzz::put("model.onnx", data);
    if let Ok(file) = File::open(&path) {
        drop(file.outline());
    }
});
