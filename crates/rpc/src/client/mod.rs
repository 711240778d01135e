//! A client: a remote device is a [`tapml_device::Device`], or a [`tapml_exec::NodeServer`] if it runs operators itself.

mod address;
mod again;
mod blobs;
pub(crate) mod connect;
mod connection;
mod described;
mod device;
mod hello;
pub mod node_cases;
mod nodes;
mod post_mortem;
mod program;
mod regions;
mod tensors;

pub use address::{Address, OPTIONS};
pub use again::count_reopened;
pub use device::{RemoteDevice, Stopper, own_name};
pub(crate) use hello::{token, wait_ms};
pub use nodes::RemoteOperators;
pub use program::RemoteProgram;

use crate::offer::Offered;
use crate::wire::{self, convert};
use again::Origin;
use hello::open;
use tapml_exec::{NodeServer, PlatformInfo, ServedOp};
use tapml_graph::{Context, Error, ErrorKind, Result};

/// The devices that an agent offers; the address names none.
pub fn devices(address: &Address) -> Result<Vec<Offered>> {
    Ok(offers(address)?.into_iter().map(read_offer).collect())
}

/// A device that runs kernels, or why it cannot be used.
pub fn read_offer(offer: wire::Offer) -> Offered {
    let info = match offer.info {
        Some(info) if info.ops.is_empty() => convert::info_from_wire(&info),
        Some(_) => Err(Error::unsupported("runs operators, no kernels")),
        None => Err(Error::new(ErrorKind::Unavailable, offer.reason)),
    };
    (offer.name, info)
}

/// The same as the agent or hub tells it; a hub adds who serves each device and how busy it is.
pub fn offers(address: &Address) -> Result<Vec<wire::Offer>> {
    let address = address.clone().for_list();
    let what = if address.hub { "hub" } else { "agent" };
    let (_, welcome) = open(&address).context(|| format!("{what} at {}", address.place()))?;
    Ok(welcome.devices)
}

/// A device elsewhere, of whichever sort.
pub enum Remote {
    /// Runs kernels.
    Device(Box<RemoteDevice>),
    /// Runs operators.
    Operators(Box<RemoteOperators>),
}

impl Remote {
    /// Connects to an agent and opens the device that the address names.
    pub fn open(address: &Address) -> Result<Remote> {
        let place = address.place();
        if address.target.is_empty() {
            return Err(Error::invalid(format!("`{place}` names no device of the agent"))
                .with_hint(format!("`tapml device list ws://{place}` shows what there is")));
        }
        let at = || format!("{} at {place}", if address.hub { "hub" } else { "agent" });
        let (connection, welcome) = open(address).context(at)?;
        let info = welcome
            .device
            .ok_or_else(|| Error::invalid("the agent's welcome describes no device"))
            .context(at)?;
        let origin = Origin::new(address, &connection, welcome.agent, info.clone());
        Ok(if info.ops.is_empty() {
            let device = RemoteDevice::new(connection, origin, &info, &welcome.capabilities)?;
            Remote::Device(Box::new(device))
        } else {
            let operators = RemoteOperators::new(connection, origin, &info).context(at)?;
            Remote::Operators(Box::new(operators))
        })
    }
}

impl RemoteDevice {
    /// Connects to an agent and opens the device that the address names.
    pub fn open(address: &Address) -> Result<RemoteDevice> {
        match Remote::open(address)? {
            Remote::Device(device) => Ok(*device),
            Remote::Operators(operators) => {
                let info = operators.describe();
                Err(Error::unsupported(format!("{} runs operators, no kernels", info.device)).with_hint(
                    "`tapml check`, `migrate` and `diagnose` take it as a target, and `tapml device check` tests it",
                ))
            }
        }
    }
}

/// A device that runs operators, as an agent offers it.
#[derive(Clone, Debug)]
pub struct OperatorDevice {
    /// The name to ask for.
    pub name: String,
    /// Identity.
    pub info: PlatformInfo,
    /// The operators that it runs.
    pub ops: Vec<ServedOp>,
}

/// A device that runs operators; `None` if the offer is of another sort.
pub fn operators(offer: &wire::Offer) -> Option<Result<OperatorDevice>> {
    let info = offer.info.as_ref().filter(|info| !info.ops.is_empty())?;
    let device = |(info, ops)| OperatorDevice { name: offer.name.clone(), info, ops };
    Some(nodes::read_announcement(info).map(device))
}
