//! Whole programs: compiled and allocated once, run by handle with new symbols.

use super::blobs::Blobs;
use super::requests::{Answer, Execute, Executor, Loaded, TEXT_BYTES, done, give};
use crate::wire::{self, Reply, convert};
use tapml_graph::{Bytes, Context, DType, Error, Result, Tensor};
use tapml_kernels::{Instance, OutputRows, Program};

/// Longest JSON of a program, bytes.
/// Weights are not in it, so that only steps and texts count.
const MAX_PROGRAM: usize = 256 << 20;

/// Blobs of its pieces and of its weights have to be here before.
impl Execute for wire::LoadProgram {
    const CAPABILITY: Option<&'static str> = Some("programs");

    fn execute(self, executor: &mut Executor, _: &mut Answer<'_>) -> Result<Option<Reply>> {
        executor.programs.expect_free(self.program)?;
        let text = gather(&mut executor.blobs, &self.pieces, MAX_PROGRAM as u64);
        let text = text.context(|| "the program's text".into())?;
        // This checks every index and range: the bytes come from the client.
        let program = Program::from_bytes(&text)?;
        let buffers = program.buffers.iter().fold(0u64, |sum, b| sum.saturating_add(b.size));
        let bytes = buffers.saturating_add(TEXT_BYTES * text.len() as u64);
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
            // A weight lies in the program's buffers, whose bytes have room.
            let bytes = gather(&mut blobs.borrow_mut(), &weight.pieces, weight.size.min(buffers))?;
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

/// The bytes of a program's text or of a weight, from its pieces. A client may name one piece any number of times, so the sum is
/// bounded before it is held.
fn gather(blobs: &mut Blobs, pieces: &[bytes::Bytes], limit: u64) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    for hash in pieces {
        let piece = blobs.need(hash)?;
        if (all.len() + piece.len()) as u64 > limit {
            return Err(Error::unsupported(format!("its pieces have more than {limit} bytes")));
        }
        all.extend_from_slice(&piece);
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
    let outputs: Vec<OutputRows<'_>> = r.outputs.iter().map(|name| OutputRows::whole(name)).collect();
    instance.step(device.as_mut(), &symbols, &named, &outputs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_named_again_and_again_is_held_up_to_the_limit_only() {
        let folder = tempfile::tempdir().unwrap();
        let mut blobs = Blobs::new(&folder.path().display().to_string(), 1 << 20);
        let data = bytes::Bytes::from(vec![7; 1000]);
        let hash = bytes::Bytes::copy_from_slice(blake3::hash(&data).as_bytes());
        blobs.put(data, &hash);
        assert_eq!(gather(&mut blobs, &[hash.clone(), hash.clone()], 2000).unwrap().len(), 2000);
        let error = gather(&mut blobs, &vec![hash; 1_000_000], 2000).unwrap_err();
        assert!(error.to_string().contains("more than 2000 bytes"), "{error}");
    }
}
