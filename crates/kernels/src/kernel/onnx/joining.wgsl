// Runs of cells: run r of them begins at r * X_STEP + X_FROM in x and at r * Y_STEP + Y_FROM in y.
override CELLS: u32; // of all runs
override RUN: u32;
override X_STEP: u32;
override X_FROM: u32;
override Y_STEP: u32;
override Y_FROM: u32;

@group(0) @binding(0) var<storage, read> x: array<cell>;
@group(0) @binding(1) var<storage, read_write> y: array<cell>;
@group(0) @binding(2) var<uniform> symbols: Symbols;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    for (var i = 0u; i < 4u; i++) {
        let e = group.x * 1024u + i * 256u + lane;
        if e < CELLS {
            let run = e / RUN;
            y[run * Y_STEP + Y_FROM + e % RUN] = x[run * X_STEP + X_FROM + e % RUN];
        }
    }
}
