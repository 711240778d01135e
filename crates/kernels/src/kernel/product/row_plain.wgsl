
// Weights of f16 or bf16, eight in 16 bytes.
// 16 bytes of four columns.
struct Load { a: vec4<u32>, b: vec4<u32>, c: vec4<u32>, d: vec4<u32> }

// Sums of four columns, each in four shares.
struct Sums { a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32> }

fn w_numbers(words: vec4<u32>) -> Octet {
    if W_DTYPE == 1u {
        return halves(words);
    }
    let even = bitcast<vec4<f32>>(words << vec4<u32>(16u));
    let odd = bitcast<vec4<f32>>(words & vec4<u32>(0xffff0000u));
    return Octet(vec4<f32>(even.x, odd.x, even.y, odd.y), vec4<f32>(even.z, odd.z, even.w, odd.w));
}

fn add_products(to: vec4<f32>, words: vec4<u32>, v: Octet) -> vec4<f32> {
    let w = w_numbers(words);
    return fma(w.high, v.high, fma(w.low, v.low, to));
}

fn add_load(to: Sums, w: Load, at: u32) -> Sums {
    let v = x_eight(at);
    var sums = to;
    sums.a = add_products(to.a, w.a, v);
    sums.b = add_products(to.b, w.b, v);
    sums.c = add_products(to.c, w.c, v);
    sums.d = add_products(to.d, w.d, v);
    return sums;
}
