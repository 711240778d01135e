//! What a template's text may ask of its parser and compiler, which recurse over expressions and compute constants: looked at
//! token by token, before they see it.
//!
//! Counting tokens needs no stack, so it cannot be what overflows.

use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;

/// Deepest nesting that is read: operators, brackets and `elif`s within each other. Templates stay below 60.
const DEPTH: usize = 400;
/// Items or bytes that all products of constants may have, estimated from above.
const CONSTANTS: f64 = 2e6;

/// What is wrong with a template, in the words that follow "the chat template".
pub fn check(source: &str, syntax: SyntaxConfig) -> Result<(), String> {
    let mut scan = Scan { levels: vec![0], branches: Vec::new(), tag: Tag::default(), constants: 0.0 };
    let mut starts_block = false;
    for token in tokenize(source, false, syntax) {
        // The parser says what is wrong with a token.
        let Ok((token, span)) = token else { return Ok(()) };
        match token {
            Token::VariableStart | Token::BlockStart => {
                scan.levels = vec![0];
                scan.tag = Tag { start: span.start_offset, ..Tag::default() };
            }
            Token::VariableEnd | Token::BlockEnd => scan.constants += scan.tag.cost(span.end_offset),
            Token::Ident(name) if starts_block => scan.enter_block(name),
            ref token => scan.enter(token),
        }
        starts_block = matches!(token, Token::BlockStart);
        let line = span.start_line;
        if scan.depth() > DEPTH {
            return Err(format!("nests more than {DEPTH} operators, brackets or branches (line {line})"));
        }
        if scan.constants > CONSTANTS {
            return Err(format!("multiplies constants to a large text or list (line {line})"));
        }
    }
    Ok(())
}

/// The state of the walk over tokens.
struct Scan {
    /// Operators of the expression under way within each open bracket: they form a tree as deep as they are many.
    levels: Vec<usize>,
    /// Branches of each open `if`, each of which the parser puts into the one before.
    branches: Vec<usize>,
    tag: Tag,
    constants: f64,
}

impl Scan {
    /// An upper bound of the recursion of parser and compiler.
    fn depth(&self) -> usize {
        self.levels.len() + self.levels.iter().sum::<usize>() + self.branches.iter().sum::<usize>()
    }

    /// Branches of `if` nest in the parser.
    fn enter_block(&mut self, name: &str) {
        match name {
            "if" => self.branches.push(1),
            "elif" => self.branches.iter_mut().next_back().into_iter().for_each(|count| *count += 1),
            "endif" => drop(self.branches.pop()),
            _ => {}
        }
    }

    /// Counts an operator, or opens and closes brackets.
    fn enter(&mut self, token: &Token) {
        self.tag.enter(token);
        let nested = self.levels.len() > 1;
        let Some(operators) = self.levels.last_mut() else { return };
        match token {
            Token::Comma => *operators = 0,
            // Brackets that do not match are for the parser to tell.
            Token::ParenClose | Token::BracketClose | Token::BraceClose if !nested => {}
            Token::ParenClose | Token::BracketClose | Token::BraceClose => drop(self.levels.pop()),
            Token::Ident("not" | "and" | "or" | "in" | "is" | "if" | "else") => *operators += 1,
            Token::TemplateData(_) | Token::Ident(_) | Token::Str(_) | Token::String(_) => {}
            Token::Int(_) | Token::Int128(_) | Token::Float(_) => {}
            token => {
                *operators += 1;
                if matches!(token, Token::ParenOpen | Token::BracketOpen | Token::BraceOpen) {
                    self.levels.push(0);
                }
            }
        }
    }
}

/// What a tag holds that could make its constants large.
#[derive(Default)]
struct Tag {
    start: u32,
    multiplies: bool,
    powers: bool,
    collects: bool,
    /// Whether an argument begins here, so that a `*` would hand over a list.
    begins: bool,
    /// No product of the numbers is larger.
    product: Option<f64>,
}

impl Tag {
    fn enter(&mut self, token: &Token) {
        let splats = std::mem::replace(&mut self.begins, matches!(token, Token::ParenOpen | Token::Comma));
        // One is added to each number, so that a product with 0 still bounds what is made on the way.
        let number = match token {
            Token::Mul | Token::Pow if splats => return,
            Token::Int(n) => *n as f64,
            Token::Int128(n) => **n as f64,
            Token::Float(n) => n.max(n.recip()),
            Token::Mul => return self.multiplies = true,
            Token::Pow => return self.powers = true,
            Token::Str(_) | Token::String(_) | Token::BracketOpen | Token::Comma => {
                return self.collects = true;
            }
            _ => return,
        };
        self.product = Some(self.product.unwrap_or(1.0) * (1.0 + number));
    }

    /// An upper bound of what the tag's constants become.
    fn cost(&self, end: u32) -> f64 {
        match self.product {
            Some(_) if self.multiplies && self.collects && self.powers => f64::INFINITY,
            Some(product) if self.multiplies && self.collects => product * f64::from(end - self.start),
            _ => 0.0,
        }
    }
}
