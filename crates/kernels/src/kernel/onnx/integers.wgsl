// Integers of inputs, of one word or of two, within the range of one.
override INT_WORDS: u32 = 2u; // words of an integer

fn narrowed(low: u32, high: u32) -> i32 {
    let fits = high == select(0u, 0xffffffffu, low >= 0x80000000u);
    return select(select(2147483647, -2147483647, high >= 0x80000000u), i32(low), fits || INT_WORDS == 1u);
}
