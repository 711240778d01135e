//! Greedy generation that stays on the device: each step of one row is fed with the place of the greatest logit of the
//! step before it. The host only sets the steps going and reads the tokens when they are done.

use crate::cache::KernelCache;
use crate::instance::{Instance, commands, expect_within};
use crate::kernel::argmax::{self, Bound, Launch};
use crate::plan::{Phase, symbol_bytes};
use crate::program::{Port, Program};
use tapml_device::{Binding, BufferId, Command, Device, Get, KernelId, ListId, Put, Turn};
use tapml_graph::{DType, Dim, Error, Result, Symbol, Symbols};

/// Most steps that are set going before the host waits for them.
const MOST: u64 = 256;

/// What following needs beside the program.
#[derive(Debug)]
pub(crate) struct Follow {
    list: ListId,
    /// The token found at each position.
    found: BufferId,
    /// What the launches that find it have among themselves.
    between: BufferId,
}

impl Follow {
    pub(crate) fn unload(self, device: &mut dyn Device) -> Result<()> {
        let list = device.destroy_list(self.list);
        list.and(device.destroy_buffer(self.found)).and(device.destroy_buffer(self.between))
    }
}

/// Buffers that were made on the way to something.
#[derive(Default)]
struct Made(Vec<BufferId>);

impl Made {
    /// Frees them after a failure.
    fn undo(self, device: &mut dyn Device, error: Error) -> Error {
        self.0.into_iter().for_each(|buffer| drop(device.destroy_buffer(buffer)));
        error
    }
}

/// The inputs and outputs of a language model.
struct Ends<'a> {
    ids: &'a Port,
    logits: &'a Port,
    width: u32,
}

impl<'a> Ends<'a> {
    /// Fails with [`tapml_graph::ErrorKind::Unsupported`] unless the program takes `ids: u32[n]` alone, and gives
    /// `logits` as one f32 row for each, or one in all.
    fn of(program: &'a Program) -> Result<Ends<'a>> {
        let n = Dim::symbol(Symbol::N);
        let found = program.inputs.first().zip(program.outputs.iter().find(|port| port.name == "logits"));
        let found = found.filter(|(ids, _)| {
            ids.ty.dtype == DType::U32 && ids.ty.shape == [n.clone()] && program.inputs.len() == 1
        });
        let width = |logits: &Port| match logits.ty.shape.as_slice() {
            [rows, width] if *rows == n || rows.as_const() == Some(1) => width.as_const(),
            _ => None,
        };
        let ends = found
            .filter(|(_, logits)| logits.ty.dtype == DType::F32)
            .and_then(|(ids, logits)| Some(Ends { ids, logits, width: u32::try_from(width(logits)?).ok()? }));
        ends.ok_or_else(|| {
            Error::unsupported(format!(
                "program `{}` cannot feed itself: it needs `ids` of u32[n] alone and `logits` of f32",
                program.name
            ))
        })
    }
}

impl Instance {
    /// Runs `count` steps of one row from `p` on, the first with token `first`, each other one with the place of the
    /// greatest logit of the one before; gives these places, the last step's included. Of equal logits the first wins.
    ///
    /// Growing states must hold `p` rows, and hold `p + count` afterwards. Fails with
    /// [`tapml_graph::ErrorKind::Unsupported`] if the program is no language model with `ids` and `logits`.
    pub fn follow(
        &mut self,
        device: &mut dyn Device,
        cache: &mut KernelCache,
        (p, first): (u64, u32),
        count: u64,
    ) -> Result<Vec<u32>> {
        let last = p.checked_add(count).ok_or_else(|| Error::invalid("the position overflows"))?;
        expect_within(self.program(), &Symbols::np(1, last.saturating_sub(1)))?;
        let ends = Ends::of(self.program())?;
        let ids = self.buffer(ends.ids.buffer);
        let (list, found) = match self.follow.as_ref() {
            Some(follow) => (follow.list, follow.found),
            None => {
                let follow = self.prepare(device, cache)?;
                let made = (follow.list, follow.found);
                self.follow = Some(follow);
                made
            }
        };
        let mut tokens = Vec::new();
        for start in (p..last).step_by(MOST as usize) {
            let end = last.min(start + MOST);
            let mut bytes = vec![0; (end - start) as usize * 4];
            let token = first.to_le_bytes();
            let symbols = (start..end).map(|at| Symbols::np(1, at));
            let symbols = symbols.map(|s| Ok((symbol_bytes(&s)?, s))).collect::<Result<Vec<_>>>()?;
            let turns = symbols.iter().map(|(block, symbols)| {
                let begins = (symbols.get(Symbol::P) == Some(p)).then_some((ids, &token[..]));
                let puts = begins.into_iter().chain(self.symbols().map(|buffer| (buffer, &block[..])));
                let writes = puts.map(|(buffer, data)| Put { buffer, offset: 0, data }).collect();
                Turn { writes, symbols: symbols.clone() }
            });
            let found = Get { buffer: found, offset: start * 4, out: &mut bytes };
            device.turns(list, &turns.collect::<Vec<_>>(), &mut [found])?;
            let words = bytes.chunks_exact(4).filter_map(|word| word.try_into().ok());
            tokens.extend(words.map(u32::from_le_bytes));
        }
        match tokens.iter().position(|token| *token == u32::MAX) {
            None => Ok(tokens),
            Some(bad) => {
                let text = format!("of the logits at position {} some are not finite", p + bad as u64);
                Err(Error::invalid(text)
                    .with_hint("the model computed wrongly; `tapml diagnose` finds the operator"))
            }
        }
    }

    fn prepare(&self, device: &mut dyn Device, cache: &mut KernelCache) -> Result<Follow> {
        let program = self.program();
        let ends = Ends::of(program)?;
        let (launches, bytes) = argmax::launches(ends.width, device.info())?;
        launches.iter().try_for_each(|launch| launch.desc.check_limits(device.info()))?;
        let kernels =
            program.kernels.iter().map(|k| cache.get(device, k)).collect::<Result<Vec<KernelId>>>()?;
        let mut list = commands(program, &kernels, self.buffers(), Phase::Decode);
        let chosen = launches.iter().map(|k| cache.get(device, &k.desc)).collect::<Result<Vec<_>>>()?;
        let symbols =
            self.symbols().ok_or_else(|| Error::bug("a language model without a block of symbols"))?;
        let rows = program.capacity.get(Symbol::P).unwrap_or(0).saturating_add(1);
        let buffers = [("found tokens", rows.saturating_mul(4)), ("greatest logits", bytes)];
        let mut made = Made::default();
        for (label, bytes) in buffers {
            match device.create_buffer(label, bytes) {
                Ok(buffer) => made.0.push(buffer),
                Err(e) => return Err(made.undo(device, e)),
            }
        }
        let [found, between] = made.0[..] else { return Err(Error::bug("two buffers were made")) };
        for (Launch { groups, bound, .. }, kernel) in launches.into_iter().zip(chosen) {
            let buffer = |bound| match bound {
                Bound::Logits => self.buffer(ends.logits.buffer),
                Bound::Token => self.buffer(ends.ids.buffer),
                Bound::Between => between,
                Bound::Found => found,
                Bound::Symbols => symbols,
            };
            let bindings = bound.into_iter().map(buffer).map(Binding::whole).collect();
            list.push(Command::Dispatch { label: "argmax".into(), kernel, bindings, groups });
        }
        match device.record(&list) {
            Ok(list) => Ok(Follow { list, found, between }),
            Err(e) => Err(made.undo(device, e)),
        }
    }
}
