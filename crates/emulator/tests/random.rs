//! Random kernels with divergent control flow, against an evaluation of each invocation on its own.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Arg, Run};
use proptest::prelude::*;

const LANES: u32 = 40;
const VARS: usize = 3;
const ARRAY: u32 = 5;

#[derive(Clone, Copy, Debug)]
enum Op {
    Add,
    Sub,
    Mul,
    DivU,
    RemU,
    DivI,
    RemI,
    And,
    Or,
    Xor,
    Shl,
    ShrU,
    ShrI,
    MinU,
    MaxI,
    LtI,
    GeU,
    Eq,
    AddF,
    MulF,
    DivF,
    Extract,
}

const OPS: [Op; 22] = [
    Op::Add,
    Op::Sub,
    Op::Mul,
    Op::DivU,
    Op::RemU,
    Op::DivI,
    Op::RemI,
    Op::And,
    Op::Or,
    Op::Xor,
    Op::Shl,
    Op::ShrU,
    Op::ShrI,
    Op::MinU,
    Op::MaxI,
    Op::LtI,
    Op::GeU,
    Op::Eq,
    Op::AddF,
    Op::MulF,
    Op::DivF,
    Op::Extract,
];

/// Expressions of type u32.
#[derive(Clone, Debug)]
enum Expr {
    Lane,
    /// A value of the input buffer: uniform, but unknown to the compiler.
    Input(u32),
    Var(usize),
    /// The variable of the private address space.
    Hidden,
    Element(Box<Expr>),
    Not(Box<Expr>),
    Bits(Box<Expr>),
    Binary(Op, Box<Expr>, Box<Expr>),
    Select(Box<Expr>, Box<Expr>, Box<Expr>),
}

#[derive(Clone, Debug)]
enum Stmt {
    Set(usize, Expr),
    SetElement(Expr, Expr),
    If(Expr, Vec<Stmt>, Vec<Stmt>),
    /// Runs `expr % 4` times.
    For(Expr, Vec<Stmt>),
    /// Only in loops; elsewhere nothing.
    Break(Expr),
    Continue(Expr),
    Switch(Expr, Vec<Stmt>, Vec<Stmt>, Vec<Stmt>),
    Return(Expr, Expr),
    Swap,
    SetHidden(Expr),
    /// Calls a function with a pointer to a variable, which returns early for even arguments.
    Bump(usize, Expr),
    /// As `Bump`, for an element of the array.
    BumpElement(Expr, Expr),
}

fn expr() -> impl Strategy<Value = Expr> {
    let leaf = prop_oneof![
        2 => Just(Expr::Lane),
        2 => (0..4_u32).prop_map(Expr::Input),
        3 => (0..VARS).prop_map(Expr::Var),
        1 => Just(Expr::Hidden),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        let boxed = inner.prop_map(Box::new).boxed();
        prop_oneof![
            1 => boxed.clone().prop_map(Expr::Element),
            1 => boxed.clone().prop_map(Expr::Not),
            1 => boxed.clone().prop_map(Expr::Bits),
            6 => (prop::sample::select(&OPS[..]), boxed.clone(), boxed.clone()).prop_map(|(o, a, b)| Expr::Binary(o, a, b)),
            1 => (boxed.clone(), boxed.clone(), boxed).prop_map(|(a, b, c)| Expr::Select(a, b, c)),
        ]
    })
}

fn block() -> impl Strategy<Value = Vec<Stmt>> {
    let leaf = prop_oneof![
        4 => (0..VARS, expr()).prop_map(|(v, e)| Stmt::Set(v, e)),
        1 => (expr(), expr()).prop_map(|(a, e)| Stmt::SetElement(a, e)),
        1 => expr().prop_map(Stmt::Break),
        1 => expr().prop_map(Stmt::Continue),
        1 => (expr(), expr()).prop_map(|(c, e)| Stmt::Return(c, e)),
        1 => Just(Stmt::Swap),
        1 => expr().prop_map(Stmt::SetHidden),
        1 => (0..VARS, expr()).prop_map(|(v, e)| Stmt::Bump(v, e)),
        1 => (expr(), expr()).prop_map(|(i, e)| Stmt::BumpElement(i, e)),
    ];
    let stmt = leaf.prop_recursive(3, 16, 4, |inner| {
        let block = prop::collection::vec(inner, 0..4).boxed();
        prop_oneof![
            3 => (expr(), block.clone(), block.clone()).prop_map(|(c, a, b)| Stmt::If(c, a, b)),
            3 => (expr(), block.clone()).prop_map(|(n, b)| Stmt::For(n, b)),
            1 => (expr(), block.clone(), block.clone(), block).prop_map(|(s, a, b, c)| Stmt::Switch(s, a, b, c)),
        ]
    });
    prop::collection::vec(stmt, 1..6)
}

fn text_of(e: &Expr) -> String {
    let int = |e: &Expr| format!("bitcast<i32>({})", text_of(e));
    let float = |e: &Expr| format!("(f32({} & 1023u) * 0.25)", text_of(e));
    match e {
        Expr::Lane => "lane".into(),
        Expr::Input(i) => format!("input[{i}]"),
        Expr::Var(v) => format!("v{v}"),
        Expr::Hidden => "hidden".into(),
        Expr::Element(i) => format!("items[{} % {ARRAY}u]", text_of(i)),
        Expr::Not(a) => format!("(~{})", text_of(a)),
        Expr::Bits(a) => format!("countOneBits({})", text_of(a)),
        Expr::Select(a, b, c) => format!("select({}, {}, {} > 7u)", text_of(a), text_of(b), text_of(c)),
        Expr::Binary(op, a, b) => {
            let (x, y) = (text_of(a), text_of(b));
            let plain = |symbol: &str| format!("({x} {symbol} {y})");
            let signed = |symbol: &str| format!("bitcast<u32>({} {symbol} {})", int(a), int(b));
            let floats = |symbol: &str| format!("u32({} {symbol} {})", float(a), float(b));
            match op {
                Op::Add => plain("+"),
                Op::Sub => plain("-"),
                Op::Mul => plain("*"),
                Op::DivU => plain("/"),
                Op::RemU => plain("%"),
                Op::DivI => signed("/"),
                Op::RemI => signed("%"),
                Op::And => plain("&"),
                Op::Or => plain("|"),
                Op::Xor => plain("^"),
                Op::Shl => format!("({x} << ({y} & 31u))"),
                Op::ShrU => format!("({x} >> ({y} & 31u))"),
                Op::ShrI => format!("bitcast<u32>({} >> ({y} & 31u))", int(a)),
                Op::MinU => format!("min({x}, {y})"),
                Op::MaxI => format!("bitcast<u32>(max({}, {}))", int(a), int(b)),
                Op::LtI => format!("u32({} < {})", int(a), int(b)),
                Op::GeU => format!("u32({x} >= {y})"),
                Op::Eq => format!("select(3u, 4u, {x} == {y})"),
                Op::AddF => floats("+"),
                Op::MulF => floats("*"),
                Op::DivF => format!("u32({} / ({} + 0.5))", float(a), float(b)),
                Op::Extract => format!("extractBits({x}, {y} % 40u, 7u)"),
            }
        }
    }
}

fn write_block(out: &mut String, block: &[Stmt], in_loop: bool, depth: usize) {
    let pad = "    ".repeat(depth);
    for stmt in block {
        match stmt {
            Stmt::Set(v, e) => *out += &format!("{pad}v{v} = {};\n", text_of(e)),
            Stmt::SetElement(i, e) => {
                *out += &format!("{pad}items[{} % {ARRAY}u] = {};\n", text_of(i), text_of(e))
            }
            Stmt::Swap => *out += &format!("{pad}{{ let t = v0; v0 = v1; v1 = t; }}\n"),
            Stmt::SetHidden(e) => *out += &format!("{pad}hidden = {};\n", text_of(e)),
            Stmt::Bump(v, e) => *out += &format!("{pad}bump(&v{v}, {});\n", text_of(e)),
            Stmt::BumpElement(i, e) => {
                let (i, e) = (text_of(i), text_of(e));
                *out += &format!("{pad}{{ let p = &items[{i} % {ARRAY}u]; bump(p, {e}); }}\n");
            }
            Stmt::Break(c) if in_loop => {
                *out += &format!("{pad}if ({} % 3u == 1u) {{ break; }}\n", text_of(c))
            }
            Stmt::Continue(c) if in_loop => {
                *out += &format!("{pad}if ({} % 3u == 2u) {{ continue; }}\n", text_of(c))
            }
            Stmt::Break(_) | Stmt::Continue(_) => {}
            Stmt::Return(c, e) => {
                *out += &format!("{pad}if ({} % 7u == 3u) {{ return {}; }}\n", text_of(c), text_of(e));
            }
            Stmt::If(c, a, b) => {
                *out += &format!("{pad}if ({} % 2u == 1u) {{\n", text_of(c));
                write_block(out, a, in_loop, depth + 1);
                *out += &format!("{pad}}} else {{\n");
                write_block(out, b, in_loop, depth + 1);
                *out += &format!("{pad}}}\n");
            }
            Stmt::For(n, b) => {
                *out += &format!("{pad}{{ let n{depth} = {} % 4u;\n", text_of(n));
                *out += &format!("{pad}for (var k{depth} = 0u; k{depth} < n{depth}; k{depth}++) {{\n");
                write_block(out, b, true, depth + 1);
                *out += &format!("{pad}}} }}\n");
            }
            Stmt::Switch(s, a, b, c) => {
                *out += &format!("{pad}switch ({} % 5u) {{\n{pad}case 1u: {{\n", text_of(s));
                write_block(out, a, false, depth + 1);
                *out += &format!("{pad}}}\n{pad}case 0u, 3u: {{\n");
                write_block(out, b, false, depth + 1);
                *out += &format!("{pad}}}\n{pad}default: {{\n");
                write_block(out, c, false, depth + 1);
                *out += &format!("{pad}}}\n{pad}}}\n");
            }
        }
    }
}

struct State<'a> {
    lane: u32,
    input: &'a [u32],
    vars: [u32; VARS],
    items: [u32; ARRAY as usize],
    hidden: u32,
}

/// What the kernel's function `bump` does.
fn bump(p: u32, x: u32) -> u32 {
    if x.is_multiple_of(2) { p } else { p.wrapping_mul(3).wrapping_add(x) }
}

enum Way {
    On,
    Break,
    Continue,
    Return(u32),
}

impl State<'_> {
    fn eval(&self, e: &Expr) -> u32 {
        match e {
            Expr::Lane => self.lane,
            Expr::Input(i) => self.input[*i as usize],
            Expr::Var(v) => self.vars[*v],
            Expr::Hidden => self.hidden,
            Expr::Element(i) => self.items[(self.eval(i) % ARRAY) as usize],
            Expr::Not(a) => !self.eval(a),
            Expr::Bits(a) => self.eval(a).count_ones(),
            Expr::Select(a, b, c) => {
                if self.eval(c) > 7 {
                    self.eval(b)
                } else {
                    self.eval(a)
                }
            }
            Expr::Binary(op, a, b) => binary(*op, self.eval(a), self.eval(b)),
        }
    }

    fn run(&mut self, block: &[Stmt], in_loop: bool) -> Way {
        for stmt in block {
            let way = match stmt {
                Stmt::Set(v, e) => {
                    self.vars[*v] = self.eval(e);
                    Way::On
                }
                Stmt::SetElement(i, e) => {
                    let (i, value) = (self.eval(i) % ARRAY, self.eval(e));
                    self.items[i as usize] = value;
                    Way::On
                }
                Stmt::Swap => {
                    self.vars.swap(0, 1);
                    Way::On
                }
                Stmt::SetHidden(e) => {
                    self.hidden = self.eval(e);
                    Way::On
                }
                Stmt::Bump(v, e) => {
                    self.vars[*v] = bump(self.vars[*v], self.eval(e));
                    Way::On
                }
                Stmt::BumpElement(i, e) => {
                    let i = (self.eval(i) % ARRAY) as usize;
                    self.items[i] = bump(self.items[i], self.eval(e));
                    Way::On
                }
                Stmt::Break(c) if in_loop && self.eval(c) % 3 == 1 => Way::Break,
                Stmt::Continue(c) if in_loop && self.eval(c) % 3 == 2 => Way::Continue,
                Stmt::Break(_) | Stmt::Continue(_) => Way::On,
                Stmt::Return(c, e) if self.eval(c) % 7 == 3 => Way::Return(self.eval(e)),
                Stmt::Return(..) => Way::On,
                Stmt::If(c, a, b) => self.run(if self.eval(c) % 2 == 1 { a } else { b }, in_loop),
                Stmt::For(n, b) => self.repeat(self.eval(n) % 4, b),
                Stmt::Switch(s, a, b, c) => self.run(
                    match self.eval(s) % 5 {
                        1 => a,
                        0 | 3 => b,
                        _ => c,
                    },
                    false,
                ),
            };
            if !matches!(way, Way::On) {
                return way;
            }
        }
        Way::On
    }

    fn repeat(&mut self, times: u32, body: &[Stmt]) -> Way {
        for _ in 0..times {
            match self.run(body, true) {
                Way::Break => break,
                Way::Return(value) => return Way::Return(value),
                Way::On | Way::Continue => {}
            }
        }
        Way::On
    }
}

fn binary(op: Op, x: u32, y: u32) -> u32 {
    let (i, j) = (x as i32, y as i32);
    let (f, g) = ((x & 1023) as f32 * 0.25, (y & 1023) as f32 * 0.25);
    let to_u = |f: f32| f.min(4_294_967_040.0) as u32;
    match op {
        Op::Add => x.wrapping_add(y),
        Op::Sub => x.wrapping_sub(y),
        Op::Mul => x.wrapping_mul(y),
        Op::DivU => x.checked_div(y).unwrap_or(x),
        Op::RemU => x.checked_rem(y).unwrap_or(0),
        Op::DivI => {
            if j == 0 {
                x
            } else {
                i.wrapping_div(j) as u32
            }
        }
        Op::RemI => {
            if j == 0 {
                0
            } else {
                i.wrapping_rem(j) as u32
            }
        }
        Op::And => x & y,
        Op::Or => x | y,
        Op::Xor => x ^ y,
        Op::Shl => x << (y & 31),
        Op::ShrU => x >> (y & 31),
        Op::ShrI => (i >> (y & 31)) as u32,
        Op::MinU => x.min(y),
        Op::MaxI => i.max(j) as u32,
        Op::LtI => u32::from(i < j),
        Op::GeU => u32::from(x >= y),
        Op::Eq => {
            if x == y {
                4
            } else {
                3
            }
        }
        Op::AddF => to_u(f + g),
        Op::MulF => to_u(f * g),
        Op::DivF => to_u(f / (g + 0.5)),
        Op::Extract => {
            let offset = (y % 40).min(32);
            ((u64::from(x) >> offset) & ((1 << 7.min(32 - offset)) - 1)) as u32
        }
    }
}

fn kernel(block: &[Stmt]) -> String {
    let mut body = String::new();
    write_block(&mut body, block, false, 1);
    format!(
        "@group(0) @binding(0) var<storage, read> input: array<u32, 4>;
@group(0) @binding(1) var<storage, read_write> output: array<u32>;
var<private> hidden: u32 = 9u;
fn bump(p: ptr<function, u32>, x: u32) {{
    if (x % 2u == 0u) {{ return; }}
    *p = *p * 3u + x;
}}
fn work(lane: u32) -> u32 {{
    var v0 = 1u;
    var v1 = lane;
    var v2 = input[3];
    var items = array<u32, {ARRAY}>(3u, 1u, 4u, 1u, 5u);
{body}
    return v0 ^ (v1 * 3u) ^ (v2 * 5u) ^ items[lane % {ARRAY}u] ^ hidden;
}}
@compute @workgroup_size({LANES})
fn main(@builtin(local_invocation_index) lane: u32) {{
    output[lane] = work(lane);
}}
"
    )
}

fn check(block: &[Stmt], input: [u32; 4], query: &str) {
    let text = kernel(block);
    let args = vec![Arg::Read(input.to_vec()), Arg::ReadWrite(vec![0; LANES as usize])];
    let got = Run::new(&text, LANES, args).options(query).output(1);
    for lane in 0..LANES {
        let vars = [1, lane, input[3]];
        let mut state = State { lane, input: &input, vars, items: [3, 1, 4, 1, 5], hidden: 9 };
        let want = match state.run(block, false) {
            Way::Return(value) => value,
            _ => {
                let [a, b, c] = state.vars;
                let item = state.items[(lane % ARRAY) as usize];
                a ^ b.wrapping_mul(3) ^ c.wrapping_mul(5) ^ item ^ state.hidden
            }
        };
        assert_eq!(got[lane as usize], want, "invocation {lane} with input {input:?} of\n{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_invocation_computes_what_it_would_alone(block in block(), input in any::<[u32; 4]>()) {
        check(&block, input, "threads=1");
    }

    #[test]
    fn small_inputs_take_more_turns(block in block(), input in [0..9_u32, 0..9, 0..9, 0..9]) {
        check(&block, input, "check=all&threads=1");
    }
}
