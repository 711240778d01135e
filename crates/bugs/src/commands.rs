//! Edits of command lists: order, bindings, grids, buffers.
//!
//! Edits work on commands with fixed sizes, as one replay has them. An edit that finds no place leaves the list as it was.

use crate::mutant::{Edit, Mutant};
use crate::operators::{op_of, writes_cache};
use std::collections::{HashMap, HashSet};
use tapml_device::{BindingKind, BufferId, Command, Extent, KernelDesc, KernelId, Result, Symbols};

/// What is known of the handles in a list.
pub struct Known<'a> {
    /// Descriptions of kernels, as they were asked for.
    pub kernels: &'a HashMap<KernelId, KernelDesc>,
    /// Labels and sizes of buffers.
    pub buffers: &'a HashMap<BufferId, (String, u64)>,
}

impl Known<'_> {
    /// The buffers of a command by use.
    fn used_buffers(&self, command: &Command, wanted: BindingKind) -> Vec<BufferId> {
        match command {
            Command::Dispatch { kernel, bindings, .. } => {
                let kinds = self.kernels.get(kernel).map_or(&[][..], |desc| &desc.bindings);
                let pairs = bindings.iter().zip(kinds);
                pairs.filter(|(_, kind)| **kind == wanted).map(|(b, _)| b.buffer).collect()
            }
            Command::Copy { src, dst, .. } => match wanted {
                BindingKind::Read => vec![*src],
                BindingKind::ReadWrite => vec![*dst],
                BindingKind::Uniform => Vec::new(),
            },
            Command::Fill { buffer, .. } if wanted == BindingKind::ReadWrite => vec![*buffer],
            Command::Fill { .. } => Vec::new(),
        }
    }

    /// Whether a command may write to a buffer.
    fn writes(&self, command: &Command, buffer: BufferId) -> bool {
        self.used_buffers(command, BindingKind::ReadWrite).contains(&buffer)
    }

    /// Whether a command reads a buffer without writing to it.
    fn reads(&self, command: &Command, buffer: BufferId) -> bool {
        self.used_buffers(command, BindingKind::Read).contains(&buffer)
    }
}

/// The buffers that kernels of the list read and never write.
pub fn only_read(commands: &[Command], known: &Known<'_>) -> Vec<BufferId> {
    let all = |kind| commands.iter().flat_map(move |c| known.used_buffers(c, kind));
    // In the whole list, whichever command comes first.
    let written: HashSet<BufferId> = all(BindingKind::ReadWrite).collect();
    all(BindingKind::Read).filter(|b| !written.contains(b)).collect()
}

/// The commands with all sizes evaluated.
///
/// # Errors
///
/// A symbol without a value.
pub fn evaluate_sizes(commands: &[Command], symbols: &Symbols) -> Result<Vec<Command>> {
    let fixed = |e: &Extent| Ok(Extent::from_dim(e.eval(symbols)?));
    let one = |command: &Command| {
        Ok(match command {
            Command::Dispatch { label, kernel, bindings, groups: [x, y, z] } => Command::Dispatch {
                label: label.clone(),
                kernel: *kernel,
                bindings: bindings.clone(),
                groups: [fixed(x)?, fixed(y)?, fixed(z)?],
            },
            Command::Copy { src, src_offset, dst, dst_offset, len } => Command::Copy {
                src: *src,
                src_offset: fixed(src_offset)?,
                dst: *dst,
                dst_offset: fixed(dst_offset)?,
                len: fixed(len)?,
            },
            other => other.clone(),
        })
    };
    commands.iter().map(one).collect()
}

/// Makes one edit on commands with fixed sizes. What does not apply is left as it is.
/// `mutant` names the kernel or the node, `edit` says what changes.
pub fn edit(commands: &mut Vec<Command>, mutant: &Mutant, edit: &Edit, known: &Known<'_>) {
    let node = mutant.target.as_str();
    match edit {
        Edit::Bindings { a, b } => of_kernel(commands, node, known, |bindings, _| {
            if a.max(b) < &bindings.len() {
                bindings.swap(*a, *b);
            }
        }),
        Edit::Grid { axis } => of_kernel(commands, node, known, |_, groups| {
            let now = groups[*axis].eval(&Symbols::new()).unwrap_or(0);
            // A grid that is empty already stays so.
            groups[*axis] = Extent::from_dim(now.saturating_sub(1));
        }),
        Edit::Late => {
            let place = last_of(commands, node);
            let found = place.and_then(|at| Some((at, first_reader(commands, at, known)?)));
            if let Some((at, reader)) = found {
                late(commands, at, reader, known);
            }
        }
        // The last dispatch gives the node's result.
        Edit::Missing => {
            if let Some(at) = last_of(commands, node) {
                commands.remove(at);
            }
        }
        Edit::Alias => alias(commands, node, known),
        Edit::Borrow { from, binding } => borrow(commands, node, (from, *binding), known),
        _ => {}
    }
}

/// Changes the bindings and the grid of each dispatch of a kernel.
fn of_kernel(
    commands: &mut [Command],
    name: &str,
    known: &Known<'_>,
    mut change: impl FnMut(&mut Vec<tapml_device::Binding>, &mut [Extent; 3]),
) {
    for command in commands {
        if let Command::Dispatch { kernel, bindings, groups, .. } = command
            && known.kernels.get(kernel).is_some_and(|desc| desc.name == name)
        {
            change(bindings, groups);
        }
    }
}

/// The node's last dispatch.
fn last_of(commands: &[Command], node: &str) -> Option<usize> {
    commands.iter().rposition(|c| matches!(c, Command::Dispatch { label, .. } if label == node))
}

/// The first dispatch after `at` that reads what it writes.
fn first_reader(commands: &[Command], at: usize, known: &Known<'_>) -> Option<usize> {
    let written = known.used_buffers(&commands[at], BindingKind::ReadWrite);
    let reads = |c: &Command| {
        matches!(c, Command::Dispatch { .. }) && written.iter().any(|&buffer| known.reads(c, buffer))
    };
    commands.iter().skip(at + 1).position(reads).map(|i| at + 1 + i)
}

/// Moves a dispatch behind its reader, together with the copies that stand right behind it: those belong to it, such as
/// those that keep its result for whoever looks at the run.
fn late(commands: &mut [Command], at: usize, reader: usize, known: &Known<'_>) {
    let written = known.used_buffers(&commands[at], BindingKind::ReadWrite);
    let own = |c: &&Command| {
        matches!(c, Command::Copy { .. }) && written.iter().any(|&buffer| known.reads(c, buffer))
    };
    let copies = commands[at + 1..reader].iter().take_while(own).count();
    // What stood between moves to the front, in its order.
    commands[at..=reader].rotate_left(1 + copies);
}

/// The node's result goes to a buffer whose value is read later; so does everything that reads the result.
fn alias(commands: &mut [Command], node: &str, known: &Known<'_>) {
    let Some(at) = last_of(commands, node) else { return };
    // The first output stands for all.
    let Some(&own) = known.used_buffers(&commands[at], BindingKind::ReadWrite).first() else { return };
    let Some(victim) = victim(commands, at, own, known) else { return };
    let rest = commands.iter().skip(at + 1);
    // From the next write on the buffer holds another value.
    let end = rest.clone().position(|c| known.writes(c, own)).map_or(commands.len(), |i| at + 1 + i);
    // A dispatch may not read and write one buffer.
    // Checked before anything is changed.
    if commands[at + 1..end].iter().any(|c| known.reads(c, own) && known.writes(c, victim)) {
        return;
    }
    for command in &mut commands[at..end] {
        match command {
            Command::Dispatch { bindings, .. } => {
                bindings.iter_mut().filter(|b| b.buffer == own).for_each(|b| b.buffer = victim);
            }
            Command::Copy { src, .. } if *src == own => *src = victim,
            _ => {}
        }
    }
}

/// A buffer that is written before `at`, read after the first reader of `own`, not in between, and large enough.
fn victim(commands: &[Command], at: usize, own: BufferId, known: &Known<'_>) -> Option<BufferId> {
    let size = |b: BufferId| known.buffers.get(&b).map_or(0, |(_, size)| *size);
    let reader = first_reader(commands, at, known)?;
    let uses = |c: &Command, b| known.reads(c, b) || known.writes(c, b);
    let written = commands[..at].iter().rev().flat_map(|c| known.used_buffers(c, BindingKind::ReadWrite));
    let mut candidates = written.filter(|&b| b != own && size(b) >= size(own));
    candidates.find(|&b| {
        // Otherwise the victim's own reader would see the result where it belongs.
        let idle = !commands[at..=reader].iter().any(|c| uses(c, b));
        let next = commands[reader + 1..].iter().find(|c| uses(c, b));
        idle && next.is_some_and(|c| known.reads(c, b))
    })
}

/// A node's dispatch that binds a cache takes that of another node: one that appends writes it, all others read it. A node
/// may have further dispatches that bind something else there, as the one that brings the parts of an attention together.
fn borrow(commands: &mut [Command], node: &str, (from, binding): (&str, usize), known: &Known<'_>) {
    let cache = |command: &Command| {
        let Command::Dispatch { kernel, bindings, .. } = command else { return None };
        let desc = known.kernels.get(kernel)?;
        let kind = if writes_cache(op_of(&desc.name)) { BindingKind::ReadWrite } else { BindingKind::Read };
        bindings.get(binding).copied().filter(|_| desc.bindings.get(binding) == Some(&kind))
    };
    let of = |node: &str| {
        let own = |c: &Command| matches!(c, Command::Dispatch { label, .. } if label == node);
        commands.iter().enumerate().rev().find_map(|(at, c)| Some((at, cache(c).filter(|_| own(c))?)))
    };
    // Both must bind a cache there, or nothing changes.
    if let (Some((at, _)), Some((_, other))) = (of(node), of(from))
        && let Command::Dispatch { bindings, .. } = &mut commands[at]
    {
        bindings[binding] = other;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapml_device::{Binding, Language, Source};

    fn dispatch(node: &str, kernel: u64, buffers: &[u64]) -> Command {
        let binding = |&b: &u64| Binding { buffer: BufferId(b), offset: 0, size: 64 };
        Command::Dispatch {
            label: node.into(),
            kernel: KernelId(kernel),
            bindings: buffers.iter().map(binding).collect(),
            groups: [1u64, 1, 1].map(Extent::from_dim),
        }
    }

    #[test]
    fn the_cache_of_another_layer_is_that_of_the_dispatch_that_reads_it() {
        let (read, written) = (BindingKind::Read, BindingKind::ReadWrite);
        let desc = |name: &str, bindings: &[BindingKind]| KernelDesc {
            name: name.into(),
            source: Source {
                language: Language::Wgsl,
                file: String::new(),
                prelude: String::new(),
                text: String::new(),
            },
            entry: "main".into(),
            constants: Vec::new(),
            bindings: bindings.to_vec(),
            workgroup: [1, 1, 1],
            workgroup_memory: 0,
            needs_f16: false,
            needs_subgroups: false,
            dependent_launch: false,
        };
        let kernels: HashMap<KernelId, KernelDesc> = [
            (KernelId(0), desc("attention/split", &[read, read, read, written])),
            (KernelId(1), desc("attention/split-merge", &[read, written])),
            (KernelId(2), desc("append/portable", &[read, written])),
        ]
        .into();
        let known = Known { kernels: &kernels, buffers: &HashMap::new() };
        let list = [("a", 10), ("b", 20)].into_iter().flat_map(|(node, base)| {
            let rows = format!("{node}.append");
            [
                dispatch(&rows, 2, &[base, base + 1]),
                dispatch(node, 0, &[base, base + 1, base + 2, base + 3]),
                dispatch(node, 1, &[base + 3, base + 4]),
            ]
        });
        let list: Vec<Command> = list.collect();
        let edited = |node: &str, from: &str, binding| {
            let mut list = list.clone();
            borrow(&mut list, node, (from, binding), &known);
            list
        };
        let mut expected = list.clone();
        expected[4] = dispatch("b", 0, &[20, 11, 22, 23]);
        assert_eq!(edited("b", "a", 1), expected, "keys, not what the parts are joined into");
        let mut expected = list.clone();
        expected[3] = dispatch("b.append", 2, &[20, 11]);
        assert_eq!(edited("b.append", "a.append", 1), expected);
    }
}
