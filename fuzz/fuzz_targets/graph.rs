//! The text form of graphs: what is read is printed as it can be read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tapml_graph::Graph;

fuzz_target!(|text: &str| {
    let Ok(graph) = Graph::parse(text) else { return };
    let again = Graph::parse(&graph.to_text()).expect("what was printed can be read");
    assert_eq!(graph.to_text(), again.to_text());
});
