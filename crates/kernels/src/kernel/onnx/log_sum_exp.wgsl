// y = the logarithm of the sum of the exponentials of the elements of x along some dimensions, the greatest of which is taken out
// of the sum. A team of TEAM lanes treats one element of y.
override OUTPUTS: u32; // elements of y
override TERMS: u32; // elements of x for each
override KEPT: u32; // dimensions that y keeps
override TEAM: u32 = 256u; // a power of two up to 256

@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read> sizes: array<u32>; // of the kept dimensions, then of the others; their strides
@group(0) @binding(2) var<storage, read_write> y: array<act>;
@group(0) @binding(3) var<uniform> symbols: Symbols;

var<workgroup> parts: array<f32, 256>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let output = (group.y * 65535u + group.x) * (256u / TEAM) + lane / TEAM;
    let own = lane % TEAM;
    let origin = place(min(output, OUTPUTS - 1u), 0u, KEPT);
    var most = f32(x[origin]);
    for (var j = own; j < TERMS; j += TEAM) {
        most = larger(most, f32(x[origin + place(j, KEPT, DIMS)]));
    }
    parts[lane] = most;
    workgroupBarrier();
    for (var step = TEAM / 2u; step > 0u; step >>= 1u) {
        if own < step {
            parts[lane] = larger(parts[lane], parts[lane + step]);
        }
        workgroupBarrier();
    }
    // Sums of zeros alone and of infinities keep their value.
    let top = parts[lane - own];
    let shift = select(0.0, top, (bitcast<u32>(top) & 0x7fffffffu) < 0x7f800000u);
    workgroupBarrier();
    var sum = 0.0;
    for (var j = own; j < TERMS; j += TEAM) {
        let v = f32(x[origin + place(j, KEPT, DIMS)]) - shift;
        sum += select(exp_accurate(v), v, is_nan(v));
    }
    parts[lane] = sum;
    workgroupBarrier();
    for (var step = TEAM / 2u; step > 0u; step >>= 1u) {
        if own < step {
            parts[lane] += parts[lane + step];
        }
        workgroupBarrier();
    }
    if own == 0u && output < OUTPUTS {
        y[output] = to_act(formula(parts[lane]) + shift);
    }
}
