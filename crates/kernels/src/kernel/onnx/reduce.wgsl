
// y = what the elements of x along some dimensions come to. A team of TEAM lanes treats one element of y.
override OUTPUTS: u32; // elements of y
override TERMS: u32; // elements of x for each
override KEPT: u32; // dimensions that y keeps
override DIMS: u32; // dimensions of x
override TEAM: u32 = 256u; // a power of two up to 256

@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read> sizes: array<u32>; // of the kept dimensions, then of the others; their strides
@group(0) @binding(2) var<storage, read_write> y: array<act>;
@group(0) @binding(3) var<uniform> symbols: Symbols;

var<workgroup> parts: array<f32, 256>;

// The place in x of index e over dimensions `first` to `end` - 1.
fn place(e: u32, first: u32, end: u32) -> u32 {
    var at = 0u;
    var rest = e;
    for (var d = end; d > first; d--) {
        at += rest % sizes[d - 1u] * sizes[DIMS + d - 1u];
        rest /= sizes[d - 1u];
    }
    return at;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let output = (group.y * 65535u + group.x) * (256u / TEAM) + lane / TEAM;
    let own = lane % TEAM;
    let origin = place(min(output, OUTPUTS - 1u), 0u, KEPT);
    // A lane beyond the terms takes one of them again where that changes nothing, and else begins with nothing.
    var v = start(f32(x[origin]));
    for (var j = own; j < TERMS; j += TEAM) {
        v = join(v, term(f32(x[origin + place(j, KEPT, DIMS)])));
    }
    parts[lane] = v;
    workgroupBarrier();
    for (var step = TEAM / 2u; step > 0u; step >>= 1u) {
        if own < step {
            parts[lane] = join(parts[lane], parts[lane + step]);
        }
        workgroupBarrier();
    }
    if own == 0u && output < OUTPUTS {
        y[output] = to_act(finish(parts[lane]));
    }
}

