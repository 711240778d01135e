// The product of one row with weights read 16 bytes at a time. A quad is four columns. The work of a workgroup is QUADS
// quads, each cut into SPLIT parts along K; a subgroup takes a part of a quad at a time, without waiting for the others.
// The row lies in workgroup memory, normalised on the way if that is asked for.
override K: u32; // length of the row and of the weights' rows; a multiple of what 16 bytes of weights hold, and of 8
override QUADS: u32; // of a workgroup
override SPLIT: u32 = 1u; // parts of a quad; QUADS * SPLIT is at most 64

const LANES = 256u;

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

// The rows of a weight of `count` rows that a quad stands for; those beyond the last are replaced by the last.
fn rows_of(quad: u32, count: u32) -> vec4<u32> {
    return min(vec4<u32>(4u * quad) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(count - 1u));
}

// Column `column` of quad `i` of the workgroup.
fn total(i: u32, column: u32) -> f32 {
    var sum = 0.0;
    for (var part = 0u; part < SPLIT; part++) {
        sum += sums[i * SPLIT + part][column];
    }
    return sum;
}
