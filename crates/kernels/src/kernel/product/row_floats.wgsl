// Integers of 4 or 8 bits, or numbers of 8, as f32.
// A number that lies at bits s to s + 3 or s + 7 of a word becomes the last bits of 2^(23 - s), as an f32, when the
// word's other bits give way to that exponent; what is taken off then is exact.
const MAGIC_LOW = vec4<u32>(0x4b000000u, 0x49000000u, 0x47000000u, 0x45000000u); // 2^23, 2^19, 2^15, 2^11
const MAGIC_HIGH = vec4<u32>(0x43000000u, 0x47000000u, 0x45000000u, 0x43000000u); // 2^7, 2^15, 2^11, 2^7
const MAGIC_BYTES = vec4<u32>(0x4b000000u, 0x47000000u, 0x4b000000u, 0x47000000u);

// The eight numbers of a word, less the middle of their range.
fn eight_of(word: u32) -> Octet {
    let later = word >> 12u;
    let low = vec4<u32>(word) & vec4<u32>(0xfu, 0xf0u, 0xf00u, 0xf000u);
    let high = vec4<u32>(word, later, later, later) & vec4<u32>(0xf0000u, 0xf00u, 0xf000u, 0xf0000u);
    return Octet(
        bitcast<vec4<f32>>(low | MAGIC_LOW) - (bitcast<vec4<f32>>(MAGIC_LOW) + 8.0),
        bitcast<vec4<f32>>(high | MAGIC_HIGH) - (bitcast<vec4<f32>>(MAGIC_HIGH) + 8.0),
    );
}

// The four numbers of a word, less the middle of their range.
fn four_of(word: u32) -> vec4<f32> {
    if CODE == 2u {
        return float8_word(word);
    }
    let bytes = vec4<u32>(word, word, word >> 16u, word >> 16u) & vec4<u32>(0xffu, 0xff00u, 0xffu, 0xff00u);
    return bitcast<vec4<f32>>(bytes | MAGIC_BYTES) - (bitcast<vec4<f32>>(MAGIC_BYTES) + 128.0);
}

// A sum with four products, one by one.
fn add_four(to: f32, w: vec4<f32>, v: vec4<f32>) -> f32 {
    return fma(w.w, v.w, fma(w.z, v.z, fma(w.y, v.y, fma(w.x, v.x, to))));
}

fn add_word(to: f32, word: u32, v: Octet) -> f32 {
    let w = eight_of(word);
    return add_four(add_four(to, w.low, v.low), w.high, v.high);
}

// Sums of four columns with the products of a word of 4-bit numbers of each.
fn add_words(to: vec4<f32>, a: u32, b: u32, c: u32, d: u32, v: Octet) -> vec4<f32> {
    return vec4<f32>(add_word(to.x, a, v), add_word(to.y, b, v), add_word(to.z, c, v), add_word(to.w, d, v));
}

// The same with a word of 8-bit numbers.
fn add_bytes(to: vec4<f32>, a: u32, b: u32, c: u32, d: u32, v: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(
        add_four(to.x, four_of(a), v),
        add_four(to.y, four_of(b), v),
        add_four(to.z, four_of(c), v),
        add_four(to.w, four_of(d), v),
    );
}

// The products of 16 bytes of four columns with the row.
fn products(w: Load, at: u32) -> vec4<f32> {
    var own = vec4<f32>();
    if BITS == 4u {
        own = add_words(own, w.a.x, w.b.x, w.c.x, w.d.x, x_eight(4u * at));
        own = add_words(own, w.a.y, w.b.y, w.c.y, w.d.y, x_eight(4u * at + 1u));
        own = add_words(own, w.a.z, w.b.z, w.c.z, w.d.z, x_eight(4u * at + 2u));
        own = add_words(own, w.a.w, w.b.w, w.c.w, w.d.w, x_eight(4u * at + 3u));
    } else {
        let v = x_eight(2u * at);
        own = add_bytes(own, w.a.x, w.b.x, w.c.x, w.d.x, v.low);
        own = add_bytes(own, w.a.y, w.b.y, w.c.y, w.d.y, v.high);
        let more = x_eight(2u * at + 1u);
        own = add_bytes(own, w.a.z, w.b.z, w.c.z, w.d.z, more.low);
        own = add_bytes(own, w.a.w, w.b.w, w.c.w, w.d.w, more.high);
    }
    return own;
}
