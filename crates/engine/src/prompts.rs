//! Prompts that come with the library, for commands that are given none.

/// Four short beginnings of English prose, of 8 to 14 tokens each with the bundled models' tokenizer.
pub fn bundled_prompts() -> Vec<&'static str> {
    include_str!("prompts.txt").lines().collect()
}

/// A long one, of which prompts of a given number of tokens are cut: the beginning of "Alice's Adventures in Wonderland".
pub fn bundled_text() -> &'static str {
    include_str!("long_prompt.txt")
}

/// A small picture, as PNG, for models that see: a house on a meadow, in evening light.
pub fn bundled_image() -> &'static [u8] {
    include_bytes!("house.png")
}
