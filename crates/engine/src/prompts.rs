//! Prompts that come with the library, for commands that are given none.

/// Four short beginnings of English prose, of 8 to 14 tokens each with the bundled models' tokenizer.
pub fn bundled_prompts() -> Vec<&'static str> {
    include_str!("prompts.txt").lines().collect()
}
