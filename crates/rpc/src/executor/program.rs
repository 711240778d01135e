//! Whole programs: compiled and allocated once, run by handle with new symbols.

use super::blobs::Blobs;
use super::requests::{Answer, Execute, Executor, TEXT_BYTES, done, give};
use crate::wire::{self, Reply, convert};
use tapml_graph::{Bytes, Context, DType, Error, Result, Tensor};
use tapml_kernels::{Instance, Program};

/// Longest JSON of a program, bytes.
/// Weights are not in it, so that only steps and texts count.
const MAX_PROGRAM: usize = 256 << 20;

/// A program on the device, and the bytes that it counts for: those of its buffers and of its kernels.
pub struct Loaded {
    /// With the kernels that it owns.
    instance: Instance,
    /// Given back when it is unloaded.
    bytes: u64,
}

/// Blobs of its pieces and of its weights have to be here before.
impl Execute for wire::LoadProgram {
    const CAPABILITY: Option<&'static str> = Some("programs");

    fn execute(self, executor: &mut Executor, _: &mut Answer<'_>) -> Result<Option<Reply>> {
        executor.programs.expect_free(self.program)?;
        let text = gather(&mut executor.blobs, &self.pieces, MAX_PROGRAM as u64)?;
        // This checks every index and range: the bytes come from the client.
        let program = Program::from_bytes(&text)?;
        let kernels = TEXT_BYTES * text.len() as u64;
        let bytes = program.buffers.iter().fold(kernels, |sum, b| sum.saturating_add(b.size));
        executor.expect_room(&program.name, bytes)?;
        // All weights are looked for before any is loaded, so that a client learns early what is missing.
        for weight in &self.weights {
            weight
                .pieces
                .iter()
                .try_for_each(|h| executor.blobs.need(h).map(drop))
                .context(|| weight.name.clone())?;
        }
        let Executor { device, blobs, .. } = executor;
        // Looking for a blob changes what is held in memory, and the closure is called through a shared reference.
        let blobs = std::cell::RefCell::new(blobs);
        let weights = |name: &str| {
            let weight = self.weights.iter().find(|w| w.name == name);
            let weight = weight.ok_or_else(|| Error::invalid("the client sent none of this name"))?;
            let mut bytes = Vec::new();
            for hash in &weight.pieces {
                bytes.extend_from_slice(&blobs.borrow_mut().need(hash)?);
            }
            if bytes.len() as u64 != weight.size {
                let have = bytes.len();
                return Err(Error::invalid(format!("expected {} bytes, found {have}", weight.size)));
            }
            // Only the bytes count: the program says what they are.
            Tensor::new(DType::U8, vec![bytes.len()], Bytes::new(bytes))
        };
        let instance = Instance::load(device.as_mut(), &program, &weights)?;
        executor.memory += bytes;
        executor.programs.insert(self.program, Some(Loaded { instance, bytes }));
        done()
    }
}

/// The bytes of a program, from its pieces.
fn gather(blobs: &mut Blobs, pieces: &[bytes::Bytes], limit: u64) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    for hash in pieces {
        all.extend_from_slice(&blobs.need(hash)?);
        if all.len() as u64 > limit {
            return Err(Error::unsupported(format!("a program of more than {limit} bytes")));
        }
    }
    Ok(all)
}

impl Execute for wire::UnloadProgram {
    const CAPABILITY: Option<&'static str> = Some("programs");

    fn execute(self, executor: &mut Executor, _: &mut Answer<'_>) -> Result<Option<Reply>> {
        if let Some(Loaded { instance, bytes }) = executor.programs.remove(self.program)? {
            executor.memory -= bytes;
            instance.unload(executor.device.as_mut())?;
        }
        Ok(None)
    }
}

/// Answered by the bytes of the outputs that were asked for, in the order of the request.
impl Execute for wire::RunProgram {
    const CAPABILITY: Option<&'static str> = Some("programs");

    fn execute(self, executor: &mut Executor, answer: &mut Answer<'_>) -> Result<Option<Reply>> {
        let outputs = run(executor, &self)?;
        // Outputs follow each other; the client knows their sizes.
        let all: Vec<u8> = outputs.iter().flat_map(|t| t.bytes().iter().copied()).collect();
        give(all.into(), true, answer)?;
        Ok(None)
    }
}

/// Runs a program and reads the outputs that were asked for.
fn run(executor: &mut Executor, r: &wire::RunProgram) -> Result<Vec<Tensor>> {
    let Executor { device, programs, .. } = executor;
    let Loaded { instance, .. } = programs.get_mut(r.program)?;
    let symbols = convert::symbols_from_wire(&r.symbols)?;
    let input = |i: &wire::Input| {
        let port = instance.program().inputs.iter().find(|p| p.name == i.name);
        let port = port.ok_or_else(|| Error::invalid(format!("there is no input `{}`", i.name)))?;
        Tensor::new(port.ty.dtype, port.ty.sizes(&symbols)?, Bytes::new(i.data.to_vec()))
            .context(|| format!("input `{}`", i.name))
    };
    let inputs = r.inputs.iter().map(input).collect::<Result<Vec<Tensor>>>()?;
    // States are cleared before the run, so that a client need not send a request of its own.
    if r.reset {
        instance.zero_states(device.as_mut())?;
    }
    let named: Vec<(&str, &Tensor)> = r.inputs.iter().map(|i| i.name.as_str()).zip(&inputs).collect();
    let outputs: Vec<&str> = r.outputs.iter().map(String::as_str).collect();
    instance.step(device.as_mut(), &symbols, &named, &outputs)
}
