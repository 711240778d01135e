//! Programs on devices, here or elsewhere: compile a module, upload it, make tensors, call its functions.
//!
//! ```no_run
//! use tapml_graph::{DType, Tensor as Host};
//! use tapml_jobs::runtime::{CompileOptions, Device, DeviceTensor, Module, compile};
//!
//! # fn main() -> tapml_graph::Result<()> {
//! let module = Module::op("add", serde_json::json!({}), &["f32[1024]".parse()?, "f32[1024]".parse()?])?;
//! let device = Device::open("ws://192.168.1.7:7070/vulkan")?;
//! let library = compile(&[module], &device, &CompileOptions::default())?;
//! let remote = library.upload(&device)?;
//! let add = remote.function("add")?;
//! let a = DeviceTensor::new(&device, &Host::from_f32(vec![1024], vec![1.0; 1024])?)?;
//! let b = DeviceTensor::new(&device, &Host::from_f32(vec![1024], vec![2.0; 1024])?)?;
//! let c = DeviceTensor::allocate(&device, vec![1024], DType::F32)?;
//! add.call(&[&a, &b, &c])?;
//! assert_eq!(c.read()?.to_f32()[0], 3.0);
//! # Ok(())
//! # }
//! ```

mod argument;
mod bound;
mod device;
mod function;
mod kernel;
mod library;
mod module;
mod solve;
mod tensor;

pub use argument::FunctionArgument;
pub use device::Device;
pub use function::Function;
pub use kernel::{OwnKernel, parse_groups};
pub use library::{CompileOptions, Library, Uploaded, compile};
pub use module::Module;
pub use tensor::DeviceTensor;
