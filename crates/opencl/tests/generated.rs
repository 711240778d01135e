//! Generated shaders on OpenCL and on the emulator: every word is the same, also where indices leave their arrays.
#![allow(clippy::unwrap_used)]

#[path = "../../wgpu/tests/differential/generate/mod.rs"]
mod generate;
#[path = "../../wgpu/tests/differential/harness.rs"]
mod harness;

use generate::WIDTH;
use harness::{COUNT, GROUPS, KINDS, desc, difference, inputs, run, runner};
use proptest::prelude::any;
use proptest::test_runner::{TestCaseError, TestError};
use std::cell::RefCell;
use tapml_device::KernelDesc;
use tapml_emulator::{Emulator, EmulatorOptions};
use tapml_opencl::OpenClDevice;

/// Statements of a shader are fewer: PoCL treats parts between barriers path by path, and these double with each branch.
const MOST: usize = 4;

#[test]
fn generated_shaders_give_the_same_bits() {
    let opencl = match OpenClDevice::open(0, "") {
        Ok(device) => RefCell::new(device),
        Err(error) => return tapml_testing::skip("opencl", &error.to_string()),
    };
    let emulator = RefCell::new(Emulator::new(EmulatorOptions::default()).unwrap());
    let shaders = (generate::shader(true, MOST), any::<bool>(), any::<u64>());
    let result = runner(24).run(&shaders, |(text, outside, seed)| {
        let text = if outside { generate::unbound_indices(&text) } else { text };
        let (words, floats) = inputs(seed);
        let desc = KernelDesc { needs_f16: true, ..desc(&text, &KINDS, WIDTH) };
        let inputs = [&words[..], &floats[..]];
        let found = run(&mut *opencl.borrow_mut(), &desc, inputs, GROUPS, COUNT);
        let emulated = run(&mut *emulator.borrow_mut(), &desc, inputs, GROUPS, COUNT);
        let (found, emulated) =
            found.and_then(|found| Ok((found, emulated?))).map_err(TestCaseError::fail)?;
        difference(&emulated, &found, "opencl").map_or(Ok(()), |text| Err(TestCaseError::fail(text)))
    });
    match result {
        Ok(()) => {}
        Err(TestError::Fail(why, (text, outside, seed))) => {
            let text = if outside { generate::unbound_indices(&text) } else { text };
            panic!("{why}\ninputs of seed {seed}\n{text}")
        }
        Err(error) => panic!("{error}"),
    }
}
