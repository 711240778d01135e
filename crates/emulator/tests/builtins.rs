//! Built-in functions and operators against the WGSL specification's definitions, on edge values.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Arg, Run, bits};
use half::f16;

/// Evaluates `expression` of `x` (and `y`, `z`) for each row of operands.
fn evaluate(types: [&str; 2], expression: &str, rows: &[[u32; 3]]) -> Vec<u32> {
    let [input, output] = types;
    let text = format!(
        "@group(0) @binding(0) var<storage, read> input: array<vec3<u32>>;
         @group(0) @binding(1) var<storage, read_write> output: array<u32>;
         @compute @workgroup_size(32)
         fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
             if (id.x >= {n}u) {{ return; }}
             let row = input[id.x];
             let x = bitcast<{input}>(row.x);
             let y = bitcast<{input}>(row.y);
             let z = bitcast<{input}>(row.z);
             let r: {output} = {expression};
             output[id.x] = bitcast<u32>(r);
         }}",
        n = rows.len(),
    );
    let words = rows.iter().flat_map(|r| [r[0], r[1], r[2], 0]).collect();
    let groups = rows.len().div_ceil(32) as u32;
    Run::new(&text, 32, vec![Arg::Read(words), Arg::ReadWrite(vec![0; rows.len()])]).groups(groups).output(1)
}

fn float_rows(rows: &[[f32; 3]]) -> Vec<[u32; 3]> {
    rows.iter().map(|r| r.map(f32::to_bits)).collect()
}

/// Checks an f32 function of up to three operands; `ulps` of error are allowed. Any NaN equals any NaN.
fn check_f32(expression: &str, rows: &[[f32; 3]], want: impl Fn(f32, f32, f32) -> f64, ulps: f64) {
    let got = evaluate(["f32", "f32"], expression, &float_rows(rows));
    for (row, got) in rows.iter().zip(got) {
        let (got, want) = (f32::from_bits(got), want(row[0], row[1], row[2]));
        let rounded = want as f32;
        let ulp = f64::from(f32::from_bits((rounded.abs().to_bits()).max(1 << 23) + 1))
            - f64::from(f32::from_bits((rounded.abs().to_bits()).max(1 << 23)));
        let close = (f64::from(got) - want).abs() <= ulps * ulp;
        let same = got == rounded || (got.is_nan() && rounded.is_nan());
        assert!(
            same || (rounded.is_finite() && close),
            "{expression} on {row:?}: {got:e}, expected {want:e}"
        );
    }
}

const FLOATS: [f32; 20] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1.5,
    2.5,
    -2.5,
    3.7,
    -3.2,
    1e-3,
    100.25,
    1e-40,
    3e38,
    -3e38,
    65504.0,
    0.999_999_94,
    7.0,
    16_777_217.0,
    -0.3,
];

fn singles() -> Vec<[f32; 3]> {
    FLOATS.iter().map(|&x| [x, 0.0, 0.0]).collect()
}

fn pairs() -> Vec<[f32; 3]> {
    FLOATS.iter().flat_map(|&x| FLOATS.iter().map(move |&y| [x, y, 0.25])).collect()
}

#[test]
fn exact_float_functions() {
    let f = f64::from;
    check_f32("abs(x)", &singles(), |x, _, _| f(x.abs()), 0.0);
    check_f32("floor(x)", &singles(), |x, _, _| f(x.floor()), 0.0);
    check_f32("ceil(x)", &singles(), |x, _, _| f(x.ceil()), 0.0);
    check_f32("trunc(x)", &singles(), |x, _, _| f(x.trunc()), 0.0);
    check_f32("round(x)", &singles(), |x, _, _| f(x.round_ties_even()), 0.0);
    check_f32("fract(x)", &singles(), |x, _, _| f(x - x.floor()), 0.0);
    check_f32("sign(x)", &singles(), |x, _, _| if x == 0.0 { 0.0 } else { f(x).signum() }, 0.0);
    check_f32("saturate(x)", &singles(), |x, _, _| f(x.clamp(0.0, 1.0)), 0.0);
    check_f32("sqrt(abs(x))", &singles(), |x, _, _| f(x.abs()).sqrt(), 0.5);
    check_f32("-x", &singles(), |x, _, _| f(-x), 0.0);
    check_f32("min(x, y)", &pairs(), |x, y, _| f(x.min(y)), 0.0);
    check_f32("max(x, y)", &pairs(), |x, y, _| f(x.max(y)), 0.0);
    check_f32("step(x, y)", &pairs(), |x, y, _| if x <= y { 1.0 } else { 0.0 }, 0.0);
    check_f32("x + y", &pairs(), |x, y, _| f(x + y), 0.0);
    check_f32("x - y", &pairs(), |x, y, _| f(x - y), 0.0);
    check_f32("x * y", &pairs(), |x, y, _| f(x * y), 0.0);
    check_f32("x / y", &pairs(), |x, y, _| f(x / y), 0.0);
    check_f32("x % y", &pairs(), |x, y, _| f(x - y * (x / y).trunc()), 0.0);
    check_f32("fma(x, y, z)", &pairs(), |x, y, z| f(x.mul_add(y, z)), 0.0);
    check_f32("clamp(x, -1.0, 2.0)", &singles(), |x, _, _| f(x.clamp(-1.0, 2.0)), 0.0);
    check_f32("mix(x, y, z)", &pairs(), |x, y, z| f(x * (1.0 - z) + y * z), 0.0);
    check_f32("quantizeToF16(x)", &singles(), |x, _, _| f16::from_f32(x).to_f64(), 0.0);
    check_f32("select(x, y, x < y)", &pairs(), |x, y, _| f(if x < y { y } else { x }), 0.0);
    check_f32("modf(x).fract + modf(x).whole", &singles(), |x, _, _| f(x), 0.0);
    check_f32(
        "frexp(x).fract * exp2(f32(frexp(x).exp))",
        &[[3.7; 3], [-0.1; 3], [1024.0; 3], [0.0; 3]],
        |x, _, _| f(x),
        0.0,
    );
    check_f32("ldexp(x, -3)", &singles(), |x, _, _| f(x) / 8.0, 0.5);
    check_f32("degrees(radians(x))", &[[90.0; 3], [-180.0; 3]], |x, _, _| f(x), 2.0);
}

#[test]
fn transcendental_functions() {
    let f = f64::from;
    let small: Vec<[f32; 3]> = (-40..=40).map(|i| [i as f32 * 0.37, 0.7, 0.0]).collect();
    let unit: Vec<[f32; 3]> = (-10..=10).map(|i| [i as f32 * 0.0999, 0.0, 0.0]).collect();
    let positive: Vec<[f32; 3]> = (0..60).map(|i| [1e-6 * 2.3_f32.powi(i / 2), 1.7, 0.0]).collect();
    check_f32("exp(x)", &small, |x, _, _| f(x).exp(), 2.0);
    check_f32("exp2(x)", &small, |x, _, _| f(x).exp2(), 2.0);
    check_f32("log(x)", &positive, |x, _, _| f(x).ln(), 2.0);
    check_f32("log2(x)", &positive, |x, _, _| f(x).log2(), 2.0);
    check_f32("pow(x, y)", &positive, |x, y, _| f(x).powf(f(y)), 2.0);
    check_f32("inverseSqrt(x)", &positive, |x, _, _| 1.0 / f(x).sqrt(), 2.0);
    check_f32("sin(x)", &small, |x, _, _| f(x).sin(), 2.0);
    check_f32("cos(x)", &small, |x, _, _| f(x).cos(), 2.0);
    check_f32("tan(x)", &small, |x, _, _| f(x).tan(), 3.0);
    check_f32("sinh(x)", &small, |x, _, _| f(x).sinh(), 3.0);
    check_f32("cosh(x)", &small, |x, _, _| f(x).cosh(), 3.0);
    check_f32("tanh(x)", &small, |x, _, _| f(x).tanh(), 3.0);
    check_f32("asin(x)", &unit, |x, _, _| f(x).asin(), 3.0);
    check_f32("acos(x)", &unit, |x, _, _| f(x).acos(), 3.0);
    check_f32("atan(x)", &small, |x, _, _| f(x).atan(), 3.0);
    check_f32("atan2(x, y)", &small, |x, y, _| f(x).atan2(f(y)), 3.0);
    check_f32("asinh(x)", &small, |x, _, _| f(x).asinh(), 3.0);
    check_f32("acosh(x + 1.0)", &positive, |x, _, _| f(x + 1.0).acosh(), 3.0);
    check_f32("atanh(x)", &unit, |x, _, _| f(x).atanh(), 3.0);
    check_f32("tanh(x)", &[[100.0; 3], [-100.0; 3]], |x, _, _| f(x).signum(), 0.0);
    check_f32("exp(x)", &[[100.0; 3], [-200.0; 3]], |x, _, _| f(x.exp()), 0.0);
    check_f32(
        "smoothstep(0.0, 2.0, x)",
        &small,
        |x, _, _| {
            let t = (f(x) / 2.0).clamp(0.0, 1.0);
            t * t * (3.0 - 2.0 * t)
        },
        4.0,
    );
}

const INTS: [i32; 12] = [0, 1, -1, 2, 7, -7, 31, 33, i32::MAX, i32::MIN, 0x1234_5678, -1000];

fn int_pairs() -> Vec<[u32; 3]> {
    INTS.iter().flat_map(|&x| INTS.iter().map(move |&y| [x as u32, y as u32, 3])).collect()
}

fn check_i32(expression: &str, want: impl Fn(i32, i32) -> i32) {
    for (row, got) in int_pairs().iter().zip(evaluate(["i32", "i32"], expression, &int_pairs())) {
        let want = want(row[0] as i32, row[1] as i32);
        assert_eq!(got as i32, want, "{expression} on {}, {}", row[0] as i32, row[1] as i32);
    }
}

fn check_u32(expression: &str, want: impl Fn(u32, u32) -> u32) {
    for (row, got) in int_pairs().iter().zip(evaluate(["u32", "u32"], expression, &int_pairs())) {
        assert_eq!(got, want(row[0], row[1]), "{expression} on {:#x}, {:#x}", row[0], row[1]);
    }
}

#[test]
fn integer_operators() {
    check_i32("x + y", i32::wrapping_add);
    check_i32("x - y", i32::wrapping_sub);
    check_i32("x * y", i32::wrapping_mul);
    check_i32("x / y", |x, y| if y == 0 || (x == i32::MIN && y == -1) { x } else { x / y });
    check_i32("x % y", |x, y| if y == 0 || (x == i32::MIN && y == -1) { 0 } else { x % y });
    check_i32("x >> u32(y)", |x, y| x >> (y as u32 % 32));
    check_i32("x << u32(y)", |x, y| x << (y as u32 % 32));
    check_i32("-x", |x, _| x.wrapping_neg());
    check_i32("abs(x)", |x, _| x.wrapping_abs());
    check_i32("sign(x)", |x, _| x.signum());
    check_i32("min(x, y)", i32::min);
    check_i32("max(x, y)", i32::max);
    check_i32("clamp(x, -5, y)", |x, y| x.max(-5).min(y));
    check_i32("select(0, 1, x < y)", |x, y| i32::from(x < y));
    check_i32("select(0, 1, x >= y)", |x, y| i32::from(x >= y));
    check_u32("x / y", |x, y| x.checked_div(y).unwrap_or(x));
    check_u32("x % y", |x, y| x.checked_rem(y).unwrap_or(0));
    check_u32("x + y", u32::wrapping_add);
    check_u32("x >> (y & 31u)", |x, y| x >> (y % 32));
    check_u32("(x & y) | (x ^ y)", |x, y| x | y);
    check_u32("~x", |x, _| !x);
    check_u32("select(0u, 1u, x > y)", |x, y| u32::from(x > y));
    check_u32("min(x, y)", u32::min);
    check_u32("u32(bool(x))", |x, _| u32::from(x != 0));
}

#[test]
fn bit_functions() {
    check_u32("countOneBits(x)", |x, _| x.count_ones());
    check_u32("countLeadingZeros(x)", |x, _| x.leading_zeros());
    check_u32("countTrailingZeros(x)", |x, _| x.trailing_zeros());
    check_u32("reverseBits(x)", |x, _| x.reverse_bits());
    check_u32("firstTrailingBit(x)", |x, _| if x == 0 { u32::MAX } else { x.trailing_zeros() });
    check_u32("firstLeadingBit(x)", |x, _| if x == 0 { u32::MAX } else { 31 - x.leading_zeros() });
    check_i32("firstLeadingBit(x)", |x, _| {
        let flipped = if x < 0 { !x } else { x };
        if flipped == 0 { -1 } else { 31 - flipped.leading_zeros() as i32 }
    });
    let extract = |x: u32, o: u32, c: u32| {
        let o = o.min(32);
        let c = c.min(32 - o);
        if c == 0 { 0 } else { ((u64::from(x) >> o) & ((1_u64 << c) - 1)) as u32 }
    };
    check_u32("extractBits(x, y, 5u)", |x, y| extract(x, y, 5));
    check_u32("extractBits(x, 3u, y)", |x, y| extract(x, 3, y));
    check_i32("extractBits(x, 4u, 8u)", |x, _| (x << 20) >> 24);
    check_u32("insertBits(x, y, 8u, 12u)", |x, y| (x & !0x000f_ff00) | ((y & 0xfff) << 8));
    check_u32("insertBits(x, y, 0u, 32u)", |_, y| y);
    check_u32("insertBits(x, y, 40u, 4u)", |x, _| x);
}

#[test]
fn conversions() {
    let rows = float_rows(&[
        [3.99; 3],
        [-3.99; 3],
        [3e9; 3],
        [-3e9; 3],
        [5e9; 3],
        [f32::NAN; 3],
        [0.0; 3],
        [1e-30; 3],
    ]);
    let signed = evaluate(["f32", "i32"], "i32(x)", &rows);
    assert_eq!(
        signed.iter().map(|&x| x as i32).collect::<Vec<_>>()[..5],
        [3, -3, 2_147_483_520, i32::MIN, 2_147_483_520]
    );
    assert_eq!(evaluate(["f32", "u32"], "u32(x)", &rows)[..5], [3, 0, 3_000_000_000, 0, 4_294_967_040]);
    assert_eq!(evaluate(["f32", "u32"], "u32(bool(x))", &rows)[..], [1, 1, 1, 1, 1, 1, 0, 1]);
    let ints: Vec<_> = [16_777_217, u32::MAX, 5].into_iter().map(|x| [x, 0, 0]).collect();
    assert_eq!(evaluate(["u32", "f32"], "f32(x)", &ints), bits(&[16_777_216.0, 4_294_967_296.0, 5.0]));
    assert_eq!(evaluate(["i32", "f32"], "f32(x)", &ints), bits(&[16_777_216.0, -1.0, 5.0]));
}

#[test]
fn packing() {
    let rows = float_rows(&[[1.0, -1.0, 0.5], [0.1, 2.0, -3.0], [-0.004, 0.49, 0.999]]);
    let byte = |x: f32, low: f32, scale: f32| (0.5 + scale * x.clamp(low, 1.0)).floor() as i32 as u32 & 0xff;
    for (row, got) in rows.iter().zip(evaluate(["f32", "u32"], "pack4x8snorm(vec4(x, y, z, 0.0))", &rows)) {
        let want = (0..3).map(|i| byte(f32::from_bits(row[i]), -1.0, 127.0) << (8 * i)).sum::<u32>();
        assert_eq!(got, want);
    }
    for (row, got) in rows.iter().zip(evaluate(["f32", "u32"], "pack4x8unorm(vec4(x, y, z, 1.0))", &rows)) {
        let want = (0..3).map(|i| byte(f32::from_bits(row[i]), 0.0, 255.0) << (8 * i)).sum::<u32>();
        assert_eq!(got, want | 0xff00_0000);
    }
    for (row, got) in rows.iter().zip(evaluate(["f32", "u32"], "pack2x16float(vec2(x, y))", &rows)) {
        let half = |i: usize| u32::from(f16::from_f32(f32::from_bits(row[i])).to_bits());
        assert_eq!(got, half(0) | (half(1) << 16));
    }
    let words: Vec<[u32; 3]> =
        [0x80_7f_01_ff, 0x0000_8000, 0x7bff_3c00].into_iter().map(|x| [x, 0x01_02_03_04, 0]).collect();
    let one = |expression: &str| {
        evaluate(["u32", "f32"], expression, &words).into_iter().map(f32::from_bits).collect::<Vec<_>>()
    };
    assert_eq!(one("unpack4x8snorm(x).w")[0], -1.0);
    assert_eq!(one("unpack4x8snorm(x).z")[0], 1.0);
    assert_eq!(one("unpack4x8unorm(x).x")[0], 1.0);
    assert_eq!(one("unpack2x16float(x).y")[2], 65504.0);
    assert_eq!(one("unpack2x16float(x).x")[2], 1.0);
    assert_eq!(one("unpack2x16snorm(x).x")[1], -1.0);
    assert_eq!(one("unpack2x16unorm(x).x")[1], 32768.0 / 65535.0);
    let ints = |expression: &str| evaluate(["u32", "u32"], expression, &words)[0];
    assert_eq!(ints("dot4U8Packed(x, y)"), 255 * 4 + 3 + 127 * 2 + 128);
    assert_eq!(ints("u32(dot4I8Packed(x, y))") as i32, -4 + 3 + 127 * 2 - 128);
    assert_eq!(ints("pack4xU8(unpack4xU8(x))"), 0x80_7f_01_ff);
    assert_eq!(ints("pack4xI8(unpack4xI8(x))"), 0x80_7f_01_ff);
    assert_eq!(ints("pack4xI8Clamp(vec4<i32>(-1000, 1000, -5, 5))"), 0x05_fb_7f_80);
    assert_eq!(ints("pack4xU8Clamp(vec4<u32>(1000u, 7u, 0u, 255u))"), 0xff_00_07_ff);
}

#[test]
fn vectors_and_matrices() {
    let row = [[1.0_f32, 2.0, 3.0]];
    let one = |expression: &str| f32::from_bits(evaluate(["f32", "f32"], expression, &float_rows(&row))[0]);
    assert_eq!(one("dot(vec3(x, y, z), vec3(z, y, x))"), 10.0);
    assert_eq!(one("f32(dot(vec3<i32>(1, 2, i32(z)), vec3<i32>(4, 5, 6)))"), 32.0);
    assert_eq!(one("dot(cross(vec3(x, y, z), vec3(y, z, x)), vec3(1.0, 10.0, 100.0))"), -7.0 + 50.0 - 100.0);
    assert_eq!(one("length(vec2(z, 4.0))"), 5.0);
    assert_eq!(one("length(-x)"), 1.0);
    assert_eq!(one("distance(vec2(x, y), vec2(4.0, 6.0))"), 5.0);
    assert_eq!(one("normalize(vec2(z, 4.0)).y"), 0.8);
    assert_eq!(one("reflect(vec2(x, -y), vec2(0.0, 1.0)).y"), 2.0);
    assert_eq!(one("refract(vec2(0.0, -1.0), vec2(0.0, x), 0.5).y"), -1.0);
    assert_eq!(one("faceForward(vec2(x, y), vec2(x, 0.0), vec2(x, 0.0)).x"), -1.0);
    assert_eq!(one("(mat2x2(x, y, z, 4.0) * vec2(1.0, 10.0)).y"), 42.0);
    assert_eq!(one("(vec2(1.0, 10.0) * mat2x2(x, y, z, 4.0)).x"), 21.0);
    assert_eq!(one("(mat2x2(x, y, z, 4.0) * mat2x2(0.0, 1.0, 1.0, 0.0))[0].y"), 4.0);
    assert_eq!(one("(mat2x3(x, y, z, 4.0, 5.0, 6.0) * mat3x2(1.0, 0.0, 0.0, 1.0, 1.0, 1.0))[2].z"), 9.0);
    assert_eq!(one("transpose(mat2x3(x, y, z, 4.0, 5.0, 6.0))[2].y"), 6.0);
    assert_eq!(one("determinant(mat2x2(x, y, z, 4.0))"), -2.0);
    assert_eq!(one("determinant(mat3x3(2.0, 0.0, x, 0.0, 3.0, 0.0, y, 0.0, 4.0))"), 18.0);
    assert_eq!(one("determinant(mat4x4(x,0.0,0.0,0.0, 0.0,y,0.0,0.0, 0.0,0.0,z,1.0, 0.0,0.0,1.0,z))"), 16.0);
    assert_eq!(one("(mat2x2(x, y, z, 4.0) * 2.0 + mat2x2(1.0, 1.0, 1.0, 1.0))[1].x"), 7.0);
    assert_eq!(one("vec4(vec2(x, y), z, 4.0).wzyx.xy.y"), 3.0);
    assert_eq!(one("f32(all(vec3(x, y, z) > vec3(0.5)) && any(vec2(x, y) > vec2(1.5)))"), 1.0);
    assert_eq!(one("vec3(x, y, z)[u32(y)]"), 3.0);
    assert_eq!(one("select(vec2(x), vec2(y), vec2(false, true)).y"), 2.0);
}

#[test]
fn half_precision_rounds_after_every_operation() {
    let text = "
        enable f16;
        @group(0) @binding(0) var<storage, read> x: array<f16>;
        @group(0) @binding(1) var<storage, read_write> y: array<f16>;
        @compute @workgroup_size(8)
        fn main(@builtin(local_invocation_index) i: u32) {
            let a = x[2u * i];
            let b = x[2u * i + 1u];
            y[4u * i] = a + b;
            y[4u * i + 1u] = a * b;
            y[4u * i + 2u] = a / b + 1.0h;
            y[4u * i + 3u] = f16(f32(a) * 1.001);
        }";
    let values: Vec<f16> = (0..16).map(|i| f16::from_f32(0.37 * i as f32 - 1.7)).collect();
    let words =
        values.chunks(2).map(|p| u32::from(p[0].to_bits()) | u32::from(p[1].to_bits()) << 16).collect();
    let mut run = Run::new(text, 8, vec![Arg::Read(words), Arg::ReadWrite(vec![0; 16])]);
    run.f16 = true;
    let out: Vec<f16> = run
        .output(1)
        .iter()
        .flat_map(|w| [f16::from_bits(*w as u16), f16::from_bits((w >> 16) as u16)])
        .collect();
    for (i, pair) in values.chunks(2).enumerate() {
        let (a, b) = (pair[0].to_f32(), pair[1].to_f32());
        let round = f16::from_f32;
        let want = [round(a + b), round(a * b), round(round(a / b).to_f32() + 1.0), round(a * 1.001)];
        assert_eq!(out[4 * i..4 * i + 4], want, "row {i}");
    }
}
