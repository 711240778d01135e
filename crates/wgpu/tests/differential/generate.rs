//! Random compute shaders in which every result is exactly defined by the WGSL specification.
//!
//! Integers wrap, and division by zero, shifts and indices are kept to what the specification defines. Floats are kept
//! at multiples of 1/8 in ±64 (`snap`): sums, products and short dot products of such numbers need no rounding, so
//! fused or reordered arithmetic gives the same bits. `Half` is `f16` where the device has it, else `f32`; its values
//! stay at multiples of 1/4 in ±4 for the same reason. Values that an implementation may fold at compile time go through
//! `zu`, `zi` and `zf`, zeros that are loaded from a buffer. Strategies are strings: proptest shrinks by choosing
//! earlier alternatives, so the simplest come first.

use proptest::collection::vec;
use proptest::prelude::{BoxedStrategy, Just, Strategy, any};
use proptest::sample::select;
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

/// Expressions of one nesting depth, by type.
#[derive(Clone)]
struct Level {
    u: Text,
    i: Text,
    f: Text,
    b: Text,
    v: Text,
    w: Text,
    h: Text,
    g: Text,
}

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
pub fn unbounded(shader: &str) -> String {
    [2, 3, 4, 5, 8, 32, 64].iter().fold(shader.to_string(), |text, n| text.replace(&format!(" % {n}u]"), "]"))
}

/// Complete shaders of fewer than `most` statements, with `f16` or without.
pub fn shader(f16: bool, most: usize) -> impl Strategy<Value = String> {
    let half = if f16 { "f16" } else { "f32" };
    let leaves = leaves();
    let one = deeper(&leaves);
    let two = deeper(&one);
    let simple = simple(&two);
    let nested = nested(&two, &simple);
    let inner = nested_in(&two, &nested);
    let top = Union::new([simple, nested, inner, uniform(&two)]);
    vec(top, 1..most)
        .prop_map(move |body| format!("alias Half = {half};\n{HEAD}{OPENING}{}{CLOSING}", body.concat()))
}

fn words(list: &'static [&'static str]) -> Text {
    select(list).prop_map(String::from).boxed()
}

fn leaves() -> Level {
    let number = any::<u32>().prop_map(|n| format!("({n}u ^ zu)"));
    let small = (0u32..9).prop_map(|n| format!("({n}u ^ zu)"));
    let signed = any::<i32>().prop_map(|n| format!("(bitcast<i32>({}u) ^ zi)", n as u32));
    let eighths = (-512i32..=512).prop_map(|n| format!("({:?} + zf)", f64::from(n) / 8.0));
    let u = words(&["u0", "u1", "lid", "gid.x", "v0.y", "a0[2]", "p0.last"]);
    let f = words(&["f0", "f1", "w0.x", "w0.w", "s0.right.x", "s0.right.y", "p0.side.y", "in_f[lid]"]);
    Level {
        u: Union::new([u, small.boxed(), number.boxed()]).boxed(),
        i: Union::new([words(&["i0", "i1", "s0.left"]), signed.boxed()]).boxed(),
        f: Union::new([f, eighths.boxed()]).boxed(),
        b: words(&["b0", "(lid < 9u)"]),
        v: words(&["v0", "v0.zxy", "gid"]),
        w: words(&["w0", "w0.wzyx", "vec4<f32>(s0.right, w0.yz)"]),
        h: words(&["h0", "g0.x", "g0.y", "Half(1.25 + zf)", "Half(-3.75 + zf)", "Half(zf)"]),
        g: words(&["g0", "g0.yxwz", "vec4<Half>(h0)"]),
    }
}

/// A template whose `$U`, `$I`, `$F`, `$B`, `$V`, `$W`, `$H` and `$G` are replaced by expressions of the level below.
fn template(level: &Level, text: &'static str) -> Text {
    let mut pieces = text.split('$');
    let mut parts: Vec<Text> = vec![Just(pieces.next().unwrap_or_default().to_string()).boxed()];
    for piece in pieces {
        let (hole, rest) = piece.split_at(1);
        parts.push(match hole {
            "U" => level.u.clone(),
            "I" => level.i.clone(),
            "F" => level.f.clone(),
            "B" => level.b.clone(),
            "V" => level.v.clone(),
            "W" => level.w.clone(),
            "H" => level.h.clone(),
            "G" => level.g.clone(),
            _ => unreachable!("a template has no hole `{hole}`"),
        });
        parts.push(Just(rest.to_string()).boxed());
    }
    parts.prop_map(|parts| parts.concat()).boxed()
}

fn templates(level: &Level, leaf: &Text, texts: &[&'static str]) -> Text {
    let made = texts.iter().map(|t| template(level, t));
    Union::new(std::iter::once(leaf.clone()).chain(made)).boxed()
}

const U: &[&str] = &[
    "($U + $U)",
    "($U - $U)",
    "($U * $U)",
    "($U & $U)",
    "($U | $U)",
    "($U ^ $U)",
    "($U / $U)",
    "($U % $U)",
    "($U << ($U & 31u))",
    "($U >> ($U & 31u))",
    "($U + 3u)",
    "($U * 2654435761u)",
    "($U / 3u)",
    "($U % 10u)",
    "(~$U)",
    "countOneBits($U)",
    "countLeadingZeros($U)",
    "countTrailingZeros($U)",
    "reverseBits($U)",
    "firstLeadingBit($U)",
    "firstTrailingBit($U)",
    "min($U, $U)",
    "max($U, $U)",
    "clamp($U, min($U, 9u), 4000u)",
    "select($U, $U, $B)",
    "u32($I)",
    "bitcast<u32>($I)",
    "u32($B)",
    "u32(abs($F))",
    "dot($V, $V)",
    "$V.x",
    "$V.z",
    "$V[$U % 3u]",
    "extractBits($U, $U & 15u, $U & 15u)",
    "insertBits($U, $U, $U & 15u, $U & 15u)",
    "a0[$U % 5u]",
    "given.words[$U % 64u]",
    "gcd($U & 1023u, $U & 1023u)",
    "u32(any($V < $V))",
    "pack2x16float(vec2<f32>(abs($F) + 1.0, 0.25 + zf))",
    "u32($W[$U % 4u] > $F)",
    "dot4U8Packed($U, $U)",
    "u32(abs($H))",
    "p0.ends[$U % 2u].z",
    "given.rows[$U % 8u].last",
    "given.rows[$U % 8u].ends[$U % 2u][$U % 3u]",
    "pack4x8unorm(step($W, vec4<f32>($F)))",
    "pack4x8snorm(sign($W))",
    "pack2x16unorm(saturate(floor($W.xy)))",
    "pack4xU8(vec4<u32>($V, $U))",
    "pack4xI8(vec4<i32>(vec3<i32>($V), $I))",
    "unpack4xU8($U)[$U % 4u]",
];
const I: &[&str] = &[
    "($I + $I)",
    "($I - $I)",
    "($I * $I)",
    "($I & $I)",
    "($I | $I)",
    "($I ^ $I)",
    "($I / $I)",
    "($I % $I)",
    "($I << ($U & 31u))",
    "($I >> ($U & 31u))",
    "(-$I)",
    "(~$I)",
    "($I / 7i)",
    "($I % -5i)",
    "abs($I)",
    "sign($I)",
    "min($I, $I)",
    "max($I, $I)",
    "clamp($I, -77i, 99i)",
    "select($I, $I, $B)",
    "i32($U)",
    "bitcast<i32>($U)",
    "i32($F)",
    "i32($B)",
    "firstLeadingBit($I)",
    "extractBits($I, $U & 15u, $U & 15u)",
    "dot(vec2<i32>($I, $I), vec2<i32>($I, 3i))",
    "reverseBits($I)",
    "dot4I8Packed($U, $U)",
    "vec3<i32>($V).y",
    "i32($H)",
    "unpack4xI8($U).y",
];
const F: &[&str] = &[
    "snap($F + $F)",
    "snap($F - $F)",
    "snap($F * $F)",
    "snap($F * 0.5)",
    "(-$F)",
    "min($F, $F)",
    "max($F, $F)",
    "abs($F)",
    "sign($F)",
    "floor($F)",
    "ceil($F)",
    "trunc($F)",
    "round($F)",
    "fract($F)",
    "clamp($F, -3.5, 8.0)",
    "saturate($F)",
    "step($F, $F)",
    "select($F, $F, $B)",
    "f32($U % 64u)",
    "f32($I % 64i)",
    "f32($B)",
    "snap(dot($W, $W))",
    "$W.x",
    "$W.z",
    "$W[$U % 4u]",
    "snap(fma($F, $F, $F))",
    "snap(mix($F, $F, 0.5))",
    "unpack2x16float(pack2x16float(vec2<f32>($F, $F))).y",
    "in_f[$U % 64u]",
    "snap(ldexp($F, $I & 3i))",
    "modf($F).whole",
    "snap(quantizeToF16($F))",
    "f32($H)",
    "f32($G.z)",
    "given.rows[$U % 8u].side[$U % 3u]",
    "given.rows[$U % 8u].tail",
    "round(unpack4x8snorm(pack4x8snorm(sign($W))).z)",
    "round(unpack2x16unorm(pack2x16unorm(step($W.xy, $W.zw))).y)",
];
const B: &[&str] = &[
    "($U < $U)",
    "($U == $U)",
    "($U >= $U)",
    "($I < $I)",
    "($I != $I)",
    "($F < $F)",
    "($F <= $F)",
    "($F == $F)",
    "(!$B)",
    "($B && $B)",
    "($B || $B)",
    "($B & $B)",
    "($B | $B)",
    "($B != $B)",
    "any($V > $V)",
    "all($V != $V)",
    "select($B, $B, $B)",
    "bool($U & 1u)",
    "all($W <= $W)",
    "($H < $H)",
    "all($G <= $G)",
];
const V: &[&str] = &[
    "($V + $V)",
    "($V - $V)",
    "($V * $V)",
    "($V ^ $V)",
    "($V / $V)",
    "($V % $V)",
    "($V & $V)",
    "($V + $U)",
    "($U * $V)",
    "vec3<u32>($U, $U, $U)",
    "vec3<u32>($U)",
    "vec3<u32>($V.xy, $U)",
    "$V.zyx",
    "$V.xxy",
    "($V << ($V & vec3<u32>(31u)))",
    "($V >> vec3<u32>(5u))",
    "min($V, $V)",
    "max($V, $V)",
    "select($V, $V, $V < $V)",
    "select($V, $V, $B)",
    "(~$V)",
    "countOneBits($V)",
    "reverseBits($V)",
    "vec3<u32>(abs($W.xyz))",
    "bitcast<vec3<u32>>(vec3<i32>($I, $I, 4i))",
];
const W: &[&str] = &[
    "vec4<f32>($F, $F, $F, $F)",
    "snap4($W + $W)",
    "snap4($W - $W)",
    "snap4($W * $W)",
    "snap4($W * $F)",
    "snap4($F - $W)",
    "$W.wxyz",
    "vec4<f32>($W.zw, $W.xy)",
    "vec4<f32>($F)",
    "abs($W)",
    "floor($W)",
    "round($W)",
    "min($W, $W)",
    "max($W, $W)",
    "(-$W)",
    "clamp($W, vec4<f32>(-1.5), vec4<f32>(20.0))",
    "select($W, $W, $W < $W)",
    "select($W, $W, $B)",
    "step($W, $W)",
    "sign($W)",
    "snap4(mat4x4<f32>($W, $W, $W, $W) * $W)",
    "snap4($W * mat4x4<f32>($W, $W, $W, $W))",
    "vec4<f32>(vec3<f32>($V % vec3<u32>(64u)), $F)",
    "transpose(mat4x4<f32>($W, $W, $W, $W))[$U % 4u]",
    "snap4(vec4<f32>(cross(floor($W.xyz), floor($W.yzw)), $F))",
    "vec4<f32>($G)",
];

const H: &[&str] = &[
    "snaph($H + $H)",
    "snaph($H - $H)",
    "snaph($H * $H)",
    "snaph(fma($H, $H, $H))",
    "snaph(dot($G, $G))",
    "(-$H)",
    "min($H, $H)",
    "max($H, $H)",
    "clamp($H, Half(-1.5), Half(2.0))",
    "abs($H)",
    "sign($H)",
    "floor($H)",
    "ceil($H)",
    "trunc($H)",
    "round($H)",
    "fract($H)",
    "step($H, $H)",
    "select($H, $H, $B)",
    "Half(clamp(floor($F), -4.0, 4.0))",
    "Half($U % 4u)",
    "Half($I % 4i)",
    "Half($B)",
    "$G.y",
    "$G[$U % 4u]",
];
const G: &[&str] = &[
    "vec4<Half>($H, $H, $H, $H)",
    "snapg($G + $G)",
    "snapg($G - $G)",
    "snapg($G * $G)",
    "snapg($G * $H)",
    "$G.wxyz",
    "vec4<Half>($G.zw, $G.xy)",
    "vec4<Half>($H)",
    "(-$G)",
    "min($G, $G)",
    "max($G, $G)",
    "abs($G)",
    "floor($G)",
    "select($G, $G, $B)",
    "select($G, $G, $G < $G)",
    "vec4<Half>(clamp(floor($W), vec4<f32>(-4.0), vec4<f32>(4.0)))",
    "snapg(mat4x4<Half>($G, $G, $G, $G) * $G)",
];

fn deeper(level: &Level) -> Level {
    Level {
        u: templates(level, &level.u, U),
        i: templates(level, &level.i, I),
        f: templates(level, &level.f, F),
        b: templates(level, &level.b, B),
        v: templates(level, &level.v, V),
        w: templates(level, &level.w, W),
        h: templates(level, &level.h, H),
        g: templates(level, &level.g, G),
    }
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
fn nested(level: &Level, body: &Text) -> Text {
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
    nested(level, body)
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
