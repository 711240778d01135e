// The product of one row with weights read 16 bytes at a time. A quad is four columns. The work of a workgroup is QUADS
// quads, each cut into SPLIT parts along K; a subgroup takes a part of a quad at a time, without waiting for the others.
// The row lies in workgroup memory, normalised on the way if that is asked for.
override K: u32; // length of the row and of the weights' rows; a multiple of what 16 bytes of weights hold, and of 8
override QUADS: u32; // of a workgroup
override SPLIT: u32 = 1u; // parts of a quad; QUADS * SPLIT is at most 64
override X_WIDE: u32 = 0u; // 0: the row is f16, 1: f32

const LANES = 256u;

// The row, 16 bytes at [place(i)].
var<workgroup> pool: array<vec4<u32>, POOL>;
// Sums of the parts.
var<workgroup> sums: array<vec4<f32>, 64>;

struct Octet { low: vec4<f32>, high: vec4<f32> }

// Turned so that lanes which read eight pieces apart hit all banks.
fn place(i: u32) -> u32 {
    return i ^ ((i >> 3u) & 7u);
}

fn halves(words: vec4<u32>) -> Octet {
    let low = vec4<f32>(unpack2x16float(words.x), unpack2x16float(words.y));
    return Octet(low, vec4<f32>(unpack2x16float(words.z), unpack2x16float(words.w)));
}

// Two numbers that binary16 holds as they are stored.
fn pair_of(a: f32, b: f32) -> u32 {
    return pack2x16float(vec2<f32>(a, b));
}

// Elements 8i to 8i + 7 of the row.
fn x_eight(i: u32) -> Octet {
    if X_WIDE == 0u {
        return halves(pool[place(i)]);
    }
    return Octet(bitcast<vec4<f32>>(pool[place(2u * i)]), bitcast<vec4<f32>>(pool[place(2u * i + 1u)]));
}

// Brings elements 8i to 8i + 7, which are as activations are stored, to workgroup memory.
fn put_eight(i: u32, v: Octet) {
    if X_WIDE == 0u {
        let low = vec2<u32>(pair_of(v.low.x, v.low.y), pair_of(v.low.z, v.low.w));
        pool[place(i)] = vec4<u32>(low, pair_of(v.high.x, v.high.y), pair_of(v.high.z, v.high.w));
    } else {
        pool[place(2u * i)] = bitcast<vec4<u32>>(v.low);
        pool[place(2u * i + 1u)] = bitcast<vec4<u32>>(v.high);
    }
}

// The rows of a weight of `count` rows that a quad stands for; those beyond the last are replaced by the last.
fn rows_of(quad: u32, count: u32) -> vec4<u32> {
    return min(vec4<u32>(4u * quad) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(count - 1u));
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
    stage(group.x == 0u, lane, subgroup, subgroups, within == 0u);
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

// Column `column` of quad `i` of the workgroup.
fn total(i: u32, column: u32) -> f32 {
    var sum = 0.0;
    for (var part = 0u; part < SPLIT; part++) {
        sum += sums[i * SPLIT + part][column];
    }
    return sum;
}
