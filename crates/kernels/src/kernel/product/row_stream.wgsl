// Every subgroup goes through its parts of quads in one stream of loads, of which the next is always under way.
// Where a load belongs, and whether the lane has one there.
struct Spot { quad: u32, at: u32, end: u32 }

// The place of load `t` of a subgroup's stream, in which a part has `turns` loads.
fn spot(t: u32, turns: u32, first: u32, subgroup: u32, subgroups: u32, lane: vec2<u32>) -> Spot {
    let item = min(subgroup + t / turns * subgroups, QUADS * SPLIT - 1u);
    let share = (K / LOAD + SPLIT - 1u) / SPLIT;
    let part = item % SPLIT;
    let at = part * share + lane.x + t % turns * lane.y;
    return Spot(first + item / SPLIT, at, min((part + 1u) * share, K / LOAD));
}

fn load_at(place: Spot) -> Load {
    return load_of(place.quad, min(place.at, place.end - 1u));
}

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
    let own = vec2<u32>(within, size);
    let turns = ((K / LOAD + SPLIT - 1u) / SPLIT + size - 1u) / size;
    let count = (QUADS * SPLIT + subgroups - 1u) / subgroups * turns;
    var here = spot(0u, turns, first, subgroup, subgroups, own);
    var next = load_at(here);
    stage(group.x == 0u, subgroup * size + within, subgroup, subgroups, within == 0u);
    var sum = vec4<f32>();
    for (var t = 0u; t < count; t++) {
        let now = next;
        let place_now = here;
        if t + 1u < count {
            here = spot(t + 1u, turns, first, subgroup, subgroups, own);
            next = load_at(here);
        }
        if place_now.at < place_now.end {
            sum = fma(scales_of(now), products(now, place_now.at), sum);
        }
        if t % turns == turns - 1u {
            let all = subgroupAdd(sum);
            let item = subgroup + t / turns * subgroups;
            if item < QUADS * SPLIT && within == 0u {
                sums[item] = all;
            }
            sum = vec4<f32>();
        }
    }
    workgroupBarrier();
    for (var i = lane; i < 4u * QUADS; i += LANES) {
        store(first + i / 4u, i / 4u, i % 4u);
    }
}
