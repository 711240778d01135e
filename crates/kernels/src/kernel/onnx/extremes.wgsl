// The least and the greatest element of x, and 0, of what each workgroup treats. What is not a number is passed over.
override COUNT: u32; // elements
override GROUPS: u32;

@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read_write> y: array<vec2<f32>>;
@group(0) @binding(2) var<uniform> symbols: Symbols;

var<workgroup> parts: array<vec2<f32>, 256>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    var found = vec2<f32>();
    for (var e = group.x * 256u + lane; e < COUNT; e += GROUPS * 256u) {
        let v = f32(x[e]);
        found = vec2<f32>(select(found.x, v, v < found.x), select(found.y, v, v > found.y));
    }
    parts[lane] = found;
    workgroupBarrier();
    for (var step = 128u; step > 0u; step >>= 1u) {
        if lane < step {
            let other = parts[lane + step];
            parts[lane] = vec2<f32>(min(parts[lane].x, other.x), max(parts[lane].y, other.y));
        }
        workgroupBarrier();
    }
    if lane == 0u {
        y[group.x] = parts[0];
    }
}
