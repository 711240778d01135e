//! Kernels in CUDA C++: for a single row, where a model's speed is that of reading its weights, and for many, where it is
//! that of the tensor cores.
//!
//! A text is a small file of constants and an entry point; what kernels share lies in headers. Devices compile one
//! string, so that headers are put in front of a text here, each behind a `#line` directive, so that messages name
//! the right file.

pub mod argmax;
pub mod attention;
pub mod choose;
pub mod experts;
pub mod flash_prefill;
pub mod linear;
pub mod matmul;
pub mod meeting;
pub mod moe_combine;
pub mod normalise;
pub mod paged_attention;
pub mod rms_norm;
pub mod rope_paged_append;
pub mod skinny_gemm;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use tapml_device::{BindingKind, DeviceInfo, KernelDesc, Language, Source};

/// The compute capability, times ten, of asynchronous copies and of the products on tensor cores that the kernels use.
pub const COPIES: u32 = 80;
/// That of kernels which start before the one in front has ended, and of clusters of blocks.
pub const OVERLAP: u32 = 90;

/// That of the chips whose tensor cores take products of 64 rows (`wgmma`). No other has these instructions.
pub const HOPPER: u32 = 90;

/// Multiprocessors of a Hopper chip, as an H200 has them.
const USUAL_PROCESSORS: u32 = 132;

/// The multiprocessors of a device; the usual number where it does not tell.
fn processors(info: &DeviceInfo) -> u32 {
    info.features.processors.unwrap_or(USUAL_PROCESSORS).max(1)
}

/// The headers that kernels include, by their names.
macro_rules! headers {
    ($($name:literal),* $(,)?) => { [$(($name, include_str!(concat!("include/", $name)))),*] };
}
/// Names and texts. User kernels can include the same ones.
const HEADERS: &[(&str, &str)] = &headers![
    "base.cuh",
    "epilogue_gate.cuh",
    "epilogue_gemm.cuh",
    "epilogue_moe_sum.cuh",
    "epilogue_residual.cuh",
    "epilogue_store.cuh",
    "flash_decode.cuh",
    "flash_prefill.cuh",
    "flash_prefill_hopper.cuh",
    "gemm_hopper.cuh",
    "gemm_products.cuh",
    "gemm_skinny.cuh",
    "gemv.cuh",
    "gemv_digits.cuh",
    "gemv_planes.cuh",
    "grouped_gemm.cuh",
    "load_bf16.cuh",
    "load_e4m3.cuh",
    "load_f16.cuh",
    "load_int4.cuh",
    "load_int8.cuh",
    "mma.cuh",
    "operands.cuh",
    "paged_attention.cuh",
    "pipeline.cuh",
    "prologue_digits.cuh",
    "prologue_planes.cuh",
    "prologue_rms_norm.cuh",
    "rotate.cuh",
    "schedule_gemm.cuh",
    "schedule_gemv.cuh",
    "softmax.cuh",
    "wgmma.cuh",
];

/// The header that a line includes.
/// `None` unless the line is nothing else, without spaces in front.
fn included_header(line: &str) -> Option<&str> {
    line.strip_prefix("#include \"")?.strip_suffix('"')
}

/// What an include becomes in a text whose headers stand in front of it: a comment, so that lines keep their numbers.
const COMMENTED: &str = "//#include \"";
/// What a header in front of a text begins with.
const HEAD: &str = "#line 1 \"cuda/include/";

/// A text as its file has it, with its includes.
pub fn with_includes(text: &str) -> String {
    let plain = |line: &str| match line.strip_prefix("//").filter(|_| line.starts_with(COMMENTED)) {
        Some(include) => format!("{include}\n"),
        None => format!("{line}\n"),
    };
    text.lines().map(plain).collect()
}

/// Headers in front of a text, and the text without its includes.
/// Unknown headers are left in the text; [`unknown_header`] finds them.
pub fn compose_text(text: &str) -> (String, String) {
    let mut prelude = String::new();
    let text = compose(text, &mut prelude);
    (prelude, text)
}

/// As [`compose_text`] for a text of the list: each is composed once, since every plan of a node asks for it.
fn composed_text(text: &'static str) -> (String, String) {
    static KNOWN: Mutex<BTreeMap<&'static str, (String, String)>> = Mutex::new(BTreeMap::new());
    // A poisoned map is whole: an entry is put in when it is complete.
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.entry(text).or_insert_with(|| compose_text(text)).clone()
}

/// The names of all headers.
pub fn header_names() -> impl Iterator<Item = &'static str> {
    HEADERS.iter().map(|(name, _)| *name)
}

/// The first line that includes a header that there is not, with the header's name.
pub fn unknown_header(text: &str) -> Option<(usize, &str)> {
    let includes = (1..)
        .zip(text.lines())
        .filter_map(|(number, line)| Some((number, included_header(line.trim_end())?)));
    let mut unknown = includes.filter(|(_, name)| header_names().all(|known| known != *name));
    unknown.next()
}

/// The names of the headers in front of a text, in their order.
pub fn headers_of(prelude: &str) -> impl Iterator<Item = &str> {
    prelude.lines().filter_map(|line| line.strip_prefix(HEAD)?.strip_suffix('"'))
}

/// Puts what a text includes, and what that includes, into `prelude`, each header once and before those that include it. The
/// text remains with comments in the place of these lines.
fn compose(text: &str, prelude: &mut String) -> String {
    let mut rest = String::with_capacity(text.len());
    for line in text.lines() {
        // Only headers of this list count: any other include is left to the compiler.
        let header = included_header(line).and_then(|name| HEADERS.iter().find(|(known, _)| *known == name));
        match header {
            None => rest.push_str(line),
            Some((name, text)) => {
                rest.push_str(&format!("{COMMENTED}{name}\""));
                // The line that a header begins with tells whether it is there already.
                let head = format!("{HEAD}{name}\"\n");
                if !prelude.contains(&head) {
                    let body = compose(text, prelude);
                    prelude.push_str(&head);
                    prelude.push_str(&body);
                }
            }
        }
        rest.push('\n');
    }
    rest
}

/// A kernel without constants and bindings.
/// Its entry point is named as its file, and `memory` counts bytes of dynamic shared memory.
fn desc(
    info: &DeviceInfo,
    name: &str,
    file: &str,
    text: &'static str,
    threads: u32,
    memory: u32,
) -> KernelDesc {
    let (prelude, text) = composed_text(text);
    KernelDesc {
        name: name.into(),
        source: Source { language: Language::Cuda, file: file.into(), prelude, text },
        // `cuda/gemv.cu` has the entry point `gemv`.
        entry: file.rsplit('/').next().and_then(|f| f.split('.').next()).unwrap_or(file).into(),
        constants: Vec::new(),
        bindings: Vec::new(),
        workgroup: [threads, 1, 1],
        workgroup_memory: memory,
        needs_f16: true,
        needs_subgroups: false,
        // Programmatic dependent launch needs compute capability 9.0; texts wait for the kernel in front where they
        // must.
        dependent_launch: info.features.cuda >= Some(OVERLAP),
    }
}

/// The bindings of so many buffers that are read, then of so many that are written, then of the symbols.
fn bindings(read: usize, written: usize) -> Vec<BindingKind> {
    let buffers = std::iter::repeat_n(BindingKind::Read, read);
    let buffers = buffers.chain(std::iter::repeat_n(BindingKind::ReadWrite, written));
    buffers.chain([BindingKind::Uniform]).collect()
}

#[cfg(test)]
mod tests {
    use super::HEADERS;

    #[test]
    fn every_header_is_in_the_list() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/kernel/cuda/include");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort();
        let names: Vec<&str> = HEADERS.iter().map(|(name, _)| *name).collect();
        assert_eq!(files, names);
    }
}
