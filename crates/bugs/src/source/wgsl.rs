//! Kernels in WGSL: expressions typed by naga; functions and statements by the text, which is formatted.
//!
//! Spans of naga give the place of an expression, and its text gives the place of the operator within.

use super::parsed::{Binary, FloatSum, NumberClass, Parsed, closing_bracket};
use naga::proc::TypeResolution;
use naga::valid::{Capabilities, ModuleInfo, ShaderStages, SubgroupOperationSet, ValidationFlags, Validator};
use naga::{BinaryOperator, Expression, Function, Module, ScalarKind, TypeInner};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use tapml_device::KernelDesc;
use tapml_graph::{Error, Result};

/// Reads a kernel.
///
/// # Errors
///
/// A text that naga refuses, or an entry point that is not there.
pub(super) fn read(desc: &KernelDesc, full: &str) -> Result<Parsed> {
    let code = without_comments(full);
    let live = live_functions(&code, &desc.entry)
        .ok_or_else(|| Error::invalid(format!("kernel `{}` has no function `{}`", desc.name, desc.entry)))?;
    let mut parsed = Parsed { code, live, ..Parsed::default() };
    parsed.statements = statements(&parsed);
    parsed.inits = inits(&parsed);
    let (binaries, floats) = find_binaries(desc, full, &parsed)?;
    parsed.binaries = binaries;
    parsed.sums = sums(&parsed, &floats);
    Ok(parsed)
}

/// Statements of live functions: from the first character to the semicolon, both included. Headers of loops and blocks are
/// none.
fn statements(parsed: &Parsed) -> Vec<Range<usize>> {
    let bytes = parsed.code.as_bytes();
    let mut found = Vec::new();
    for (_, body) in &parsed.live {
        let (mut start, mut depth) = (body.start, 0i32);
        for at in body.clone() {
            match bytes[at] {
                b'(' => depth += 1,
                b')' => depth -= 1,
                // A block begins or ends: what stood before it is a header, or nothing.
                b'{' | b'}' if depth == 0 => start = at + 1,
                b';' if depth == 0 => {
                    let text = &parsed.code[start..at];
                    let first = start + (text.len() - text.trim_start().len());
                    found.push(first..at + 1);
                    start = at + 1;
                }
                _ => {}
            }
        }
    }
    found
}

/// Names that a statement gives to values, with the values.
fn inits(parsed: &Parsed) -> Vec<(String, Range<usize>)> {
    let of = |range: &Range<usize>| {
        let text = &parsed.code[range.clone()];
        let (name, _) = text.strip_prefix("let ").and_then(|rest| rest.split_once(" = "))?;
        let value = range.start + "let ".len() + name.len() + " = ".len();
        Some((name.to_string(), value..range.end - 1))
    };
    parsed.statements.iter().filter_map(of).collect()
}

/// Statements that add to a variable: `x = fma(.., x)` and `x += ..`. Of the latter those of floats begin at `floats`.
fn sums(parsed: &Parsed, floats: &HashSet<usize>) -> Vec<FloatSum> {
    let mut found = Vec::new();
    for range in &parsed.statements {
        let text = &parsed.code[range.clone()];
        let (target, plain) = match (text.split_once(" += "), text.split_once(" = fma(")) {
            (Some((target, _)), _) => (target, true),
            // A sum only if the target is an operand, too.
            (None, Some((target, rest))) if rest.contains(target) => (target, false),
            _ => continue,
        };
        let place = |c: char| c.is_ascii_alphanumeric() || "_.[]".contains(c);
        if target.chars().all(place) && (!plain || floats.contains(&range.start)) {
            let end = range.start + target.len();
            let added = plain.then(|| end + " += ".len()..range.end - 1);
            found.push(FloatSum { statement: range.clone(), target: range.start..end, added });
        }
    }
    found
}

/// Expressions of two operands in live functions, by place, and where statements begin that add to floats.
fn find_binaries(desc: &KernelDesc, full: &str, parsed: &Parsed) -> Result<(Vec<Binary>, HashSet<usize>)> {
    let Validated { module, info, header } = parse(full, desc)?;
    let functions = module.functions.iter().map(|(handle, function)| (function, &info[handle]));
    let entries = module.entry_points.iter().enumerate();
    let entries = entries.map(|(i, entry)| (&entry.function, info.get_entry_point(i)));
    let (mut found, mut floats) = (HashSet::new(), HashSet::new());
    for (function, info) in functions.chain(entries) {
        let class = |handle: naga::Handle<Expression>| class_of(&info[handle].ty, &module);
        binaries(function, &class, header, &parsed.code, (&mut found, &mut floats));
    }
    let live = |at: usize| parsed.live.iter().any(|(_, range)| range.contains(&at));
    let mut found: Vec<Binary> = found.into_iter().filter(|b: &Binary| live(b.whole.start)).collect();
    // A set has no order.
    found.sort_by_key(|b| (b.whole.start, b.whole.end));
    Ok((found, floats))
}

/// A source that was validated.
struct Validated {
    module: Module,
    /// What validation found out.
    info: ModuleInfo,
    /// Bytes that stand before the source.
    header: usize,
}

fn parse(full: &str, desc: &KernelDesc) -> Result<Validated> {
    const MATRICES: &str = "enable wgpu_cooperative_matrix;";
    let fail = |e: &dyn std::fmt::Display| Error::invalid(format!("kernel `{}`: {e}", desc.name));
    let mut header = if desc.needs_f16 { "enable f16;".to_string() } else { String::new() };
    // Directives stand in front of everything; places keep their numbers.
    let full = if full.contains(MATRICES) {
        header += MATRICES;
        full.replacen(MATRICES, &" ".repeat(MATRICES.len()), 1)
    } else {
        full.to_string()
    };
    let module = naga::front::wgsl::parse_str(&format!("{header}{full}")).map_err(|e| fail(&e))?;
    let mut validator = Validator::new(ValidationFlags::all(), Capabilities::all());
    validator.subgroup_stages(ShaderStages::COMPUTE).subgroup_operations(SubgroupOperationSet::all());
    let info = validator.validate(&module).map_err(|e| fail(&e))?;
    Ok(Validated { module, info, header: header.len() })
}

/// The class of a scalar or a vector; `None` for anything else.
fn class_of(ty: &TypeResolution, module: &Module) -> Option<NumberClass> {
    let inner = ty.inner_with(&module.types);
    let scalar = match inner {
        TypeInner::Scalar(scalar) | TypeInner::Vector { scalar, .. } => scalar,
        _ => return None,
    };
    match scalar.kind {
        ScalarKind::Float => Some(NumberClass::Float),
        ScalarKind::Uint | ScalarKind::Sint => Some(NumberClass::Int),
        _ => None,
    }
}

/// Adds the expressions of one function, and where statements begin that add to floats.
fn binaries(
    function: &Function,
    class: &dyn Fn(naga::Handle<Expression>) -> Option<NumberClass>,
    header: usize,
    code: &str,
    (found, floats): (&mut HashSet<Binary>, &mut HashSet<usize>),
) {
    let span = |handle| {
        let range = function.expressions.get_span(handle).to_range()?;
        Some(range.start.checked_sub(header)?..range.end.checked_sub(header)?)
    };
    for (handle, expression) in function.expressions.iter() {
        // Both operands have one class, so that the left one tells it.
        let Expression::Binary { op, left, .. } = *expression else { continue };
        let (Some(whole), Some(class)) = (span(handle), class(left)) else { continue };
        if class == NumberClass::Float && code.get(whole.clone()).is_some_and(|text| text.contains(" += ")) {
            floats.insert(whole.start);
        }
        found.extend(split(code, op, class, whole));
    }
}

/// Finds the operator of an expression in its text: the last one of the lowest precedence outside parentheses. Operands
/// that are named constants have their place elsewhere, so their spans do not help.
fn split(code: &str, op: BinaryOperator, class: NumberClass, whole: Range<usize>) -> Option<Binary> {
    let sign = match op {
        BinaryOperator::Add => "+",
        BinaryOperator::Subtract => "-",
        BinaryOperator::Multiply => "*",
        BinaryOperator::Divide => "/",
        BinaryOperator::Modulo => "%",
        BinaryOperator::Less => "<",
        BinaryOperator::LessEqual => "<=",
        BinaryOperator::Greater => ">",
        BinaryOperator::GreaterEqual => ">=",
        _ => return None,
    };
    let text = code.get(whole.clone())?;
    let at = whole.start + last_sign(text, sign)?;
    let trim = |range: Range<usize>| {
        let text = &code[range.clone()];
        let start = range.start + (text.len() - text.trim_start().len());
        // A unary sign has no left operand.
        (!text.trim().is_empty()).then(|| start..start + text.trim().len())
    };
    let (left, right) = (trim(whole.start..at)?, trim(at + sign.len()..whole.end)?);
    let whole = left.start..right.end;
    Some(Binary { op, class, whole, left, sign: at..at + sign.len(), right })
}

/// The place of the last `sign` between spaces and outside brackets. Sources are formatted: binary operators stand
/// between spaces, unary ones and the brackets of types do not.
fn last_sign(text: &str, sign: &str) -> Option<usize> {
    let spaced = format!(" {sign} ");
    let (mut depth, mut found) = (0i32, None);
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            ' ' if depth == 0 && text[at..].starts_with(&spaced) => found = Some(at + 1),
            _ => {}
        }
        if depth < 0 {
            return None;
        }
    }
    // The last operator of a chain binds weakest: `a - b - c` is `(a - b) - c`.
    (depth == 0).then_some(found).flatten()
}

/// Comments replaced by spaces.
fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let at = line.find("//").unwrap_or(line.len());
        out.push_str(&line[..at]);
        // One space per byte, so that byte places stay.
        out.extend(line[at..].bytes().map(|c| if c == b'\n' { '\n' } else { ' ' }));
    }
    out
}

/// Bodies of the functions that `entry` reaches, in the order of the text.
fn live_functions(code: &str, entry: &str) -> Option<Vec<(String, Range<usize>)>> {
    let mut bodies: HashMap<&str, Range<usize>> = HashMap::new();
    for (at, _) in code.match_indices("fn ") {
        let name = code[at + 3..].split('(').next().unwrap_or_default().trim();
        let Some(open) = code[at..].find('(').map(|o| at + o) else { continue };
        let Some(brace) =
            closing_bracket(code, open).and_then(|close| Some(close + code[close..].find('{')?))
        else {
            continue;
        };
        if let Some(end) = closing_bracket(code, brace) {
            bodies.insert(name, brace + 1..end);
        }
    }
    let mut live: HashSet<&str> = HashSet::new();
    let mut open = vec![bodies.get_key_value(entry)?.0];
    while let Some(name) = open.pop() {
        if !live.insert(name) {
            continue;
        }
        let body = &code[bodies[name].clone()];
        // A name that occurs is taken for a call: too much is reached rather than too little.
        let words = body.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        open.extend(words.filter_map(|w| bodies.get_key_value(w).map(|(name, _)| name)));
    }
    let mut found: Vec<(String, Range<usize>)> =
        live.into_iter().map(|name| (name.to_string(), bodies[name].clone())).collect();
    found.sort_by_key(|(_, range)| range.start);
    Some(found)
}
