//! What the constants of an instance decide: values of expressions, and branches that it never takes.
//!
//! Only constants of the description and of the problem are known. An expression with anything else has no value, and nothing is
//! left out because of it.

use super::tree::{all, children, last_name};
use std::collections::HashMap;
use std::ops::Range;
use tapml_device::KernelDesc;
use tree_sitter::Node;

/// Numbers of at most so many expressions within each other are worked out.
/// The bound keeps hostile nesting from using up the stack.
const DEPTH: usize = 32;

/// Constants by name, and what the kernel's problem calls them.
pub(super) struct ConstantValues {
    /// Values by name.
    known: HashMap<String, f64>,
    /// The source, from which names and operators are read.
    text: String,
}

impl ConstantValues {
    /// The constants of a description, and the fields of the problem in its text: `P::name` there.
    pub(super) fn from_desc(desc: &KernelDesc, root: Node<'_>, text: &str) -> ConstantValues {
        let known = desc.constants.iter().cloned().collect();
        let mut values = ConstantValues { known, text: text.to_string() };
        let problems = all(root).into_iter().filter(|node| {
            let name = node.child_by_field_name("name").map(|name| &text[name.byte_range()]);
            node.kind() == "struct_specifier" && name == Some("Problem")
        });
        for field in problems.flat_map(all).filter(|node| node.kind() == "field_declaration") {
            let mut name = None;
            for child in children(field) {
                match child.kind() {
                    "field_identifier" => name = last_name(child, text),
                    _ if child.is_named() => {
                        let value = values.number(child, DEPTH);
                        if let (Some(name), Some(value)) = (name.take(), value) {
                            // Later fields may be made of earlier ones.
                            values.known.insert(format!("P::{name}"), value);
                        }
                    }
                    _ => {}
                }
            }
        }
        values
    }

    /// The parts of a function that are never reached.
    pub(super) fn unreached_parts(&self, function: Node<'_>) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        for node in all(function) {
            if !matches!(node.kind(), "if_statement" | "conditional_expression") {
                continue;
            }
            let field = |name: &str| node.child_by_field_name(name);
            let Some(condition) = field("condition") else { continue };
            // The arm that is never taken.
            let arm = match self.number(condition, DEPTH) {
                Some(0.0) => field("consequence"),
                Some(_) => field("alternative"),
                None => None,
            };
            found.extend(arm.map(|arm| arm.byte_range()));
        }
        found
    }

    /// Structures for certain arguments of a template, such as `StorageOf<4, GROUP, ZEROS>`, that nothing asks for.
    pub(super) fn unused_structs(&self, root: Node<'_>) -> Vec<Range<usize>> {
        let named = |node: &Node<'_>| Some((last_name(*node, &self.text)?, self.arguments(*node)));
        let nodes = all(root);
        let structures = nodes.iter().filter(|node| node.kind() == "struct_specifier");
        let special = structures.filter_map(|node| {
            let name = node.child_by_field_name("name").filter(|name| name.kind() == "template_type")?;
            Some((*node, name))
        });
        let special: Vec<(Node<'_>, Node<'_>)> = special.collect();
        // The structure's own name is no request for it.
        let own = |node: &Node<'_>| special.iter().any(|(_, name)| name.id() == node.id());
        let mentions = nodes.iter().filter(|node| node.kind() == "template_type" && !own(node));
        let mentions: Vec<(String, Vec<Option<f64>>)> = mentions.filter_map(named).collect();
        let asked = |(name, own): (String, Vec<Option<f64>>)| {
            // An argument without a known value may be any.
            let fits = |(a, b): (&Option<f64>, &Option<f64>)| a.is_none() || b.is_none() || a == b;
            mentions.iter().any(|(other, given)| *other == name && own.iter().zip(given).all(fits))
        };
        let unused = special.iter().filter(|(_, name)| named(name).is_some_and(|named| !asked(named)));
        unused.map(|(node, _)| node.byte_range()).collect()
    }

    /// The values of a template's arguments.
    fn arguments(&self, node: Node<'_>) -> Vec<Option<f64>> {
        let list = node.child_by_field_name("arguments");
        let arguments = list.map_or(Vec::new(), children).into_iter().filter(|child| child.is_named());
        arguments.map(|argument| self.number(argument, DEPTH)).collect()
    }

    /// The value of an expression of constants.
    fn number(&self, node: Node<'_>, depth: usize) -> Option<f64> {
        let depth = depth.checked_sub(1)?;
        let of = |name: &str| self.number(node.child_by_field_name(name)?, depth);
        let text = &self.text[node.byte_range()];
        match node.kind() {
            "number_literal" => literal(text),
            "true" => Some(1.0),
            "false" => Some(0.0),
            // What may be a type is read as one.
            "identifier" | "qualified_identifier" | "type_descriptor" => self.known.get(text).copied(),
            "condition_clause" => of("value"),
            "parenthesized_expression" => self.number(node.named_child(0)?, depth),
            "cast_expression" => of("value"),
            "unary_expression" => {
                let value = of("argument")?;
                match &self.text[node.child_by_field_name("operator")?.byte_range()] {
                    "!" => Some(f64::from(value == 0.0)),
                    "-" => Some(-value),
                    _ => None,
                }
            }
            "conditional_expression" => {
                of(if of("condition")? != 0.0 { "consequence" } else { "alternative" })
            }
            "binary_expression" => {
                let sign = &self.text[node.child_by_field_name("operator")?.byte_range()];
                combine_values(sign, of("left"), of("right"))
            }
            _ => None,
        }
    }
}

/// The value of a literal without its suffix.
fn literal(text: &str) -> Option<f64> {
    let digits = text.trim_end_matches(['u', 'U', 'l', 'L', 'f']);
    match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok().map(|v| v as f64),
        None => digits.parse().ok(),
    }
}

/// What an operator makes of values, one of which may be unknown.
fn combine_values(sign: &str, left: Option<f64>, right: Option<f64>) -> Option<f64> {
    let truth = |v: bool| Some(f64::from(v));
    match (sign, left, right) {
        // One side can decide alone.
        ("&&", Some(0.0), _) | ("&&", _, Some(0.0)) => return truth(false),
        ("||", Some(v), _) | ("||", _, Some(v)) if v != 0.0 => return truth(true),
        _ => {}
    }
    let (a, b) = (left?, right?);
    match sign {
        "&&" | "||" => truth(sign == "&&" || a != 0.0 || b != 0.0),
        "==" => truth(a == b),
        "!=" => truth(a != b),
        "<" => truth(a < b),
        "<=" => truth(a <= b),
        ">" => truth(a > b),
        ">=" => truth(a >= b),
        "+" => Some(a + b),
        "-" => Some(a - b),
        "*" => Some(a * b),
        // Constants are integers, whose quotients are cut off.
        "/" if b != 0.0 => Some((a / b).trunc()),
        "%" if b != 0.0 => Some(a % b),
        _ => None,
    }
}
