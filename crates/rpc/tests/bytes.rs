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
fn groups_and_endless_numbers_are_refused() {
    for bad in
        [&[0x0b, 0x0c][..], &[0x08; 1], &[0xff; 11], &[0x0f, 0x01], &[0x5a, 0xff, 0xff, 0xff, 0xff, 0x7f]]
    {
        assert!(wire::decode_request(Bytes::copy_from_slice(bad)).is_err(), "{bad:?}");
    }
}
