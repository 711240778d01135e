// y = exp(x - m) / the sum of these along K elements that are STEP apart, m the largest of them; or its logarithm. A team of
// TEAM lanes treats one such line.
override LINES: u32;
override K: u32; // elements of a line
override STEP: u32; // elements of x from one of a line to the next
override LOGARITHM: u32; // 1: ln y
override TEAM: u32 = 256u; // a power of two up to 256

@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read_write> y: array<act>;
@group(0) @binding(2) var<uniform> symbols: Symbols;

var<workgroup> parts: array<f32, 256>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let line = (group.y * 65535u + group.x) * (256u / TEAM) + lane / TEAM;
    let own = lane % TEAM;
    let known = min(line, LINES - 1u);
    let first = known / STEP * STEP * K + known % STEP;
    var most = f32(x[first]);
    for (var j = own; j < K; j += TEAM) {
        most = larger(most, f32(x[first + j * STEP]));
    }
    parts[lane] = most;
    workgroupBarrier();
    for (var step = TEAM / 2u; step > 0u; step >>= 1u) {
        if own < step {
            parts[lane] = larger(parts[lane], parts[lane + step]);
        }
        workgroupBarrier();
    }
    most = parts[lane / TEAM * TEAM];
    workgroupBarrier();
    var sum = 0.0;
    for (var j = own; j < K; j += TEAM) {
        sum += exp_accurate(f32(x[first + j * STEP]) - most);
    }
    parts[lane] = sum;
    workgroupBarrier();
    for (var step = TEAM / 2u; step > 0u; step >>= 1u) {
        if own < step {
            parts[lane] += parts[lane + step];
        }
        workgroupBarrier();
    }
    sum = parts[lane / TEAM * TEAM];
    if line < LINES {
        for (var j = own; j < K; j += TEAM) {
            let v = f32(x[first + j * STEP]) - most;
            if LOGARITHM == 1u {
                y[first + j * STEP] = to_act(v - ln_accurate(sum));
            } else {
                y[first + j * STEP] = to_act(exp_accurate(v) / sum);
            }
        }
    }
}
