//! Device profiles: limits, features and arithmetic of platforms that one may not own.
//!
//! A profile changes what the device reports and how the lowering computes floats.

use tapml_device::{Error, Features, Limits, Result};

/// A device to imitate.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Profile {
    /// The limits every WebGPU implementation grants, with larger buffers; `f16` and subgroups; IEEE arithmetic.
    #[default]
    Default,
    /// A phone's browser: no `f16`, no subgroups, bindings of at most 128 MiB.
    MobileWebgpu,
    /// No `f16` and no subgroups; every f32 operation rounds correctly, nothing is contracted.
    StrictF32,
    /// What a driver may do for speed: `a*b + c` in one rounding, subnormals flushed to zero, approximate `exp` and
    /// `log`, and `tanh` by an exponential that overflows to NaN from |x| ≈ 44.4 on.
    FastMath,
}

/// How float operations are carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arithmetic {
    /// A product feeding a sum becomes one fused operation.
    pub contract: bool,
    /// Subnormal results become zero.
    pub flush: bool,
    /// `exp`, `log` and `tanh` are approximate.
    pub fast: bool,
}

impl Profile {
    /// All profiles.
    pub const ALL: [Profile; 4] =
        [Profile::Default, Profile::MobileWebgpu, Profile::StrictF32, Profile::FastMath];

    /// The word on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Default => "default",
            Profile::MobileWebgpu => "mobile-webgpu",
            Profile::StrictF32 => "strict-f32",
            Profile::FastMath => "fast-math",
        }
    }

    /// The profile of a word; `mobile` is short for `mobile-webgpu`.
    pub fn parse(word: &str) -> Result<Profile> {
        let found = Profile::ALL.into_iter().find(|p| p.name() == word);
        let found = found.or((word == "mobile").then_some(Profile::MobileWebgpu));
        found.ok_or_else(|| {
            let names = Profile::ALL.map(Profile::name).join(", ");
            Error::invalid(format!("unknown emulator profile `{word}`"))
                .with_hint(format!("profiles: {names}"))
        })
    }

    /// Limits.
    pub fn limits(self) -> Limits {
        let webgpu = Limits::WEBGPU;
        match self {
            Profile::MobileWebgpu => webgpu,
            // Weights of larger models do not fit WebGPU's default of 256 MiB for a buffer.
            _ => Limits { max_buffer_size: 2 << 30, ..webgpu },
        }
    }

    /// Features; `subgroup_size` is the one size of subgroups.
    pub fn features(self, subgroup_size: u32) -> Features {
        match self {
            Profile::Default | Profile::FastMath => Features {
                f16: true,
                subgroups: Some((subgroup_size, subgroup_size)),
                cuda: None,
                matrices: false,
                device_barriers: true,
                processors: None,
            },
            Profile::MobileWebgpu | Profile::StrictF32 => Features {
                f16: false,
                subgroups: None,
                cuda: None,
                matrices: false,
                device_barriers: true,
                processors: None,
            },
        }
    }

    /// Arithmetic.
    /// Only [`Profile::FastMath`] departs from IEEE arithmetic.
    pub fn arithmetic(self) -> Arithmetic {
        let fast = self == Profile::FastMath;
        Arithmetic { contract: fast, flush: fast, fast }
    }
}
