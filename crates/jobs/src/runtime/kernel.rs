//! Kernels of one's own as programs of one dispatch.

use tapml_device::{BindingKind, Grid, KernelDesc};
use tapml_graph::{Dim, Error, Extent, Result, Symbols, TensorType};
use tapml_kernels::{
    BufferPlan, Content, Port, Program, ProgramStep, SCHEMA, Slice, own_kernel, program_symbols,
};

/// WGSL of one's own, with the types of what it binds.
#[derive(Clone, Debug)]
pub struct OwnKernel {
    /// As it will be compiled.
    desc: KernelDesc,
    /// Name and type of each binding, in order.
    arguments: Vec<(String, TensorType)>,
    /// Workgroups in x, y and z, from the sizes of a call.
    groups: Grid,
}

impl OwnKernel {
    /// The kernel `entry` of a WGSL text, or its only one, whose bindings have these types, in order. Bindings that are
    /// `read_write` are its outputs. Without `groups` there is one invocation in x for every element of the last output.
    ///
    /// Errors are those of [`own_kernel`], and [`tapml_graph::ErrorKind::InvalidInput`] if the types do not fit.
    pub fn new(
        file: &str,
        text: &str,
        entry: Option<&str>,
        constants: &[(String, f64)],
        types: &[TensorType],
        groups: Option<Grid>,
    ) -> Result<OwnKernel> {
        let (desc, names) = own_kernel(file, text, entry, constants)?;
        if names.len() != types.len() {
            let (want, have) = (names.len(), types.len());
            return Err(Error::invalid(format!(
                "`{}` binds {want} buffers, {have} types are given",
                desc.entry
            ))
            .with_hint(format!("in order: {}", names.join(", "))));
        }
        // Bindings are in order, so the last one written is the result.
        let mut written =
            desc.bindings.iter().zip(types).filter(|(kind, _)| **kind == BindingKind::ReadWrite);
        let Some((_, last)) = written.next_back() else {
            return Err(Error::invalid(format!("`{}` writes nothing", desc.entry))
                .with_hint("bind its result as `var<storage, read_write>`"));
        };
        let groups = match groups {
            Some(groups) => groups,
            None => one_each(&desc, last)?,
        };
        let arguments = names.into_iter().zip(types.iter().cloned()).collect();
        Ok(OwnKernel { desc, arguments, groups })
    }

    /// The entry point's name.
    pub fn entry(&self) -> &str {
        &self.desc.entry
    }

    /// Whether binding `i` is an output.
    pub(super) fn writes(&self, i: usize) -> bool {
        self.desc.bindings.get(i) == Some(&BindingKind::ReadWrite)
    }

    /// A program of one dispatch with a buffer for each binding.
    pub(super) fn program(&self, name: &str, capacity: &Symbols) -> Result<Program> {
        let (mut buffers, mut inputs, mut outputs) = (Vec::new(), Vec::new(), Vec::new());
        for (i, (argument, ty)) in self.arguments.iter().enumerate() {
            let bytes =
                ty.bytes().ok_or_else(|| Error::invalid(format!("`{argument}`: {ty} is too large")))?;
            // At least 4 bytes: an empty buffer cannot be bound.
            let size = bytes.eval(capacity)?.max(4).next_multiple_of(4);
            buffers.push(BufferPlan { name: argument.clone(), size, content: Content::Activation });
            let port = Port { name: argument.clone(), ty: ty.clone(), buffer: i as u32 };
            if self.writes(i) { outputs.push(port) } else { inputs.push(port) }
        }
        // A size of 0 stands for the whole buffer.
        let whole = |buffer| Slice { buffer, offset: 0, size: 0 };
        let bindings = (0..self.arguments.len() as u32).map(whole).collect();
        let groups = self.groups.clone();
        let program = Program {
            schema: SCHEMA,
            name: name.into(),
            symbols: program_symbols(capacity),
            capacity: capacity.clone(),
            context: None,
            decode_rows: 1,
            buffers,
            kernels: vec![self.desc.clone()],
            steps: vec![ProgramStep::Dispatch {
                node: name.into(),
                row: format!("own/{name}"),
                kernel: 0,
                bindings,
                groups,
                phase: None,
            }],
            inputs,
            outputs,
            states: Vec::new(),
        };
        // As programs from files are checked: what follows may index without looking.
        program.check()?;
        Ok(program)
    }
}

/// One invocation for every element of a type.
fn one_each(desc: &KernelDesc, ty: &TensorType) -> Result<Grid> {
    let [x, y, z] = desc.workgroup;
    let Some(elements) = ty.elements().filter(|_| y == 1 && z == 1) else {
        let text = format!("`{}` has workgroups of {x} × {y} × {z}: say how many of them run", desc.entry);
        return Err(Error::invalid(text).with_hint("groups=(x, y, z)"));
    };
    Ok([Extent::ceil_div(elements, x), Extent::from_dim(1u64), Extent::from_dim(1u64)])
}

/// Numbers of workgroups, at most three, from texts such as `16`, `n` and `320*n/64` (rounded up).
pub fn parse_groups(texts: &[String]) -> Result<Grid> {
    let bad = |text: &str| {
        Error::invalid(format!("`{text}` is no number of workgroups"))
            .with_hint("expected such as 16, n or 320*n/64, which is rounded up")
    };
    let extent = |text: &String| -> Result<Extent> {
        let (dim, divisor) = text.split_once('/').unwrap_or((text, "1"));
        let divisor = divisor.trim().parse().ok().filter(|&d| d > 0).ok_or_else(|| bad(text))?;
        Ok(Extent::ceil_div(dim.trim().parse::<Dim>().map_err(|_| bad(text))?, divisor))
    };
    let mut grid = [(); 3].map(|()| Extent::from_dim(1u64));
    if texts.is_empty() || texts.len() > grid.len() {
        return Err(Error::invalid(format!("{} numbers of workgroups, expected one to three", texts.len())));
    }
    for (place, text) in grid.iter_mut().zip(texts) {
        *place = extent(text)?;
    }
    Ok(grid)
}
