//! What stands in front of a kernel: the dialect's macros, and those scalar functions of WGSL that the text uses.

use crate::options::Dialect;

/// Macros and types of CUDA C++ under the names that the writer uses.
const CUDA: &str = include_str!("prelude/cuda.h");
/// The same for HIP.
const HIP: &str = include_str!("prelude/hip.h");
/// The same for OpenCL C 1.2.
const OPENCL: &str = include_str!("prelude/opencl.h");

/// Functions in an order in which each uses earlier ones only, a blank line between two.
const FUNCTIONS: &str = include_str!("prelude/functions.h");

/// The macros of a dialect.
pub fn prelude(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Cuda => CUDA,
        Dialect::Hip => HIP,
        Dialect::OpenCl => OPENCL,
    }
}

/// The scalar functions that these texts need.
pub fn used_by(texts: &[&str]) -> String {
    let all: Vec<&str> = FUNCTIONS.trim().split("\n\n").collect();
    let mut used: Vec<&str> = Vec::new();
    // From the last on, so that a function that only another one calls is found behind its caller.
    for function in all.into_iter().rev() {
        let call = format!("{}(", name(function));
        if texts.iter().chain(&used).any(|text| calls(text, &call)) {
            used.push(function);
        }
    }
    // Back in the order of the file, in which callees come first.
    used.iter().rev().map(|function| format!("{function}\n")).collect()
}

/// Whether a text holds this call, not the end of a longer name.
fn calls(text: &str, call: &str) -> bool {
    text.match_indices(call)
        .any(|(at, _)| !text[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_'))
}

/// The name of a function: what stands before the first parenthesis.
fn name(function: &str) -> &str {
    let front = function.split('(').next().unwrap_or_default();
    front.rsplit(' ').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_called_is_included() {
        assert_eq!(used_by(&["x = my_min_u(1);"]), "");
        let text = used_by(&["x = extract_u(1, 2, 3);"]);
        assert!(text.contains("DEV u32 extract_u(") && text.contains("DEV u32 min_u("), "{text}");
        assert!(!text.contains("extract_i("), "{text}");
    }
}
