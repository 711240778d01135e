
override EPS: f32 = 0.0;
override OFFSET: f32 = 0.0;
override NORM_DTYPE: u32 = 0u; // of the norm's weights; 0: f32, 1: f16, 2: bf16

// Sums of squares of the subgroups.
var<workgroup> squares: array<f32, 256>;

// Weights 8i to 8i + 7 of the norm.
fn norm_eight(i: u32) -> Octet {
    if NORM_DTYPE == 0u {
        return Octet(bitcast<vec4<f32>>(norm_w[2u * i]), bitcast<vec4<f32>>(norm_w[2u * i + 1u]));
    }
    let words = norm_w[i];
    if NORM_DTYPE == 1u {
        return halves(words);
    }
    let even = bitcast<vec4<f32>>(words << vec4<u32>(16u));
    let odd = bitcast<vec4<f32>>(words & vec4<u32>(0xffff0000u));
    return Octet(vec4<f32>(even.x, odd.x, even.y, odd.y), vec4<f32>(even.z, odd.z, even.w, odd.w));
}

fn rounded(v: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(f32(to_act(v.x)), f32(to_act(v.y)), f32(to_act(v.z)), f32(to_act(v.w)));
}

// Normalises as rms_norm does, and brings the row to workgroup memory.
fn stage(first_group: bool, lane: u32, subgroup: u32, subgroups: u32, first: bool) {
    var own = 0.0;
    for (var i = lane; i < K / 8u; i += LANES) {
        let v = input_eight(i);
        own += dot(v.low, v.low) + dot(v.high, v.high);
        if first_group {
            keep_eight(i, v);
        }
    }
    let sum = subgroupAdd(own);
    if first {
        squares[subgroup] = sum;
    }
    workgroupBarrier();
    var all = 0.0;
    for (var i = 0u; i < subgroups; i++) {
        all += squares[i];
    }
    let factor = inverse_root(all / f32(K) + EPS);
    for (var start = 0u; start < K / 8u; start += LANES) {
        let i = min(start + lane, K / 8u - 1u);
        let v = input_eight(i);
        let w = norm_eight(i);
        let low = rounded(v.low * factor * (vec4<f32>(OFFSET) + w.low));
        put_eight(start + lane, Octet(low, rounded(v.high * factor * (vec4<f32>(OFFSET) + w.high))));
    }
    workgroupBarrier();
}

// 1 / sqrt(v), with one step of Newton's method after the built-in function.
fn inverse_root(v: f32) -> f32 {
    let r = inverseSqrt(v);
    return r * fma(-0.5 * v * r, r, 1.5);
}
