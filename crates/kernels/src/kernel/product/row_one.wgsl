
fn input_eight(i: u32) -> Octet {
    return Octet(vec4<f32>(x[2u * i]), vec4<f32>(x[2u * i + 1u]));
}

fn keep_eight(i: u32, v: Octet) {
}
