//! Walking the syntax tree of CUDA C++.

use tree_sitter::Node;

/// All children of a node.
pub(super) fn children(node: Node<'_>) -> Vec<Node<'_>> {
    let mut cursor = node.walk();
    node.children(&mut cursor).collect()
}

/// Every node below and including one, in the order of the text.
pub(super) fn all(node: Node<'_>) -> Vec<Node<'_>> {
    let (mut found, mut open) = (Vec::new(), vec![node]);
    while let Some(node) = open.pop() {
        found.push(node);
        // In reverse, because the last one pushed is taken first.
        open.extend(children(node).into_iter().rev());
    }
    found
}

/// The name that a declarator, or a name with arguments, ends in.
pub(super) fn last_name(node: Node<'_>, text: &str) -> Option<String> {
    match node.kind() {
        "identifier" | "field_identifier" | "type_identifier" | "operator_name" => {
            Some(text[node.byte_range()].to_string())
        }
        "template_function" | "template_type" | "template_method" | "qualified_identifier" => {
            last_name(node.child_by_field_name("name")?, text)
        }
        _ => {
            let inner = node.child_by_field_name("declarator");
            let first = || {
                children(node)
                    .into_iter()
                    .find(|n| n.kind().ends_with("declarator") || n.kind().ends_with("identifier"))
            };
            last_name(inner.or_else(first)?, text)
        }
    }
}
