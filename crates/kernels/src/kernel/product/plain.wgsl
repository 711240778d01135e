// Weights that are numbers: 16 bytes hold four f32, or eight f16 or bf16.
override PIECE: u32 = 8u; // elements of 16 bytes

fn w_numbers(words: vec4<u32>) -> Octet {
    if W_DTYPE == 0u {
        return Octet(bitcast<vec4<f32>>(words), vec4<f32>());
    }
    if W_DTYPE == 1u {
        let a = vec4<f32>(unpack2x16float(words.x), unpack2x16float(words.y));
        return Octet(a, vec4<f32>(unpack2x16float(words.z), unpack2x16float(words.w)));
    }
    let even = bitcast<vec4<f32>>(words << vec4<u32>(16u));
    let odd = bitcast<vec4<f32>>(words & vec4<u32>(0xffff0000u));
    return Octet(vec4<f32>(even.x, odd.x, even.y, odd.y), vec4<f32>(even.z, odd.z, even.w, odd.w));
}

// Elements k to k + PIECE - 1 of a column.
fn w_piece(octet: u32, column: u32, k: u32) -> Octet {
    return w_numbers(w_read(octet, column, k / PIECE));
}

fn add_products(to: vec4<f32>, words: vec4<u32>, x_values: Octet) -> vec4<f32> {
    let w_values = w_numbers(words);
    let sums = fma(w_values.low, x_values.low, to);
    if PIECE == 4u {
        return sums;
    }
    return fma(w_values.high, x_values.high, sums);
}

// The lane's share of a row's products with an octet.
fn partial(row: u32, octet: u32, lane: u32) -> Octet {
    var sums: array<vec4<f32>, 8>;
    let from_x = row * (K / 4u);
    for (var at = lane; at < K / PIECE; at += LANES) {
        // All loads first, so that they are under way at once.
        let w0 = w_read(octet, 0u, at);
        let w1 = w_read(octet, 1u, at);
        let w2 = w_read(octet, 2u, at);
        let w3 = w_read(octet, 3u, at);
        let w4 = w_read(octet, 4u, at);
        let w5 = w_read(octet, 5u, at);
        let w6 = w_read(octet, 6u, at);
        let w7 = w_read(octet, 7u, at);
        var values = Octet();
        values.low = vec4<f32>(x[from_x + at * (PIECE / 4u)]);
        if PIECE == 8u {
            values.high = vec4<f32>(x[from_x + at * 2u + 1u]);
        }
        sums[0] = add_products(sums[0], w0, values);
        sums[1] = add_products(sums[1], w1, values);
        sums[2] = add_products(sums[2], w2, values);
        sums[3] = add_products(sums[3], w3, values);
        sums[4] = add_products(sums[4], w4, values);
        sums[5] = add_products(sums[5], w5, values);
        sums[6] = add_products(sums[6], w6, values);
        sums[7] = add_products(sums[7], w7, values);
    }
    let ones = vec4<f32>(1.0);
    let low = vec4<f32>(dot(sums[0], ones), dot(sums[1], ones), dot(sums[2], ones), dot(sums[3], ones));
    return Octet(low, vec4<f32>(dot(sums[4], ones), dot(sums[5], ones), dot(sums[6], ones), dot(sums[7], ones)));
}
