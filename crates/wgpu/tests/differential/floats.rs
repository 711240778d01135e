//! The built-in float functions against their exact values, within the accuracy table of the WGSL specification
//! (section 15.7.4.1, "Accuracy of Concrete Floating Point Expressions").

use crate::common;
use crate::harness::{desc, run, runner};
use proptest::test_runner::TestCaseError;
use std::cell::RefCell;
use std::time::Duration;
use tapml_device::{BindingKind, Device};
use tapml_emulator::{Emulator, EmulatorOptions};

const COUNT: usize = 1024;

/// An expression of `a` and `b`, where its operands lie, its exact value, and the allowed error.
struct Row {
    text: &'static str,
    a: (f32, f32),
    b: (f32, f32),
    exact: fn(f64, f64) -> f64,
    allowed: fn(f64, f64) -> f64,
}

/// The distance between neighbouring f32 numbers around `x`.
fn ulp(x: f64) -> f64 {
    let exponent = x.abs().log2().floor().clamp(-126.0, 127.0);
    (exponent - 23.0).exp2()
}

/// The error of `exp2(b * log2(a))` from the errors of its parts.
fn pow_error(a: f64, b: f64) -> f64 {
    let log = a.log2();
    let log_error = if (0.5..=2.0).contains(&a) { 2f64.powi(-21) } else { 3.0 * ulp(log) };
    let power = b * log;
    let power_error = (b.abs() * log_error) + ulp(power);
    let exact = power.exp2();
    exact * (power_error * std::f64::consts::LN_2).exp_m1() + (3.0 + 2.0 * power.abs()) * ulp(exact)
}

/// The error of a hyperbolic function from `exp(x)` and `exp(-x)`.
fn exp_error(a: f64, _: f64) -> f64 {
    (3.0 + 2.0 * a.abs()) * (ulp(a.exp()) + ulp((-a).exp())) + ulp(a.cosh())
}

const ROWS: &[Row] = &[
    Row {
        text: "a + b",
        a: (-100.0, 100.0),
        b: (-100.0, 100.0),
        exact: |a, b| a + b,
        allowed: |a, b| 0.5 * ulp(a + b),
    },
    Row {
        text: "a * b",
        a: (-100.0, 100.0),
        b: (-100.0, 100.0),
        exact: |a, b| a * b,
        allowed: |a, b| 0.5 * ulp(a * b),
    },
    Row {
        text: "a / b",
        a: (-100.0, 100.0),
        b: (0.01, 100.0),
        exact: |a, b| a / b,
        allowed: |a, b| 2.5 * ulp(a / b),
    },
    Row {
        text: "sqrt(a)",
        a: (1e-6, 1e6),
        b: (0.0, 1.0),
        exact: |a, _| a.sqrt(),
        allowed: |a, _| 4.5 * ulp(a.sqrt()) + ulp(a.sqrt()),
    },
    Row {
        text: "inverseSqrt(a)",
        a: (1e-6, 1e6),
        b: (0.0, 1.0),
        exact: |a, _| 1.0 / a.sqrt(),
        allowed: |a, _| 2.0 * ulp(1.0 / a.sqrt()),
    },
    Row {
        text: "exp(a)",
        a: (-80.0, 80.0),
        b: (0.0, 1.0),
        exact: |a, _| a.exp(),
        allowed: |a, _| (3.0 + 2.0 * a.abs()) * ulp(a.exp()),
    },
    Row {
        text: "exp2(a)",
        a: (-120.0, 120.0),
        b: (0.0, 1.0),
        exact: |a, _| a.exp2(),
        allowed: |a, _| (3.0 + 2.0 * a.abs()) * ulp(a.exp2()),
    },
    Row {
        text: "log(a)",
        a: (2.0, 1e6),
        b: (0.0, 1.0),
        exact: |a, _| a.ln(),
        allowed: |a, _| 3.0 * ulp(a.ln()),
    },
    Row {
        text: "log2(a)",
        a: (2.0, 1e6),
        b: (0.0, 1.0),
        exact: |a, _| a.log2(),
        allowed: |a, _| 3.0 * ulp(a.log2()),
    },
    Row {
        text: "log(b)",
        a: (0.0, 1.0),
        b: (0.5, 2.0),
        exact: |_, b| b.ln(),
        allowed: |_, _| 2f64.powi(-21),
    },
    Row {
        text: "log2(b)",
        a: (0.0, 1.0),
        b: (0.5, 2.0),
        exact: |_, b| b.log2(),
        allowed: |_, _| 2f64.powi(-21),
    },
    Row {
        text: "sin(a)",
        a: (-3.0, 3.0),
        b: (0.0, 1.0),
        exact: |a, _| a.sin(),
        allowed: |_, _| 2f64.powi(-11),
    },
    Row {
        text: "cos(a)",
        a: (-3.0, 3.0),
        b: (0.0, 1.0),
        exact: |a, _| a.cos(),
        allowed: |_, _| 2f64.powi(-11),
    },
    Row {
        text: "atan(a)",
        a: (-50.0, 50.0),
        b: (0.0, 1.0),
        exact: |a, _| a.atan(),
        allowed: |a, _| 4096.0 * ulp(a.atan()),
    },
    Row {
        text: "atan2(a, b)",
        a: (-50.0, 50.0),
        b: (0.1, 50.0),
        exact: f64::atan2,
        allowed: |a, b| 4096.0 * ulp(a.atan2(b)),
    },
    Row {
        text: "pow(b, a)",
        a: (-8.0, 8.0),
        b: (0.01, 20.0),
        exact: |a, b| b.powf(a),
        allowed: |a, b| pow_error(b, a),
    },
    Row { text: "tanh(a)", a: (-9.0, 9.0), b: (0.0, 1.0), exact: |a, _| a.tanh(), allowed: |_, _| 1e-5 },
    Row { text: "sinh(a)", a: (-9.0, 9.0), b: (0.0, 1.0), exact: |a, _| a.sinh(), allowed: exp_error },
    Row { text: "cosh(a)", a: (-9.0, 9.0), b: (0.0, 1.0), exact: |a, _| a.cosh(), allowed: exp_error },
    Row {
        text: "fma(a, b, a)",
        a: (-30.0, 30.0),
        b: (-30.0, 30.0),
        exact: |a, b| a * b + a,
        allowed: |a, b| 0.5 * ulp(a * b) + 0.5 * ulp(a * b + a),
    },
    Row {
        text: "mix(a, b, 0.3)",
        a: (-30.0, 30.0),
        b: (-30.0, 30.0),
        exact: |a, b| a * (1.0 - f64::from(0.3f32)) + b * f64::from(0.3f32),
        allowed: |a, b| 2.0 * ulp(a.abs().max(b.abs())) + ulp(a - b),
    },
    Row {
        text: "length(vec2<f32>(a, b))",
        a: (-30.0, 30.0),
        b: (0.1, 30.0),
        exact: f64::hypot,
        allowed: |a, b| 8.0 * ulp(a.hypot(b)),
    },
];

/// The emulator with these options. No shader here runs for long.
pub fn emulator(options: &str) -> Emulator {
    let emulator = Emulator::new(EmulatorOptions::parse(options).unwrap()).unwrap();
    emulator.with_time_limit(Duration::from_secs(1))
}

fn judge(device: &mut dyn Device, row: &Row, a: &[u32], b: &[u32]) -> Result<(), String> {
    let text = format!(
        "@group(0) @binding(0) var<storage, read> in_a: array<f32>;\n\
         @group(0) @binding(1) var<storage, read> in_b: array<f32>;\n\
         @group(0) @binding(2) var<storage, read_write> out: array<f32>;\n\
         @compute @workgroup_size(64)\n\
         fn main(@builtin(global_invocation_id) id: vec3<u32>) {{\n\
             let a = in_a[id.x];\n    let b = in_b[id.x];\n    out[id.x] = {};\n}}\n",
        row.text
    );
    let desc = desc(&text, &[BindingKind::Read, BindingKind::Read, BindingKind::ReadWrite], 64);
    let found = run(device, &desc, [a, b], COUNT as u32 / 64, COUNT)?;
    for ((a, b), found) in a.iter().zip(b).zip(found) {
        let (a, b) = (f64::from(f32::from_bits(*a)), f64::from(f32::from_bits(*b)));
        let (exact, found) = ((row.exact)(a, b), f64::from(f32::from_bits(found)));
        // Half a unit more: the exact value need not be an f32. Below the smallest normal number results may be flushed.
        let allowed = ((row.allowed)(a, b) + 0.5 * ulp(exact)).max(f64::from(f32::MIN_POSITIVE));
        let error = (found - exact).abs();
        if error.is_nan() || error > allowed {
            let platform = &device.info().platform;
            return Err(format!(
                "{platform}: {} with a = {a:e}, b = {b:e} is {found:e}, exactly {exact:e}: off by {error:e}, allowed {allowed:e}",
                row.text
            ));
        }
    }
    Ok(())
}

#[test]
fn float_functions_are_as_accurate_as_wgsl_asks() {
    let Some(vulkan) = common::vulkan("") else { return };
    let devices: [RefCell<Box<dyn Device>>; 2] =
        [RefCell::new(Box::new(emulator(""))), RefCell::new(Box::new(vulkan))];
    for row in ROWS {
        let operand = |(low, high): (f32, f32)| {
            use proptest::prelude::Strategy;
            proptest::collection::vec((low..=high).prop_map(f32::to_bits), COUNT)
        };
        let result = runner(2).run(&(operand(row.a), operand(row.b)), |(a, b)| {
            let judged = devices.iter().try_for_each(|d| judge(&mut **d.borrow_mut(), row, &a, &b));
            judged.map_err(TestCaseError::fail)
        });
        if let Err(error) = result {
            let text = error.to_string();
            panic!("{}", text.lines().next().unwrap_or_default());
        }
    }
}
