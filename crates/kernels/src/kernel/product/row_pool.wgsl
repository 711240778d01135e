// The row as it is stored.
override X_WIDE: u32 = 0u; // 0: the row is f16, 1: f32

// The row, 16 bytes at [place(i)].
var<workgroup> pool: array<vec4<u32>, POOL>;
// Two numbers that binary16 holds as they are stored.
fn pair_of(a: f32, b: f32) -> u32 {
    return pack2x16float(vec2<f32>(a, b));
}

// Elements 8i to 8i + 7 of the row.
fn x_eight(i: u32) -> Octet {
    if X_WIDE == 0u {
        return halves(pool[place(i)]);
    }
    return Octet(bitcast<vec4<f32>>(pool[place(2u * i)]), bitcast<vec4<f32>>(pool[place(2u * i + 1u)]));
}

// Brings elements 8i to 8i + 7, which are as activations are stored, to workgroup memory, if the row has them.
fn put_eight(i: u32, v: Octet) {
    if i >= K / 8u {
        return;
    }
    if X_WIDE == 0u {
        let low = vec2<u32>(pair_of(v.low.x, v.low.y), pair_of(v.low.z, v.low.w));
        pool[place(i)] = vec4<u32>(low, pair_of(v.high.x, v.high.y), pair_of(v.high.z, v.high.w));
    } else {
        pool[place(2u * i)] = bitcast<vec4<u32>>(v.low);
        pool[place(2u * i + 1u)] = bitcast<vec4<u32>>(v.high);
    }
}
