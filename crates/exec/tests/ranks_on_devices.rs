//! Ranks that meet in the memory of their devices, on devices that run no kernels: what is loaded, asked for and told. Results are
//! for machines with several GPUs.
#![allow(clippy::unwrap_used)]

mod common;

use common::{FUSED, ids, model};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tapml_device::null::NullDevice;
use tapml_device::{BufferId, Device, ListId, PeerMemory};
use tapml_exec::{Call, DevicePlatform, Overrides, Phase, Platform, RanksPlatform, Session};
use tapml_graph::op::AllReduce;
use tapml_graph::{DType, Dim, Error, ErrorKind, Op, Result, Symbol, Symbols, Tensor, TensorType};
use tapml_kernels::{Needs, any_device, meeting};

/// A device whose memory others use.
struct Peer {
    null: NullDevice,
    own: Option<BufferId>,
    /// The runs until one in which it waits for rank 1 in vain.
    late_in: Option<u32>,
    /// Whether it cannot use the memory of others.
    apart: bool,
}

impl Device for Peer {
    tapml_device::forward!(null: info, create_buffer, destroy_buffer, write, read, create_kernel,
        destroy_kernel, record, destroy_list, wait, memory);

    fn export_buffer(&mut self, buffer: BufferId) -> Result<PeerMemory> {
        self.own = Some(buffer);
        let mut nothing = [0; 4];
        self.null.read(buffer, 0, &mut nothing)?;
        Ok(PeerMemory::new(4 * meeting::words(2).unwrap(), Arc::new(())))
    }

    fn import_buffer(&mut self, label: &str, memory: &PeerMemory) -> Result<BufferId> {
        if self.apart {
            return Err(Error::unsupported(format!("the device cannot use `{label}` of another one")));
        }
        self.null.create_buffer(label, memory.size())
    }

    fn replay(&mut self, list: ListId, symbols: &Symbols) -> Result<()> {
        // The list that clears the memory knows no symbols.
        if symbols.get(Symbol::N).is_some() {
            if self.late_in == Some(0) {
                std::thread::sleep(Duration::from_millis(4600));
                let words: [u32; 2] = [2, 1];
                let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                self.null.write(self.own.unwrap(), 4 * u64::from(meeting::LATE_RANK), &bytes)?;
            }
            self.late_in = self.late_in.and_then(|runs| runs.checked_sub(1));
        }
        self.null.replay(list, symbols)
    }
}

fn ranks(of: [(Option<u32>, bool); 2]) -> RanksPlatform {
    let rank = |(late_in, apart)| {
        let info = Needs::cuda(90).met_by(&any_device());
        let peer = Peer { null: NullDevice::new(info.limits, info.features), own: None, late_in, apart };
        Box::new(DevicePlatform::new(Box::new(peer), Overrides::default())) as Box<dyn Platform>
    };
    RanksPlatform::new(of.map(rank).into()).unwrap()
}

fn peers(late_in: Option<u32>) -> RanksPlatform {
    ranks([(late_in, false), (None, false)])
}

#[test]
fn ranks_meet_on_the_host_where_one_device_does_not_reach_another() {
    let ty = TensorType::new(DType::F16, [Dim::symbol(Symbol::N), Dim::from(64u64)]);
    let op = Op::from(AllReduce { ranks: 2, rank: None });
    let types = [ty.clone(), ty];
    let model = model(FUSED);
    for apart in [[true, false], [false, true]] {
        let mut platform = ranks(apart.map(|apart| (None, apart)));
        let choice = platform.kernel_for(&op, &types, Phase::Decode).unwrap();
        assert_ne!(choice.name, "all_reduce/peer_cuda");
        let mut session = Session::new(&mut platform, &model, 32).unwrap();
        let vocab = session.vocab().unwrap() as usize;
        assert_eq!(session.forward(&ids(3)).unwrap().shape()[1], vocab);
    }
}

#[test]
fn a_rank_is_one_program_and_the_first_gives_what_is_wanted() {
    let mut platform = peers(None);
    let ty = TensorType::new(DType::F16, [Dim::symbol(Symbol::N), Dim::from(64u64)]);
    let op = Op::from(AllReduce { ranks: 2, rank: None });
    let choice = platform.kernel_for(&op, &[ty.clone(), ty], Phase::Decode).unwrap();
    assert_eq!((choice.name.as_str(), choice.accumulate.chain), ("all_reduce/peer_cuda", Dim::from(2u64)));
    let model = model(FUSED);
    let mut session = Session::greedy(&mut platform, &model, 32, None).unwrap();
    let vocab = session.vocab().unwrap() as usize;
    assert_eq!(session.forward(&ids(3)).unwrap().shape()[1], vocab);
    assert_eq!(session.forward(&ids(1)).unwrap().shape()[1], vocab);
    // Each rank chooses tokens by itself, and all must choose the same.
    assert_eq!(session.generate_greedily(1, 3).unwrap().map(|tokens| tokens.len()), Some(3));
    session.reset().unwrap();
    assert_eq!(session.forward(&ids(2)).unwrap().shape()[1], vocab);
}

#[test]
fn a_call_at_which_ranks_meet_runs_on_all_devices() {
    let ty = TensorType::new(DType::F16, [Dim::symbol(Symbol::N), Dim::from(8u64)]);
    let op = Op::from(AllReduce { ranks: 2, rank: None });
    let call = Call {
        node: "o.all_reduce".into(),
        symbols: Symbols::np(3, 5),
        inputs: vec![Tensor::from_f32_as(DType::F16, vec![3, 8], vec![1.0; 24]).unwrap(); 2],
        weights: vec![None; 2],
        output_types: op.infer(&[ty.clone(), ty.clone()]).unwrap(),
        input_types: vec![ty; 2],
        op,
    };
    let mut given = Vec::new();
    peers(None).replay(&[call], &mut |_, outputs| given.push(outputs)).unwrap();
    assert_eq!(given.remove(0).unwrap()[0].shape(), [3, 8]);
}

#[test]
fn a_rank_that_waits_in_vain_tells_for_whom_and_where() {
    let mut platform = peers(Some(1));
    let mut session = Session::new(&mut platform, &model(FUSED), 16).unwrap();
    session.forward(&ids(3)).unwrap();
    let began = Instant::now();
    let error = session.forward(&ids(2)).unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains("rank 1 has not come to `0.o.all_reduce`"), "{error}");
    // The memory is cleared, so that the next step waits again.
    session.reset().unwrap();
    session.forward(&ids(2)).unwrap();
}
