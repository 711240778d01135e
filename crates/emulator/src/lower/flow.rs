//! Facts about a function's body that lowering needs before it starts: how long each value lives, which loads may share
//! a variable's registers instead of copying them, and the block in which each variable is at home.
//!
//! naga keeps all local variables at the function's start, wherever the text declares them. A declaration without a value inside a
//! loop is a store of zero there. Homes undo this, so that a variable of a loop's body is not taken as carried between iterations.

use naga::{Arena, Block, Expression, Function, Handle, LocalVariable, MathFunction, Statement};
use std::collections::HashMap;

/// Facts about one block.
///
/// Blocks are numbered in the order in which they begin; the body of the function is 0.
#[derive(Default)]
pub struct BlockFacts {
    /// Number of the block within its function.
    pub id: u32,
    /// First and last position of each statement.
    pub positions: Vec<(u32, u32)>,
}

/// Facts about one function. Positions number statements, and the expressions of `Emit`, in source order.
#[derive(Default)]
pub struct Flow {
    /// By address: blocks have no handles, and the module outlives the lowering. The addresses are never followed.
    blocks: HashMap<*const Block, BlockFacts>,
    /// Position after which the value is not needed.
    /// By expression; 0 if it is never used.
    pub dies: Vec<u32>,
    /// For a load of a variable: whether no store comes between the load and its last use.
    /// By expression. Such a load needs no copy.
    pub shares: Vec<bool>,
    /// Block id of each variable's home: the variable is set anew whenever the block is entered, and unused outside it.
    /// By local variable.
    pub home: Vec<u32>,
    /// For each variable: whether something may read it before it is stored as a whole.
    /// By local variable.
    pub needs_init: Vec<bool>,
}

impl Flow {
    /// The facts of a block of this function.
    pub fn block(&self, block: &Block) -> Option<&BlockFacts> {
        self.blocks.get(&std::ptr::from_ref(block))
    }
}

/// The variable at the root of a pointer expression, if it is a local one.
/// `None` for globals and for pointers that are arguments.
pub fn root(
    expressions: &Arena<Expression>,
    mut pointer: Handle<Expression>,
) -> Option<Handle<LocalVariable>> {
    loop {
        match expressions[pointer] {
            Expression::LocalVariable(var) => return Some(var),
            Expression::Access { base, .. } | Expression::AccessIndex { base, .. } => pointer = base,
            _ => return None,
        }
    }
}

/// Calls `f` on every operand of an expression.
/// Literals, constants, variables and arguments have none.
pub fn operands(expression: &Expression, mut f: impl FnMut(Handle<Expression>)) {
    use Expression as E;
    match *expression {
        E::Compose { ref components, .. } => components.iter().for_each(|&c| f(c)),
        E::Access { base, index } => [base, index].into_iter().for_each(f),
        E::AccessIndex { base, .. } => f(base),
        E::Splat { value, .. } => f(value),
        E::Swizzle { vector, .. } => f(vector),
        E::Load { pointer } => f(pointer),
        E::Unary { expr, .. } | E::As { expr, .. } => f(expr),
        E::Binary { left, right, .. } => [left, right].into_iter().for_each(f),
        E::Select { condition, accept, reject } => [condition, accept, reject].into_iter().for_each(f),
        E::Relational { argument, .. } => f(argument),
        E::Math { arg, arg1, arg2, arg3, .. } => {
            f(arg);
            [arg1, arg2, arg3].into_iter().flatten().for_each(f);
        }
        E::ArrayLength(pointer) => f(pointer),
        E::CooperativeLoad { ref data, .. } => [data.pointer, data.stride].into_iter().for_each(f),
        E::CooperativeMultiplyAdd { a, b, c } => [a, b, c].into_iter().for_each(f),
        _ => {}
    }
}

/// Whether the value may be made of its operands' registers, or its operands be read again where it is used.
///
/// Such a value must not outlive its operands: their registers are its own. Products are among them where a sum may contract
/// them, because the fused operation reads the factors.
fn forwards(expression: &Expression, contract: bool) -> bool {
    use Expression as E;
    let product = matches!(expression, E::Binary { op: naga::BinaryOperator::Multiply, .. });
    (contract && product)
        || matches!(
            expression,
            E::Compose { .. }
                | E::Access { .. }
                | E::AccessIndex { .. }
                | E::Splat { .. }
                | E::Swizzle { .. }
                | E::As { .. }
                | E::Relational { .. }
                | E::Math { fun: MathFunction::Transpose, .. }
        )
}

/// A block among the blocks around it.
#[derive(Clone, Copy)]
struct Scope {
    /// Id of the block around it; its own for the function's body.
    parent: u32,
    /// Number of blocks around it.
    depth: u32,
    /// Whether a loop of this function is around it.
    in_loop: bool,
}

/// One walk over a function, and what it has seen.
struct Pass<'a> {
    function: &'a Function,
    /// The facts so far.
    flow: Flow,
    /// The next position. The first is 1, so that 0 means never.
    position: u32,
    /// Blocks by id.
    scopes: Vec<Scope>,
    /// First and last position of each loop.
    loops: Vec<(u32, u32)>,
    /// Position at which each expression is computed.
    defined: Vec<u32>,
    /// Positions of the stores to each local variable.
    stores: Vec<Vec<u32>>,
    /// Per variable: home so far, and whether its first reference stored the whole of it, and where.
    refs: Vec<Option<(u32, Option<u32>)>>,
    /// Whether sums may read the operands of their products.
    contract: bool,
}

/// Computes the facts of a function. `contract` says that sums may read the operands of their products.
pub fn analyse(function: &Function, contract: bool) -> Flow {
    let expressions = function.expressions.len();
    let variables = function.local_variables.len();
    let mut pass = Pass {
        function,
        flow: Flow { dies: vec![0; expressions], shares: vec![false; expressions], ..Flow::default() },
        position: 1,
        scopes: Vec::new(),
        loops: Vec::new(),
        defined: vec![0; expressions],
        stores: vec![Vec::new(); variables],
        refs: vec![None; variables],
        contract,
    };
    pass.block(&function.body, Scope { parent: 0, depth: 0, in_loop: false });
    pass.lifetimes();
    pass.homes();
    pass.flow
}

impl<'a> Pass<'a> {
    /// The value is needed at this position.
    fn use_at(&mut self, expression: Handle<Expression>, position: u32) {
        let dies = &mut self.flow.dies[expression.index()];
        *dies = position.max(*dies);
    }

    /// Uses of a statement's operands.
    fn use_all(&mut self, list: impl IntoIterator<Item = Handle<Expression>>, position: u32) {
        list.into_iter().for_each(|e| self.use_at(e, position));
    }

    /// Notes a reference to the variable behind a pointer, which widens its home. The first one also tells whether it stores the whole.
    fn refer(&mut self, pointer: Handle<Expression>, block: u32, whole_store: bool) {
        let Some(var) = root(&self.function.expressions, pointer) else { return };
        let whole = whole_store && matches!(self.function.expressions[pointer], Expression::LocalVariable(_));
        let first = whole.then_some(block);
        let entry = self.refs[var.index()];
        self.refs[var.index()] = Some(match entry {
            None => (block, first),
            Some((home, stored)) => (self.common(home, block), stored),
        });
    }

    /// Notes a store to the variable behind a pointer.
    fn store(&mut self, pointer: Handle<Expression>, position: u32) {
        if let Some(var) = root(&self.function.expressions, pointer) {
            self.stores[var.index()].push(position);
        }
    }

    /// The innermost block that holds both.
    fn common(&self, mut a: u32, mut b: u32) -> u32 {
        while a != b {
            let (x, y) = (self.scopes[a as usize], self.scopes[b as usize]);
            if x.depth >= y.depth {
                a = x.parent;
            } else {
                b = y.parent;
            }
        }
        a
    }

    /// Walks a block and numbers its statements.
    fn block(&mut self, block: &'a Block, scope: Scope) {
        let id = self.scopes.len() as u32;
        self.scopes.push(scope);
        let mut positions = Vec::with_capacity(block.len());
        for statement in block.iter() {
            let start = self.position;
            self.statement(statement, id);
            positions.push((start, self.position - 1));
        }
        self.flow.blocks.insert(block, BlockFacts { id, positions });
    }

    /// Walks a block within another.
    fn child(&mut self, block: &'a Block, parent: u32, is_loop: bool) {
        let Scope { depth, in_loop, .. } = self.scopes[parent as usize];
        self.block(block, Scope { parent, depth: depth + 1, in_loop: in_loop || is_loop });
    }

    fn statement(&mut self, statement: &'a Statement, block: u32) {
        let at = self.position;
        self.position += 1;
        match *statement {
            Statement::Emit(ref range) => {
                self.position = at;
                for expression in range.clone() {
                    self.emit(expression, block);
                }
            }
            Statement::Block(ref inner) => self.child(inner, block, false),
            Statement::If { condition, ref accept, ref reject } => {
                self.use_at(condition, at);
                self.child(accept, block, false);
                self.child(reject, block, false);
            }
            Statement::Switch { selector, ref cases } => {
                self.use_at(selector, at);
                cases.iter().for_each(|case| self.child(&case.body, block, false));
            }
            Statement::Loop { ref body, ref continuing, break_if } => {
                self.child(body, block, true);
                self.child(continuing, block, true);
                // The condition is looked at after the continuing block.
                self.use_all(break_if, self.position);
                self.position += 1;
                self.loops.push((at, self.position - 1));
            }
            _ => self.simple(statement, block, at),
        }
    }

    /// Statements without blocks of their own: their operands are used, their result is defined.
    fn simple(&mut self, statement: &Statement, block: u32, at: u32) {
        match *statement {
            Statement::Store { pointer, value } => {
                self.use_all([pointer, value], at);
                self.refer(pointer, block, true);
                self.store(pointer, at);
            }
            Statement::Return { value } => self.use_all(value, at),
            Statement::Atomic { pointer, fun, value, result } => {
                self.use_all([pointer, value], at);
                if let naga::AtomicFunction::Exchange { compare } = fun {
                    self.use_all(compare, at);
                }
                self.define(result, at);
            }
            Statement::WorkGroupUniformLoad { pointer, result } => {
                self.use_at(pointer, at);
                self.define(Some(result), at);
            }
            Statement::Call { ref arguments, result, .. } => {
                // The callee may write through a pointer before it reads a value.
                self.position += 1;
                for &argument in arguments {
                    self.use_at(argument, at + 1);
                    self.refer(argument, block, false);
                    self.store(argument, at);
                }
                self.define(result, at);
            }
            Statement::CooperativeStore { target, ref data } => {
                self.use_all([target, data.pointer, data.stride], at);
            }
            Statement::SubgroupBallot { result, predicate } => {
                self.use_all(predicate, at);
                self.define(Some(result), at);
            }
            Statement::SubgroupGather { mode, argument, result } => {
                use naga::GatherMode as G;
                self.use_at(argument, at);
                if let G::Broadcast(l)
                | G::Shuffle(l)
                | G::ShuffleDown(l)
                | G::ShuffleUp(l)
                | G::ShuffleXor(l)
                | G::QuadBroadcast(l) = mode
                {
                    self.use_at(l, at);
                }
                self.define(Some(result), at);
            }
            Statement::SubgroupCollectiveOperation { argument, result, .. } => {
                self.use_at(argument, at);
                self.define(Some(result), at);
            }
            _ => {}
        }
    }

    /// The value comes into being. It counts as used there, so that its registers are not freed before.
    fn define(&mut self, result: Option<Handle<Expression>>, at: u32) {
        if let Some(result) = result {
            self.defined[result.index()] = at;
            self.use_at(result, at);
        }
    }

    /// An expression of an `Emit`.
    fn emit(&mut self, expression: Handle<Expression>, block: u32) {
        let at = self.position;
        self.position += 1;
        self.define(Some(expression), at);
        let value = &self.function.expressions[expression];
        operands(value, |operand| self.use_at(operand, at));
        if let Expression::Load { pointer } = *value {
            self.refer(pointer, block, false);
        }
    }

    /// Stretches lifetimes over forwarding values and over loops, then decides which loads may share registers.
    fn lifetimes(&mut self) {
        let handles: Vec<_> = self.function.expressions.iter().map(|(h, _)| h).collect();
        // Operands stand before their users in the arena: backwards, a user's lifetime is final when it stretches its operands'.
        for &handle in handles.iter().rev() {
            let (defined, mut dies) = (self.defined[handle.index()], self.flow.dies[handle.index()]);
            for &(first, last) in &self.loops {
                // A value from before a loop and used in it is needed again in the next iteration.
                if defined < first && first <= dies {
                    dies = dies.max(last);
                }
            }
            self.flow.dies[handle.index()] = dies;
            if forwards(&self.function.expressions[handle], self.contract) {
                operands(&self.function.expressions[handle], |operand| self.use_at(operand, dies));
            }
        }
        for &handle in &handles {
            let Expression::Load { pointer } = self.function.expressions[handle] else { continue };
            let Some(var) = root(&self.function.expressions, pointer) else { continue };
            let (from, to) = (self.defined[handle.index()], self.flow.dies[handle.index()]);
            self.flow.shares[handle.index()] = !self.stores[var.index()].iter().any(|&s| from < s && s < to);
        }
    }

    /// A variable whose references are all in a loop keeps its home there only if the home block stores the whole of it first.
    /// Otherwise it carries a value from one iteration to the next, and its home is the function.
    fn homes(&mut self) {
        let home = |entry: &Option<(u32, Option<u32>)>| match *entry {
            None => 0,
            Some((home, _)) if !self.scopes[home as usize].in_loop => home,
            Some((home, stored)) if stored == Some(home) => home,
            Some(_) => 0,
        };
        self.flow.home = self.refs.iter().map(home).collect();
        // Nothing reads the first value if the first reference, in the home block itself, stores the whole.
        let needs_init =
            |entry: &Option<(u32, Option<u32>)>| entry.is_some_and(|(home, stored)| stored != Some(home));
        self.flow.needs_init = self.refs.iter().map(needs_init).collect();
    }
}
