//! Greedy generation that stays on the device: each step of one row is fed with the index of the greatest logit of the
//! step before it. The host only sets the steps going and reads the tokens when they are done.
//!
//! The program is that of [`tapml_graph::Graph::greedy`]: it finds the next token itself, and keeps it in a state. All that is
//! done here is to let the node that finds it write it where the next step looks for its input.

use crate::cache::KernelCache;
use crate::instance::{Instance, commands, expect_within};
use crate::plan::{Phase, symbol_bytes};
use crate::program::{Program, ProgramStep};
use tapml_device::{BatchedStep, Device, Get, KernelId, ListId, Put};
use tapml_graph::{Error, GENERATED, NEXT_TOKEN, Result, Symbol, Symbols};

/// Most steps that are set going before the host waits for them.
/// The bound limits what is written for the steps and read back at a time.
const MOST: u64 = 256;

/// The buffers of a program that chooses its next token.
/// All are indices of [`Program::buffers`].
struct Ends {
    /// The input for token ids.
    ids: u32,
    /// The token that a step finds.
    next: u32,
    /// The tokens found at each position.
    generated: u32,
}

impl Ends {
    /// Fails with [`tapml_graph::ErrorKind::Unsupported`] unless the program takes ids alone and chooses its next token.
    fn from_program(program: &Program) -> Result<Ends> {
        let next = program.outputs.iter().find(|port| port.name == NEXT_TOKEN);
        let generated = program.states.iter().find(|state| state.name == GENERATED);
        match (program.inputs.as_slice(), next, generated) {
            ([ids], Some(next), Some(generated)) => {
                Ok(Ends { ids: ids.buffer, next: next.buffer, generated: generated.buffer })
            }
            _ => Err(Error::unsupported(format!(
                "program `{}` does not choose its next token: it has no output `{NEXT_TOKEN}`",
                program.name
            ))),
        }
    }
}

impl Instance {
    /// Runs `count` steps of one row from `p` on, the first with token `first`, each other one with the index of the
    /// greatest logit of the one before; gives these indices, the last step's included. Of equal logits the first wins.
    ///
    /// Growing states must hold `p` rows, and hold `p + count` afterwards. Fails with
    /// [`tapml_graph::ErrorKind::Unsupported`] unless the program is that of [`tapml_graph::Graph::greedy`].
    pub fn generate_greedily(
        &mut self,
        device: &mut dyn Device,
        cache: &mut KernelCache,
        (p, first): (u64, u32),
        count: u64,
    ) -> Result<Vec<u32>> {
        let last = p.checked_add(count).ok_or_else(|| Error::invalid("the position overflows"))?;
        expect_within(self.program(), &Symbols::np(1, last.saturating_sub(1)))?;
        let ends = Ends::from_program(self.program())?;
        let (ids, generated) = (self.buffer(ends.ids), self.buffer(ends.generated));
        // The list is recorded at the first call and freed by `Instance::unload`.
        let list = match self.greedy_list {
            Some(list) => list,
            None => *self.greedy_list.insert(self.record_following(device, cache, &ends)?),
        };
        let mut tokens = Vec::new();
        for start in (p..last).step_by(MOST as usize) {
            let end = last.min(start + MOST);
            let mut bytes = vec![0; (end - start) as usize * 4];
            let token = first.to_le_bytes();
            let symbols = (start..end).map(|at| Symbols::np(1, at));
            let symbols = symbols.map(|s| Ok((symbol_bytes(&s)?, s))).collect::<Result<Vec<_>>>()?;
            let turns = symbols.iter().map(|(block, symbols)| {
                // Only the very first step is given a token; each other one finds its token in the buffer of ids.
                let begins = (symbols.get(Symbol::P) == Some(p)).then_some((ids, &token[..]));
                let puts = begins.into_iter().chain(self.symbols().map(|buffer| (buffer, &block[..])));
                let writes = puts.map(|(buffer, data)| Put { buffer, offset: 0, data }).collect();
                BatchedStep { writes, symbols: symbols.clone() }
            });
            // The state holds one `u32` for each position, so that position `start` begins at byte `4 * start`.
            let found = Get { buffer: generated, offset: start * 4, out: &mut bytes };
            device.run_steps(list, &turns.collect::<Vec<_>>(), &mut [found])?;
            let words = bytes.chunks_exact(4).filter_map(|word| word.try_into().ok());
            tokens.extend(words.map(u32::from_le_bytes));
        }
        // The kernels of `argmax` mark a row so that has a NaN or +infinity, or nothing but -infinity.
        match tokens.iter().position(|token| *token == u32::MAX) {
            None => Ok(tokens),
            Some(bad) => {
                let text = format!("of the logits at position {} some are not finite", p + bad as u64);
                Err(Error::invalid(text)
                    .with_hint("the model computed wrongly; `tapml diagnose` finds the operator"))
            }
        }
    }

    /// The steps of one row, of which the node that finds the next token writes it over the ids.
    fn record_following(
        &self,
        device: &mut dyn Device,
        cache: &mut KernelCache,
        ends: &Ends,
    ) -> Result<ListId> {
        let program = self.program();
        let kernels =
            program.kernels.iter().map(|k| cache.get(device, k)).collect::<Result<Vec<KernelId>>>()?;
        let place = |step: &ProgramStep, index: u32| match step {
            ProgramStep::Dispatch { node, .. } if node == NEXT_TOKEN && index == ends.next => {
                self.buffer(ends.ids)
            }
            _ => self.buffer(index),
        };
        device.record(&commands(program, &kernels, &place, Phase::Decode))
    }
}
