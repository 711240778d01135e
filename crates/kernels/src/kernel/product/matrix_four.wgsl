
// Two numbers of a word as f16, less the middle of their range: a number in the low bits of 1024 is added to it.
fn pair(bits: u32) -> vec2<f16> {
    return vec2<f16>(unpack2x16float((bits & 0x000f000fu) | 0x64006400u)) - vec2<f16>(1032.0h);
}

// Eight numbers in two planes of f16, whose sum is exact: times the upper 7 bits of the scale, and times the rest.
fn put_eight(at: u32, word: u32, upper: f16, rest: f16) {
    let a = pair(word);
    let b = pair(word >> 4u);
    let c = pair(word >> 8u);
    let d = pair(word >> 12u);
    let first = vec4<f16>(a.x, b.x, c.x, d.x);
    let second = vec4<f16>(a.y, b.y, c.y, d.y);
    tiles[at] = first * upper;
    tiles[at + 1u] = second * upper;
    tiles[PLANE + at] = first * rest;
    tiles[PLANE + at + 1u] = second * rest;
}

fn put_share(at: u32, words: vec2<u32>, scale: u32) {
    let upper = unpack2x16float(scale & 0xfff0u).x;
    let rest = unpack2x16float(scale).x - upper;
    put_eight(at, words.x, f16(upper), f16(rest));
    put_eight(at + 2u, words.y, f16(upper), f16(rest));
}
