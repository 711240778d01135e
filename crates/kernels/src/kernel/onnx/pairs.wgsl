
// y = formula(a, b), element by element, each operand stretched to the sizes of y.
override COUNT: u32; // elements of y
override RANK: u32;
override A_FORM: u32; // 0: as y, 1: one element, 2: by strides
override B_FORM: u32; // as A_FORM

@group(0) @binding(0) var<storage, read> a: array<num>;
@group(0) @binding(1) var<storage, read> b: array<num>;
@group(0) @binding(2) var<storage, read> sizes: array<u32>; // of y; strides of a; strides of b
@group(0) @binding(3) var<storage, read_write> y: array<num>;
@group(0) @binding(4) var<uniform> symbols: Symbols;

// The element of an operand that meets element e of y.
fn meeting(e: u32, form: u32, strides: u32) -> u32 {
    if form == 0u {
        return e;
    }
    var at = 0u;
    if form == 2u {
        var rest = e;
        for (var d = RANK; d > 0u; d--) {
            at += rest % sizes[d - 1u] * sizes[strides + d - 1u];
            rest /= sizes[d - 1u];
        }
    }
    return at;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    for (var i = 0u; i < 4u; i++) {
        let e = group.x * 1024u + i * 256u + lane;
        if e < COUNT {
            let v = val(a[meeting(e, A_FORM, RANK)]);
            y[e] = to_num(formula(v, val(b[meeting(e, B_FORM, 2u * RANK)])));
        }
    }
}

