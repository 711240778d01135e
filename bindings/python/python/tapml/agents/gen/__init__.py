"""Code that `cargo xtask wire` generates."""
