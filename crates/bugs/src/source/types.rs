//! Whether an expression of CUDA C++ is a value or a place: what its variables and functions are declared as, by name.
//!
//! Types are told apart by name alone, in two classes. What is not known has no class, and no mutant is made of it.

use super::parsed::NumberClass;
use super::tree::{all, children, last_name};
use std::collections::HashMap;
use tree_sitter::Node;

/// Functions of the language itself that give floats.
/// Other functions are found by their declarations.
const FLOATS: [&str; 12] = [
    "fmaf",
    "fmaxf",
    "fminf",
    "expf",
    "exp2f",
    "rsqrtf",
    "sqrtf",
    "fabsf",
    "__uint_as_float",
    "__expf",
    "logf",
    "tanhf",
];

/// A declared variable.
///
/// Variables of one name in different functions are entries of their own.
struct DeclaredVariable {
    /// Class of its type.
    class: NumberClass,
    /// A pointer or an array: the class is that of its elements.
    elements: bool,
    /// Where its name stands, and the function around it, if one is.
    at: usize,
    function: Option<std::ops::Range<usize>>,
}

/// What is declared.
pub(super) struct VariableTypes {
    /// By name, in the order of the text.
    variables: HashMap<String, Vec<DeclaredVariable>>,
    /// Classes of results; none of those that differ.
    functions: HashMap<String, Option<NumberClass>>,
}

/// The class of a type by its name.
/// A float among the words makes it one; pointers are told by their declarators.
fn class_of(ty: &str) -> Option<NumberClass> {
    const INTS: [&str; 13] = [
        "u32", "u16", "u64", "int", "unsigned", "size_t", "ptrdiff", "char", "bool", "long", "Chunk",
        "short", "uint4",
    ];
    let mut words = ty.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let float = |w: &str| matches!(w, "float" | "double" | "float2" | "float4");
    if ty.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).any(float) {
        return Some(NumberClass::Float);
    }
    words.any(|w| INTS.contains(&w)).then_some(NumberClass::Int)
}

impl VariableTypes {
    /// Reads all declarations of a tree.
    pub(super) fn from_tree(root: Node<'_>, text: &str) -> VariableTypes {
        let mut types = VariableTypes { variables: HashMap::new(), functions: HashMap::new() };
        for node in all(root) {
            match node.kind() {
                "declaration"
                | "field_declaration"
                | "parameter_declaration"
                | "optional_parameter_declaration" => {
                    types.declare(node, text);
                }
                "function_definition" => types.function(node, text),
                _ => {}
            }
        }
        types
    }

    /// Notes the class of what a function gives. Overloads that differ have none.
    fn function(&mut self, node: Node<'_>, text: &str) {
        let name = node.child_by_field_name("declarator").and_then(|d| last_name(d, text));
        let class = node.child_by_field_name("type").and_then(|ty| class_of(&text[ty.byte_range()]));
        let Some(name) = name else { return };
        let known = self.functions.entry(name).or_insert(class);
        if *known != class {
            // Overloads of several classes tell nothing.
            *known = None;
        }
    }

    /// Notes the variables of a declaration. `auto` takes the class of its value.
    fn declare(&mut self, node: Node<'_>, text: &str) {
        let Some(ty) = node.child_by_field_name("type") else { return };
        let ty = &text[ty.byte_range()];
        let function = enclosing_body(node);
        for declarator in children(node).into_iter().filter(|c| is_declarator(c.kind())) {
            let class = match ty {
                // Values stand before uses, so the class of the value is known already.
                "auto" => declarator.child_by_field_name("value").and_then(|value| self.class(value, text)),
                ty => class_of(ty),
            };
            let (Some(class), Some(name)) = (class, last_name(declarator, text)) else { continue };
            let kinds = || all(declarator).into_iter().map(|n| n.kind());
            let value = declarator.child_by_field_name("value").map(|v| v.start_byte());
            let elements = kinds().any(|k| k == "pointer_declarator" || k == "array_declarator")
                && all(declarator).iter().any(|n| {
                    matches!(n.kind(), "pointer_declarator" | "array_declarator")
                        && value.is_none_or(|v| n.start_byte() < v)
                });
            let declared =
                DeclaredVariable { class, elements, at: declarator.start_byte(), function: function.clone() };
            self.variables.entry(name).or_default().push(declared);
        }
    }

    /// The variable of a name as it is seen at a place: the last one declared before in the same function, or else one outside if all
    /// of that name agree.
    fn variable(&self, name: &str, at: usize) -> Option<&DeclaredVariable> {
        let all = self.variables.get(name)?;
        let within =
            |d: &&DeclaredVariable| d.at <= at && d.function.as_ref().is_some_and(|f| f.contains(&at));
        // Inner declarations hide outer ones.
        if let Some(own) = all.iter().filter(within).max_by_key(|d| d.at) {
            return Some(own);
        }
        let mut outside = all.iter().filter(|d| d.function.is_none());
        let first = outside.next()?;
        outside.all(|d| (d.class, d.elements) == (first.class, first.elements)).then_some(first)
    }

    /// The class of what two operands of these classes give: a float if one of them is; pointers and numbers are places.
    pub(super) fn combine_classes(
        left: Option<NumberClass>,
        right: Option<NumberClass>,
    ) -> Option<NumberClass> {
        match (left, right) {
            (Some(NumberClass::Float), _) | (_, Some(NumberClass::Float)) => Some(NumberClass::Float),
            (Some(NumberClass::Int), Some(NumberClass::Int)) => Some(NumberClass::Int),
            _ => None,
        }
    }

    /// The class of an expression, if it is known.
    pub(super) fn class(&self, node: Node<'_>, text: &str) -> Option<NumberClass> {
        let of = |name: &str| self.class(node.child_by_field_name(name)?, text);
        let own = &text[node.byte_range()];
        match node.kind() {
            "number_literal" => Some(if is_float(own) { NumberClass::Float } else { NumberClass::Int }),
            "true" | "false" | "sizeof_expression" => Some(NumberClass::Int),
            "identifier" => {
                // Names in capitals are constants of the template, which are integers unless declared otherwise.
                if own.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_') {
                    return self
                        .variable(own, node.start_byte())
                        .map_or(Some(NumberClass::Int), |d| Some(d.class));
                }
                self.variable(own, node.start_byte())
                    .map(|d| if d.elements { NumberClass::Int } else { d.class })
            }
            "qualified_identifier" => {
                let name = last_name(node, text)?;
                self.variable(&name, node.start_byte())
                    .map(|d| if d.elements { NumberClass::Int } else { d.class })
            }
            "field_expression" => self.field(node, text),
            "subscript_expression" => self.element(node.child_by_field_name("argument")?, text),
            "pointer_expression" if own.starts_with('*') => {
                self.element(node.child_by_field_name("argument")?, text)
            }
            // An address.
            "pointer_expression" => Some(NumberClass::Int),
            "parenthesized_expression" => self.class(node.named_child(0)?, text),
            "unary_expression" | "update_expression" => of("argument"),
            "cast_expression" => {
                let ty = &text[node.child_by_field_name("type")?.byte_range()];
                if ty.contains('*') { Some(NumberClass::Int) } else { class_of(ty) }
            }
            "conditional_expression" => of("consequence").or_else(|| of("alternative")),
            "assignment_expression" => of("left"),
            "binary_expression" => VariableTypes::combine_classes(of("left"), of("right")),
            "call_expression" => self.result(node, text),
            _ => None,
        }
    }

    /// The class of the elements of a pointer or an array.
    fn element(&self, node: Node<'_>, text: &str) -> Option<NumberClass> {
        let own = &text[node.byte_range()];
        match node.kind() {
            "identifier" => self.variable(own, node.start_byte()).map(|d| d.class),
            "qualified_identifier" | "field_expression" => {
                let name = last_name(node.child_by_field_name("field").unwrap_or(node), text)?;
                self.variable(&name, usize::MAX).map(|d| d.class)
            }
            "subscript_expression" => self.element(node.child_by_field_name("argument")?, text),
            "parenthesized_expression" => self.element(node.named_child(0)?, text),
            "cast_expression" => class_of(&text[node.child_by_field_name("type")?.byte_range()]),
            // A pointer with an offset; the pointer stands first.
            "binary_expression" => self.element(node.child_by_field_name("left")?, text),
            _ => None,
        }
    }

    /// The class of a field: a component of a vector, or what structures declare by that name.
    fn field(&self, node: Node<'_>, text: &str) -> Option<NumberClass> {
        let (of, field) = (node.child_by_field_name("argument")?, node.child_by_field_name("field")?);
        let name = last_name(field, text)?;
        if matches!(name.as_str(), "x" | "y" | "z" | "w") {
            let base = &text[of.byte_range()];
            if ["threadIdx", "blockIdx", "gridDim", "blockDim"].contains(&base) {
                return Some(NumberClass::Int);
            }
            if let Some(class) = self.element(of, text) {
                return Some(class);
            }
        }
        self.variable(&name, usize::MAX).map(|d| if d.elements { NumberClass::Int } else { d.class })
    }

    /// The class of what a call gives. Shuffles give the class of what is shuffled.
    fn result(&self, node: Node<'_>, text: &str) -> Option<NumberClass> {
        let function = node.child_by_field_name("function")?;
        let field = function.child_by_field_name("field");
        let name = last_name(field.unwrap_or(function), text)?;
        if FLOATS.contains(&name.as_str()) {
            return Some(NumberClass::Float);
        }
        // The second argument is the value; the first is the mask.
        if name.starts_with("__shfl") {
            let arguments = node.child_by_field_name("arguments")?;
            return self.class(arguments.named_child(1)?, text);
        }
        match self.functions.get(&name) {
            Some(class) => *class,
            None => class_of(&name),
        }
    }
}

/// Whether a node names what is declared.
fn is_declarator(kind: &str) -> bool {
    kind.ends_with("declarator") || matches!(kind, "identifier" | "field_identifier")
}

/// Whether a literal is a float: by point, exponent or suffix.
fn is_float(literal: &str) -> bool {
    !literal.starts_with("0x") && (literal.contains('.') || literal.contains('e') || literal.ends_with('f'))
}

/// The body of the function around a node, with its parameters.
fn enclosing_body(node: Node<'_>) -> Option<std::ops::Range<usize>> {
    let mut at = node.parent();
    while let Some(node) = at {
        match node.kind() {
            "function_definition" => return Some(node.byte_range()),
            "struct_specifier" => return None,
            _ => at = node.parent(),
        }
    }
    None
}
