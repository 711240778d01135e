//! The pool of devices: the registry and the leases, which change together.

use super::device_request::{DeviceRequest, Place};
use super::lease::{Leases, RemoteWaiter};
use super::registry::{Destination, Registry};
use super::rows::{LeaseRow, Rows, WaitRow};
use crate::wire::{Offer, Register};
use std::time::Instant;
use tapml_graph::Result;

/// See the module.
#[derive(Default)]
pub struct Pool {
    registry: Registry,
    /// Who has which device, and who waits.
    pub leases: Leases,
}

impl Pool {
    /// Which agents and devices there are.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// See [`Registry::register`].
    pub fn register(&mut self, connection: u64, asked: Register) -> Result<(String, Option<u64>)> {
        let registered = self.registry.register(connection, asked)?;
        self.leases.set_agents(self.registry.capacities());
        Ok(registered)
    }

    /// See [`Registry::leave`].
    pub fn leave(&mut self, connection: u64) -> Option<String> {
        let name = self.registry.leave(connection)?;
        self.leases.set_agents(self.registry.capacities());
        Some(name)
    }

    /// Takes over what the other hubs have: their agents, their clients' leases, who waits there.
    pub fn update_remote(&mut self, rows: Rows) {
        let held = |LeaseRow { agent, device, .. }| Place { agent, device };
        let waiter = |WaitRow { hub, waiter, target, priority, since }| RemoteWaiter {
            hub,
            id: waiter,
            request: DeviceRequest::parse(&target),
            priority,
            since,
        };
        self.registry.set_remote(rows.agents);
        self.leases.set_agents(self.registry.capacities());
        let held = rows.leases.into_iter().map(held).collect();
        self.leases.set_remote(held, rows.waiting.into_iter().map(waiter).collect());
    }

    /// See [`Leases::grant`].
    pub fn grant(&mut self, id: u64, now: Instant) -> Option<Destination> {
        let place = self.leases.grant(id, now)?;
        self.registry.find(&place)
    }

    /// All devices under the names that clients ask for, with their state.
    pub fn list(&self) -> Vec<Offer> {
        self.registry.list(|place| self.leases.busy(place))
    }
}
