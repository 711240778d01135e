//! Functions, the kernel itself, and how variables reach them.
//!
//! Storage, workgroup and private variables are pointers of the same name in every function that uses them, handed down
//! from the kernel, where the latter two live.

use crate::emulated::WORDS;
use crate::names::ScopeNames;
use crate::writer::{WriteResult, Writer};
use crate::{printed::Arg, types::Kind, types::ValueShape};
use naga::valid::FunctionInfo;
use naga::{
    AddressSpace, ArraySize, Binding, BuiltIn, Function, FunctionArgument, GlobalVariable, Handle,
    StorageAccess, Type, TypeInner,
};

impl<'a> Writer<'a> {
    /// Writes a function that is no entry point.
    ///
    /// Its parameters are its own, then the global variables that it uses.
    pub fn function(
        &mut self,
        handle: Handle<Function>,
        function: &'a Function,
        info: &'a FunctionInfo,
    ) -> WriteResult<()> {
        let mut names = self.names.clone();
        let mut arguments = Vec::new();
        let mut parameters = Vec::new();
        for argument in &function.arguments {
            let name = names.unique(argument.name.as_deref());
            parameters.push(self.parameter(argument, &name)?);
            arguments.push(name);
        }
        for global in self.globals_of(info) {
            parameters.extend(self.global_parameters(global)?);
        }
        if self.emulates() {
            parameters.push(format!("LOCAL u32* {WORDS}"));
        }
        let result = match &function.result {
            Some(result) => self.types.name(result.ty)?,
            None => "void".into(),
        };
        // In C an empty list would leave the parameters open.
        let parameters = if parameters.is_empty() { "void".into() } else { parameters.join(", ") };
        let name = self.functions[&handle].clone();
        self.open(Some(handle), function, info, arguments);
        self.current_mut()?.names = names;
        self.line(format!("DEV {result} {name}({parameters})"));
        self.body(function)
    }

    /// The declaration of a function's parameter.
    /// Values are `const`, as WGSL's parameters cannot be assigned.
    fn parameter(&mut self, argument: &FunctionArgument, name: &str) -> WriteResult<String> {
        match *self.types.inner(argument.ty) {
            TypeInner::Pointer { base, space } => Ok(format!("{} {name}", self.pointer(base, space)?)),
            TypeInner::ValuePointer { size, scalar, space } => {
                let kind = self.need(Kind::from_scalar(scalar), "a pointer to a type of another width")?;
                let shape = size.map_or(ValueShape::Scalar(kind), |n| ValueShape::Vector(n as u8, kind));
                let pointee = self.types.shape(shape);
                Ok(format!("{}{pointee}* {name}", self.space(space)?))
            }
            _ => Ok(format!("const {} {name}", self.types.name(argument.ty)?)),
        }
    }

    /// The type of a pointer; to its first element for a runtime-sized array.
    fn pointer(&mut self, to: Handle<Type>, space: AddressSpace) -> WriteResult<String> {
        let pointee = self.types.name(to)?;
        Ok(format!("{}{pointee}*", self.space(space)?))
    }

    /// What stands before the type in a pointer to this space.
    ///
    /// # Errors
    /// For address spaces that compute kernels do not have.
    pub fn space(&self, space: AddressSpace) -> WriteResult<&'static str> {
        match space {
            AddressSpace::Function | AddressSpace::Private => Ok(""),
            AddressSpace::WorkGroup => Ok("LOCAL "),
            AddressSpace::Uniform => Ok("GLOBAL const "),
            AddressSpace::Storage { access } if access.contains(StorageAccess::STORE) => Ok("GLOBAL "),
            AddressSpace::Storage { .. } => Ok("GLOBAL const "),
            other => self.fail(format!("variables of the address space {other:?}")),
        }
    }

    /// The global variables that a function uses, itself or through calls.
    /// So a function has no parameter that it does not need.
    pub fn globals_of(&self, info: &FunctionInfo) -> Vec<Handle<GlobalVariable>> {
        let all = self.module.global_variables.iter();
        all.map(|(handle, _)| handle).filter(|&handle| !info[handle].is_empty()).collect()
    }

    /// Whether a variable's length is known only when the kernel runs.
    pub fn is_runtime_sized(&self, global: Handle<GlobalVariable>) -> bool {
        let is_dynamic = |ty| self.types.is_dynamic_array(self.types.inner(ty));
        let ty = self.module.global_variables[global].ty;
        match *self.types.inner(ty) {
            TypeInner::Struct { ref members, .. } => members.last().is_some_and(|m| is_dynamic(m.ty)),
            TypeInner::Array { size: ArraySize::Dynamic, .. } => true,
            _ => false,
        }
    }

    /// The parameters by which a global variable is handed down: its pointer, and its bytes if it is runtime-sized.
    fn global_parameters(&mut self, global: Handle<GlobalVariable>) -> WriteResult<Vec<String>> {
        let variable = &self.module.global_variables[global];
        let name = self.globals[&global].clone();
        // Bindings do not overlap where one of them is written.
        let restrict = if variable.binding.is_some() { " RESTRICT" } else { "" };
        let mut out = vec![format!("{}{restrict} {name}", self.pointer(variable.ty, variable.space)?)];
        if self.is_runtime_sized(global) {
            out.push(format!("const u32 {name}bytes"));
        }
        Ok(out)
    }

    /// What a call hands down for the callee's global variables.
    pub fn global_arguments(&self, callee: Handle<Function>) -> Vec<String> {
        let mut out = Vec::new();
        for global in self.globals_of(&self.info[callee]) {
            let name = &self.globals[&global];
            out.push(name.clone());
            if self.is_runtime_sized(global) {
                out.push(format!("{name}bytes"));
            }
        }
        out.extend(self.emulates().then(|| WORDS.to_string()));
        out
    }

    /// Writes the kernel; its arguments.
    ///
    /// Bindings become parameters in the order of the module's variables. Built-in values and workgroup and private variables are
    /// declared in the body.
    pub fn entry(&mut self, index: usize, name: &str) -> WriteResult<Vec<Arg>> {
        let (module, info) = (self.module, self.info.get_entry_point(index));
        let point = &module.entry_points[index];
        let (mut parameters, mut args, mut moved) = (Vec::new(), Vec::new(), Vec::new());
        for global in self.globals_of(info) {
            let Some(binding) = &module.global_variables[global].binding else { continue };
            let mut own = self.global_parameters(global)?;
            args.push(Arg::Pointer(binding.binding));
            if self.is_opencl() {
                // OpenCL binds whole buffers only.
                let name = &self.globals[&global];
                let variable = &module.global_variables[global];
                let space = self.space(variable.space)?;
                let ty = format!("{space}{}*", self.types.name(variable.ty)?);
                own.splice(
                    0..1,
                    [format!("{space}u8* RESTRICT {name}base"), format!("const ulong {name}at")],
                );
                moved.push(format!("{ty} const {name} = ({ty})({name}base + {name}at);"));
                args.push(Arg::Offset(binding.binding));
            }
            parameters.extend(own);
            if self.is_runtime_sized(global) {
                args.push(Arg::Bytes(binding.binding));
            }
        }
        let [x, y, z] = point.workgroup_size;
        // Names of arguments must not be those of variables that the kernel is handed.
        let mut names: ScopeNames = self.names.clone();
        let arguments = point.function.arguments.iter().map(|a| names.unique(a.name.as_deref()));
        let arguments: Vec<String> = arguments.collect();
        self.open(None, &point.function, info, arguments.clone());
        self.current_mut()?.names = names;
        self.line(format!("KERNEL({x}, {y}, {z}) {name}({})", parameters.join(", ")));
        self.line("{");
        self.indent += 1;
        // Behind these lines a binding's name means its own range.
        moved.into_iter().for_each(|line| self.line(line));
        if self.emulates() {
            self.line(format!("SHARED u32 {WORDS}[{}];", x * y * z));
        }
        for (argument, name) in point.function.arguments.iter().zip(&arguments) {
            let value = self.input(argument.ty, argument.binding.as_ref(), point.workgroup_size)?;
            let ty = self.types.name(argument.ty)?;
            self.line(format!("const {ty} {name} = {value};"));
        }
        self.open_variables(info, point.workgroup_size)?;
        self.write_body(&point.function)?;
        Ok(args)
    }

    /// Declares the workgroup and private variables and clears the former.
    ///
    /// Workgroup variables are cleared only if the options say so, followed by a barrier.
    fn open_variables(&mut self, info: &'a FunctionInfo, size: [u32; 3]) -> WriteResult<()> {
        let mut shared = Vec::new();
        for global in self.globals_of(info) {
            let variable = &self.module.global_variables[global];
            let name = self.globals[&global].clone();
            self.span = self.module.global_variables.get_span(global);
            match variable.space {
                AddressSpace::WorkGroup => {
                    let ty = self.types.name(variable.ty)?;
                    self.line(format!("SHARED {ty} {name}mem;"));
                    self.line(format!("LOCAL {ty}* const {name} = &{name}mem;"));
                    shared.push((name, variable.ty));
                }
                AddressSpace::Private => {
                    let ty = self.types.name(variable.ty)?;
                    let value = match variable.init {
                        Some(init) => self.constant(&self.module.global_expressions, init)?,
                        None => self.zero_init(variable.ty)?,
                    };
                    self.line(format!("{ty} {name}mem = {value};"));
                    self.line(format!("{ty}* const {name} = &{name}mem;"));
                }
                _ => {}
            }
        }
        if !self.options.zero_workgroup || shared.is_empty() {
            return Ok(());
        }
        // The invocations of a workgroup clear it together, and wait for each other.
        let invocations: u32 = size.iter().product();
        for (name, ty) in shared {
            let line = self.clear_variable(&name, ty, invocations)?;
            self.line(line);
        }
        self.line("BARRIER_LOCAL();");
        Ok(())
    }

    /// Clears a workgroup variable by its own type: as words, compilers may take it for other memory than what is stored
    /// there later.
    fn clear_variable(&mut self, name: &str, ty: Handle<Type>, invocations: u32) -> WriteResult<String> {
        let TypeInner::Array { base, size, .. } = *self.types.inner(ty) else {
            let (own, zero) = (self.types.name(ty)?, self.zero_init(ty)?);
            return Ok(format!("if (LOCAL_INDEX() == 0u) {{ const {own} zero = {zero}; *{name} = zero; }}"));
        };
        let Some(count) = self.types.count(size)? else {
            return self.fail("a workgroup variable without a length");
        };
        let (element, zero) = (self.types.name(base)?, self.zero_init(base)?);
        let padded = if self.types.padding(ty) > 0 { ".e" } else { "" };
        // Invocations take turns, so that neighbours clear neighbouring elements.
        let each = format!("for (u32 i = LOCAL_INDEX(); i < {count}u; i += {invocations}u)");
        Ok(format!("{{ const {element} zero = {zero}; {each} {name}->v[i]{padded} = zero; }}"))
    }

    /// The value of an entry point's argument.
    ///
    /// A struct of built-in values is put together from its members.
    fn input(&mut self, ty: Handle<Type>, binding: Option<&Binding>, size: [u32; 3]) -> WriteResult<String> {
        if let Some(Binding::BuiltIn(builtin)) = binding {
            return self.builtin(*builtin, size);
        }
        let TypeInner::Struct { ref members, .. } = *self.types.inner(ty) else {
            return self.fail("an entry point argument that is no built-in value");
        };
        let values = members.iter().map(|m| self.input(m.ty, m.binding.as_ref(), size));
        let values = values.collect::<WriteResult<Vec<_>>>()?;
        self.struct_init(ty, &values)
    }

    /// A built-in value of an entry point; `size` is that of the workgroup.
    /// Vectors are put together from a macro of the prelude for each axis.
    fn builtin(&mut self, builtin: BuiltIn, size: [u32; 3]) -> WriteResult<String> {
        let lanes: u32 = size.iter().product();
        let of = |axis: fn(usize) -> String| [0, 1, 2].map(axis);
        let three = match builtin {
            BuiltIn::LocalInvocationId => of(|d| format!("LOCAL_ID({d})")),
            BuiltIn::WorkGroupId => of(|d| format!("GROUP_ID({d})")),
            BuiltIn::NumWorkGroups => of(|d| format!("GROUP_COUNT({d})")),
            BuiltIn::WorkGroupSize => size.map(|n| format!("{n}u")),
            BuiltIn::GlobalInvocationId => {
                [0, 1, 2].map(|d| format!("GROUP_ID({d}) * {}u + LOCAL_ID({d})", size[d]))
            }
            BuiltIn::LocalInvocationIndex => return Ok("LOCAL_INDEX()".into()),
            BuiltIn::SubgroupSize => return Ok("LANES".into()),
            BuiltIn::SubgroupInvocationId => return Ok("LANE()".into()),
            BuiltIn::SubgroupId => return Ok("(LOCAL_INDEX() / LANES)".into()),
            BuiltIn::NumSubgroups => return Ok(format!("(({lanes}u + LANES - 1u) / LANES)")),
            other => return self.fail(format!("the built-in value {other:?}")),
        };
        self.vector_of(Kind::U32, &three)
    }

    /// The body of a function with its braces.
    fn body(&mut self, function: &'a Function) -> WriteResult<()> {
        self.line("{");
        self.indent += 1;
        self.write_body(function)
    }

    /// Local variables and statements, and the closing brace.
    fn write_body(&mut self, function: &'a Function) -> WriteResult<()> {
        for (handle, local) in function.local_variables.iter() {
            self.span = function.local_variables.get_span(handle);
            let name = self.current_mut()?.names.unique(local.name.as_deref());
            let ty = self.types.name(local.ty)?;
            let value = match local.init {
                Some(init) => self.constant(&function.expressions, init)?,
                // WGSL's variables without an initial value begin as zeros.
                None => self.zero_init(local.ty)?,
            };
            self.line(format!("{ty} {name} = {value};"));
            self.current_mut()?.locals.insert(handle, name);
        }
        self.block(&function.body)?;
        self.indent -= 1;
        self.line("}");
        // Whatever asks for an expression between two functions is a bug, and gets an error.
        self.current = None;
        Ok(())
    }
}
