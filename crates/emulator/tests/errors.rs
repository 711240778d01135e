//! Errors of kernels that cannot run: kind, line and advice.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Arg, Run};
use tapml_device::ErrorKind;

fn kernel(body: &str) -> Run {
    let text = format!(
        "@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(4)
fn main(@builtin(local_invocation_index) i: u32) {{
{body}
}}
"
    );
    Run::new(&text, 4, vec![Arg::ReadWrite(vec![0; 4])])
}

#[test]
fn parse_and_validation_errors_name_the_line() {
    for body in [
        "    y[i] = 1.0 +;",
        "    y[i] = unknown(i);",
        "    y[i] = 1u;",
        "    let a: vec2<f32> = vec3(1.0);",
        "    y[0] = sqrt(true);",
    ] {
        let mut run = kernel(body);
        run.prelude = "// one\n// two\n".into();
        let error = run.error();
        assert_eq!(error.kind(), ErrorKind::Compile, "{error}");
        assert_eq!((error.detail("line"), error.detail("kernel")), (Some("4"), Some("test")), "{error}");
        assert!(error.message().contains("test.wgsl:4:") && error.message().contains(body.trim()), "{error}");
        assert!(error.detail("log").is_some_and(|log| !log.is_empty()), "{error:?}");
    }
}

#[test]
fn errors_in_the_prelude_say_so() {
    let mut run = kernel("    y[i] = 1.0;");
    run.prelude = "const A: u32 = 1;\nconst B: f32 = true;\n".into();
    let error = run.error();
    assert!(error.message().contains("(prelude):2:"), "{error}");
}

#[test]
fn columns_are_right_behind_an_enable_directive() {
    let mut run = kernel("    y[i] = f32(2.0h) + nothing;");
    run.text = format!("enable f16; {}", run.text).replacen("enable f16; ", "enable f16;\n", 1);
    let error = run.error();
    assert!(error.message().contains("test.wgsl:5:"), "{error}");
    let mut directives = kernel("    y[i] = missing;");
    directives.prelude = "alias T = f32;\n".into();
    directives.text = format!(
        "requires packed_4x8_integer_dot_product;\ndiagnostic(off, derivative_uniformity);\n{}",
        directives.text
    );
    assert!(directives.error().message().contains("test.wgsl:6:12: "), "{}", directives.error());
    let mut first = kernel("");
    first.f16 = true;
    first.text = "nonsense\n".into();
    assert!(first.error().message().contains("test.wgsl:1:1:"), "{}", first.error());
}

#[test]
fn descriptions_that_do_not_fit_the_text() {
    let mut extra = kernel("    y[i] = 1.0;");
    extra.args.push(Arg::Read(vec![0; 4]));
    assert!(
        extra.error().message().contains("binding 1, which the text does not declare"),
        "{}",
        extra.error()
    );
    let mut kind = kernel("    y[i] = 1.0;");
    kind.args = vec![Arg::Read(vec![0; 4])];
    assert!(
        kind.error().message().contains("binding 0 is ReadWrite in the text but Read"),
        "{}",
        kind.error()
    );
    let mut size = kernel("    y[i] = 1.0;");
    size.workgroup = [8, 1, 1];
    assert!(size.error().message().contains("workgroup size is [4, 1, 1]"), "{}", size.error());
    let mut constant = kernel("    y[i] = 1.0;");
    constant.text = format!("override DEPTH: u32 = 1u;\n{}", constant.text);
    constant.constants = vec![("DEPHT".into(), 2.0)];
    let error = constant.error();
    assert!(
        error.message().contains("`DEPHT`") && error.hint().unwrap_or_default().contains("DEPTH"),
        "{error:?}"
    );
    let missing = kernel("    y[i] = 1.0;");
    let mut entry = missing.desc();
    entry.entry = "other".into();
    let mut device = tapml_emulator::Emulator::new(missing.options).unwrap();
    let error = tapml_device::Device::create_kernel(&mut device, &entry).unwrap_err();
    assert!(error.message().contains("no compute entry point `other`"), "{error}");
}

#[test]
fn missing_override_values_are_errors() {
    let mut run = kernel("    y[i] = F;");
    run.text = format!("override F: f32;\n{}", run.text);
    let error = run.error();
    assert!(error.kind() == ErrorKind::Compile && error.message().contains("F"), "{error}");
}

#[test]
fn what_is_not_supported_is_named_with_its_line() {
    let text = "@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(1)
fn main() {
    var big: array<f32, 100000>;
    y[0] = big[u32(y[0])];
}";
    let error = Run::new(text, 1, vec![Arg::ReadWrite(vec![0])]).error();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.message().contains("100000 scalars"), "{error}");
}

#[test]
fn inlining_that_explodes_is_refused() {
    let mut text = String::from(
        "@group(0) @binding(0) var<storage, read_write> y: array<f32>;\nfn call0(x: f32) -> f32 { return x * 1.5; }\n",
    );
    for k in 1..40 {
        text +=
            &format!("fn call{k}(x: f32) -> f32 {{ return call{p}(x) + call{p}(x + 1.0); }}\n", p = k - 1);
    }
    text += "@compute @workgroup_size(1)\nfn main() { y[0] = call39(1.0); }\n";
    let error = Run::new(&text, 1, vec![Arg::ReadWrite(vec![0])]).error();
    assert!(error.kind() == ErrorKind::Unsupported && error.message().contains("instructions"), "{error}");
}

#[test]
fn deep_nesting_is_refused_without_a_crash() {
    let head = "@group(0) @binding(0) var<storage, read_write> y: array<f32>;\n";
    let mut calls = format!("{head}fn call0(x: f32) -> f32 {{ return x; }}\n");
    for k in 1..3000 {
        calls += &format!("fn call{k}(x: f32) -> f32 {{ return call{}(x); }}\n", k - 1);
    }
    calls += "@compute @workgroup_size(1)\nfn main() { y[0] = call2999(1.0); }\n";
    let braces = format!(
        "{head}@compute @workgroup_size(1)\nfn main() {{ {} y[0] = 1.0; {} }}",
        "if (y[0] > 0.0) {".repeat(3000),
        "}".repeat(3000)
    );
    let parens = format!(
        "{head}@compute @workgroup_size(1)\nfn main() {{ y[0] = {}1.0{}; }}",
        "(".repeat(5000),
        ")".repeat(5000)
    );
    let mut structs = format!("{head}struct S0 {{ a: f32, b: f32 }}\n");
    for k in 1..27 {
        structs += &format!("struct S{k} {{ a: S{p}, b: S{p} }}\n", p = k - 1);
    }
    structs += "@compute @workgroup_size(1)\nfn main() { var s: S26; y[0] = s.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a; }\n";
    for text in [calls, braces, parens, structs] {
        let error = Run::new(&text, 1, vec![Arg::ReadWrite(vec![0])]).error();
        assert!(matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::Compile), "{error}");
    }
}
