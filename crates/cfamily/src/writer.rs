//! The state of printing one entry point.

use crate::names::ScopeNames;
use crate::options::{Dialect, PrintOptions};
use crate::types::TextTypes;
use crate::uniform::Diverging;
use naga::valid::{FunctionInfo, ModuleInfo};
use naga::{Expression, Function, GlobalVariable, Handle, LocalVariable, Module, Span, TypeInner};
use std::collections::{HashMap, HashSet};
pub use tapml_wgsl::Fail;
use tapml_wgsl::SourceMap;

/// What writing gives, or why the text cannot be written and where in the WGSL.
pub type WriteResult<T> = Result<T, Fail>;

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
    pub helpers: Vec<String>,
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

impl<'a> Writer<'a> {
    /// Nothing is written yet.
    pub fn new(kernel: &'a tapml_wgsl::Module, options: PrintOptions) -> Writer<'a> {
        let tapml_wgsl::Module { naga: module, info, layouter, source, .. } = kernel;
        let mut names = ScopeNames::default();
        let types = TextTypes::new(module, layouter, &mut names);
        Writer {
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
        }
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
    ///
    /// `name` tells it from all others. Functions that `text` asks for come in front of it.
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
