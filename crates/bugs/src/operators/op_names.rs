//! What the names of operators tell about their kernels.

/// The operator of a kernel's name, such as `linear` of `linear/portable`.
pub fn op_of(kernel: &str) -> &str {
    kernel.split('/').next().unwrap_or(kernel)
}

/// Whether an operator does nothing but keep rows for later steps: faults of it are faults of a state.
pub fn appends(op: &str) -> bool {
    matches!(op, "append" | "rope_append" | "rope_paged_append")
}

/// Whether an operator writes to a cache.
pub fn writes_cache(op: &str) -> bool {
    appends(op) || op == "rope_append_attention"
}
