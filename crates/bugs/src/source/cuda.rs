//! Kernels in CUDA C++: a syntax tree of prelude and text says where functions, statements and expressions stand. What an
//! instance does not reach is left out where its constants tell that.
//!
//! The parser is tree-sitter's for C++, which does not resolve types or templates; `types` and `values` tell what is needed of both.

use super::parsed::{Binary, FloatSum, NumberClass, Parsed, closing_bracket, overlaps};
use super::tree::{all, children, last_name};
use super::types::VariableTypes;
use super::values::ConstantValues;
use naga::BinaryOperator as Op;
use std::collections::HashSet;
use std::ops::Range;
use tapml_device::KernelDesc;
use tapml_graph::{Error, Result};
use tree_sitter::{Node, Parser};

/// Words that CUDA adds to C++, and macros in front of functions. Blanked, the rest is C++.
const QUALIFIERS: [&str; 9] = [
    "INLINE",
    "__global__",
    "__device__",
    "__forceinline__",
    "__shared__",
    "__restrict__",
    "__grid_constant__",
    "__constant__",
    "__noinline__",
];
/// The same with arguments.
const WITH_ARGUMENTS: [&str; 3] = ["__launch_bounds__", "__cluster_dims__", "__align__"];

/// Nodes whose expressions are not computed when the kernel runs.
const FIXED: [&str; 5] = [
    "template_argument_list",
    "template_parameter_list",
    "array_declarator",
    "abstract_array_declarator",
    "static_assert_declaration",
];

/// A function with a body.
struct CudaFunction<'t> {
    /// Its name, without the structure's.
    name: String,
    /// The structure that it belongs to, if any.
    of: Option<String>,
    /// The whole definition.
    node: Node<'t>,
}

/// Reads a kernel.
pub(super) fn read(desc: &KernelDesc, full: &str) -> Result<Parsed> {
    let fail = |why: &str| Error::invalid(format!("kernel `{}`: {why}", desc.name));
    let text = plain(full);
    let mut parser = Parser::new();
    let language = tree_sitter_cpp::LANGUAGE.into();
    parser.set_language(&language).map_err(|e| fail(&e.to_string()))?;
    let tree = parser.parse(&text, None).ok_or_else(|| fail("the parser gave no tree"))?;
    let root = tree.root_node();
    // A tree with errors may hide functions, so the kernel is refused rather than read in part.
    if let Some(place) = wrong(root) {
        let line = text[..place.start].matches('\n').count() + 1;
        let found = text[place].lines().next().unwrap_or_default().trim().to_string();
        return Err(fail(&format!("line {line} of prelude and text is not read as C++: `{found}`")));
    }
    // Words in comments and strings reach nothing.
    let code = blank_kinds(root, &without_directives(full), &["comment", "string_literal"]);
    let values = ConstantValues::from_desc(desc, root, &text);
    let types = VariableTypes::from_tree(root, &text);
    let functions = functions(root, &text);
    if !functions.iter().any(|f| f.name == desc.entry) {
        return Err(fail(&format!("there is no function `{}`", desc.entry)));
    }
    let own = desc.source.prelude.len()..full.len();
    let (live, dead) = reachable_functions(&functions, &desc.entry, own, &code, &values, root);
    let mut found = BodyFindings { text: &text, types: &types, dead: &dead, parsed: Parsed::default() };
    for function in &live {
        function.node.child_by_field_name("body").into_iter().for_each(|body| found.walk(body));
    }
    let bodies =
        live.iter().filter_map(|f| Some((f.name.clone(), f.node.child_by_field_name("body")?.byte_range())));
    let live = bodies.collect();
    let parsed = found.parsed;
    Ok(Parsed { code, live, dead, ..parsed })
}

/// The text with the lines of the preprocessor blanked, and those that go on.
fn without_directives(full: &str) -> String {
    let mut goes_on = false;
    let blank = |line: &str| {
        // A backslash at the end continues a directive on the next line.
        let directive = goes_on || line.trim_start().starts_with('#');
        goes_on = directive && line.trim_end().ends_with('\\');
        if directive {
            line.chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect()
        } else {
            line.to_string()
        }
    };
    full.split_inclusive('\n').map(blank).collect()
}

/// The text as plain C++ of the same length.
fn plain(full: &str) -> String {
    let full = &without_directives(full);
    let mut bytes = full.as_bytes().to_vec();
    let word = |at: usize| full.as_bytes().get(at).is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    let mut blank = |range: Range<usize>| {
        bytes[range].iter_mut().filter(|b| **b != b'\n').for_each(|b| *b = b' ');
    };
    // Several names in one declaration are newer than the grammar; nothing here looks at them.
    for (at, _) in full.match_indices("using ").filter(|(at, _)| *at == 0 || !word(at - 1)) {
        blank(at..at + full[at..].find(';').map_or(0, |end| end + 1));
    }
    // Assembler is no C++, and its operands come from macros.
    for (at, _) in full.match_indices("asm").filter(|(at, _)| (*at == 0 || !word(at - 1)) && !word(at + 3)) {
        let open = full[at..].find('(').map_or(at, |open| at + open);
        blank(at..closing_bracket(full, open).map_or(at, |end| end + 1));
    }
    for name in QUALIFIERS.iter().chain(&WITH_ARGUMENTS) {
        for (at, _) in full.match_indices(name) {
            let end = at + name.len();
            // A part of a longer word is none of these.
            if (at > 0 && word(at - 1)) || word(end) {
                continue;
            }
            let open = end + full[end..].len() - full[end..].trim_start().len();
            let call = WITH_ARGUMENTS.contains(name) && full[open..].starts_with('(');
            blank(at..if call { closing_bracket(full, open).map_or(end, |c| c + 1) } else { end });
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| full.to_string())
}

/// The first place that is no C++.
fn wrong(root: Node<'_>) -> Option<Range<usize>> {
    let mut open = vec![root];
    while let Some(node) = open.pop() {
        if node.is_error() || node.is_missing() {
            return Some(node.byte_range());
        }
        // Errors below are looked for where they are, so that the place is small.
        if node.has_error() {
            open.extend(children(node).into_iter().rev());
        }
    }
    None
}

/// The text with nodes of these kinds blanked.
fn blank_kinds(root: Node<'_>, text: &str, kinds: &[&str]) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for node in all(root).into_iter().filter(|node| kinds.contains(&node.kind())) {
        bytes[node.byte_range()].iter_mut().filter(|b| **b != b'\n').for_each(|b| *b = b' ');
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_string())
}

/// All functions with a body, in the order of the text.
fn functions<'t>(root: Node<'t>, text: &str) -> Vec<CudaFunction<'t>> {
    let definitions = all(root).into_iter().filter(|node| node.kind() == "function_definition");
    let named = definitions.filter_map(|node| {
        let name = last_name(node.child_by_field_name("declarator")?, text)?;
        node.child_by_field_name("body")?;
        Some(CudaFunction { name, of: structure(node, text), node })
    });
    named.collect()
}

/// The structure around a node.
fn structure(node: Node<'_>, text: &str) -> Option<String> {
    let mut at = node.parent();
    while let Some(node) = at {
        if matches!(node.kind(), "struct_specifier" | "class_specifier") {
            return last_name(node.child_by_field_name("name")?, text);
        }
        at = node.parent();
    }
    None
}

/// The functions that the entry reaches, and the parts of them that this instance does not. A name stands for all functions
/// of that name whose structure is named by what is reached, too.
fn reachable_functions<'f, 't>(
    functions: &'f [CudaFunction<'t>],
    entry: &str,
    own: Range<usize>,
    code: &str,
    values: &ConstantValues,
    root: Node<'t>,
) -> (Vec<&'f CudaFunction<'t>>, Vec<Range<usize>>) {
    let (mut words, mut dead): (HashSet<String>, Vec<Range<usize>>) = (HashSet::new(), Vec::new());
    let mut live: Vec<bool> = vec![false; functions.len()];
    let unused = values.unused_structs(root);
    let used =
        |node: &Node<'_>| !unused.iter().any(|u| u.start <= node.start_byte() && node.end_byte() <= u.end);
    let structures: Vec<(String, Node<'_>)> = all(root)
        .into_iter()
        .filter(|node| node.kind() == "struct_specifier" && node.child_by_field_name("body").is_some())
        .filter(used)
        .filter_map(|node| Some((last_name(node.child_by_field_name("name")?, code)?, node)))
        .collect();
    let mut seen = vec![false; structures.len()];
    words.insert(entry.to_string());
    // What the kernel's own text declares outside of functions, such as its problem.
    // Functions are left out here: they count only if they are reached.
    add_words(code, own, &function_ranges(functions), &mut words);
    // Reached functions add words, which may reach others: until nothing is added.
    loop {
        let before = words.len();
        for (i, (name, node)) in structures.iter().enumerate() {
            if !seen[i] && words.contains(name) {
                seen[i] = true;
                add_words(code, node.byte_range(), &function_ranges(functions), &mut words);
            }
        }
        for (i, function) in functions.iter().enumerate() {
            let of = function.of.as_ref().is_none_or(|of| words.contains(of));
            if !live[i] && of && used(&function.node) && words.contains(&function.name) {
                live[i] = true;
                let unused = values.unreached_parts(function.node);
                add_words(code, function.node.byte_range(), &unused, &mut words);
                dead.extend(unused);
            }
        }
        if words.len() == before {
            break;
        }
    }
    (functions.iter().zip(live).filter(|(_, live)| *live).map(|(f, _)| f).collect(), dead)
}

/// Bytes of all functions.
fn function_ranges(functions: &[CudaFunction<'_>]) -> Vec<Range<usize>> {
    functions.iter().map(|f| f.node.byte_range()).collect()
}

/// Adds the words of a range, but for those of these parts.
fn add_words(code: &str, range: Range<usize>, but: &[Range<usize>], words: &mut HashSet<String>) {
    // Goes from gap to gap between the parts that are left out.
    let mut start = range.start;
    let mut parts: Vec<&Range<usize>> = but.iter().filter(|b| overlaps(b, &range) && **b != range).collect();
    parts.sort_by_key(|part| part.start);
    let mut add = |part: Range<usize>| {
        let own =
            code.get(part).unwrap_or_default().split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        words.extend(own.filter(|w| !w.is_empty()).map(str::to_string));
    };
    for part in parts {
        if part.start > start {
            add(start..part.start);
        }
        start = start.max(part.end);
    }
    if start < range.end {
        add(start..range.end);
    }
}

/// Collects what stands in bodies.
///
/// Ranges are bytes of the full source.
struct BodyFindings<'a> {
    text: &'a str,
    types: &'a VariableTypes,
    /// Parts that this instance never reaches.
    dead: &'a [Range<usize>],
    /// What was found so far.
    parsed: Parsed,
}

impl BodyFindings<'_> {
    /// Looks at a node and at everything within it.
    fn walk(&mut self, node: Node<'_>) {
        let range = node.byte_range();
        if FIXED.contains(&node.kind())
            || self.dead.iter().any(|d| d.start <= range.start && range.end <= d.end)
        {
            return;
        }
        match node.kind() {
            "binary_expression" => self.parsed.binaries.extend(self.binary(node)),
            "expression_statement" => {
                self.parsed.sums.extend(self.sum(node));
                self.parsed.statements.push(range);
            }
            "init_declarator" => {
                let name = node.child_by_field_name("declarator").and_then(|d| last_name(d, self.text));
                let value = node.child_by_field_name("value");
                let value = value.filter(|v| self.types.class(*v, self.text) == Some(NumberClass::Int));
                self.parsed.inits.extend(name.zip(value).map(|(name, value)| (name, value.byte_range())));
            }
            "number_literal" if self.text[range.clone()].contains('.') => self.parsed.floats.push(range),
            _ => {}
        }
        children(node).into_iter().for_each(|child| self.walk(child));
    }

    /// An expression of two operands; `None` for other operators and for operands whose class is unknown.
    fn binary(&self, node: Node<'_>) -> Option<Binary> {
        let field = |name: &str| node.child_by_field_name(name);
        let (left, sign, right) = (field("left")?, field("operator")?, field("right")?);
        let op = match &self.text[sign.byte_range()] {
            "+" => Op::Add,
            "-" => Op::Subtract,
            "*" => Op::Multiply,
            "/" => Op::Divide,
            "%" => Op::Modulo,
            "<" => Op::Less,
            "<=" => Op::LessEqual,
            ">" => Op::Greater,
            ">=" => Op::GreaterEqual,
            _ => return None,
        };
        let class = VariableTypes::combine_classes(
            self.types.class(left, self.text),
            self.types.class(right, self.text),
        )?;
        Some(Binary {
            op,
            class,
            whole: node.byte_range(),
            left: left.byte_range(),
            sign: sign.byte_range(),
            right: right.byte_range(),
        })
    }

    /// The statement as one that adds to a float, if it is.
    fn sum(&self, statement: Node<'_>) -> Option<FloatSum> {
        let node = statement.named_child(0).filter(|n| n.kind() == "assignment_expression")?;
        let field = |name: &str| node.child_by_field_name(name);
        let (left, sign, right) = (field("left")?, field("operator")?, field("right")?);
        let target = &self.text[left.byte_range()];
        let value = &self.text[right.byte_range()];
        let added = match &self.text[sign.byte_range()] {
            "+=" => Some(right.byte_range()),
            // `x = fmaf(a, b, x)` adds as `x += a * b` does.
            "=" if value.starts_with("fmaf(") && value.trim_end_matches(')').ends_with(target) => None,
            _ => return None,
        };
        let float = self.types.class(left, self.text) == Some(NumberClass::Float);
        float.then(|| FloatSum { statement: statement.byte_range(), target: left.byte_range(), added })
    }
}
