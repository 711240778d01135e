// Which scale is that of an element: one for all, one for each index of an axis, or one for each block along it.
override FORM: u32 = 0u; // 0: one, 1: by index, 2: by block
override SIZE: u32 = 1u; // elements along the axis
override INNER: u32 = 1u; // elements behind it
override BLOCK: u32 = 1u; // elements of a block

fn scale_of(e: u32) -> u32 {
    let index = e / INNER % SIZE;
    if FORM == 2u {
        let blocks = (SIZE + BLOCK - 1u) / BLOCK;
        return (e / INNER / SIZE * blocks + index / BLOCK) * INNER + e % INNER;
    }
    return select(0u, index, FORM == 1u);
}

