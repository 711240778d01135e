//! Developer tasks: `cargo xtask tidy`, `cargo xtask test`. Nothing here ships to users.
fn main() {}
