// y = x within two limits, each of which may be missing. If low > high, all is high.
override COUNT: u32; // elements
override HAS_LOW: u32; // 0: none, 1: an input, 2: a constant
override HAS_HIGH: u32; // as HAS_LOW
override LOW: f32 = 0.0;
override HIGH: f32 = 0.0;

@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read> low: array<act>; // not read unless HAS_LOW is 1
@group(0) @binding(2) var<storage, read> high: array<act>; // not read unless HAS_HIGH is 1
@group(0) @binding(3) var<storage, read_write> y: array<act>;
@group(0) @binding(4) var<uniform> symbols: Symbols;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    var least = LOW;
    if HAS_LOW == 1u {
        least = f32(low[0]);
    }
    var most = HIGH;
    if HAS_HIGH == 1u {
        most = f32(high[0]);
    }
    for (var i = 0u; i < 4u; i++) {
        let e = group.x * 1024u + i * 256u + lane;
        if e < COUNT {
            var v = f32(x[e]);
            v = select(v, least, HAS_LOW != 0u && v < least);
            v = select(v, most, HAS_HIGH != 0u && v > most);
            y[e] = to_act(v);
        }
    }
}
