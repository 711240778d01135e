// y = what the operands come to, taken together from the first on, each stretched to the sizes of y. The bindings of the operands,
// `total` and `finish` stand in front.
override COUNT: u32; // elements of y
override RANK: u32;

// The element of an operand that meets element e of y.
fn meeting(e: u32, operand: u32) -> u32 {
    var at = 0u;
    var rest = e;
    for (var d = RANK; d > 0u; d--) {
        at += rest % sizes[d - 1u] * sizes[(operand + 1u) * RANK + d - 1u];
        rest /= sizes[d - 1u];
    }
    return at;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    for (var i = 0u; i < 4u; i++) {
        let e = group.x * 1024u + i * 256u + lane;
        if e < COUNT {
            y[e] = to_num(finish(total(e)));
        }
    }
}
