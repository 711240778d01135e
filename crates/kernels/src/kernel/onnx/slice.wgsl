// Source: element i of y along an axis is element start + i * step of x, the start brought into x.
override HAS_STEPS: u32; // 0: steps of 1

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read> starts: array<u32>;
@group(0) @binding(2) var<storage, read> axes: array<u32>; // not read unless HAS_AXES
@group(0) @binding(3) var<storage, read> steps: array<u32>; // not read unless HAS_STEPS
@group(0) @binding(4) var<storage, read> sizes: array<u32>; // of y; of x; strides of x
@group(0) @binding(5) var<storage, read_write> y: array<u32>;
@group(0) @binding(6) var<uniform> symbols: Symbols;

fn fill(half: u32) -> u32 {
    return 0u;
}

// Where element i of y along dimension d is in x.
fn along(d: u32, i: u32) -> u32 {
    let size = i32(sizes[RANK + d]);
    let slot = slot_of(d);
    if slot == AXES {
        return i;
    }
    let at = slot * INT_WORDS;
    var step = 1;
    if HAS_STEPS == 1u {
        step = narrowed(steps[at], steps[at + INT_WORDS - 1u]);
    }
    var start = narrowed(starts[at], starts[at + INT_WORDS - 1u]);
    start = select(start, start + size, start < 0);
    start = clamp(start, 0, select(size, size - 1, step < 0));
    return u32(clamp(start + i32(i) * step, 0, size - 1));
}

fn source(e: u32) -> u32 {
    var at = 0u;
    var rest = e;
    for (var d = RANK; d > 0u; d--) {
        at += along(d - 1u, rest % sizes[d - 1u]) * sizes[2u * RANK + d - 1u];
        rest /= sizes[d - 1u];
    }
    return at;
}
