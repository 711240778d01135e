//! Rules of requests: what is answered, in which words, and what a failed one leaves.
//!
//! Each rule opens sessions of its own. Handles such as 71 and 77 are ones that no rule makes.

use super::raw::{Check, Raw, fail, skip};
use super::rule::Rule;
use crate::Address;
use crate::wire::limits::{MAX_MESSAGE, PIECE};
use crate::wire::{self, ErrorKind, Reply, Request, Work};
use bytes::Bytes;

/// The rules, in the order in which they are tried.
/// Rules of a capability are skipped where an agent does not tell it.
pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "wire_unknown_handles",
        text: "requests for handles that do not exist fail with kind invalid_input, and the session goes on",
        body: unknown_handles,
    },
    Rule {
        name: "wire_deferred_errors",
        text: "the first error of unanswered requests is the answer to the next wait, once",
        body: deferred_errors,
    },
    Rule { name: "wire_handles_twice", text: "a handle that exists is not made again", body: handles_twice },
    Rule {
        name: "wire_reads_in_pieces",
        text: "a long read is answered by pieces in order, the last one marked",
        body: reads_in_pieces,
    },
    Rule {
        name: "wire_read_beyond",
        text: "a read beyond a buffer fails with kind invalid_input, however much it claims",
        body: read_out_of_bounds,
    },
    Rule {
        name: "wire_credit",
        text: "a client that sends many unanswered requests gets credit before it waits",
        body: credit,
    },
    Rule {
        name: "wire_blobs",
        text: "a blob that was put is held, and is written as it was put",
        body: blobs,
    },
    Rule {
        name: "wire_steps",
        text: "a step writes, runs and reads; after a failed one the session goes on",
        body: steps,
    },
    Rule {
        name: "wire_turns",
        text: "turns of one message write, run and are read as single steps are",
        body: check_batches,
    },
    Rule {
        name: "wire_memory",
        text: "what a session makes counts towards its memory, and no more when it is freed",
        body: memory,
    },
];

/// The creation of a buffer.
/// Its label tells its handle.
fn create(buffer: u32, size: u64) -> Request {
    Request::CreateBuffer(wire::CreateBuffer { buffer, label: format!("buffer {buffer}"), size })
}

/// A write at the beginning of a buffer.
fn write(buffer: u32, data: Vec<u8>) -> Request {
    Request::Write(wire::Write { buffer, offset: 0, data: data.into() })
}

/// A read from the beginning of a buffer.
fn read(buffer: u32, size: u64) -> Request {
    Request::Read(wire::Read { buffer, offset: 0, size })
}

/// A wait, which tells failures of unanswered requests.
fn wait() -> Request {
    Request::Wait(wire::Wait {})
}

/// See the rule; destroying what never existed is an error too.
fn unknown_handles(address: &Address) -> Check {
    let (mut raw, _) = Raw::device(address)?;
    let symbols = Vec::new();
    let unanswered = [
        ("a write to a buffer", write(77, vec![0; 4])),
        ("the destruction of a buffer", Request::DestroyBuffer(wire::DestroyBuffer { buffer: 77 })),
        ("the destruction of a kernel", Request::DestroyKernel(wire::DestroyKernel { kernel: 77 })),
        ("the run of a list", Request::Replay(wire::Replay { list: 77, symbols })),
        ("the destruction of a list", Request::DestroyList(wire::DestroyList { list: 77 })),
    ];
    // Each has a wait of its own: the first failure would hide the others.
    for (what, request) in unanswered {
        raw.send(request)?;
        raw.expect_refusal(
            &format!("a wait after {what} that does not exist"),
            ErrorKind::InvalidInput,
            wait(),
        )?;
    }
    raw.expect_refusal("a read of a buffer that does not exist", ErrorKind::InvalidInput, read(77, 4))?;
    raw.done("refused requests")
}

/// See the rule. The write behind the failed ones is performed: errors do not stop a session.
fn deferred_errors(address: &Address) -> Check {
    let (mut raw, _) = Raw::device(address)?;
    raw.send(create(1, 4))?;
    raw.send(write(71, vec![0; 4]))?;
    raw.send(write(72, vec![0; 4]))?;
    raw.send(write(1, vec![9; 4]))?;
    match raw.ask(wait())? {
        // Of several failures the first is told, a single time.
        Reply::Failed(failed) if failed.message.contains("71") => {}
        other => {
            let text = "a wait after writes to the buffers 71 and 72, which do not exist: expected a failure";
            return fail(format!("{text} that names 71, found {}", other.words()));
        }
    }
    raw.done("an error that was told")?;
    match raw.pieces(read(1, 4))?.concat().as_slice() {
        [9, 9, 9, 9] => Ok(()),
        found => fail(format!("a write after failed ones: expected [9, 9, 9, 9], found {found:?}")),
    }
}

/// See the rule; the first buffer keeps its contents.
fn handles_twice(address: &Address) -> Check {
    let (mut raw, _) = Raw::device(address)?;
    raw.send(create(1, 16))?;
    raw.send(write(1, vec![5; 16]))?;
    raw.send(create(1, 16))?;
    raw.expect_refusal("a wait after a buffer was created twice", ErrorKind::InvalidInput, wait())?;
    if raw.pieces(read(1, 16))?.concat() == [5; 16] {
        Ok(())
    } else {
        fail("the first buffer has other contents after a refused second one of its handle")
    }
}

/// See the rule. The read is longer than a message may be.
/// Its bytes differ from place to place, so that pieces in a wrong order show.
fn reads_in_pieces(address: &Address) -> Check {
    let (mut raw, welcome) = Raw::device(address)?;
    let size = MAX_MESSAGE + PIECE / 2 + 4;
    let most = welcome.device.and_then(|d| d.limits).map_or(0, |l| l.max_buffer_size);
    if most < size as u64 {
        return skip(format!("the largest buffer is {most} bytes"));
    }
    raw.send(create(1, size as u64))?;
    let data: Vec<u8> = (0..size).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for (i, piece) in data.chunks(PIECE).enumerate() {
        let offset = (i * PIECE) as u64;
        let data = Bytes::copy_from_slice(piece);
        raw.send(Request::Write(wire::Write { buffer: 1, offset, data }))?;
    }
    let pieces = raw.pieces(read(1, size as u64))?;
    let found = pieces.concat();
    if found.len() != size {
        return fail(format!("a read of {size} bytes: expected as many, found {}", found.len()));
    }
    match found.iter().zip(&data).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(at) => {
            fail(format!("byte {at} of a read of {size}: expected {}, found {}", data[at], found[at]))
        }
    }
}

/// See the rule. The offsets and sizes include one whose sum is beyond what the wire carries.
fn read_out_of_bounds(address: &Address) -> Check {
    let (mut raw, _) = Raw::device(address)?;
    raw.send(create(1, 16))?;
    for (offset, size) in [(0, 20), (16, 4), (0, 1 << 40), ((1 << 53) - 4, 4)] {
        let request = Request::Read(wire::Read { buffer: 1, offset, size });
        let what = format!("a read of {size} bytes at {offset} of a buffer of 16");
        raw.expect_refusal(&what, ErrorKind::InvalidInput, request)?;
    }
    if raw.pieces(read(1, 16))?.concat() == [0; 16] {
        Ok(())
    } else {
        fail("a read after refused ones: expected 16 zeros, found others")
    }
}

/// See the rule; nothing is sent that is answered.
/// A client that got none would wait for ever with a full window.
fn credit(address: &Address) -> Check {
    let (mut raw, welcome) = Raw::device(address)?;
    let window = welcome.limits.unwrap_or_default().window;
    raw.send(create(1, 1 << 20))?;
    // Half of what may be under way, in bytes and then in number.
    let writes = (window / 2 / (1 << 20)).max(1);
    let mut last = 0;
    for _ in 0..writes {
        last = raw.send(write(1, vec![1; 1 << 20]))?;
    }
    for _ in 0..8000 {
        last = raw.send(write(1, vec![2; 4]))?;
    }
    match raw.next()? {
        Ok((seq, Reply::Credit(_))) if (1..=last).contains(&seq) => Ok(()),
        Ok((seq, other)) => {
            fail(format!("{writes} writes of 1 MiB: expected credit, found {} for {seq}", other.words()))
        }
        Err(end) => fail(format!("{writes} writes of 1 MiB: expected credit, found: {end}")),
    }
}

/// See the rule.
/// The blob is asked for before and after it is put, and put a second time, which must do no harm.
fn blobs(address: &Address) -> Check {
    let (mut raw, _) = Raw::capable(address, "blobs")?;
    let mut data: Vec<u8> = (0..1000u32).map(|i| (i.wrapping_mul(40_503) >> 5) as u8).collect();
    // Contents of this moment: no agent holds them already.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    data[..16].copy_from_slice(&now.map_or(0, |d| d.as_nanos()).to_le_bytes());
    let hash = Bytes::copy_from_slice(blake3::hash(&data).as_bytes());
    for expected in [false, true] {
        match raw.ask(Request::HasBlobs(wire::HasBlobs { hashes: vec![hash.clone()] }))? {
            Reply::HeldBlobs(held) if held.held == [expected] => {}
            Reply::HeldBlobs(held) => {
                let when = if expected { "after it was put" } else { "before it was put" };
                return fail(format!("is a blob held {when}: expected [{expected}], found {:?}", held.held));
            }
            other => {
                return fail(format!("a question for a blob: expected held blobs, found {}", other.words()));
            }
        }
        raw.send(Request::PutBlob(wire::PutBlob { data: data.clone().into(), hash: Bytes::new() }))?;
    }
    raw.send(create(1, 1000))?;
    raw.send(Request::WriteBlob(wire::WriteBlob { buffer: 1, offset: 0, hash }))?;
    if raw.pieces(read(1, 1000))?.concat() == data {
        Ok(())
    } else {
        fail("a buffer that a blob was written to: expected the blob's bytes, found others")
    }
}

/// Two buffers of 16 bytes, and a list that copies the first to the second.
/// No answer is awaited: a failure shows in what is asked next.
fn copies(raw: &mut Raw) -> Check {
    raw.send(create(1, 16))?;
    raw.send(create(2, 16))?;
    let size = |constant| Some(wire::Size { constant, terms: Vec::new(), divisor: 1 });
    let copy = wire::Copy { src: 1, src_offset: size(0), dst: 2, dst_offset: size(0), size: size(16) };
    let commands = vec![wire::Command { work: Some(Work::Copy(copy)) }];
    raw.send(Request::Record(wire::Record { list: 1, commands, more: false })).map(drop)
}

/// See the rule; the refused step comes first.
/// Afterwards each step reads what its own copy left.
fn steps(address: &Address) -> Check {
    let (mut raw, _) = Raw::capable(address, "steps")?;
    copies(&mut raw)?;
    let step = |list, byte: u8| {
        let writes = vec![wire::Write { buffer: 1, offset: 0, data: vec![byte; 16].into() }];
        let reads =
            vec![wire::Read { buffer: 2, offset: 0, size: 8 }, wire::Read { buffer: 1, offset: 12, size: 4 }];
        Request::Step(wire::Step { writes, list, symbols: Vec::new(), reads })
    };
    raw.expect_refusal("a step of a list that does not exist", ErrorKind::InvalidInput, step(77, 3))?;
    for byte in [4u8, 5] {
        let found = raw.pieces(step(1, byte))?.concat();
        if found != [byte; 12] {
            return fail(format!("a step that copies {byte}s: expected 12 of them, found {found:?}"));
        }
    }
    Ok(())
}

/// See the rule; the list copies all that was written so far.
fn check_batches(address: &Address) -> Check {
    let (mut raw, _) = Raw::capable(address, "turns")?;
    copies(&mut raw)?;
    let turns = |list| {
        // Each turn writes one word; the last one's copy has them all.
        let write = |(offset, byte): (u64, u8)| wire::Write { buffer: 1, offset, data: vec![byte; 4].into() };
        let turn = |at| wire::Turn { writes: vec![write(at)], symbols: Vec::new() };
        let turns = [(0, 6), (4, 7), (8, 8), (4, 9)].map(turn).to_vec();
        let read = |(buffer, offset)| wire::Read { buffer, offset, size: 8 };
        Request::Turns(wire::Turns { list, turns, reads: [(2, 0), (2, 8)].map(read).to_vec() })
    };
    raw.expect_refusal("turns of a list that does not exist", ErrorKind::InvalidInput, turns(77))?;
    // The last turn overwrote the second word.
    let expected = [[6; 4], [9; 4], [8; 4], [0; 4]].concat();
    match raw.pieces(turns(1))?.concat() {
        found if found == expected => Ok(()),
        found => fail(format!("turns that write and copy: expected {expected:?}, found {found:?}")),
    }
}

/// See the rule. How much a buffer counts beyond its size is the agent's choice.
/// The session begins with what an agent counts for an empty one.
fn memory(address: &Address) -> Check {
    let (mut raw, welcome) = Raw::capable(address, "memory")?;
    let limit = welcome.limits.unwrap_or_default().memory;
    let empty = held_memory(&mut raw, limit, "a session that holds nothing")?;
    let size = 1 << 20;
    raw.send(create(1, size))?;
    let full = held_memory(&mut raw, limit, "a session with a buffer")?;
    if full < empty + size {
        return fail(format!(
            "memory with a buffer of {size} bytes: expected {} or more, found {full}",
            empty + size
        ));
    }
    raw.send(Request::DestroyBuffer(wire::DestroyBuffer { buffer: 1 }))?;
    match held_memory(&mut raw, limit, "a session whose buffer was freed")? {
        after if after == empty => Ok(()),
        after => {
            fail(format!("memory when a buffer was freed: expected {empty} as before it, found {after}"))
        }
    }
}

/// What the session holds, which must have this limit.
fn held_memory(raw: &mut Raw, limit: u64, what: &str) -> Check<u64> {
    match raw.ask(Request::GetMemory(wire::GetMemory {}))? {
        Reply::Memory(memory) if memory.limit == limit => Ok(memory.held),
        other => fail(format!("the memory of {what}: expected a limit of {limit}, found {}", other.words())),
    }
}
