// Places and the experts that they chose: a workgroup takes few places one by one, and gathers many by their experts. Tiles are
// TILE places by OUTPUTS outputs.
// How many places of each lane's share chose the expert, and how many in all.
var<workgroup> counts: array<u32, LANES>;
var<workgroup> total: u32;
// The places of a tile.
var<workgroup> gathered: array<u32, TILE>;

// Where the block of x begins that a place reads.
fn x_start(place: u32) -> u32 {
    return select(place, place / SLOTS, SHARED == 1u) * K;
}

// Where a matrix of an expert of this launch begins.
fn w_start(expert: u32) -> u32 {
    return (expert - FIRST) * O * K;
}

// Where the blocks of x begin that places `first` to `first + 3` of the tile read.
fn x_four(first: u32, places: u32) -> vec4<u32> {
    let at = four(first, places);
    return vec4<u32>(
        x_start(gathered[at.x]),
        x_start(gathered[at.y]),
        x_start(gathered[at.z]),
        x_start(gathered[at.w]),
    );
}

// Tiles of all places that chose the expert, outputs `first` to `first + OUTPUTS - 1`. Each lane looks through an equal share of
// the places; a place's rank among those of the expert is its rank in the lane's share and the count of the shares
// before it.
fn tiles(places: u32, expert: u32, first: u32, lane: u32) {
    let share = (places + LANES - 1u) / LANES;
    let start = lane * share;
    let end = min(start + share, places);
    var own = 0u;
    for (var place = start; place < end; place++) {
        own += u32(experts[place] == expert);
    }
    counts[lane] = own;
    workgroupBarrier();
    var rank = 0u;
    for (var other = 0u; other < lane; other++) {
        rank += counts[other];
    }
    if lane == LANES - 1u {
        total = rank + own;
    }
    let all = workgroupUniformLoad(&total);
    for (var done = 0u; done < all; done += TILE) {
        var at = rank;
        for (var place = start; place < end && at < done + TILE; place++) {
            if experts[place] == expert {
                if at >= done {
                    gathered[at - done] = place;
                }
                at++;
            }
        }
        workgroupBarrier();
        tile(min(all - done, TILE), expert, first, lane);
        workgroupBarrier();
    }
}

// Zeros for an expert that does not exist.
fn clear(place: u32, first: u32, count: u32) {
    for (var output = first; output < min(first + count, O); output++) {
        y[place * O + output] = to_act(0.0);
    }
}

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let places = row_count(symbols) * SLOTS;
    if places <= FEW * EXPERTS {
        for (var place = group.y; place < places; place += groups.y) {
            let expert = experts[place];
            if expert >= FIRST && expert - FIRST < COUNT {
                vector(place, expert, group.x * 4u, lane);
            } else if expert >= EXPERTS && FIRST == 0u && lane == 0u {
                clear(place, group.x * 4u, 4u);
            }
        }
    } else if group.x * OUTPUTS < O {
        for (var expert = FIRST + group.y; expert < FIRST + COUNT; expert += groups.y) {
            tiles(places, expert, group.x * OUTPUTS, lane);
        }
        for (var place = group.y * LANES + lane; place < places; place += groups.y * LANES) {
            if experts[place] >= EXPERTS && FIRST == 0u {
                clear(place, group.x * OUTPUTS, OUTPUTS);
            }
        }
    }
}
