//! The text form: exact round trips, readable shape, errors with a place, hostile input.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{random_graph, steps, toy_llama};
use proptest::prelude::*;
use tapml_graph::op::OPS;
use tapml_graph::{ErrorKind, Graph, NodeId, TensorType};

#[test]
fn the_documented_example_is_exact() {
    let docs = include_str!("../src/text/mod.rs").lines();
    let block = docs.skip_while(|l| *l != "//! ```text").skip(1).take_while(|l| *l != "//! ```");
    let text: String = block.map(|l| format!("{}\n", l.trim_start_matches("//! "))).collect();
    assert_eq!(Graph::parse(&text).unwrap().to_text(), text);
    assert_eq!(text.lines().count(), 10);
}

#[test]
fn odd_names_are_quoted_and_layout_is_free() {
    let text = "\
graph g
input a: f32[n,320]
input \"odd name\": f32[n,320]
weight w: bf16[320]
sum: f32[n,320], y: f32[n,320] = add_rms_norm(a, \"odd name\", w) {\"eps\":0.00001} as norm
state cache: f32[p,320] -> all
all: f32[n+p,320] = append(cache, y)
\"input\": f32[n,320] = silu(sum) as act
output \"\" = y
output \"two\\nlines\" = input
";
    let text = text.replace("= input\n", "= \"input\"\n");
    let graph = Graph::parse(&text).unwrap();
    assert_eq!(graph.to_text(), text);
    assert_eq!(graph.find_node("act"), Some(NodeId(2)));
    let spaced = text.replace('\n', "  # comment\r\n\n").replace(", ", " ,\t");
    assert_eq!(Graph::parse(&spaced).unwrap(), graph);
}

#[test]
fn the_toy_llama_and_every_sample_round_trip() {
    let graph = toy_llama(2).unwrap();
    assert_eq!(Graph::parse(&graph.to_text()).unwrap(), graph);
    assert_eq!(graph.to_text().lines().next(), Some("graph toy_llama"));
    for op in OPS {
        for sample in (op.samples)() {
            let graph = sample.graph().unwrap();
            assert_eq!(Graph::parse(&graph.to_text()).unwrap(), graph, "{} {}", op.name, sample.name);
        }
    }
    let json = serde_json::to_string(&graph).unwrap();
    assert_eq!(serde_json::from_str::<Graph>(&json).unwrap(), graph);
}

/// Line, column and message of the error that this body gives behind the line `graph g`.
fn fails(body: &str) -> (String, String, String) {
    let error = Graph::parse(&format!("graph g\n{body}")).unwrap_err();
    let detail = |name: &str| error.detail(name).unwrap_or("-").to_string();
    (detail("line"), detail("column"), error.to_string())
}

#[test]
fn syntax_errors_name_line_column_expected_and_found() {
    let cases = [
        ("input x f32[n]", "2", "9", "expected `:`, found `f32[n]`"),
        ("input x: f33[n]", "2", "10", "expected a type such as `f32[n,320]`, found `f33[n]`"),
        ("input x: f32[n,]", "2", "16", "expected a size such as `n`, `320*n+1` or `40`, found `]`"),
        ("input x: f32[n", "2", "15", "expected `,` or `]`, found the end of the line"),
        ("input x: f32[n] y", "2", "17", "expected the end of the line, found `y`"),
        ("input é\u{301}: f32[n]", "2", "7", "expected a value's name, found `é́:`"),
        ("input \"é\u{301}: f32[n]", "2", "7", "expected a value's name as a JSON string"),
        ("input as: f32[n]", "2", "7", "expected a value's name, found `as:`"),
        (
            "input x: f32[n]\n\nweight x: f32[4]",
            "4",
            "8",
            "expected a new name, found a second value named `x`",
        ),
        (
            "input x: f32[n,4]\ny: f32[n,4] = silu(z)",
            "3",
            "20",
            "expected a value defined above this line, found `z`",
        ),
        (
            "input x: f32[n,4]\ny: f32[n,4] = silu(x",
            "3",
            "21",
            "expected `,` or `)`, found the end of the line",
        ),
        ("input x: f32[n,4]\ny: f32[n,4] = swish(x)", "3", "15", "unknown operator `swish`"),
        (
            "input x: f32[n,4]\ny: f32[n,4] = silu(x) {\"a\":}",
            "3",
            "23",
            "expected attributes as a JSON object",
        ),
        (
            "input x: f32[n,4]\ny: f32[n,4] = silu(x) {\"a\":1}",
            "3",
            "15",
            "attributes of `silu`: unknown field `a`",
        ),
        ("input x: f32[n,4]\ny: f32[n,4] = silu(x) as", "3", "25", "expected the node's name, found the end"),
        (
            "a: f32[n,4], b: f32[n,4] = add_rms_norm() {\"eps\":1}",
            "2",
            "52",
            "expected `as NAME`, which a node",
        ),
        ("state s: f32[p,4]", "2", "18", "expected `->`, found the end of the line"),
        ("state s: f32[p,4] -> t", "2", "22", "expected a value defined in this graph, found `t`"),
        ("output y = z", "2", "12", "expected a value defined in this graph, found `z`"),
        ("graph h", "2", "1", "expected `input`, `weight`, `state`, `output` or a node, found `graph`"),
    ];
    for (body, line, column, message) in cases {
        let found = fails(body);
        assert_eq!((found.0.as_str(), found.1.as_str()), (line, column), "{body}: {}", found.2);
        assert!(found.2.contains(message), "{body}: {}", found.2);
        assert!(found.2.starts_with(&format!("line {line}, column {column}: ")), "{}", found.2);
    }
    assert!(Graph::parse("").unwrap_err().to_string().contains("expected `graph NAME`"));
    let unknown = Graph::parse("graph g\nx: f32[] = nothing()").unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::Unsupported);
    assert!(unknown.hint().unwrap().contains("rms_norm"));
}

#[test]
fn parsed_graphs_are_verified() {
    let (_, _, message) = fails("input x: f32[n,4]\ny: f32[n,5] = silu(x)\nweight w: f32[n]");
    assert!(message.starts_with("2 errors in graph `g`"), "{message}");
    assert!(message.contains("node `y`: `y` is f32[n,5], silu gives f32[n,4]"), "{message}");
    assert!(message.contains("weight `w` has a symbolic size"), "{message}");
}

#[test]
fn hostile_text_is_refused_within_bounds() {
    let long = "x".repeat(2000);
    let many = ["x"; 300].join(", ");
    let cases = [
        (format!("input {long}: f32[n]"), "at most 1024 bytes"),
        (format!("input x: f32[{}]", ["1"; 9].join(",")), "at most 8 sizes"),
        (format!("input x: f32[{}]", ["n"; 900].join("+")), "at most 256 bytes"),
        (format!("input x: f32[n,4]\ny: f32[n,4] = silu({many})"), "at most 256 inputs"),
        ("weight x: f32[18446744073709551615,8]".into(), "exceeds the address space"),
        ("weight x: f32[18446744073709551616]".into(), "expected a size"),
        (format!("x: f32[n,4] = silu() {}", "[".repeat(100_000)), "found `[["),
        (format!("x: f32[n,4] = silu() {{\"a\":{}", "[".repeat(100_000)), "expected attributes"),
        ("x: f32[n,4] = attention() {\"heads\":4294967296}".into(), "attributes of `attention`"),
        (
            "input x: f32[n,0]\ny: f32[n,0] = rope(x, x) {\"head_dim\":0,\"rotary_dim\":0}".into(),
            "`rotary_dim` 0",
        ),
        ("input x: f32[n,4]\nw: f32[n,4] = rms_norm(x, x) {\"eps\":1e99}".into(), "attributes of `rms_norm`"),
    ];
    for (body, message) in cases {
        let found = fails(&body).2;
        assert!(found.contains(message), "{message}: {}", &found[..found.len().min(300)]);
        assert!(found.len() < 2000, "an error of {} bytes", found.len());
    }
    assert!(Graph::parse(&" ".repeat(17 << 20)).unwrap_err().to_string().contains("at most 16777216"));
    let values: String = (0..300_000).map(|i| format!("input x{i}: u8[]\n")).collect();
    assert!(fails(&values).2.contains("more than 262144 values"));
}

#[test]
fn types_read_alone() {
    for text in ["f32[n,320]", "u8[]", "bf16[2*n+p+1,4]"] {
        assert_eq!(text.parse::<TensorType>().unwrap().to_string(), text);
    }
    for bad in ["", "f32", "f32[n", "f32[n]x", "f31[n]", "[n]"] {
        assert!(bad.parse::<TensorType>().is_err(), "{bad}");
    }
}

/// Replaces, inserts or removes a piece of a text at a character boundary.
fn mutate(text: &str, at: usize, cut: usize, insert: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let at = at % (chars.len() + 1);
    let end = (at + cut).min(chars.len());
    chars[..at].iter().copied().chain(insert.chars()).chain(chars[end..].iter().copied()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_graphs_round_trip(steps in steps()) {
        let graph = random_graph(&steps);
        let text = graph.to_text();
        let again = Graph::parse(&text).map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
        prop_assert_eq!(&again, &graph);
        prop_assert_eq!(again.to_text(), text);
    }

    #[test]
    fn mutated_text_never_panics_and_what_parses_round_trips(
        steps in steps(),
        changes in prop::collection::vec((any::<usize>(), 0..6usize, prop_oneof![
            "[\\[\\]{}(),:=#\"\\\\ +*0-9a-z.>-]{0,3}",
            any::<char>().prop_map(String::from),
            "(input|weight|state|output|as|graph|n\\+p|f32\\[|->|\n)",
            "([0-9]{18,22}|1e999|NaN|null|\\{\\}|\\[\\[)",
        ]), 1..4),
    ) {
        let mut text = random_graph(&steps).to_text();
        for (at, cut, insert) in changes {
            text = mutate(&text, at, cut, &insert);
        }
        if let Ok(graph) = Graph::parse(&text) {
            prop_assert_eq!(Graph::parse(&graph.to_text()).unwrap(), graph);
        }
    }

    #[test]
    fn any_text_never_panics(body in any::<String>(), lines in prop::collection::vec("[ -~]{0,40}", 0..5)) {
        let _ = Graph::parse(&body);
        let _ = Graph::parse(&format!("graph g\n{}\n{body}", lines.join("\n")));
    }
}
