// Integers for some axes: those that an input names, from the end if they are negative, or the first ones.
override RANK: u32;
override AXES: u32; // how many there are
override HAS_AXES: u32; // 0: the first AXES dimensions

// Which of them is for dimension d; AXES if none is.
fn slot_of(d: u32) -> u32 {
    for (var k = 0u; k < AXES; k++) {
        var axis = i32(k);
        if HAS_AXES == 1u {
            axis = narrowed(axes[k * INT_WORDS], axes[k * INT_WORDS + INT_WORDS - 1u]);
            axis = select(axis, axis + i32(RANK), axis < 0);
        }
        if u32(axis) == d {
            return k;
        }
    }
    return AXES;
}

