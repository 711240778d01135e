//! Where graphs run: platforms, replay of single node calls, placement of nodes on two platforms at once, and sessions.
//! Knows no GPU API, reads no files and judges no numbers.
#![warn(missing_docs)]

mod accumulate;
mod call;
mod interface;
mod observer;
mod platform;
mod session;
mod spec;

pub use accumulate::Accumulate;
pub use call::Call;
pub use interface::{Interface, LOGITS};
pub use observer::{NodeEvent, Observer};
pub use platform::{KernelChoice, Loaded, Platform, PlatformInfo, Sink};
pub use session::{CHUNK, Session};
pub use spec::{PlatformSpec, WORDS};
