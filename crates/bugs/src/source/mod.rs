//! A kernel's source as mutation operators see it: live functions, and typed expressions with their places in the text.

use naga::proc::TypeResolution;
use naga::valid::{Capabilities, ModuleInfo, ShaderStages, SubgroupOperationSet, ValidationFlags, Validator};
use naga::{BinaryOperator, Expression, Function, Module, ScalarKind, TypeInner};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use tapml_device::KernelDesc;
use tapml_graph::{Error, Result};

/// Numbers of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Floats: values.
    Float,
    /// Integers: places.
    Int,
}

/// An expression of two operands. Ranges are bytes of the full source, parentheses around operands not included.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Binary {
    /// The operator.
    pub op: BinaryOperator,
    /// What it works on.
    pub class: Class,
    /// The whole.
    pub whole: Range<usize>,
    /// The left operand with its parentheses.
    pub left: Range<usize>,
    /// The operator's characters.
    pub sign: Range<usize>,
    /// The right operand with its parentheses.
    pub right: Range<usize>,
}

/// The source of one kernel.
pub struct KernelSource {
    /// Prelude and text.
    pub full: String,
    /// Hash of the full source.
    pub hash: String,
    /// The same with comments blanked: positions are equal.
    pub code: String,
    /// Bodies of the functions that the entry point reaches, by name; those of the prelude among them.
    pub live: Vec<(String, Range<usize>)>,
    /// Expressions of two operands in live functions, by place.
    pub binaries: Vec<Binary>,
    prelude: usize,
    file: String,
}

impl KernelSource {
    /// Parses a kernel.
    pub fn of(desc: &KernelDesc) -> Result<KernelSource> {
        let full = desc.source.full();
        let code = without_comments(&full);
        let live = live_functions(&code, &desc.entry).ok_or_else(|| {
            Error::invalid(format!("kernel `{}` has no function `{}`", desc.name, desc.entry))
        })?;
        let mut source = KernelSource {
            hash: blake3::hash(full.as_bytes()).to_hex()[..16].to_string(),
            full,
            code,
            live,
            binaries: Vec::new(),
            prelude: desc.source.prelude.len(),
            file: desc.source.file.clone(),
        };
        source.binaries = source.find_binaries(desc)?;
        Ok(source)
    }

    /// Whether a byte lies in a live function.
    pub fn is_live(&self, at: usize) -> bool {
        self.live.iter().any(|(_, range)| range.contains(&at))
    }

    /// Whether a byte lies in the kernel's own text rather than in what stands before it.
    pub fn is_own(&self, at: usize) -> bool {
        at >= self.prelude
    }

    /// Places of `needle` in live functions that are whole words at both ends, if those are letters.
    pub fn find<'a>(&'a self, needle: &'a str) -> impl Iterator<Item = usize> + 'a {
        let word = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
        self.code.match_indices(needle).map(|(at, _)| at).filter(move |&at| {
            let before = self.code[..at].chars().next_back();
            let after = self.code[at + needle.len()..].chars().next();
            let starts = !word(needle.chars().next()) || !word(before);
            let ends = !word(needle.chars().next_back()) || !word(after);
            starts && ends && self.is_live(at)
        })
    }

    /// Statements of live functions: from the first character to the semicolon, both included. Headers of loops and
    /// blocks are none.
    pub fn statements(&self) -> Vec<Range<usize>> {
        let bytes = self.code.as_bytes();
        let mut found = Vec::new();
        for (_, body) in &self.live {
            let (mut start, mut depth) = (body.start, 0i32);
            for at in body.clone() {
                match bytes[at] {
                    b'(' => depth += 1,
                    b')' => depth -= 1,
                    b'{' | b'}' if depth == 0 => start = at + 1,
                    b';' if depth == 0 => {
                        let text = &self.code[start..at];
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

    /// Headers of `for` loops in live functions: between the parentheses.
    pub fn loops(&self) -> Vec<Range<usize>> {
        let headers = self.find("for").filter_map(|at| {
            let open = at + self.code[at..].find('(')?;
            Some(open + 1..closing(&self.code, open)?)
        });
        headers.collect()
    }

    /// Whether a range lies in the header of a loop.
    pub fn in_loop_header(&self, range: &Range<usize>) -> bool {
        self.loops().iter().any(|l| l.start <= range.start && range.end <= l.end)
    }

    /// The diff of replacing a range, with the file and the line.
    pub fn diff(&self, range: &Range<usize>, new: &str) -> String {
        let line_start = self.full[..range.start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = self.full[range.end..].find('\n').map_or(self.full.len(), |at| range.end + at);
        let (before, after) = (&self.full[line_start..range.start], &self.full[range.end..line_end]);
        let old = self.full[line_start..line_end].trim();
        let number = |from: usize| self.full[from..range.start].matches('\n').count() + 1;
        let place = match self.is_own(range.start) {
            true => format!("{}:{}", self.file, number(self.prelude)),
            false => format!("{} (before it, line {})", self.file, number(0)),
        };
        format!("{place}\n- {old}\n+ {}", format!("{before}{new}{after}").trim())
    }

    fn find_binaries(&self, desc: &KernelDesc) -> Result<Vec<Binary>> {
        let (module, info, header) = parse(&self.full, desc)?;
        let functions = module.functions.iter().map(|(handle, function)| (function, &info[handle]));
        let entries = module.entry_points.iter().enumerate();
        let entries = entries.map(|(i, entry)| (&entry.function, info.get_entry_point(i)));
        let mut found = HashSet::new();
        for (function, info) in functions.chain(entries) {
            let class = |handle: naga::Handle<Expression>| class_of(&info[handle].ty, &module);
            found.extend(binaries(function, &class, header, &self.code));
        }
        let mut found: Vec<Binary> = found.into_iter().filter(|b| self.is_live(b.whole.start)).collect();
        found.sort_by_key(|b| (b.whole.start, b.whole.end));
        Ok(found)
    }
}

/// The module, what validation found out, and how many bytes stand before the source.
fn parse(full: &str, desc: &KernelDesc) -> Result<(Module, ModuleInfo, usize)> {
    let header = if desc.needs_f16 { "enable f16;" } else { "" };
    let fail = |e: &dyn std::fmt::Display| Error::invalid(format!("kernel `{}`: {e}", desc.name));
    let module = naga::front::wgsl::parse_str(&format!("{header}{full}")).map_err(|e| fail(&e))?;
    let mut validator = Validator::new(ValidationFlags::all(), Capabilities::all());
    validator.subgroup_stages(ShaderStages::COMPUTE).subgroup_operations(SubgroupOperationSet::all());
    let info = validator.validate(&module).map_err(|e| fail(&e))?;
    Ok((module, info, header.len()))
}

fn class_of(ty: &TypeResolution, module: &Module) -> Option<Class> {
    let inner = ty.inner_with(&module.types);
    let scalar = match inner {
        TypeInner::Scalar(scalar) | TypeInner::Vector { scalar, .. } => scalar,
        _ => return None,
    };
    match scalar.kind {
        ScalarKind::Float => Some(Class::Float),
        ScalarKind::Uint | ScalarKind::Sint => Some(Class::Int),
        _ => None,
    }
}

fn binaries(
    function: &Function,
    class: &dyn Fn(naga::Handle<Expression>) -> Option<Class>,
    header: usize,
    code: &str,
) -> Vec<Binary> {
    let span = |handle| {
        let range = function.expressions.get_span(handle).to_range()?;
        Some(range.start.checked_sub(header)?..range.end.checked_sub(header)?)
    };
    let mut found = Vec::new();
    for (handle, expression) in function.expressions.iter() {
        let Expression::Binary { op, left, .. } = *expression else { continue };
        let (Some(whole), Some(class)) = (span(handle), class(left)) else { continue };
        if let Some(binary) = split(code, op, class, whole) {
            found.push(binary);
        }
    }
    found
}

/// Finds the operator of an expression in its text: the last one of the lowest precedence outside parentheses. Operands
/// that are named constants have their place elsewhere, so their spans do not help.
fn split(code: &str, op: BinaryOperator, class: Class, whole: Range<usize>) -> Option<Binary> {
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
    (depth == 0).then_some(found).flatten()
}

/// Comments replaced by spaces.
fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let at = line.find("//").unwrap_or(line.len());
        out.push_str(&line[..at]);
        out.extend(line[at..].bytes().map(|c| if c == b'\n' { '\n' } else { ' ' }));
    }
    out
}

/// The place of the bracket that closes the one at `open`.
pub fn closing(code: &str, open: usize) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in code.bytes().enumerate().skip(open) {
        match c {
            b'(' | b'{' | b'[' => depth += 1,
            b')' | b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// Bodies of the functions that `entry` reaches, in the order of the text.
fn live_functions(code: &str, entry: &str) -> Option<Vec<(String, Range<usize>)>> {
    let mut bodies: HashMap<&str, Range<usize>> = HashMap::new();
    for (at, _) in code.match_indices("fn ") {
        let name = code[at + 3..].split('(').next().unwrap_or_default().trim();
        let Some(open) = code[at..].find('(').map(|o| at + o) else { continue };
        let Some(brace) = closing(code, open).and_then(|close| Some(close + code[close..].find('{')?)) else {
            continue;
        };
        if let Some(end) = closing(code, brace) {
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
        let words = body.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        open.extend(words.filter_map(|w| bodies.get_key_value(w).map(|(name, _)| name)));
    }
    let mut found: Vec<(String, Range<usize>)> =
        live.into_iter().map(|name| (name.to_string(), bodies[name].clone())).collect();
    found.sort_by_key(|(_, range)| range.start);
    Some(found)
}
