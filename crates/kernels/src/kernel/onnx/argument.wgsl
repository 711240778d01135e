// y = the index of the first element along an axis of x, the last of equal ones if LAST. A team of TEAM lanes treats one line.
override LINES: u32;
override K: u32; // elements of a line
override STEP: u32; // elements of x from one of a line to the next
override LAST: u32;
override TEAM: u32 = 256u; // a power of two up to 256

@group(0) @binding(0) var<storage, read> x: array<num>;
@group(0) @binding(1) var<storage, read_write> y: array<vec2<u32>>;
@group(0) @binding(2) var<uniform> symbols: Symbols;

var<workgroup> values: array<val, 256>;
var<workgroup> places: array<u32, 256>;

fn better(a: val, i: u32, b: val, j: u32) -> bool {
    return ahead(a, b) || (!ahead(b, a) && select(j > i, i > j, LAST == 1u));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let line = (group.y * 65535u + group.x) * (256u / TEAM) + lane / TEAM;
    let own = lane % TEAM;
    let within = min(line, LINES - 1u);
    let origin = within / STEP * K * STEP + within % STEP;
    // A lane beyond the elements takes the last one again.
    var at = min(own, K - 1u);
    var v = val(x[origin + at * STEP]);
    for (var k = own + TEAM; k < K; k += TEAM) {
        let other = val(x[origin + k * STEP]);
        if better(other, k, v, at) {
            v = other;
            at = k;
        }
    }
    values[lane] = v;
    places[lane] = at;
    workgroupBarrier();
    for (var step = TEAM / 2u; step > 0u; step >>= 1u) {
        if own < step && better(values[lane + step], places[lane + step], values[lane], places[lane]) {
            values[lane] = values[lane + step];
            places[lane] = places[lane + step];
        }
        workgroupBarrier();
    }
    if own == 0u && line < LINES {
        y[line] = vec2<u32>(places[lane], 0u);
    }
}
