
// y is made of elements of x: those that `source` names, or `fill` where it names none. An invocation writes one word,
// which holds several elements of one or two bytes, one of four, or half of one of eight.
override COUNT: u32; // elements of y
override WORDS: u32; // words of y
override BYTES: u32; // of an element: 1, 2, 4 or 8

const NONE = 0xffffffffu;

// Element e of x as bits; half 1 is the upper half of one of eight bytes.
fn element(e: u32, half: u32) -> u32 {
    if e == NONE {
        return fill(half);
    }
    if BYTES == 8u {
        return x[2u * e + half];
    }
    if BYTES == 4u {
        return x[e];
    }
    let per = max(4u / BYTES, 1u);
    return (x[e / per] >> (e % per * 8u * BYTES)) & ((1u << (8u * (BYTES & 3u))) - 1u);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    for (var i = 0u; i < 4u; i++) {
        let w = group.x * 1024u + i * 256u + lane;
        if w >= WORDS {
            return;
        }
        var word = 0u;
        if BYTES == 8u {
            word = element(source(w >> 1u), w & 1u);
        } else if BYTES == 4u {
            word = element(source(w), 0u);
        } else {
            let per = max(4u / BYTES, 1u);
            for (var k = 0u; k < per; k++) {
                let e = w * per + k;
                if e < COUNT {
                    word |= element(source(e), 0u) << (k * 8u * BYTES);
                }
            }
        }
        y[w] = word;
    }
}
