// Updates of y along an axis: an invocation treats all that lie in one line, in order. One outside y is left out.
override LINES: u32; // of updates along the axis
override K: u32; // updates of a line
override DIMS: u32; // the other dimensions
override AXIS_SIZE: u32; // elements of y along the axis
override AXIS_STEP: u32; // elements of y from one along the axis to the next
override UPDATE_STEP: u32; // of updates

@group(0) @binding(0) var<storage, read> indices: array<u32>;
@group(0) @binding(1) var<storage, read> updates: array<num>;
@group(0) @binding(2) var<storage, read> sizes: array<u32>; // of the other dimensions of updates; their strides there; those in y
@group(0) @binding(3) var<storage, read_write> y: array<num>;
@group(0) @binding(4) var<uniform> symbols: Symbols;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    for (var i = 0u; i < 4u; i++) {
        let line = group.x * 1024u + i * 256u + lane;
        if line >= LINES {
            return;
        }
        var source = 0u;
        var to = 0u;
        var rest = line;
        for (var d = DIMS; d > 0u; d--) {
            source += rest % sizes[d - 1u] * sizes[DIMS + d - 1u];
            to += rest % sizes[d - 1u] * sizes[2u * DIMS + d - 1u];
            rest /= sizes[d - 1u];
        }
        for (var k = 0u; k < K; k++) {
            let update = source + k * UPDATE_STEP;
            var index = narrowed(indices[update * INT_WORDS], indices[update * INT_WORDS + INT_WORDS - 1u]);
            index = select(index, index + i32(AXIS_SIZE), index < 0);
            if index >= 0 && index < i32(AXIS_SIZE) {
                let at = to + u32(index) * AXIS_STEP;
                y[at] = together(y[at], updates[update]);
            }
        }
    }
}
