// Every subgroup adds up one part of a quad after the other.
@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
    @builtin(subgroup_invocation_id) within: u32,
    @builtin(subgroup_size) size: u32,
) {
    let first = group.x * QUADS;
    stage(group.x == 0u, subgroup * size + within, subgroup, subgroups, within == 0u);
    for (var start = 0u; start < QUADS * SPLIT; start += subgroups) {
        let item = start + subgroup;
        var own = vec4<f32>();
        if item < QUADS * SPLIT {
            own = quad_sum(first + item / SPLIT, item % SPLIT, within, size);
        }
        let sum = subgroupAdd(own);
        if item < QUADS * SPLIT && within == 0u {
            sums[item] = sum;
        }
    }
    workgroupBarrier();
    for (var i = lane; i < 4u * QUADS; i += LANES) {
        store(first + i / 4u, i / 4u, i % 4u);
    }
}
