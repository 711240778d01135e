//! Which subgroup operations all invocations of a workgroup reach together: those that may be carried out with barriers.
//!
//! A value varies if invocations of a workgroup may see different ones: identifiers, what is loaded from memory that the
//! kernel writes, and what follows from them. A local variable varies if a varying value is stored in it, or any value where
//! not all invocations are. Control flow varies behind a condition that does, and after some invocations have left. Calls
//! are followed with what is known of their arguments. What is not understood varies.

use naga::{
    AddressSpace, Binding, Block, BuiltIn, Expression, Function, Handle, LocalVariable, Module, Statement,
    StorageAccess,
};
use std::collections::HashSet;

/// Calls that are followed into each other at most; WGSL has no recursion.
const DEEPEST: usize = 64;

/// The results of subgroup operations by their function, `None` for the entry point.
pub type Diverging = HashSet<(Option<Handle<Function>>, Handle<Expression>)>;

/// The subgroup operations that an entry point reaches where perhaps not all invocations of a workgroup are.
pub fn find_diverging(module: &Module, entry: usize) -> Diverging {
    let mut found = Diverging::new();
    let function = &module.entry_points[entry].function;
    let varies: Vec<bool> = function.arguments.iter().map(|a| !is_uniform(a.binding.as_ref())).collect();
    let at = FlowPlace { module, key: None, function, depth: 0 };
    Flow::new(at, varies, &mut found).run(false);
    found
}

/// Whether an input of a kernel is the same for a whole workgroup.
fn is_uniform(binding: Option<&Binding>) -> bool {
    use BuiltIn as B;
    let uniform = [B::WorkGroupId, B::NumWorkGroups, B::WorkGroupSize, B::NumSubgroups, B::SubgroupSize];
    matches!(binding, Some(Binding::BuiltIn(builtin)) if uniform.contains(builtin))
}

/// Which function is looked at, and how deep its call is.
#[derive(Clone, Copy)]
struct FlowPlace<'a> {
    module: &'a Module,
    key: Option<Handle<Function>>,
    function: &'a Function,
    depth: usize,
}

/// What is known of one call of a function. It only grows, but for `returned`.
struct Flow<'a> {
    at: FlowPlace<'a>,
    /// Whether each argument varies.
    arguments: Vec<bool>,
    /// Local variables that vary.
    locals: HashSet<Handle<LocalVariable>>,
    /// Results of calls that vary.
    results: HashSet<Handle<Expression>>,
    /// Loops and switches, by their order in the text, that some invocations leave or repeat before others.
    left: HashSet<usize>,
    /// Whether some invocations have returned before others, as far as this round has come.
    returned: bool,
    /// Whether what is returned varies.
    result: bool,
    /// What is found, in all functions.
    found: &'a mut Diverging,
}

/// The loops and switches around a statement: their numbers, and whether each is a loop.
type Around = Vec<(usize, bool)>;

impl<'a> Flow<'a> {
    fn new(at: FlowPlace<'a>, arguments: Vec<bool>, found: &'a mut Diverging) -> Flow<'a> {
        let (locals, results, left) = (HashSet::new(), HashSet::new(), HashSet::new());
        Flow { at, arguments, locals, results, left, returned: false, result: false, found }
    }

    /// Whether the function's result varies. It is gone through until nothing more is found to vary.
    /// Everything only grows and is finite, so that this ends.
    fn run(mut self, varies: bool) -> bool {
        loop {
            let known = self.known_counts();
            // Statements in front of a return are reached by all, unless a loop brings them again.
            self.returned = false;
            self.block(&self.at.function.body, varies, &mut Vec::new(), &mut 0);
            // A variable that is found to vary late in a loop's body varies at its beginning, too.
            if self.known_counts() == known {
                return self.result;
            }
        }
    }

    /// Sizes of everything that grows, so that a round that finds nothing is noticed.
    fn known_counts(&self) -> [usize; 5] {
        let flags = [self.returned, self.result].map(usize::from);
        [self.locals.len(), self.results.len(), self.left.len(), flags[0], flags[1]]
    }

    /// Whether control flow varies where it varies by its conditions like this.
    fn is_varying(&self, varies: bool, around: &Around) -> bool {
        varies || self.returned || around.iter().any(|(number, _)| self.left.contains(number))
    }

    /// The statements of a block where control flow varies or not.
    fn block(&mut self, block: &'a Block, varies: bool, around: &mut Around, count: &mut usize) {
        for statement in block {
            let now = self.is_varying(varies, around);
            self.statement(statement, now, around, count);
        }
    }

    /// One statement; `now` says whether control flow varies there.
    fn statement(&mut self, statement: &'a Statement, now: bool, around: &mut Around, count: &mut usize) {
        match statement {
            Statement::Block(block) => self.block(block, now, around, count),
            Statement::If { condition, accept, reject } => {
                let varies = now || self.varies(*condition);
                self.block(accept, varies, around, count);
                self.block(reject, varies, around, count);
            }
            Statement::Switch { selector, cases } => {
                let varies = now || self.varies(*selector);
                self.scope(false, around, count, |flow, around, count, _| {
                    cases.iter().for_each(|case| flow.block(&case.body, varies, around, count));
                });
            }
            Statement::Loop { body, continuing, break_if } => {
                self.scope(true, around, count, |flow, around, count, number| {
                    flow.block(body, now, around, count);
                    flow.block(continuing, now, around, count);
                    if break_if
                        // Invocations then leave the loop in different rounds.
                        .is_some_and(|condition| flow.is_varying(now, around) || flow.varies(condition))
                    {
                        flow.left.insert(number);
                    }
                });
            }
            Statement::Break if now => self.left.extend(around.last().map(|(number, _)| *number)),
            // Those that go on with the next round leave every switch in between.
            Statement::Continue if now => {
                let inner = around.iter().rposition(|(_, is_loop)| *is_loop).unwrap_or(0);
                self.left.extend(around[inner..].iter().map(|(number, _)| *number));
            }
            Statement::Return { value } => {
                if now {
                    self.returned = true;
                    self.left.extend(around.iter().map(|(number, _)| *number));
                }
                // Invocations that return at different places return different values, perhaps.
                self.result |= now || value.is_some_and(|value| self.varies(value));
            }
            Statement::Store { pointer, value } => {
                let varies = now || self.varies(*value) || self.indices_vary(*pointer);
                self.record_store(*pointer, varies);
            }
            Statement::Call { function, arguments, result } => self.call(*function, arguments, *result, now),
            Statement::SubgroupBallot { result, .. }
            | Statement::SubgroupGather { result, .. }
            | Statement::SubgroupCollectiveOperation { result, .. }
                if now =>
            {
                self.found.insert((self.at.key, *result));
            }
            _ => {}
        }
    }

    /// A loop or switch.
    fn scope(
        &mut self,
        is_loop: bool,
        around: &mut Around,
        count: &mut usize,
        inside: impl FnOnce(&mut Self, &mut Around, &mut usize, usize),
    ) {
        *count += 1;
        let number = *count;
        around.push((number, is_loop));
        inside(self, around, count, number);
        around.pop();
    }

    /// Follows a call. A function is gone through for each call, with what is known of its arguments there.
    fn call(
        &mut self,
        callee: Handle<Function>,
        arguments: &[Handle<Expression>],
        result: Option<Handle<Expression>>,
        now: bool,
    ) {
        // What a pointer leads to is not followed into the callee.
        let varies: Vec<bool> = arguments.iter().map(|&a| self.is_pointer(a) || self.varies(a)).collect();
        // What a pointer is handed over for may be stored there.
        for &argument in arguments {
            if self.is_pointer(argument) {
                self.record_store(argument, true);
            }
        }
        let (module, depth) = (self.at.module, self.at.depth + 1);
        let at = FlowPlace { module, key: Some(callee), function: &module.functions[callee], depth };
        // Too deep to follow: the result is taken to vary.
        let varies = depth > DEEPEST || Flow::new(at, varies, self.found).run(now);
        if let Some(result) = result.filter(|_| varies) {
            self.results.insert(result);
        }
    }

    /// Notes that a varying value is stored in a local variable. Other memory counts as varying anyway.
    fn record_store(&mut self, pointer: Handle<Expression>, varies: bool) {
        if let (true, Expression::LocalVariable(local)) = (varies, self.root(pointer)) {
            self.locals.insert(*local);
        }
    }

    /// An expression of this function.
    fn expression(&self, handle: Handle<Expression>) -> &'a Expression {
        &self.at.function.expressions[handle]
    }

    /// What a place in memory is part of.
    /// A variable, or an expression that gives a pointer in another way.
    fn root(&self, mut pointer: Handle<Expression>) -> &'a Expression {
        loop {
            match self.expression(pointer) {
                Expression::Access { base, .. } | Expression::AccessIndex { base, .. } => pointer = *base,
                other => return other,
            }
        }
    }

    /// Whether an expression is a place in a variable.
    fn is_pointer(&self, handle: Handle<Expression>) -> bool {
        matches!(self.root(handle), Expression::LocalVariable(_) | Expression::GlobalVariable(_))
    }

    /// Whether an index on the way to a place varies.
    fn indices_vary(&self, mut pointer: Handle<Expression>) -> bool {
        loop {
            match self.expression(pointer) {
                Expression::Access { index, .. } if self.varies(*index) => return true,
                Expression::Access { base, .. } | Expression::AccessIndex { base, .. } => pointer = *base,
                _ => return false,
            }
        }
    }

    /// Whether what lies in a place in memory varies.
    fn content_varies(&self, pointer: Handle<Expression>) -> bool {
        let content = match self.root(pointer) {
            Expression::LocalVariable(local) => self.locals.contains(local),
            Expression::GlobalVariable(global) => {
                let read_only = |access: StorageAccess| !access.contains(StorageAccess::STORE);
                let space = self.at.module.global_variables[*global].space;
                !matches!(space, AddressSpace::Uniform)
                    && !matches!(space, AddressSpace::Storage { access } if read_only(access))
            }
            _ => true,
        };
        content || self.indices_vary(pointer)
    }

    /// Whether invocations may see different values of an expression.
    fn varies(&self, handle: Handle<Expression>) -> bool {
        let any = |of: &[Handle<Expression>]| of.iter().any(|&one| self.varies(one));
        match *self.expression(handle) {
            Expression::Literal(_)
            | Expression::Constant(_)
            | Expression::Override(_)
            | Expression::ZeroValue(_)
            | Expression::ArrayLength(_)
            | Expression::WorkGroupUniformLoadResult { .. } => false,
            Expression::FunctionArgument(index) => {
                self.arguments.get(index as usize).copied().unwrap_or(true)
            }
            Expression::Load { pointer } => self.content_varies(pointer),
            Expression::CallResult(_) => self.results.contains(&handle),
            Expression::Compose { ref components, .. } => any(components),
            Expression::Access { base, index } => any(&[base, index]),
            Expression::AccessIndex { base, .. } => self.varies(base),
            Expression::Splat { value, .. } => self.varies(value),
            Expression::Swizzle { vector, .. } => self.varies(vector),
            Expression::Unary { expr, .. } | Expression::As { expr, .. } => self.varies(expr),
            Expression::Binary { left, right, .. } => any(&[left, right]),
            Expression::Select { condition, accept, reject } => any(&[condition, accept, reject]),
            Expression::Relational { argument, .. } => self.varies(argument),
            Expression::Math { arg, arg1, arg2, arg3, .. } => {
                [Some(arg), arg1, arg2, arg3].into_iter().flatten().any(|one| self.varies(one))
            }
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many subgroup operations of a kernel with this function are perhaps not reached by all.
    fn count_diverging(body: &str) -> usize {
        let text = format!(
            "var<workgroup> words: array<u32, 64>;\n\
             fn f(value: u32, first: bool) {{\n{body}\n}}\n\
             @compute @workgroup_size(64)\n\
             fn main(@builtin(local_invocation_index) lane: u32, @builtin(subgroup_invocation_id) within: u32) {{\n\
             f(lane, within == 0u);\n}}\n"
        );
        let module = naga::front::wgsl::parse_str(&text).unwrap();
        find_diverging(&module, 0).len()
    }

    #[test]
    fn only_what_follows_a_return_or_comes_again_after_it_is_reached_by_some() {
        // A condition at the end of a function holds a return for each of its ways.
        assert_eq!(count_diverging("let sum = subgroupAdd(value); if first { words[0] = sum; }"), 0);
        assert_eq!(count_diverging("if first { return; } words[0] = subgroupAdd(value);"), 1);
        let again = "for (var i = 0u; i < 4u; i++) { words[i] = subgroupAdd(value); if first { return; } }";
        assert_eq!(count_diverging(again), 1);
        assert_eq!(count_diverging("if first { words[0] = subgroupAdd(value); }"), 1);
    }
}
