//! Kernels in WGSL: read, lowered for the emulator, and printed as CUDA C++, HIP and OpenCL C.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;
use tapml_cfamily::{Dialect, PrintOptions};
use tapml_device::{BindingKind, Device, KernelDesc, Language, Source};
use tapml_emulator::Emulator;

thread_local! {
    static EMULATOR: RefCell<Emulator> =
        RefCell::new(Emulator::new(tapml_emulator::EmulatorOptions::default()).expect("an emulator"));
}

fuzz_target!(
    init: tapml_fuzz::allow_panics_of_libraries(),
    |text: &str| {
        let desc = KernelDesc {
            name: "fuzz".into(),
            source: Source {
                language: Language::Wgsl,
                file: "fuzz.wgsl".into(),
                prelude: String::new(),
                text: text.into(),
            },
            entry: "main".into(),
            constants: vec![("K".into(), 4.0), ("EPS".into(), 1e-5)],
            bindings: vec![BindingKind::Read, BindingKind::Uniform, BindingKind::ReadWrite],
            workgroup: [64, 1, 1],
            workgroup_memory: 16 << 10,
            needs_f16: text.contains("f16"),
            needs_subgroups: text.contains("subgroup"),
            overlaps: false,
        };
        EMULATOR.with_borrow_mut(|emulator| {
            if let Ok(kernel) = emulator.create_kernel(&desc) {
                emulator.destroy_kernel(kernel).expect("the kernel is there");
            }
            for dialect in [Dialect::Cuda, Dialect::Hip, Dialect::OpenCl] {
                drop(tapml_cfamily::print(&desc, emulator.info(), PrintOptions::new(dialect)));
            }
        });
    }
);
