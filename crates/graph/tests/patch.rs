//! Patches of graphs: what they refuse, and what becomes of names and uses.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{f32s, parse};
use tapml_graph::op::{Add, Silu};
use tapml_graph::rewrite::Patch;
use tapml_graph::{Builder, ErrorKind, Graph, NodeId};

fn small() -> Graph {
    parse(
        "input x: f32[n,8]\na: f32[n,8] = silu(x)\nb: f32[n,8] = silu(a)\nc: f32[n,8] = add(a, b)\noutput c = c\n",
    )
}

/// The error of applying a patch that `edit` fills.
fn patch_error(graph: &Graph, edit: impl FnOnce(&mut Patch<'_>) -> tapml_graph::Result<()>) -> String {
    let mut patch = Patch::new(graph);
    let error = edit(&mut patch).and_then(|()| patch.apply().map(drop)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Bug);
    error.to_string()
}

#[test]
fn patches_refuse_what_would_dangle_or_change_type() {
    let graph = small();
    let id = |name: &str| graph.find_value(name).unwrap();
    let text = patch_error(&graph, |p| p.replace(&[NodeId(0)]));
    assert!(text.contains("`a` is removed but still used by node `b`"), "{text}");
    let text = patch_error(&graph, |p| p.replace(&[NodeId(2)]));
    assert!(text.contains("`c` is removed but still used by output `c`"), "{text}");
    let text = patch_error(&graph, |p| {
        p.replace(&[NodeId(1)])?;
        let wide = p.tap(id("x"));
        let new = p.wire("new", tapml_graph::op::LastRow {}, &[wide])?;
        p.shunt(id("b"), new[0])
    });
    assert!(text.contains("`b` is f32[n,8], its replacement is f32[1,8]"), "{text}");
    let text = patch_error(&graph, |p| {
        p.replace(&[NodeId(1)])?;
        p.shunt(id("a"), p.tap(id("x")))
    });
    assert!(text.contains("`a` is replaced, its node is not"), "{text}");
    let text = patch_error(&graph, |p| {
        p.replace(&[NodeId(1)])?;
        p.replace(&[NodeId(1)])
    });
    assert!(text.contains("node `b` is replaced twice"), "{text}");
    let text = patch_error(&graph, |p| {
        p.replace(&[NodeId(0)])?;
        let new = p.wire("new", Silu {}, &[p.tap(id("b"))])?;
        p.shunt(id("a"), new[0])
    });
    assert!(text.contains("in a circle"), "{text}");
    let text = patch_error(&graph, |p| {
        p.replace(&[NodeId(0), NodeId(1)])?;
        p.shunt(id("a"), p.tap(id("b")))?;
        p.shunt(id("b"), p.tap(id("a")))
    });
    assert!(text.contains("in a circle"), "{text}");
    let text = patch_error(&graph, |p| {
        p.replace(&[NodeId(1)])?;
        let new = p.wire("new", Add {}, &[p.tap(id("x"))]);
        new.map(drop)
    });
    assert!(text.contains("new node `new`: add: expected 2 inputs, found 1"), "{text}");
    let text = patch_error(&graph, |p| p.replace(&[NodeId(9)]));
    assert!(text.contains("no node 9"), "{text}");
}

#[test]
fn a_patch_shunts_names_and_uses() {
    let graph = small();
    let id = |name: &str| graph.find_value(name).unwrap();
    let mut patch = Patch::new(&graph);
    patch.replace(&[NodeId(1)]).unwrap();
    patch.shunt(id("b"), patch.tap(id("x"))).unwrap();
    let (patched, edits) = patch.apply().unwrap();
    assert_eq!(
        patched.to_text(),
        "graph g\ninput x: f32[n,8]\na: f32[n,8] = silu(x)\nc: f32[n,8] = add(a, x)\noutput c = c\n"
    );
    assert_eq!((edits[0].before.as_slice(), edits[0].after.len()), (&["b".to_string()][..], 0));
    assert_eq!(Patch::new(&graph).apply().unwrap().0, graph);
}

#[test]
fn a_new_node_may_use_what_is_given_later() {
    let graph = parse(
        "input x: f32[n,8]\na: f32[n,8] = silu(x)\nb: f32[n,8] = silu(a)\ninput late: f32[n,8]\noutput b = b\n",
    );
    let id = |name: &str| graph.find_value(name).unwrap();
    let mut patch = Patch::new(&graph);
    patch.replace(&[NodeId(0)]).unwrap();
    let new = patch.wire("a", Add {}, &[patch.tap(id("x")), patch.tap(id("late"))]).unwrap();
    patch.shunt(id("a"), new[0]).unwrap();
    let patched = patch.apply().unwrap().0;
    let text = "input x: f32[n,8]\ninput late: f32[n,8]\na: f32[n,8] = add(x, late)\nb: f32[n,8] = silu(a)\noutput b = b\n";
    assert_eq!(patched, parse(text));
}

#[test]
fn a_name_clash_is_refused() {
    let mut b = Builder::new("g");
    let x = b.input("x", f32s("n,8")).unwrap();
    let y = b.node("y", Silu {}, &[x]).unwrap();
    let z = b.node("z", Silu {}, &[y]).unwrap();
    b.output("z", z);
    let graph = b.finish().unwrap();
    let mut patch = Patch::new(&graph);
    patch.replace(&[NodeId(1)]).unwrap();
    let new = patch.wire("y", Silu {}, &[patch.tap(y)]).unwrap();
    patch.shunt(z, new[0]).unwrap();
    assert!(patch.apply().unwrap_err().to_string().contains("two nodes are named `y`"));
}
