//! Control flow that invocations take differently: each invocation must see what it alone would have computed.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Arg, Run};

/// Runs `body` (which sets `r` from `i` and `n`) in 64 invocations of two workgroups.
fn run_body(body: &str, functions: &str) -> Vec<u32> {
    let text = format!(
        "@group(0) @binding(0) var<storage, read_write> output: array<u32>;
         var<private> seen: u32 = 5u;
         {functions}
         @compute @workgroup_size(40)
         fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {{
             let i = id.x;
             let n = groups.x * 40u;
             var r = 0u;
             {body}
             output[i] = r;
         }}"
    );
    Run::new(&text, 40, vec![Arg::ReadWrite(vec![7777; 80])]).groups(2).output(0)
}

fn check(body: &str, functions: &str, want: impl Fn(u32) -> u32) {
    let got = run_body(body, functions);
    for (i, got) in got.into_iter().enumerate() {
        assert_eq!(got, want(i as u32), "invocation {i} of {body}");
    }
}

#[test]
fn branches() {
    check("if (i % 3u == 0u) { r = 1u; } else if (i % 3u == 1u) { r = 2u; } else { r = 3u; }", "", |i| {
        i % 3 + 1
    });
    check("if (i < 50u) { if (i % 2u == 0u) { r += i; } r += 1u; }", "", |i| {
        if i < 50 { (if i % 2 == 0 { i } else { 0 }) + 1 } else { 0 }
    });
    check("if (n == 80u) { r = i; } else { r = 1u; }", "", |i| i);
    check("r = select(1u, 2u, i > 3u && i < 9u || i == 20u);", "", |i| {
        if (i > 3 && i < 9) || i == 20 { 2 } else { 1 }
    });
    check("if (i > 10u) { return; } r = i;", "", |i| if i > 10 { 7777 } else { i });
}

#[test]
fn loops() {
    check("for (var k = 0u; k < i; k++) { r += k; }", "", |i| (0..i).sum());
    check("for (var k = 0u; k < 10u; k++) { r += k; }", "", |_| 45);
    check(
        "for (var k = 0u; k < 20u; k++) { if (k > i) { break; } if (k % 2u == 1u) { continue; } r += k; }",
        "",
        |i| (0..20).take_while(|&k| k <= i).filter(|k| k % 2 == 0).sum(),
    );
    check("var k = i; loop { if (k == 0u) { break; } k >>= 1u; r++; }", "", |i| 32 - i.leading_zeros());
    check("var k = 0u; loop { r += 2u; continuing { k++; break if k > i % 5u; } }", "", |i| 2 * (i % 5 + 1));
    check("var k = 0u; while (k * k < i) { k++; } r = k;", "", |i| (0..).find(|k| k * k >= i).unwrap());
    check(
        "for (var a = 0u; a < 4u; a++) {
             for (var b = 0u; b < i % 7u; b++) { if (a == b) { continue; } if (b > 5u) { break; } r += 10u * a + b; }
         }",
        "",
        |i| (0..4).map(|a| (0..i % 7).take_while(|&b| b <= 5 || a == b).filter(|&b| a != b).map(|b| 10 * a + b).sum::<u32>()).sum(),
    );
    // A uniform inner loop within a divergent outer one.
    check("for (var a = i; a < 80u; a += 16u) { for (var b = 0u; b < 3u; b++) { r += a + b; } }", "", |i| {
        (i..80).step_by(16).map(|a| 3 * a + 3).sum()
    });
    // The uniform counter of an outer scope, changed in divergent flow.
    check("var c = 0u; for (var a = 0u; a < 8u; a++) { if (a < i) { c += a; } } r = c;", "", |i| {
        (0..8.min(i)).sum()
    });
}

#[test]
fn switches() {
    check(
        "switch (i % 6u) { case 0u: { r = 10u; } case 1u, 2u: { r = 20u; } default: { r = 30u; } }",
        "",
        |i| [10, 20, 20, 30, 30, 30][i as usize % 6],
    );
    check("switch (n) { case 3u: { r = 1u; } case 80u: { r = i; } default: { r = 2u; } }", "", |i| i);
    check(
        "for (var k = 0u; k < 6u; k++) {
             switch ((i + k) % 4u) { case 1u: { continue; } case 2u: { if (k > 2u) { break; } r += 100u; } default: { r += 1u; } }
             r += 7u;
         }",
        "",
        |i| {
            (0..6).map(|k| match (i + k) % 4 {
                1 => 0,
                2 => if k > 2 { 7 } else { 107 },
                _ => 8,
            }).sum()
        },
    );
    check(
        "switch (i32(i) - 2) { default: { r = 9u; } case -1: { r = 1u; } case 5, 6: { r = 2u; } }",
        "",
        |i| match i {
            1 => 1,
            7 | 8 => 2,
            _ => 9,
        },
    );
}

#[test]
fn functions() {
    check("r = collatz(i);", "fn collatz(x: u32) -> u32 {
        var v = x; var steps = 0u;
        loop { if (v <= 1u) { return steps; } if (v % 2u == 0u) { v /= 2u; continue; } v = 3u * v + 1u; continuing { steps++; } }
        return 1000u;
    }", |i| {
        let (mut v, mut steps) = (i, 0);
        while v > 1 {
            v = if v % 2 == 0 { v / 2 } else { 3 * v + 1 };
            steps += 1;
        }
        steps
    });
    check(
        "bump(&r, i); bump(&r, 2u);",
        "fn bump(p: ptr<function, u32>, by: u32) { if (by > 5u) { *p += by; return; } *p += 1u; }",
        |i| (if i > 5 { i } else { 1 }) + 1,
    );
    check("touch(i); r = seen;", "fn touch(x: u32) { if (x % 2u == 1u) { seen += x; } }", |i| {
        5 + if i % 2 == 1 { i } else { 0 }
    });
    check(
        "r = pick(i % 2u == 0u, 3u) + pick(true, i);",
        "fn pick(a: bool, b: u32) -> u32 { if (a) { return b; } return 100u; }",
        |i| (if i % 2 == 0 { 3 } else { 100 }) + i,
    );
    check(
        "let s = make(i); r = s.b[1] + u32(s.a.y);",
        "struct S { a: vec2<f32>, b: array<u32, 2> }
        fn make(i: u32) -> S { var s: S; s.a.y = f32(i); s.b[i % 2u] = 50u; return s; }",
        |i| i + if i % 2 == 1 { 50 } else { 0 },
    );
}

#[test]
fn arrays_and_pointers_in_function_space() {
    check(
        "var a: array<u32, 8>; for (var k = 0u; k < 8u; k++) { a[k] = k * i; } r = a[(i + 3u) % 8u];",
        "",
        |i| (i + 3) % 8 * i,
    );
    check(
        "var a: array<vec2<u32>, 4>; a[i % 4u].y = i; a[1].x = 3u; let p = &a[i % 4u]; r = (*p).y + a[1].x;",
        "",
        |i| i + 3,
    );
    check(
        "var m: mat2x2<f32>; m[i % 2u][1] = f32(i); m[0][0] = 2.0; r = u32(m[0].y + m[1].y + m[0][0]);",
        "",
        |i| i + 2,
    );
    check(
        "var v = vec4<u32>(1u, 2u, 3u, 4u); v = v.wzyx; v[i % 4u] = 100u; r = v.x + v.y + v.z + v.w;",
        "",
        |i| 110 - [4, 3, 2, 1][i as usize % 4],
    );
    check("var v = vec2<u32>(i, 1u); let old = v; v.x = 9u; v = old.yx; r = v.x * 1000u + v.y;", "", |i| {
        1000 + i
    });
    check("let t = array<u32, 5>(3u, 1u, 4u, 1u, 5u); r = t[i % 5u];", "", |i| {
        [3, 1, 4, 1, 5][i as usize % 5]
    });
    check("var x = i; let before = x; x += 10u; r = before * 100u + x;", "", |i| i * 100 + i + 10);
    check(
        "var a = i; var b = 1u; for (var k = 0u; k < 3u; k++) { let t = a; a = b; b = t; } r = a * 1000u + b;",
        "",
        |i| 1000 + i,
    );
}

#[test]
fn a_loop_that_never_ends_is_stopped() {
    use std::time::Duration;
    use tapml_device::{Device, ErrorKind};
    let text = "@group(0) @binding(0) var<storage, read_write> output: array<u32>;
        @compute @workgroup_size(64)
        fn main(@builtin(local_invocation_index) i: u32) {
            loop {
                if (output[0] == 5u) { break; }
                output[i + 1u] += 1u;
            }
        }";
    let run = Run::new(text, 64, vec![Arg::ReadWrite(vec![0; 65])]);
    let mut device =
        tapml_emulator::Emulator::new(run.options).unwrap().with_time_limit(Duration::from_millis(50));
    let kernel = device.create_kernel(&run.desc()).unwrap();
    let error = run.run_on(&mut device, kernel).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    let line: u32 = error.detail("line").unwrap().parse().unwrap();
    assert!((4..=7).contains(&line) && error.to_string().contains("`test`"), "{error}");
}
