// The place in x of index e over dimensions `first` to `end` - 1 of those whose sizes and strides stand in `sizes`.
override DIMS: u32; // dimensions of x

fn place(e: u32, first: u32, end: u32) -> u32 {
    var at = 0u;
    var rest = e;
    for (var d = end; d > first; d--) {
        at += rest % sizes[d - 1u] * sizes[DIMS + d - 1u];
        rest /= sizes[d - 1u];
    }
    return at;
}

