
// Brings the row to workgroup memory.
fn stage(first_group: bool, lane: u32, subgroup: u32, subgroups: u32, first: bool) {
    for (var start = 0u; start < K / 8u; start += LANES) {
        let i = min(start + lane, K / 8u - 1u);
        put_eight(start + lane, Octet(vec4<f32>(x[2u * i]), vec4<f32>(x[2u * i + 1u])));
    }
    workgroupBarrier();
}
