//! Whole programs on a remote device: uploaded once, run by handle.

use super::device::RemoteDevice;
use crate::wire::{self, Request, convert};
use bytes::Bytes;
use std::collections::HashSet;
use tapml_graph::{Error, Result, Symbols, Tensor};
use tapml_kernels::{Content, Program};

/// A program on a remote device. A run is one round trip.
#[derive(Debug)]
pub struct RemoteProgram {
    id: u32,
    program: Program,
    /// Whether the states of a fixed shape are zeroed before the next run.
    reset: bool,
}

impl RemoteProgram {
    /// Uploads a program and the weights that it names, as far as the agent does not hold them, and compiles it there.
    pub fn load(
        device: &mut RemoteDevice,
        program: &Program,
        weights: &dyn Fn(&str) -> Result<Tensor>,
    ) -> Result<RemoteProgram> {
        let pieces = device.keep(&program.to_bytes()?)?;
        let names: HashSet<&str> = program
            .buffers
            .iter()
            .filter_map(|b| match &b.content {
                Content::Weight { name, .. } => Some(name.as_str()),
                _ => None,
            })
            .collect();
        let mut sent = Vec::new();
        for name in names {
            let tensor = weights(name).map_err(|e| e.context(format!("weight `{name}`")))?;
            let pieces: Vec<Bytes> = device.keep(tensor.bytes())?;
            sent.push(wire::Weight { name: name.into(), size: tensor.bytes().len() as u64, pieces });
        }
        device.programs += 1;
        let id = device.programs;
        let load = wire::LoadProgram { program: id, pieces, weights: sent };
        device.ask(Request::LoadProgram(load))?;
        Ok(RemoteProgram { id, program: program.clone(), reset: false })
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The next run starts from states of zeros.
    pub fn reset(&mut self) {
        self.reset = true;
    }

    /// Runs the program once and reads its outputs, in the program's order.
    pub fn run(
        &mut self,
        device: &mut RemoteDevice,
        symbols: &Symbols,
        inputs: &[(&str, &Tensor)],
    ) -> Result<Vec<(String, Tensor)>> {
        let input = |(name, tensor): &(&str, &Tensor)| wire::Input {
            name: (*name).into(),
            data: Bytes::copy_from_slice(tensor.bytes()),
        };
        let shapes = self.program.outputs.iter().map(|port| {
            let sizes = port.ty.sizes(symbols)?;
            let len = tapml_graph::byte_len(port.ty.dtype, &sizes);
            let len = len.ok_or_else(|| Error::invalid(format!("output `{}` is too large", port.name)))?;
            Ok((port, sizes, len))
        });
        let shapes = shapes.collect::<Result<Vec<_>>>()?;
        let run = wire::RunProgram {
            program: self.id,
            symbols: convert::symbols_to_wire(symbols)?,
            inputs: inputs.iter().map(input).collect(),
            outputs: self.program.outputs.iter().map(|o| o.name.clone()).collect(),
            reset: std::mem::take(&mut self.reset),
        };
        let mut bytes = vec![0; shapes.iter().map(|(.., len)| len).sum()];
        device.receive(Request::RunProgram(run), &mut bytes)?;
        let bytes = tapml_graph::Bytes::new(bytes);
        let mut at = 0;
        let cut = |(port, sizes, len): (&tapml_kernels::Port, Vec<usize>, usize)| {
            let part = bytes.slice(at, len).ok_or_else(|| Error::bug("outputs end early"))?;
            at += len;
            Ok((port.name.clone(), Tensor::new(port.ty.dtype, sizes, part)?))
        };
        shapes.into_iter().map(cut).collect()
    }

    /// Frees it.
    pub fn unload(self, device: &mut RemoteDevice) -> Result<()> {
        let unload = Request::UnloadProgram(wire::UnloadProgram { program: self.id });
        device.send(unload, true)
    }
}
