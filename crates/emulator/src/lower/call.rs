//! The entry point, inlined calls, and the variables of both.
//!
//! A call has a frame of its own; the variables of its function are made anew at each call. The VM has no call instruction.

use super::place::{AccessPlace, Root};
use super::{InlineFrame, Lower, LowerResult, MAX_DEPTH, Val, Variable, flow};
use crate::code::{Bin, Builtin, Inst, Mem, Reg, VariableName};
use naga::valid::FunctionInfo;
use naga::{AddressSpace, Binding, BuiltIn, Expression, Function, Handle, Type, TypeInner};
use std::rc::Rc;

/// What a variable holds at first.
///
/// WGSL gives every variable without an initialiser the zero value of its type.
enum Init {
    /// Nothing reads it before it is stored.
    Skip,
    Zero,
    /// One register per scalar.
    Value(Vec<Reg>),
}

impl<'a> Lower<'a> {
    /// Lowers the entry point at `index`.
    /// The whole body is at the tail, so that a `return` at its end costs nothing.
    pub(super) fn entry(&mut self, index: usize) -> LowerResult<()> {
        let module = self.types.module;
        let info = self.info;
        let entry = &module.entry_points[index];
        self.code.workgroup_size = entry.workgroup_size;
        let function_info = info.get_entry_point(index);
        self.open_globals(function_info)?;
        let ctrl = self.open_function()?;
        let arguments = entry.function.arguments.iter();
        let arguments = arguments
            .map(|a| Ok(Val::Regs(self.input(a.ty, a.binding.as_ref())?)))
            .collect::<LowerResult<Vec<_>>>()?;
        // Built-in values live as long as the kernel: no statement may free them.
        self.fresh.clear();
        self.open_frame(&entry.function, function_info, None, arguments, ctrl)?;
        self.tail = true;
        self.block(&entry.function.body)?;
        let end = self.ctrl[ctrl].end;
        self.place_label(end);
        self.emit(Inst::End)
    }

    /// Gives every global variable that the entry point uses a place.
    /// Variables of the entry point's callees count as its own: naga's analysis includes them.
    /// Workgroup variables are placed one after the other, in the order of the module.
    fn open_globals(&mut self, info: &FunctionInfo) -> LowerResult<()> {
        let module = self.types.module;
        for (handle, global) in module.global_variables.iter() {
            // An unused workgroup variable takes no memory, and an unused binding needs none.
            if info[handle].is_empty() {
                continue;
            }
            self.span = module.global_variables.get_span(handle);
            let inner = self.types.inner(global.ty);
            let place = |root, offset| AccessPlace { root, offset, dims: Vec::new() };
            let place = match (global.space, &global.binding) {
                (AddressSpace::Storage { .. } | AddressSpace::Uniform, Some(binding)) => {
                    place(Root::Memory(Mem::Binding(binding.binding)), 0)
                }
                (AddressSpace::WorkGroup, _) => {
                    let offset = self.code.workgroup_words;
                    let words = self.workgroup_words(inner)?;
                    // Saturates, because the sizes come from the text.
                    self.code.workgroup_words = offset.saturating_add(words);
                    place(Root::Memory(Mem::Workgroup), offset)
                }
                (AddressSpace::Private, _) => {
                    let init = match global.init {
                        Some(init) => Init::Value(self.global_expression(init)?),
                        None => Init::Zero,
                    };
                    let variable = self.open_variable(inner, &init)?;
                    place(Root::Variable(variable), 0)
                }
                _ => continue,
            };
            if let (Root::Memory(mem), Some(name)) = (place.root, &global.name) {
                // In order of their offsets: `Code::name` looks for the last one that begins before a word.
                self.code.names.push(VariableName { mem, first: place.offset, name: name.clone() });
            }
            self.globals.insert(handle, place);
        }
        Ok(())
    }

    /// A variable with registers of its own.
    /// It is varying if an earlier round said so. Its home is the current depth until a block claims it.
    /// Variables without a first value keep what their registers hold, until they are stored.
    fn open_variable(&mut self, inner: &TypeInner, init: &Init) -> LowerResult<usize> {
        let count = self.types.scalars(inner);
        let count = self.need(count, "a variable of a type that has no values")?;
        self.check_size(count)?;
        let id = self.id();
        let varying = self.facts.is_varying(id);
        let first = self.regs.take(varying, count);
        let zero = self.constant(0);
        for i in 0..count {
            let s = match init {
                Init::Skip => break,
                Init::Zero => zero,
                Init::Value(regs) => regs[i as usize],
            };
            self.emit(Inst::Assign { d: first.offset(i), s })?;
        }
        self.variables.push(Variable { id, first, count, varying, home_depth: self.ctrl.len() });
        Ok(self.variables.len() - 1)
    }

    /// Registers of an entry point's argument: a built-in value or a struct of them.
    /// Members of a struct follow one another.
    /// WGSL has built-in values only among the inputs of a compute shader.
    fn input(&mut self, ty: Handle<Type>, binding: Option<&Binding>) -> LowerResult<Vec<Reg>> {
        if let Some(Binding::BuiltIn(builtin)) = binding {
            return self.input_builtin(*builtin);
        }
        let TypeInner::Struct { ref members, .. } = *self.types.inner(ty) else {
            return self.fail("an entry point argument that is no built-in value");
        };
        let mut out = Vec::new();
        for member in members {
            out.extend(self.input(member.ty, member.binding.as_ref())?);
        }
        Ok(out)
    }

    /// The registers of one built-in value: three for those that are vectors.
    fn input_builtin(&mut self, builtin: BuiltIn) -> LowerResult<Vec<Reg>> {
        let size = self.code.workgroup_size;
        let lanes = size.iter().product::<u32>();
        let subgroup = self.choices.subgroup_size;
        let one = match builtin {
            BuiltIn::LocalInvocationId => {
                return Ok((0..3).map(|i| self.builtin(Builtin::LocalId(i))).collect());
            }
            BuiltIn::WorkGroupId => {
                return Ok((0..3).map(|i| self.builtin(Builtin::WorkgroupId(i))).collect());
            }
            BuiltIn::NumWorkGroups => {
                return Ok((0..3).map(|i| self.builtin(Builtin::NumWorkgroups(i))).collect());
            }
            // Overrides are resolved, so sizes are constants and fold.
            BuiltIn::WorkGroupSize => return Ok(size.iter().map(|&n| self.constant(n)).collect()),
            BuiltIn::GlobalInvocationId => return (0..3).map(|axis| self.global_id(axis)).collect(),
            BuiltIn::LocalInvocationIndex => self.builtin(Builtin::LocalIndex),
            BuiltIn::SubgroupSize => self.constant(subgroup),
            BuiltIn::NumSubgroups => self.constant(lanes.div_ceil(subgroup)),
            BuiltIn::SubgroupId => self.builtin(Builtin::SubgroupId),
            BuiltIn::SubgroupInvocationId => self.builtin(Builtin::SubgroupInvocation),
            other => return self.fail(format!("the built-in value {other:?}")),
        };
        Ok(vec![one])
    }

    /// `workgroup_id * workgroup_size + local_invocation_id` along one axis, as WGSL defines it.
    fn global_id(&mut self, axis: u8) -> LowerResult<Reg> {
        let group = self.builtin(Builtin::WorkgroupId(axis));
        let local = self.builtin(Builtin::LocalId(axis));
        let size = self.constant(self.code.workgroup_size[axis as usize]);
        let first = self.bin(Bin::Mul, group, size)?;
        self.bin(Bin::Add, first, local)
    }

    /// Makes a function's variables and the one for its result. `ctrl` is the construct that its `return`s leave.
    fn open_frame(
        &mut self,
        function: &'a Function,
        info: &'a FunctionInfo,
        handle: Option<Handle<Function>>,
        arguments: Vec<Val>,
        ctrl: usize,
    ) -> LowerResult<()> {
        // Facts depend on it: fused sums read their factors later.
        let contract = self.choices.arithmetic.contract;
        let flow =
            self.flows.entry(handle).or_insert_with(|| Rc::new(flow::analyse(function, contract))).clone();
        self.frames.push(InlineFrame {
            function,
            info,
            flow,
            values: vec![None; function.expressions.len()],
            arguments,
            variables: Vec::new(),
            result: None,
            owned: Vec::new(),
            ctrl,
        });
        for (handle, local) in function.local_variables.iter() {
            let init = match (local.init, self.frame().flow.needs_init[handle.index()]) {
                (_, false) => Init::Skip,
                (Some(init), true) => Init::Value(self.regs(init)?),
                (None, true) => Init::Zero,
            };
            let variable = self.open_variable(self.types.inner(local.ty), &init)?;
            self.frame_mut().variables.push(variable);
        }
        if let Some(result) = &function.result {
            let variable = self.open_variable(self.types.inner(result.ty), &Init::Skip)?;
            // It is read after the function's end, also for invocations that returned early.
            self.variables[variable].home_depth = ctrl;
            self.frame_mut().result = Some(variable);
        }
        Ok(())
    }

    /// Writes the result variable. The type does not matter, since a variable is stored register by register.
    pub(super) fn assign_result(&mut self, variable: usize, regs: &[Reg]) -> LowerResult<()> {
        let place = AccessPlace { root: Root::Variable(variable), offset: 0, dims: Vec::new() };
        let none = TypeInner::Scalar(naga::Scalar::U32);
        self.store(&place, &none, regs)
    }

    /// Inlines a call.
    /// Arguments are passed as they are: values share the caller's registers, and pointers pass places.
    /// Naga allows no recursion, so the inlined body is finite.
    pub(super) fn call(
        &mut self,
        function: Handle<Function>,
        arguments: &[Handle<Expression>],
        result: Option<Handle<Expression>>,
    ) -> LowerResult<()> {
        let arguments = arguments.iter().map(|&a| self.value(a)).collect::<LowerResult<Vec<_>>>()?;
        if self.frames.len() >= MAX_DEPTH {
            return self.fail(format!("calls nested deeper than {MAX_DEPTH}"));
        }
        let (module, info) = (self.types.module, self.info);
        let span = self.span;
        let callee = &module.functions[function];
        let ctrl = self.open_function()?;
        self.open_frame(callee, &info[function], Some(function), arguments, ctrl)?;
        // The callee has a tail of its own.
        let tail = std::mem::replace(&mut self.tail, true);
        self.block(&callee.body)?;
        self.tail = tail;
        let end = self.ctrl[ctrl].end;
        self.place_label(end);
        self.close(ctrl)?;
        self.span = span;
        let frame = self.frames.pop();
        let frame = self.need(frame, "a call without a frame")?;
        // Values that live to the end of the function have no later statement that frees them.
        let left: Vec<_> = frame.owned.iter().map(|&(_, r)| r).collect();
        self.regs.free(&left);
        for &variable in &frame.variables {
            let regs = self.variable_regs(variable);
            self.regs.free(&regs);
        }
        if let Some(variable) = frame.result {
            let regs = self.variable_regs(variable);
            match result {
                // The result variable's registers become those of the call's value.
                Some(result) => {
                    self.fresh.extend(&regs);
                    self.define(result, Val::Regs(regs));
                }
                None => self.regs.free(&regs),
            }
        }
        Ok(())
    }

    /// All registers of a variable.
    fn variable_regs(&self, variable: usize) -> Vec<Reg> {
        let Variable { first, count, .. } = self.variables[variable];
        (0..count).map(|i| first.offset(i)).collect()
    }
}
