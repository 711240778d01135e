//! Bytes from anywhere never panic a decoder and never make it allocate beyond a bound.
#![allow(clippy::unwrap_used)]
#![allow(unsafe_code, reason = "a global allocator that counts")]

use bytes::Bytes;
use proptest::prelude::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use tapml_rpc::wire::{self, Command, Dispatch, Request, Size, ToAgent, Work};

/// Counts the bytes that this thread holds, and the most it held.
struct Counting;

thread_local! {
    static HELD: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

fn count(change: isize) {
    // Threads that end have no count any more.
    let _ = HELD.try_with(|held| {
        let (now, peak) = held.get();
        held.set((now + change, peak.max(now + change)));
    });
}

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most bytes held while both decoders look at these.
fn peak(bytes: &[u8]) -> isize {
    let bytes = Bytes::copy_from_slice(bytes);
    let before = HELD.with(|held| {
        let (now, _) = held.get();
        held.set((now, now));
        now
    });
    drop(wire::decode_request(bytes.clone()));
    drop(wire::decode_reply(bytes));
    HELD.with(Cell::get).1 - before
}

/// What decoding may hold: some bytes for each byte, but for the number of fields at most.
fn bound(len: usize) -> isize {
    (64 << 10) + (len as isize * 8) + (len as isize / 2).min(wire::limits::MAX_FIELDS as isize) * 600
}

fn sample() -> Vec<u8> {
    let size = |factor| {
        let terms = vec![wire::Term { symbol: "n".into(), factor }];
        Some(Size { constant: 3, terms, divisor: 64 })
    };
    let binding = wire::Binding { buffer: 7, offset: 256, size: 1024 };
    let dispatch = Dispatch {
        label: "layers.0".into(),
        kernel: 3,
        bindings: vec![binding; 5],
        x: size(1),
        y: size(2),
        z: size(3),
    };
    let command = Command { work: Some(Work::Dispatch(dispatch)) };
    let record = wire::Record { list: 1, commands: vec![command; 20], more: false };
    wire::encode(&ToAgent { seq: 9, request: Some(Request::Record(record)) }).to_vec()
}

proptest! {
    #[test]
    fn arbitrary_bytes(bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
        prop_assert!(peak(&bytes) <= bound(bytes.len()));
    }

    #[test]
    fn messages_with_changed_bytes(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12)) {
        let mut bytes = sample();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        prop_assert!(peak(&bytes) <= bound(bytes.len()));
    }
}

#[test]
fn a_good_message_is_read_and_every_cut_of_it_is_refused() {
    let bytes = sample();
    assert!(wire::decode_request(bytes.clone().into()).is_ok());
    for end in 0..bytes.len() {
        assert!(wire::decode_request(Bytes::copy_from_slice(&bytes[..end])).is_err(), "{end}");
    }
}

#[test]
fn a_small_message_cannot_become_a_large_one() {
    // A record of 8 million empty commands in 16 MiB, and a list of as many devices.
    for (outer, inner) in [(0x5au8, 0x12u8), (0x12, 0x22)] {
        let pairs = 8 << 20;
        let mut bytes = vec![outer];
        let mut len = pairs * 2;
        while len >= 128 {
            bytes.push(len as u8 | 128);
            len >>= 7;
        }
        bytes.push(len as u8);
        for _ in 0..pairs {
            bytes.extend([inner, 0]);
        }
        let held = peak(&bytes);
        assert!(held < 1 << 20, "{held} bytes held for a message of {}", bytes.len());
    }
}

#[test]
fn a_tensor_has_few_sizes() {
    let put = |sizes| {
        let tensor = Some(wire::Tensor {
            handle: 1,
            dtype: "f32".into(),
            shape: vec![1; sizes],
            ..Default::default()
        });
        let request = Some(Request::PutTensor(wire::PutTensor { tensor, more: false }));
        wire::encode(&ToAgent { seq: 1, request })
    };
    assert!(wire::decode_request(put(8)).is_ok());
    assert!(wire::decode_request(put(9)).unwrap_err().to_string().contains("9 sizes"));
    // One byte on the wire, eight in memory.
    let many = put(15 << 20);
    let held = peak(&many);
    assert!(held < 1 << 20, "{held} bytes held for a message of {}", many.len());
}

#[test]
fn a_kernel_has_few_bindings() {
    let bindings = vec![1; 15 << 20];
    let request = Some(Request::CreateKernel(wire::CreateKernel { bindings, ..Default::default() }));
    let many = wire::encode(&ToAgent { seq: 1, request });
    let held = peak(&many);
    assert!(held < 1 << 20, "{held} bytes held for a message of {}", many.len());
}

#[test]
fn groups_and_endless_numbers_are_refused() {
    for bad in
        [&[0x0b, 0x0c][..], &[0x08; 1], &[0xff; 11], &[0x0f, 0x01], &[0x5a, 0xff, 0xff, 0xff, 0xff, 0x7f]]
    {
        assert!(wire::decode_request(Bytes::copy_from_slice(bad)).is_err(), "{bad:?}");
    }
}

/// A device that computes nothing.
struct Nothing;

impl tapml_rpc::Offer for Nothing {
    fn list(&self) -> Vec<tapml_rpc::Offered> {
        Vec::new()
    }

    fn open(&self, _: &str, _: &str) -> tapml_graph::Result<Box<dyn tapml_device::Device>> {
        let device = tapml_device::null::NullDevice::new(tapml_device::Limits::WEBGPU, Default::default());
        Ok(Box::new(device))
    }
}

/// A number that is small, or at an edge.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..6, Just(16), Just(1 << 20), Just(1 << 40), Just(wire::limits::MAX_INTEGER)]
}

/// A request about a few handles.
fn request() -> impl Strategy<Value = Request> {
    (0..14u8, 0..4u32, number(), number(), prop::collection::vec(any::<u8>(), 0..20)).prop_map(
        |(kind, id, a, b, bytes)| {
            let bytes = Bytes::from(bytes);
            let size = |constant| Some(Size { constant, terms: Vec::new(), divisor: 1 });
            let hash = Bytes::copy_from_slice(blake3::hash(&bytes).as_bytes());
            let read = wire::Read { buffer: id, offset: a, size: b };
            let write = wire::Write { buffer: id, offset: a, data: bytes.clone() };
            match kind {
                0 => Request::CreateBuffer(wire::CreateBuffer { buffer: id, label: "b".into(), size: a }),
                1 => Request::DestroyBuffer(wire::DestroyBuffer { buffer: id }),
                2 => Request::Write(write),
                3 => Request::Read(read),
                4 => {
                    let copy = wire::Copy {
                        src: id,
                        src_offset: size(a),
                        dst: (id + 1) % 4,
                        dst_offset: size(b),
                        size: size(4),
                    };
                    let fill = wire::Fill { buffer: id, word: 7 };
                    let work = if a < 3 { Work::Copy(copy) } else { Work::Fill(fill) };
                    let commands = vec![Command { work: Some(work) }];
                    Request::Record(wire::Record { list: id, commands, more: b == 3 })
                }
                5 => Request::Replay(wire::Replay { list: id, symbols: Vec::new() }),
                6 => Request::DestroyList(wire::DestroyList { list: id }),
                7 => Request::Step(wire::Step {
                    writes: vec![write],
                    list: id,
                    symbols: Vec::new(),
                    reads: vec![read],
                }),
                8 => Request::HasBlobs(wire::HasBlobs { hashes: vec![hash] }),
                9 => Request::PutBlob(wire::PutBlob {
                    data: bytes,
                    hash: if a < 3 { hash } else { Bytes::new() },
                }),
                10 => Request::WriteBlob(wire::WriteBlob { buffer: id, offset: a, hash }),
                11 => Request::LoadProgram(wire::LoadProgram {
                    program: id,
                    pieces: vec![hash],
                    weights: Vec::new(),
                }),
                12 => Request::UnloadProgram(wire::UnloadProgram { program: id }),
                _ => Request::Wait(wire::Wait {}),
            }
        },
    )
}

proptest! {
    #[test]
    fn any_requests_in_any_order_are_answered_and_end_no_session(all in prop::collection::vec(request(), 1..60)) {
        let frame = |seq: u64, bytes: &[u8]| [&(bytes.len() as u32).to_le_bytes()[..], &seq.to_le_bytes(), bytes].concat();
        let message = |seq, request| wire::encode(&ToAgent { seq, request: Some(request) });
        let hello = wire::Hello { version_min: 1, version_max: 1, target: "null".into(), ..Default::default() };
        // Settings that allow 4 MiB of buffers.
        let mut stream = frame(0, &[0x20, 0x80, 0x80, 0x80, 0x02]);
        stream.extend(frame(1, &message(1, Request::Hello(hello))));
        let count = all.len() as u64;
        for (seq, request) in (2..).zip(all) {
            stream.extend(frame(seq, &message(seq, request)));
        }
        let last = count + 2;
        stream.extend(frame(last, &message(last, Request::TakeFindings(wire::TakeFindings {}))));
        let mut replies = Vec::new();
        tapml_rpc::agent::serve_session(&mut stream.as_slice(), &mut replies, &Nothing).unwrap();
        let (mut rest, mut seen) = (replies.as_slice(), 0);
        while let Some((head, tail)) = rest.split_at_checked(12) {
            let len = u32::from_le_bytes(head[..4].try_into().unwrap()) as usize;
            let (bytes, after) = tail.split_at(len);
            // The agent adds its limits to the welcome; all others are as the client gets them.
            if seen > 0 {
                let reply = wire::decode_reply(Bytes::copy_from_slice(bytes)).unwrap();
                prop_assert!(reply.seq >= seen && reply.seq <= last);
            }
            seen = u64::from_le_bytes(head[4..].try_into().unwrap());
            rest = after;
        }
        prop_assert_eq!(seen, last);
    }
}
