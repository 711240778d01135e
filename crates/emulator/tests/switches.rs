//! A `break` that empties a case of a `switch`: what follows it in the case runs for nobody.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Arg, Run};

#[test]
fn statements_after_a_break_of_all_invocations_run_for_none() {
    let text = "
@group(0) @binding(0) var<storage, read_write> words: array<u32>;
@compute @workgroup_size(32)
fn main(@builtin(local_invocation_index) lid: u32) {
    var word = words[lid];
    var limit = vec3<u32>(word, lid, 3u);
    switch word % 5u {
        case 0u: {
            if limit.z < 9u { break; }
            var x = word;
            while x < 9u { x++; }
            word = x;
        }
        default: { }
    }
    words[lid] = word;
}";
    let words: Vec<u32> = (0..32).map(|i| i * 7 % 100).collect();
    assert_eq!(Run::new(text, 32, vec![Arg::ReadWrite(words.clone())]).output(0), words);
}
