
// The sum of the residual stream and what is added to it.
fn input_eight(i: u32) -> Octet {
    let low = vec4<f32>(x[2u * i]) + vec4<f32>(more[2u * i]);
    return Octet(low, vec4<f32>(x[2u * i + 1u]) + vec4<f32>(more[2u * i + 1u]));
}

fn keep_eight(i: u32, v: Octet) {
    sum_out[2u * i] = vec4<act>(to_act(v.low.x), to_act(v.low.y), to_act(v.low.z), to_act(v.low.w));
    sum_out[2u * i + 1u] = vec4<act>(to_act(v.high.x), to_act(v.high.y), to_act(v.high.z), to_act(v.high.w));
}
