// Four rows at once of a product with 64 lanes, and pairs of elements.

// `first` to `first + 3`, those beyond the last of `count` replaced by the last.
fn four(first: u32, count: u32) -> vec4<u32> {
    return min(vec4<u32>(first) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(count - 1u));
}

fn x_pair(at: u32) -> vec2<f32> {
    return vec2<f32>(f32(x[at]), f32(x[at + 1u]));
}

fn x_one(at: vec4<u32>) -> vec4<f32> {
    return vec4<f32>(f32(x[at.x]), f32(x[at.y]), f32(x[at.z]), f32(x[at.w]));
}
