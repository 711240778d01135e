
// Brings the row to workgroup memory.
fn stage(first_group: bool, lane: u32, subgroup: u32, subgroups: u32, first: bool) {
    for (var i = lane; i < K / 8u; i += LANES) {
        put_eight(i, Octet(vec4<f32>(x[2u * i]), vec4<f32>(x[2u * i + 1u])));
    }
    workgroupBarrier();
}
