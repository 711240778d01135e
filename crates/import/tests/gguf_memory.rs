//! Memory that reading GGUF files takes: a small multiple of the file, whatever its header claims.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use peak_alloc::PeakAlloc;
use tapml_graph::Bytes;
use tapml_import::gguf::Header;
use tapml_import::testing::gguf::Writer;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Bytes that reading a file may take for each of its own: lists of texts and numbers are wider than in the file, and
/// each name is kept twice while duplicates are looked for.
const SHARE: usize = 16;
/// Bytes that it may take beside: messages.
const FIXED: usize = 4 << 10;

/// Reads the header and all that can be read of its metadata.
fn read(file: &Bytes) {
    let Ok((header, _)) = Header::parse(file) else { return };
    for key in header.metadata.keys() {
        let _ = (header.metadata.text(key), header.metadata.bytes(key), header.metadata.flags(key));
        let _ = header.metadata.texts(key);
        let _ = header.metadata.numbers(key);
        let _ = header.metadata.wholes(key);
    }
}

#[test]
fn no_claim_takes_memory_that_the_file_does_not_account_for() {
    let many: Vec<String> = (0..200).map(|i| format!("token {i}")).collect();
    let mut writer = Writer::new();
    writer.texts("empty", &[""; 300]).texts("texts", &many).numbers("numbers", &[0.5; 300]);
    writer.array("bytes", 0, 500, &[7; 500]).array("flags", 7, 500, &[1; 500]);
    for i in 0..50 {
        writer.whole(&format!("k{i}"), i).tensor(&format!("t{i}"), &[1], 0, &[0; 4]);
    }
    let good = writer.file();
    let edges = [u64::MAX, u64::MAX / 2, 1 << 40, 1 << 32, u64::from(u32::MAX), 1 << 20];
    // Counts and lengths lie everywhere in the header: each place is tried with each number.
    let places = (8..200).chain((200..good.len() - 8).step_by(97));
    let files = places.flat_map(|at| {
        edges.map(|edge| {
            let mut file = good.clone();
            file[at..at + 8].copy_from_slice(&edge.to_le_bytes());
            file
        })
    });
    for file in std::iter::once(good.clone()).chain(files) {
        let (len, file) = (file.len(), Bytes::new(file));
        MEMORY.reset_peak_usage();
        let before = MEMORY.current_usage();
        read(&file);
        let taken = MEMORY.peak_usage().saturating_sub(before);
        assert!(taken <= len * SHARE + FIXED, "{taken} bytes for a file of {len}");
    }
}
