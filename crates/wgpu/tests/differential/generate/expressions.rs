//! Expressions of every type, one nesting depth from those of the depth below.

use super::Text;
use proptest::prelude::{Just, Strategy, any};
use proptest::sample::select;
use proptest::strategy::Union;

/// Expressions of one nesting depth, by type.
#[derive(Clone)]
pub struct Level {
    pub u: Text,
    pub i: Text,
    pub f: Text,
    pub b: Text,
    pub v: Text,
    pub w: Text,
    pub h: Text,
    pub g: Text,
}

fn words(list: &'static [&'static str]) -> Text {
    select(list).prop_map(String::from).boxed()
}

pub fn leaves() -> Level {
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
pub fn template(level: &Level, text: &'static str) -> Text {
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

pub fn templates(level: &Level, leaf: &Text, texts: &[&'static str]) -> Text {
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

pub fn deeper(level: &Level) -> Level {
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
