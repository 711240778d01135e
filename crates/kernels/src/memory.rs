//! Memory planning.
use crate::{CompileOptions, Program};
use tapml_device::DeviceInfo;
use tapml_graph::{Error, Graph, Result};
pub(crate) fn layout(_graph: &Graph, _info: &DeviceInfo, _options: &CompileOptions) -> Result<Program> {
    Err(Error::bug("wip"))
}
