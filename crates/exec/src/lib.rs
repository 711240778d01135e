//! Where graphs run: platforms, replay of single node calls, placement of nodes on two platforms at once, and sessions.
//! Knows no GPU API, reads no files and judges no numbers.
//!
//! A platform loads graphs whole or runs single calls; a hybrid joins two of them. Judging is left to
//! `migrate`, files to `import`.
#![warn(missing_docs)]

mod again;
mod cached_encoder;
mod call;
mod cpu;
mod device;
mod hybrid;
mod image;
mod image_encoder;
mod interface;
mod observer;
mod operators;
mod paged;
mod platform;
mod ranks;
mod region;
mod session;
mod spec;
mod trace;

pub use again::{Reopen, repeat};
pub use cached_encoder::{load, load_watched};
pub use call::Call;
pub use cpu::CpuPlatform;
pub use device::{DevicePlatform, LateRank, REOPENED, RankMemory, UNWRITTEN};
pub use hybrid::{Hybrid, HybridSide};
pub use image::{Image, NOWHERE};
pub use image_encoder::ImageEncoder;
pub use interface::{Interface, LOGITS, PIXELS, SLOTS};
pub use observer::{NodeEvent, Observer, StepSampler};
pub use operators::{Gave, NodeCall, NodeInput, NodeServer, OperatorPlatform, ServedOp};
pub use paged::{PagedLimits, PagedLogits, PagedSession, PagedStep};
pub use platform::{CHUNK, KernelChoice, Launched, Loaded, Platform, PlatformInfo, Sink};
pub use ranks::RanksPlatform;
pub use region::{Region, RegionInput, RegionNode};
pub use session::Session;
pub use spec::{PlatformSpec, RUNTIMES, WORDS};
pub use tapml_kernels::{Accumulate, Fusing, GivenKernel, NodePlan, Overrides, POISON, Phase, Regime};
pub use trace::{LoadOptions, RankMeeting, TracedNode};

/// Whether two tensors are one: of the same type, with the same bytes at the same place.
///
/// The place is compared, not the content: a weight of gigabytes is compared at once. Whoever keeps one of
/// them keeps its bytes alive.
fn same_bytes(a: &tapml_graph::Tensor, b: &tapml_graph::Tensor) -> bool {
    a.dtype() == b.dtype() && a.shape() == b.shape() && std::ptr::eq::<[u8]>(&**a.bytes(), &**b.bytes())
}
