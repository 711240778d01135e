// silu(g) * u; with e = exp(-|g|) nothing overflows.
fn gated(g: vec4<f32>, u: vec4<f32>) -> vec4<f32> {
    let e = vec4<f32>(
        exp_accurate(-abs(g.x)),
        exp_accurate(-abs(g.y)),
        exp_accurate(-abs(g.z)),
        exp_accurate(-abs(g.w)),
    );
    return select(g, g * e, g < vec4<f32>()) / (vec4<f32>(1.0) + e) * u;
}
