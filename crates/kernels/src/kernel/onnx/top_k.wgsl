// The FIRST elements of each line along an axis of x in an order, of equal ones that of the lowest index, and their indices. A
// workgroup treats a line: it looks for the next element FIRST times.
override K: u32; // elements of a line
override STEP: u32; // elements of x from one of a line to the next
override LINES: u32;
override FIRST: u32;

@group(0) @binding(0) var<storage, read> x: array<num>;
@group(0) @binding(1) var<storage, read_write> y: array<num>;
@group(0) @binding(2) var<storage, read_write> indices: array<vec2<u32>>;
@group(0) @binding(3) var<uniform> symbols: Symbols;

const NONE = 0xffffffffu;

var<workgroup> places: array<u32, 256>;

// Whether element i of a line comes before element j; none comes before any.
fn before(origin: u32, i: u32, j: u32) -> bool {
    if i == NONE || j == NONE {
        return i != NONE;
    }
    let a = val(x[origin + i * STEP]);
    let b = val(x[origin + j * STEP]);
    return ahead(a, b) || (!ahead(b, a) && i < j);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let line = group.y * 65535u + group.x;
    let within = min(line, LINES - 1u);
    let origin = within / STEP * K * STEP + within % STEP;
    let target_origin = within / STEP * FIRST * STEP + within % STEP;
    var last = NONE;
    for (var i = 0u; i < FIRST; i++) {
        var found = NONE;
        for (var k = lane; k < K; k += 256u) {
            if (i == 0u || before(origin, last, k)) && before(origin, k, found) {
                found = k;
            }
        }
        places[lane] = found;
        workgroupBarrier();
        for (var step = 128u; step > 0u; step >>= 1u) {
            if lane < step && before(origin, places[lane + step], places[lane]) {
                places[lane] = places[lane + step];
            }
            workgroupBarrier();
        }
        last = places[0];
        workgroupBarrier();
        if lane == 0u && line < LINES {
            y[target_origin + i * STEP] = to_num(val(x[origin + last * STEP]));
            indices[target_origin + i * STEP] = vec2<u32>(last, 0u);
        }
    }
}
