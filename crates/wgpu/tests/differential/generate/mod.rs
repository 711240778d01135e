//! Random compute shaders in which every result is exactly defined by the WGSL specification.
//!
//! Integers wrap, and division by zero, shifts and indices are kept to what the specification defines. Floats are kept
//! at multiples of 1/8 in ±64 (`snap`): sums, products and short dot products of such numbers need no rounding, so
//! fused or reordered arithmetic gives the same bits. `Half` is `f16` where the device has it, else `f32`; its values
//! stay at multiples of 1/4 in ±4 for the same reason. Values that an implementation may fold at compile time go through
//! `zu`, `zi` and `zf`, zeros that are loaded from a buffer. Strategies are strings: proptest shrinks by choosing
//! earlier alternatives, so the simplest come first.

mod expressions;

use expressions::{Level, deeper, leaves, template};
use proptest::collection::vec;
use proptest::prelude::{BoxedStrategy, Just, Strategy};
use proptest::strategy::Union;

/// Invocations of a workgroup.
pub const WIDTH: u32 = 32;
/// Words in each input buffer, in that of integers before the rows.
pub const INPUTS: usize = 64;
/// Rows of the type `Padded` behind the integers.
pub const ROWS: usize = 8;
/// Words that each invocation writes: first the exact ones, then the floats of the exact state.
pub const WORDS: usize = 28;

type Text = BoxedStrategy<String>;

const HEAD: &str = "\
struct Pair { left: i32, right: vec2<f32> }
struct Padded { side: vec3<f32>, tail: f32, ends: array<vec3<u32>, 2>, last: u32 }
struct Given { words: array<u32, 64>, rows: array<Padded> }
@group(0) @binding(0) var<storage, read> given: Given;
@group(0) @binding(1) var<storage, read> in_f: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<u32>;
var<workgroup> tile_u: array<u32, 32>;
var<workgroup> tile_w: array<vec4<f32>, 32>;
var<workgroup> tile_p: array<Padded, 32>;
var<workgroup> total: atomic<u32>;
var<private> calls: u32;

fn snap(x: f32) -> f32 { return floor(clamp(x, -64.0, 64.0) * 8.0) * 0.125; }
fn snap4(x: vec4<f32>) -> vec4<f32> {
    return floor(clamp(x, vec4<f32>(-64.0), vec4<f32>(64.0)) * 8.0) * 0.125;
}
fn snaph(x: Half) -> Half { return floor(clamp(x, Half(-4.0), Half(4.0)) * Half(4.0)) * Half(0.25); }
fn snapg(x: vec4<Half>) -> vec4<Half> {
    return floor(clamp(x, vec4<Half>(Half(-4.0)), vec4<Half>(Half(4.0))) * Half(4.0)) * Half(0.25);
}
fn helper(a: u32, b: i32, slot: ptr<function, u32>) -> u32 {
    calls++;
    if a % 7u == 3u { return a ^ *slot; }
    *slot += bitcast<u32>(b);
    return a * 5u + *slot;
}
fn gcd(a: u32, b: u32) -> u32 {
    var x = a;
    var y = b;
    while y != 0u { let t = x % y; x = y; y = t; }
    return x;
}
";

const OPENING: &str = "\
@compute @workgroup_size(32)
fn main(@builtin(local_invocation_index) lid: u32, @builtin(global_invocation_id) gid: vec3<u32>) {
    let zu = given.words[63];
    let zi = bitcast<i32>(given.words[63]);
    let zf = in_f[63];
    var u0 = given.words[gid.x % 64u];
    var u1 = gid.x;
    var i0 = bitcast<i32>(given.words[(gid.x + 7u) % 64u]);
    var i1 = i32(lid) - 16;
    var f0 = in_f[gid.x % 64u];
    var f1 = in_f[(gid.x * 5u + 1u) % 64u];
    var b0 = (u0 & 1u) == 1u;
    var v0 = vec3<u32>(u0, lid, 3u ^ zu);
    var w0 = vec4<f32>(f0, f1, 1.0 + zf, in_f[lid]);
    var a0 = array<u32, 5>(u0, u1, 2u ^ zu, 3u ^ zu, lid);
    var s0 = Pair(i0, vec2<f32>(f1, 0.5 + zf));
    var p0 = given.rows[lid % 8u];
    var h0 = Half(clamp(floor(f0), -4.0, 4.0));
    var g0 = vec4<Half>(h0, Half(0.25 + zf), Half(f32(lid % 4u)), -h0);
";

const CLOSING: &str = "\
    let at = gid.x * 28u;
    out[at] = u0;
    out[at + 1u] = u1;
    out[at + 2u] = bitcast<u32>(i0);
    out[at + 3u] = bitcast<u32>(i1);
    out[at + 4u] = select(0u, 1u, b0);
    out[at + 5u] = v0.x;
    out[at + 6u] = v0.y;
    out[at + 7u] = v0.z;
    for (var k = 0u; k < 5u; k++) { out[at + 8u + k] = a0[k]; }
    out[at + 13u] = bitcast<u32>(s0.left);
    out[at + 14u] = calls ^ p0.last ^ p0.ends[0].x ^ (p0.ends[1].z * 3u);
    let q = vec4<i32>(g0 * Half(4.0));
    out[at + 15u] = bitcast<u32>(i32(h0 * Half(4.0)) + 33 * (q.x + 33 * (q.y + 33 * (q.z + 33 * q.w))));
    out[at + 16u] = bitcast<u32>(f0);
    out[at + 17u] = bitcast<u32>(f1);
    for (var k = 0u; k < 4u; k++) { out[at + 18u + k] = bitcast<u32>(w0[k]); }
    out[at + 22u] = bitcast<u32>(s0.right.x);
    out[at + 23u] = bitcast<u32>(s0.right.y);
    for (var k = 0u; k < 3u; k++) { out[at + 24u + k] = bitcast<u32>(p0.side[k]); }
    out[at + 27u] = bitcast<u32>(p0.tail);
}
";

/// The shader with indices of arrays and vectors as they come, outside too: they are moved to the last element.
#[allow(dead_code)]
pub fn unbound_indices(shader: &str) -> String {
    [2, 3, 4, 5, 8, 32, 64].iter().fold(shader.to_string(), |text, n| text.replace(&format!(" % {n}u]"), "]"))
}

/// Complete shaders of fewer than `most` statements, with `f16` or without.
pub fn shader(f16: bool, most: usize) -> impl Strategy<Value = String> {
    let half = if f16 { "f16" } else { "f32" };
    let leaves = leaves();
    let one = deeper(&leaves);
    let two = deeper(&one);
    let simple = simple(&two);
    let nested = nest_body(&two, &simple);
    let inner = nested_in(&two, &nested);
    let top = Union::new([simple, nested, inner, uniform(&two)]);
    vec(top, 1..most)
        .prop_map(move |body| format!("alias Half = {half};\n{HEAD}{OPENING}{}{CLOSING}", body.concat()))
}

/// Statements without a body.
fn simple(level: &Level) -> Text {
    let texts = [
        "u0 = $U;\n",
        "u1 = $U;\n",
        "i0 = $I;\n",
        "i1 = $I;\n",
        "f0 = $F;\n",
        "f1 = $F;\n",
        "b0 = $B;\n",
        "h0 = $H;\n",
        "g0 = $G;\n",
        "g0.z = $H;\n",
        "g0[$U % 4u] = $H;\n",
        "v0 = $V;\n",
        "w0 = $W;\n",
        "u0 += $U;\n",
        "u1 ^= $U;\n",
        "i0 -= $I;\n",
        "i1 *= $I;\n",
        "u1 <<= $U & 31u;\n",
        "u0 /= $U;\n",
        "v0.y = $U;\n",
        "w0.z = $F;\n",
        "v0[$U % 3u] = $U;\n",
        "w0[$U % 4u] = $F;\n",
        "a0[$U % 5u] = $U;\n",
        "a0[$U % 5u] += $U;\n",
        "p0 = given.rows[$U % 8u];\n",
        "p0.side = $W.wxy;\n",
        "p0.tail = $F;\n",
        "p0.ends[$U % 2u] = $V;\n",
        "p0.ends[$U % 2u].y ^= $U;\n",
        "s0.left = $I;\n",
        "s0.right.y = $F;\n",
        "s0.right = vec2<f32>($F, $F);\n",
        "s0 = Pair($I, $W.yx);\n",
        "u0 = helper($U, $I, &u1);\n",
        "u1++;\n",
        "i1--;\n",
        "{ let copy = a0; a0[0] = copy[$U % 5u]; }\n",
        "{ let p = &w0; (*p).y = $F; }\n",
        "{ let e = frexp($F); i1 = e.exp; }\n",
    ];
    Union::new(texts.iter().map(|t| template(level, t))).boxed()
}

/// Statements with simple ones inside.
fn nest_body(level: &Level, body: &Text) -> Text {
    let bodies = |count| vec(body.clone(), 1..=count).prop_map(|b| b.concat()).boxed();
    let hole = |text| template(level, text);
    let joined = |parts: Vec<Text>| parts.prop_map(|p| p.concat()).boxed();
    let just = |text: &'static str| Just(text.to_string()).boxed();
    Union::new([
        joined(vec![hole("if $B {\n"), bodies(3), just("}\n")]),
        joined(vec![
            hole("if $B {\n"),
            bodies(2),
            hole("} else if $B {\n"),
            bodies(2),
            just("} else {\n"),
            bodies(2),
            just("}\n"),
        ]),
        joined(vec![hole("{ let n = $U % 6u; for (var k = 0u; k < n; k++) {\n"), bodies(3), just("} }\n")]),
        joined(vec![
            hole("{ let n = $U % 9u; for (var k = 0u; k < n; k++) {\nif $B { continue; }\n"),
            bodies(2),
            hole("if $B { break; }\n"),
            bodies(1),
            just("} }\n"),
        ]),
        joined(vec![
            just("{ var k = 0u; loop {\n"),
            bodies(2),
            hole("if $B { break; }\ncontinuing { k++; break if k > $U % 5u; } } }\n"),
        ]),
        joined(vec![
            just("{ var k = 4i; while k > 0i {\n"),
            hole("k -= 1i + ($I & 1i);\n"),
            bodies(2),
            just("} }\n"),
        ]),
        joined(vec![
            hole("switch $U % 5u {\ncase 0u: {\n"),
            bodies(2),
            hole("if $B { break; }\n"),
            bodies(1),
            just("}\ncase 1u, 3u: {\n"),
            bodies(2),
            just("}\ndefault: {\n"),
            bodies(1),
            just("}\n}\n"),
        ]),
    ])
    .boxed()
}

/// Statements with nested ones inside: loops within branches within loops.
fn nested_in(level: &Level, body: &Text) -> Text {
    nest_body(level, body)
}

/// Exchanges between the invocations of a workgroup; they stand in uniform control flow.
fn uniform(level: &Level) -> Text {
    let texts = [
        "tile_u[lid] = $U;\nworkgroupBarrier();\nu0 = tile_u[(lid + 13u) % 32u];\nworkgroupBarrier();\n",
        "tile_w[lid] = $W;\nworkgroupBarrier();\nw0 = tile_w[$U % 32u];\nworkgroupBarrier();\n",
        "if lid == 0u { atomicStore(&total, 7u); }\nworkgroupBarrier();\nif $B { atomicAdd(&total, $U); }\nworkgroupBarrier();\nu1 = atomicLoad(&total);\nworkgroupBarrier();\n",
        "if lid == 0u { atomicStore(&total, 0u); }\nworkgroupBarrier();\natomicMax(&total, $U);\nworkgroupBarrier();\nu1 ^= atomicLoad(&total);\nworkgroupBarrier();\n",
        "if lid == 0u { atomicStore(&total, 0u); }\nworkgroupBarrier();\natomicXor(&total, $U);\nworkgroupBarrier();\nu0 += atomicLoad(&total);\nworkgroupBarrier();\n",
        "tile_u[lid] = $U;\nfor (var half = 16u; half > 0u; half /= 2u) {\nworkgroupBarrier();\nif lid < half { tile_u[lid] += tile_u[lid + half]; }\n}\nworkgroupBarrier();\nu1 = tile_u[0];\nworkgroupBarrier();\n",
        "tile_p[lid] = p0;\nworkgroupBarrier();\np0 = tile_p[$U % 32u];\nworkgroupBarrier();\n",
        "if lid == 5u { tile_u[0] = $U; }\nu1 = workgroupUniformLoad(&tile_u[0]);\n",
    ];
    Union::new(texts.iter().map(|t| template(level, t))).boxed()
}
