//! Runs small kernels on the emulator: what the behaviour tests share.
#![allow(dead_code, clippy::unwrap_used)]

use tapml_device::{
    Binding, BindingKind, BufferId, Command, Device, Error, Extent, Finding, KernelDesc, KernelId, Language,
    Result, Source, Symbols,
};
use tapml_emulator::{Emulator, EmulatorOptions};

/// One binding of a test kernel.
#[derive(Clone)]
pub enum Arg {
    Read(Vec<u32>),
    ReadWrite(Vec<u32>),
    Uniform(Vec<u32>),
    /// Read and write, never written by the host.
    Fresh(usize),
}

/// A kernel to run once.
#[derive(Clone)]
pub struct Run {
    pub text: String,
    pub prelude: String,
    pub constants: Vec<(String, f64)>,
    pub workgroup: [u32; 3],
    pub groups: [u32; 3],
    pub args: Vec<Arg>,
    pub options: EmulatorOptions,
    pub f16: bool,
    pub subgroups: bool,
}

impl Run {
    /// A kernel with entry point `main`.
    pub fn new(text: &str, workgroup: u32, args: Vec<Arg>) -> Run {
        Run {
            text: text.into(),
            prelude: String::new(),
            constants: Vec::new(),
            workgroup: [workgroup, 1, 1],
            groups: [1, 1, 1],
            args,
            options: EmulatorOptions { threads: Some(2), ..EmulatorOptions::default() },
            f16: false,
            subgroups: false,
        }
    }

    pub fn options(mut self, query: &str) -> Run {
        self.options = EmulatorOptions::parse(query).unwrap();
        self
    }

    pub fn groups(mut self, x: u32) -> Run {
        self.groups = [x, 1, 1];
        self
    }

    pub fn desc(&self) -> KernelDesc {
        let kind = |arg: &Arg| match arg {
            Arg::Read(_) => BindingKind::Read,
            Arg::Uniform(_) => BindingKind::Uniform,
            Arg::ReadWrite(_) | Arg::Fresh(_) => BindingKind::ReadWrite,
        };
        KernelDesc {
            name: "test".into(),
            source: Source {
                language: Language::Wgsl,
                file: "test.wgsl".into(),
                prelude: self.prelude.clone(),
                text: self.text.clone(),
            },
            entry: "main".into(),
            constants: self.constants.clone(),
            bindings: self.args.iter().map(kind).collect(),
            workgroup: self.workgroup,
            workgroup_memory: 16 << 10,
            needs_f16: self.f16,
            needs_subgroups: self.subgroups,
            dependent_launch: false,
        }
    }

    /// Runs the kernel; the contents of every buffer afterwards, and what was found.
    pub fn run(&self) -> Result<(Vec<Vec<u32>>, Vec<Finding>)> {
        let mut device = Emulator::new(self.options)?;
        let kernel = device.create_kernel(&self.desc())?;
        self.run_on(&mut device, kernel)
    }

    pub fn run_on(&self, device: &mut Emulator, kernel: KernelId) -> Result<(Vec<Vec<u32>>, Vec<Finding>)> {
        let mut buffers: Vec<(BufferId, usize)> = Vec::new();
        for (i, arg) in self.args.iter().enumerate() {
            let label = format!("arg{i}");
            let (words, len) = match arg {
                Arg::Read(w) | Arg::ReadWrite(w) | Arg::Uniform(w) => (Some(w), w.len()),
                Arg::Fresh(len) => (None, *len),
            };
            let buffer = device.create_buffer(&label, len as u64 * 4)?;
            if let Some(words) = words {
                device.write(buffer, 0, &bytes(words))?;
            }
            buffers.push((buffer, len));
        }
        let list = device.record(&[Command::Dispatch {
            label: "run".into(),
            kernel,
            bindings: buffers.iter().map(|&(b, _)| Binding::whole(b)).collect(),
            groups: self.groups.map(|g| Extent::from_dim(u64::from(g))),
        }])?;
        device.replay(list, &Symbols::new())?;
        let out = buffers.iter().map(|&(b, len)| read(device, b, len)).collect::<Result<_>>()?;
        Ok((out, device.take_findings()))
    }

    /// The words of one buffer after the run; panics on errors.
    pub fn output(&self, index: usize) -> Vec<u32> {
        match self.run() {
            Ok((mut buffers, _)) => buffers.swap_remove(index),
            Err(error) => panic!("{error}\n{:?}\n{}", error.details(), self.text),
        }
    }

    /// The words of one buffer as floats.
    pub fn floats(&self, index: usize) -> Vec<f32> {
        self.output(index).into_iter().map(f32::from_bits).collect()
    }

    pub fn findings(&self) -> Vec<Finding> {
        self.run().unwrap_or_else(|e| panic!("{e}\n{:?}", e.details())).1
    }

    pub fn error(&self) -> Error {
        match self.run() {
            Ok(_) => panic!("the kernel ran:\n{}", self.text),
            Err(error) => error,
        }
    }
}

pub fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

pub fn read(device: &mut Emulator, buffer: BufferId, len: usize) -> Result<Vec<u32>> {
    let mut out = vec![0; len * 4];
    device.read(buffer, 0, &mut out)?;
    Ok(out.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
}

pub fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}
