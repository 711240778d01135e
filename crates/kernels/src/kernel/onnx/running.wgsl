// Running results along an axis that an input names: an invocation treats a line from its first element on.
override COUNT: u32; // elements of x
override RANK: u32;
override REVERSE: u32; // whether lines begin at their end
override EXCLUSIVE: u32; // whether an element's own number is left out

@group(0) @binding(0) var<storage, read> x: array<num>;
@group(0) @binding(1) var<storage, read> axis: array<u32>;
@group(0) @binding(2) var<storage, read> sizes: array<u32>; // of x
@group(0) @binding(3) var<storage, read_write> y: array<num>;
@group(0) @binding(4) var<uniform> symbols: Symbols;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    var d = narrowed(axis[0], axis[INT_WORDS - 1u]);
    d = clamp(select(d, d + i32(RANK), d < 0), 0, i32(RANK) - 1);
    let k = sizes[d];
    var step = 1u;
    for (var inner = u32(d) + 1u; inner < RANK; inner++) {
        step *= sizes[inner];
    }
    for (var i = 0u; i < 4u; i++) {
        let line = group.x * 1024u + i * 256u + lane;
        if line >= COUNT / k {
            return;
        }
        let origin = line / step * k * step + line % step;
        var total = first();
        for (var j = 0u; j < k; j++) {
            let at = origin + select(j, k - 1u - j, REVERSE == 1u) * step;
            let next = formula(total, val(x[at]));
            if EXCLUSIVE == 1u {
                y[at] = to_num(total);
            } else {
                y[at] = to_num(next);
            }
            total = next;
        }
    }
}
