//! Emulator against Vulkan: random shaders must give the same bits, float functions must keep to the accuracy that the
//! WGSL specification asks for on both.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
mod floats;
mod generate;
mod harness;

use generate::WIDTH;
use harness::{COUNT, GROUPS, KINDS, desc, difference, inputs, run, runner};
use proptest::prelude::any;
use proptest::test_runner::{TestCaseError, TestError};
use std::cell::RefCell;
use tapml_device::{Device, KernelDesc};

#[test]
fn random_shaders_give_the_same_bits() {
    let Some(vulkan) = common::vulkan("") else { return };
    let f16 = vulkan.info().features.f16;
    let (vulkan, emulator) = (RefCell::new(vulkan), RefCell::new(floats::emulator("")));
    let checking = RefCell::new(floats::emulator("check=all"));
    let result = runner(32).run(&(generate::shader(f16, 12), any::<u64>()), |(text, seed)| {
        let (words, eighths) = inputs(seed);
        let desc = KernelDesc { needs_f16: f16, ..desc(&text, &KINDS, WIDTH) };
        let inputs = [&words[..], &eighths[..]];
        let found = run(&mut *vulkan.borrow_mut(), &desc, inputs, GROUPS, COUNT);
        let emulated = run(&mut *emulator.borrow_mut(), &desc, inputs, GROUPS, COUNT);
        let (found, emulated) =
            found.and_then(|found| Ok((found, emulated?))).map_err(TestCaseError::fail)?;
        if let Some(text) = difference(&emulated, &found, "vulkan") {
            return Err(TestCaseError::fail(text));
        }
        let mut checking = checking.borrow_mut();
        let checked = run(&mut *checking, &desc, inputs, GROUPS, COUNT).map_err(TestCaseError::fail)?;
        match (checked == emulated, &checking.take_findings()[..]) {
            (false, _) => Err(TestCaseError::fail("the emulator computes something else while it checks")),
            (true, []) => Ok(()),
            (true, [first, ..]) => Err(TestCaseError::fail(format!("a shader without defects: {first}"))),
        }
    });
    match result {
        Ok(()) => {}
        Err(TestError::Fail(why, (text, seed))) => panic!("{why}\ninputs of seed {seed}\n{text}"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn swiftshader_agrees_too() {
    common::on_swiftshader(&[
        "random_shaders_give_the_same_bits",
        "floats::float_functions_are_as_accurate_as_wgsl_asks",
    ]);
}
