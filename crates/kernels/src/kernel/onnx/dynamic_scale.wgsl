// The scale and the zero point with which the least and the greatest element, and 0, lie within 8 bits without a sign.
override GROUPS: u32; // parts

@group(0) @binding(0) var<storage, read> parts: array<vec2<f32>>; // the least and the greatest of each
@group(0) @binding(1) var<storage, read_write> scale: array<f32>;
@group(0) @binding(2) var<storage, read_write> zero: array<u32>;
@group(0) @binding(3) var<uniform> symbols: Symbols;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    if lane > 0u {
        return;
    }
    var found = vec2<f32>();
    for (var i = 0u; i < GROUPS; i++) {
        found = vec2<f32>(min(found.x, parts[i].x), max(found.y, parts[i].y));
    }
    let size = (found.y - found.x) / 255.0;
    scale[0] = size;
    zero[0] = u32(rounded(-found.x / size, 0));
}
