//! A device that runs the commands of a list one by one and notes each before it runs, so that a post-mortem names it.
//!
//! It waits after each command, so that an error or a crash belongs to the command that is noted.

use crate::recorder::Recorder;
use std::collections::HashMap;
use tapml_device::{Command, Device, ListId, Result, Symbols};
use tapml_graph::{Context, Error};

/// See the module.
pub struct Traced {
    /// What runs the commands.
    device: Box<dyn Device>,
    /// Where they are noted.
    recorder: Recorder,
    /// The lists of one command that make up a list, which has the handle of the first one.
    lists: HashMap<ListId, Vec<ListId>>,
}

impl Traced {
    /// Notes go to this recorder.
    pub fn new(device: Box<dyn Device>, recorder: Recorder) -> Traced {
        Traced { device, recorder, lists: HashMap::new() }
    }
}

impl Device for Traced {
    tapml_device::forward!(device: info, create_buffer, destroy_buffer, write, read, create_kernel,
        destroy_kernel, wait, take_findings, memory);

    fn record(&mut self, commands: &[Command]) -> Result<ListId> {
        // An empty list still needs a handle: it is a list of no command.
        let (head, rest) = commands.split_at(commands.len().min(1));
        let first = self.device.record(head)?;
        let mut all = vec![first];
        for command in rest {
            match self.device.record(std::slice::from_ref(command)) {
                Ok(list) => all.push(list),
                Err(error) => {
                    // The error that led here is the one to tell.
                    all.into_iter().for_each(|list| drop(self.device.destroy_list(list)));
                    return Err(error);
                }
            }
        }
        self.lists.insert(first, all);
        Ok(first)
    }

    fn replay(&mut self, list: ListId, symbols: &Symbols) -> Result<()> {
        let all = self.lists.get(&list).ok_or_else(|| Error::invalid(format!("no list {}", list.0)))?;
        for (at, list) in all.iter().enumerate() {
            self.recorder.command(at as u64 + 1);
            self.device.replay(*list, symbols)?;
            self.device.wait().context(|| format!("command {} of the list", at + 1))?;
        }
        self.recorder.command(0);
        Ok(())
    }

    fn destroy_list(&mut self, list: ListId) -> Result<()> {
        let all = self.lists.remove(&list).ok_or_else(|| Error::invalid(format!("no list {}", list.0)))?;
        all.into_iter().try_for_each(|list| self.device.destroy_list(list))
    }
}
