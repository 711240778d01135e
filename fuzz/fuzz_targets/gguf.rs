//! GGUF: header, metadata of every type, tensors, and the graph that follows from them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tapml_graph::Bytes;
use tapml_import::Checkpoint;
use tapml_import::gguf::{File, Header};

fuzz_target!(|data: &[u8]| {
    let Ok((header, _)) = Header::parse(&Bytes::new(data.to_vec())) else { return };
    let metadata = &header.metadata;
    for key in metadata.keys() {
        drop((metadata.text(key), metadata.whole(key), metadata.number(key), metadata.flag(key)));
        drop((metadata.texts(key), metadata.numbers(key), metadata.wholes(key), metadata.flags(key)));
        drop(metadata.bytes(key));
    }
    let path = tapml_fuzz::put("model.gguf", data);
    if let Ok(file) = File::open(&path) {
        for entry in file.entries() {
            drop(file.load(entry));
        }
    }
    drop(Checkpoint::open(&path));
});
