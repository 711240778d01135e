// y = what the elements of x along some dimensions come to. A team of TEAM lanes treats one element of y.
override OUTPUTS: u32; // elements of y
override TERMS: u32; // elements of x for each
override KEPT: u32; // dimensions that y keeps
override TEAM: u32 = 256u; // a power of two up to 256

@group(0) @binding(0) var<storage, read> x: array<num>;
@group(0) @binding(1) var<storage, read> sizes: array<u32>; // of the kept dimensions, then of the others; their strides
@group(0) @binding(2) var<storage, read_write> y: array<num>;
@group(0) @binding(3) var<uniform> symbols: Symbols;

var<workgroup> parts: array<val, 256>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let output = (group.y * 65535u + group.x) * (256u / TEAM) + lane / TEAM;
    let own = lane % TEAM;
    let origin = place(min(output, OUTPUTS - 1u), 0u, KEPT);
    // A lane beyond the terms takes one of them again where that changes nothing, and else begins with nothing.
    var v = start(val(x[origin]));
    for (var j = own; j < TERMS; j += TEAM) {
        v = join(v, term(val(x[origin + place(j, KEPT, DIMS)])));
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
        y[output] = to_num(finish(parts[lane]));
    }
}

