//! What a kernel asks of a device, and of a call: features and numbers of rows, never a platform's name.
//!
//! A kernel states its needs as data. Choosing compares them with what a device reports, and error messages print
//! them.

use tapml_device::DeviceInfo;

/// What a kernel asks of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Subgroup operations.
    pub subgroups: bool,
    /// Products of 16 by 16 by 16 on tensor cores (cooperative matrices).
    /// Kernels that use them also use subgroup operations; see [`Needs::COOPERATIVE_MATRICES`].
    pub cooperative_matrices: bool,
    /// CUDA C++ for chips of at least this compute capability, times ten.
    pub cuda: Option<u32>,
    /// CUDA C++ for chips of exactly this compute capability, times ten: instructions that no other has.
    pub cuda_exactly: Option<u32>,
}

impl Needs {
    /// Nothing beyond what every device has.
    pub const NOTHING: Needs =
        Needs { subgroups: false, cooperative_matrices: false, cuda: None, cuda_exactly: None };
    /// Subgroup operations.
    pub const SUBGROUPS: Needs = Needs { subgroups: true, ..Needs::NOTHING };
    /// Cooperative matrices.
    /// Each product is the work of a whole subgroup, so that subgroups are needed as well.
    pub const COOPERATIVE_MATRICES: Needs = Needs { cooperative_matrices: true, ..Needs::SUBGROUPS };

    /// CUDA C++ from this compute capability on, times ten.
    pub const fn cuda(least: u32) -> Needs {
        Needs { cuda: Some(least), ..Needs::NOTHING }
    }

    /// CUDA C++ of this compute capability alone, times ten.
    pub const fn cuda_exactly(chip: u32) -> Needs {
        Needs { cuda_exactly: Some(chip), ..Needs::NOTHING }
    }

    /// The first need that a device does not meet, in words.
    ///
    /// `None` means that the device meets all of them. The order of the check is that of [`Needs::words`].
    pub fn missing(&self, info: &DeviceInfo) -> Option<String> {
        let features = &info.features;
        let met = |need: &Need| match *need {
            Need::Subgroups => features.subgroups.is_some(),
            Need::CooperativeMatrices => features.matrices,
            // `None` is less than any `Some`: a device without CUDA never meets this.
            Need::Cuda(least) => features.cuda >= Some(least),
            Need::CudaExactly(chip) => features.cuda == Some(chip),
        };
        self.all().find(|need| !met(need)).map(Need::words)
    }

    /// All that it asks for, in words.
    pub fn words(&self) -> Vec<String> {
        self.all().map(Need::words).collect()
    }

    /// The needs that are set, in a fixed order.
    fn all(&self) -> impl Iterator<Item = Need> {
        // Subgroups come first: a device without them lacks the matrices as well.
        let matrices = self.cooperative_matrices.then_some(Need::CooperativeMatrices);
        let cuda = [self.cuda.map(Need::Cuda), self.cuda_exactly.map(Need::CudaExactly)];
        [self.subgroups.then_some(Need::Subgroups), matrices].into_iter().chain(cuda).flatten()
    }
}

/// One thing that is asked of a device.
enum Need {
    /// Subgroup operations, of any subgroup size.
    Subgroups,
    /// Products of matrices by a subgroup.
    CooperativeMatrices,
    /// The least compute capability, times ten.
    Cuda(u32),
    /// The only compute capability, times ten.
    CudaExactly(u32),
}

impl Need {
    /// In words, as errors show it.
    fn words(self) -> String {
        let capability = |chip: u32| format!("{}.{}", chip / 10, chip % 10);
        match self {
            Need::Subgroups => "subgroup operations".into(),
            Need::CooperativeMatrices => "tensor cores".into(),
            Need::Cuda(least) => format!("CUDA and compute capability {} at least", capability(least)),
            Need::CudaExactly(chip) => format!("CUDA and compute capability {}", capability(chip)),
        }
    }
}

/// Numbers of rows of a call.
///
/// Planning knows sizes only as expressions of `n` and `p`. A size that is exactly `n` is one row in the decode
/// phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowCount {
    /// One: a step of generation, or what there is only one row of.
    One,
    /// Any other number, or a number that is not known when a node is planned.
    Many,
    /// Any.
    Any,
}

impl RowCount {
    /// Whether a kernel of these serves a call of those.
    /// Rows of kind `Any` serve all calls; the others only calls of their own kind.
    pub fn include(self, call: RowCount) -> bool {
        self == RowCount::Any || self == call
    }

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            RowCount::One => "one row",
            RowCount::Many => "many rows",
            RowCount::Any => "any number of rows",
        }
    }
}
