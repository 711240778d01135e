//! A whole kernel: the functions that its entry point calls, its text's parts and their order.
//!
//! The text is the dialect's prelude, types, scalar functions, functions for certain types, and then the kernel with what it calls.
//! Types and functions are collected while the kernel is written, and only those that it uses are put in front of it.

use crate::control::calls;
use crate::helpers;
use crate::options::PrintOptions;
use crate::printed::Arg;
use crate::uniform::find_diverging;
use crate::writer::{Fail, WriteResult, Writer};
use naga::{Expression, Function, Handle, Span};
use std::collections::HashSet;

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

/// Writes a kernel.
///
/// # Errors
/// With the place in the WGSL, if something in it has no text in the dialect.
pub fn write(kernel: &tapml_wgsl::Module, options: PrintOptions) -> WriteResult<EntryText> {
    let mut writer = Writer::new(kernel, options);
    match writer.program(kernel.entry) {
        Ok((name, args)) => writer.assemble(name, args),
        // A failure without a place happened at what was being written.
        Err(fail) if fail.span == Span::UNDEFINED => Err(Fail { span: writer.span, ..fail }),
        Err(fail) => Err(fail),
    }
}

impl Writer<'_> {
    /// Writes the functions that an entry point calls, and the kernel.
    fn program(&mut self, entry: usize) -> WriteResult<(String, Vec<Arg>)> {
        let (module, info) = (self.module, self.info);
        // Only emulation needs to know it.
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
    /// WGSL has no recursion.
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
            calls(&function.body, &mut |callee| {
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
        // Only when all else is written is it known which of them are called.
        let scalars = helpers::used_by(&[typed.as_str(), body.as_str()]);
        let front = format!("{}{types}{scalars}{typed}", helpers::prelude(self.options.dialect));
        // Lines of the front come from no line of the WGSL.
        let mut lines = vec![0; front.matches('\n').count()];
        lines.extend(self.out.iter().map(|line| line.from));
        Ok(EntryText { text: front + &body, name, args, lines })
    }
}
