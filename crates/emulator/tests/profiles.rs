//! Device profiles: limits, features and arithmetic.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Arg, Run, bits};
use tapml_device::{Device, ErrorKind};
use tapml_emulator::{Emulator, EmulatorOptions, Profile};

fn apply(profile: &str, expression: &str, x: &[f32]) -> Vec<f32> {
    let text = format!(
        "@group(0) @binding(0) var<storage, read> a: array<f32>;
         @group(0) @binding(1) var<storage, read_write> y: array<f32>;
         @compute @workgroup_size(16)
         fn main(@builtin(local_invocation_index) i: u32) {{
             if (i < arrayLength(&a)) {{ let x = a[i]; y[i] = {expression}; }}
         }}"
    );
    let args = vec![Arg::Read(bits(x)), Arg::ReadWrite(vec![0; x.len()])];
    Run::new(&text, 16, args).options(&format!("profile={profile}")).floats(1)
}

#[test]
fn limits_and_features() {
    let device = |profile| Emulator::new(EmulatorOptions { profile, ..EmulatorOptions::default() }).unwrap();
    let mobile = device(Profile::MobileWebgpu);
    assert_eq!(mobile.info().platform, "emulator");
    assert_eq!(
        (mobile.info().limits.max_binding_size, mobile.info().limits.max_invocations),
        (128 << 20, 256)
    );
    assert!(!mobile.info().features.f16 && mobile.info().features.subgroups.is_none());
    let default = device(Profile::Default);
    assert!(default.info().features.f16 && default.info().features.subgroups == Some((32, 32)));
    assert_eq!(default.info().limits.max_buffer_size, 2 << 30);
    assert!(!device(Profile::StrictF32).info().features.f16);
    let small = default.with_subgroup_size(4).unwrap();
    assert_eq!(small.info().features.subgroups, Some((4, 4)));
    assert!(small.with_subgroup_size(48).is_err());
}

#[test]
fn features_that_a_profile_lacks_are_refused() {
    let text = "enable f16;
        @group(0) @binding(0) var<storage, read_write> y: array<f16>;
        @compute @workgroup_size(1)
        fn main() { y[0] = 1.0h; }";
    let mut run = Run::new(text, 1, vec![Arg::ReadWrite(vec![0])]).options("profile=mobile");
    assert_eq!(run.error().kind(), ErrorKind::Unsupported);
    run.f16 = true;
    let error = run.error();
    assert!(error.kind() == ErrorKind::Unsupported && error.message().contains("f16"), "{error}");
    let subgroup = "@group(0) @binding(0) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(4)
        fn main(@builtin(local_invocation_index) i: u32) { y[i] = subgroupAdd(i); }";
    assert_eq!(
        Run::new(subgroup, 4, vec![Arg::ReadWrite(vec![0; 4])]).options("profile=strict-f32").error().kind(),
        ErrorKind::Compile
    );
}

#[test]
fn tanh_by_exponentials_overflows_in_fast_math_only() {
    let x = [0.5, -0.5, 10.0, 50.0, 100.0];
    let exact = apply("default", "tanh(x)", &x);
    assert_eq!(exact, x.map(f32::tanh));
    let fast = apply("fast-math", "tanh(x)", &x);
    assert!((fast[0] - exact[0]).abs() < 1e-6 && (fast[2] - 1.0).abs() < 1e-6, "{fast:?}");
    assert!(fast[3].is_nan() && fast[4].is_nan(), "{fast:?}");
}

#[test]
fn subnormals_are_flushed_in_fast_math_only() {
    let x = [1e-20, 2e-38];
    assert_eq!(apply("default", "x * 1e-20", &x)[0], 1e-20 * 1e-20);
    assert!(apply("strict-f32", "x * 0.25", &x)[1] > 0.0);
    assert_eq!(apply("fast-math", "x * 0.25", &x), [0.25e-20, 0.0]);
}

#[test]
fn products_are_contracted_in_fast_math_only() {
    let x = [1.1, 3.0000002];
    let separate: Vec<f32> = x.iter().map(|x| x * x + -1.0).collect();
    let fused: Vec<f32> = x.iter().map(|x| x.mul_add(*x, -1.0)).collect();
    assert_ne!(separate, fused);
    for profile in ["default", "strict-f32"] {
        assert_eq!(apply(profile, "x * x + (-1.0)", &x), separate);
    }
    assert_eq!(apply("fast-math", "x * x + (-1.0)", &x), fused);
    assert_eq!(apply("fast-math", "dot(vec2(1.0, x), vec2(-1.0, x))", &x), fused);
}

#[test]
fn approximations_stay_within_the_allowed_error() {
    let x: Vec<f32> = (0..16).map(|i| i as f32 * 2.5 - 20.0).collect();
    for (x, y) in x.iter().zip(apply("fast-math", "exp(x)", &x)) {
        let exact = f64::from(*x).exp();
        // WGSL section 15.7.4.1: 3 + 2·|x| ULP.
        let allowed = (3.0 + 2.0 * f64::from(x.abs())) * exact * f64::from(f32::EPSILON);
        assert!((f64::from(y) - exact).abs() <= allowed, "exp({x}) gave {y}");
    }
    let positive: Vec<f32> = (1..16).map(|i| i as f32 * 0.6).collect();
    for (x, y) in positive.iter().zip(apply("fast-math", "log(x)", &positive)) {
        let exact = f64::from(*x).ln();
        let inner = (0.5..2.0).contains(x);
        let allowed = if inner { 2.0_f64.powi(-21) } else { 3.0 * exact.abs() * f64::from(f32::EPSILON) };
        assert!((f64::from(y) - exact).abs() <= allowed, "log({x}) gave {y}");
    }
}
