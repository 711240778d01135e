// y = columns FIRST to FIRST + COUNT - 1 of every GROUP columns of x.
override FROM: u32; // row length of x
override TO: u32; // row length of y
override GROUP: u32;
override FIRST: u32;
override COUNT: u32;

@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read_write> y: array<act>;
@group(0) @binding(2) var<uniform> symbols: Symbols;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let count = row_count(symbols) * TO;
    for (var i = 0u; i < 4u; i++) {
        let e = group.x * 1024u + i * 256u + lane;
        if e < count {
            let column = e % TO;
            y[e] = x[e / TO * FROM + column / COUNT * GROUP + FIRST + column % COUNT];
        }
    }
}
