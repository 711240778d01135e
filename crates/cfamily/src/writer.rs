//! The state of printing one entry point, and the order of the text's parts.
//!
//! The text is the dialect's prelude, types, scalar functions, functions for certain types, and then the kernel with what it calls.
//! Types and functions are collected while the kernel is written, and only those that it uses are put in front of it.

use crate::names::ScopeNames;
use crate::types::TextTypes;
use crate::uniform::{Diverging, find_diverging};
use crate::{Arg, Dialect, PrintOptions, helpers};
use naga::valid::{FunctionInfo, ModuleInfo};
use naga::{Expression, Function, GlobalVariable, Handle, LocalVariable, Module, Span, TypeInner};
use std::collections::{HashMap, HashSet};
pub use tapml_wgsl::Fail;
use tapml_wgsl::SourceMap;

/// What writing gives, or why the text cannot be written and where in the WGSL.
pub type WriteResult<T> = Result<T, Fail>;

/// What is written for an entry point.
pub struct EntryText {
    pub text: String,
    /// The kernel's name in it.
    pub name: String,
    /// The kernel's arguments, in order.
    pub args: Vec<Arg>,
    /// Line of the WGSL for every line.
    pub lines: Vec<u32>,
}

/// One line of the text.
pub struct Line {
    pub indent: usize,
    pub text: String,
    /// Line of the WGSL; 0 for none.
    pub from: u32,
}

/// A function that is being written.
pub struct Current<'a> {
    /// `None` for the entry point.
    pub key: Option<Handle<Function>>,
    /// The function.
    pub function: &'a Function,
    /// What the validator found out about it, such as the types of expressions.
    pub info: &'a FunctionInfo,
    pub names: ScopeNames,
    /// Text of every expression that has one: a value that may stand before a postfix, or a place in memory.
    pub values: Vec<Option<String>>,
    /// Names of its parameters, in order.
    pub arguments: Vec<String>,
    /// Names of its local variables that are declared.
    pub locals: HashMap<Handle<LocalVariable>, String>,
    /// Count of values that the printer has named.
    temporaries: usize,
}

/// See the module.
pub struct Writer<'a> {
    pub module: &'a Module,
    /// What the validator found out about the module.
    pub info: &'a ModuleInfo,
    /// What to print.
    pub options: PrintOptions,
    /// Lines of the WGSL.
    source: &'a SourceMap,
    /// Types, and those that are used.
    pub types: TextTypes<'a>,
    pub names: ScopeNames,
    /// Names of global variables.
    pub globals: HashMap<Handle<GlobalVariable>, String>,
    /// Names of functions.
    pub functions: HashMap<Handle<Function>, String>,
    /// Where subgroup operations are emulated: those that may not be.
    pub diverging: Diverging,
    /// Functions that the printer adds for certain types, in the order of their use.
    helpers: Vec<String>,
    /// Names of those functions.
    known: HashSet<String>,
    /// The kernel's text so far.
    pub out: Vec<Line>,
    pub indent: usize,
    /// Place in the WGSL of what is being written.
    pub span: Span,
    /// The function that is being written; none between two.
    pub current: Option<Current<'a>>,
}

/// Writes a kernel.
pub fn write(kernel: &tapml_wgsl::Module, options: PrintOptions) -> WriteResult<EntryText> {
    let tapml_wgsl::Module { naga: module, info, layouter, entry, source, .. } = kernel;
    let mut names = ScopeNames::default();
    let types = TextTypes::new(module, layouter, &mut names);
    let mut writer = Writer {
        module,
        info,
        options,
        source,
        types,
        names,
        globals: HashMap::new(),
        functions: HashMap::new(),
        diverging: Diverging::new(),
        helpers: Vec::new(),
        known: HashSet::new(),
        out: Vec::new(),
        indent: 0,
        span: Span::UNDEFINED,
        current: None,
    };
    match writer.program(*entry) {
        Ok((name, args)) => writer.assemble(name, args),
        Err(fail) if fail.span == Span::UNDEFINED => Err(Fail { span: writer.span, ..fail }),
        Err(fail) => Err(fail),
    }
}

impl<'a> Writer<'a> {
    /// Writes the functions that an entry point calls, and the kernel.
    fn program(&mut self, entry: usize) -> WriteResult<(String, Vec<Arg>)> {
        let (module, info) = (self.module, self.info);
        if self.emulates() {
            self.diverging = find_diverging(module, entry);
        }
        for (handle, variable) in module.global_variables.iter() {
            let name = self.names.unique(variable.name.as_deref());
            self.globals.insert(handle, name);
        }
        for (handle, function) in module.functions.iter() {
            let name = self.names.unique(function.name.as_deref());
            self.functions.insert(handle, name);
        }
        let name = self.names.unique(Some(&module.entry_points[entry].name));
        for handle in self.called_functions(&module.entry_points[entry].function) {
            self.function(handle, &module.functions[handle], &info[handle])?;
        }
        let args = self.entry(entry, &name)?;
        Ok((name, args))
    }

    /// Functions that are called from one, directly or not, callees first.
    fn called_functions(&self, root: &Function) -> Vec<Handle<Function>> {
        let mut reached: HashSet<Handle<Function>> = HashSet::new();
        let mut open = vec![root];
        while let Some(function) = open.pop() {
            for (_, expression) in function.expressions.iter() {
                if let Expression::CallResult(callee) = *expression
                    && reached.insert(callee)
                {
                    open.push(&self.module.functions[callee]);
                }
            }
            crate::control::calls(&function.body, &mut |callee| {
                if reached.insert(callee) {
                    open.push(&self.module.functions[callee]);
                }
            });
        }
        // The module has callees before their callers.
        self.module.functions.iter().map(|(handle, _)| handle).filter(|h| reached.contains(h)).collect()
    }

    /// Puts the parts together, with the line of the WGSL for each line.
    fn assemble(mut self, name: String, args: Vec<Arg>) -> WriteResult<EntryText> {
        let mut body = String::new();
        for line in &self.out {
            let indent = 4 * line.indent;
            body.push_str(&format!("{:indent$}{}\n", "", line.text));
        }
        let types = self.types.declarations()?;
        let typed = self.helpers.concat();
        let scalars = helpers::used_by(&[typed.as_str(), body.as_str()]);
        let front = format!("{}{types}{scalars}{typed}", helpers::prelude(self.options.dialect));
        let mut lines = vec![0; front.matches('\n').count()];
        lines.extend(self.out.iter().map(|line| line.from));
        Ok(EntryText { text: front + &body, name, args, lines })
    }

    /// The error that something cannot be printed, at the current place.
    pub fn fail<T>(&self, what: impl Into<String>) -> WriteResult<T> {
        Err(Fail { span: self.span, what: what.into() })
    }

    /// A value that has to be there.
    pub fn need<T>(&self, value: Option<T>, what: &str) -> WriteResult<T> {
        value.map_or_else(|| self.fail(what), Ok)
    }

    /// Adds a line at the current indentation.
    pub fn line(&mut self, text: impl Into<String>) {
        let from = self.source.line(self.span);
        self.out.push(Line { indent: self.indent, text: text.into(), from });
    }

    /// Adds a function for certain types unless it is there already.
    pub fn helper(
        &mut self,
        name: &str,
        text: impl FnOnce(&mut Self) -> WriteResult<String>,
    ) -> WriteResult<()> {
        if self.known.insert(name.to_string()) {
            // Functions that it needs itself come in front of it.
            let text = text(self)?;
            self.helpers.push(text);
        }
        Ok(())
    }

    /// The function that is being written.
    pub fn current(&self) -> WriteResult<&Current<'a>> {
        self.need(self.current.as_ref(), "an expression outside functions")
    }

    /// The same, to be changed.
    pub fn current_mut(&mut self) -> WriteResult<&mut Current<'a>> {
        let span = self.span;
        let what = || Fail { span, what: "an expression outside functions".into() };
        self.current.as_mut().ok_or_else(what)
    }

    /// Begins a function whose parameters have these names.
    pub fn open(
        &mut self,
        key: Option<Handle<Function>>,
        function: &'a Function,
        info: &'a FunctionInfo,
        arguments: Vec<String>,
    ) {
        let names = self.names.clone();
        let values = vec![None; function.expressions.len()];
        let locals = HashMap::new();
        self.current =
            Some(Current { key, function, info, names, values, arguments, locals, temporaries: 0 });
    }

    /// A name for a value without one.
    pub fn temporary(&mut self) -> WriteResult<String> {
        let current = self.current_mut()?;
        current.temporaries += 1;
        Ok(format!("t{}", current.temporaries))
    }

    /// The type of an expression of the current function.
    pub fn type_of(&self, expression: Handle<Expression>) -> WriteResult<&'a TypeInner> {
        let module = self.module;
        let info = self.current()?.info;
        Ok(info[expression].ty.inner_with(&module.types))
    }

    /// Whether the dialect is OpenCL C.
    pub fn is_opencl(&self) -> bool {
        self.options.dialect == Dialect::OpenCl
    }
}
