//! Where the time of a step goes: a device that hands every call on, and while it is asked to has the commands of a list
//! timed one by one.
//!
//! Commands are timed alone, so their sum is more than a step takes where the device overlaps them.

use super::rate::Rate;
use super::traffic;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tapml_device::{BatchedStep, Command, Device, Get, KernelDesc, KernelId, ListId, Put, one_by_one};
use tapml_graph::{Error, Graph, Result, Symbols};

/// The time of one kernel in a step, over all its dispatches.
#[derive(Clone, Debug, Serialize)]
pub struct KernelTime {
    /// The kernel's name, such as `linear/portable`; `copy` and `fill` for commands without one.
    pub kernel: String,
    /// Dispatches in a step.
    pub count: usize,
    /// Seconds of them, each the median of the timed steps.
    pub seconds: f64,
    /// Seconds that moving the bytes of their nodes takes at the memory's speed.
    pub floor_seconds: f64,
    /// What lies between.
    pub loss_seconds: f64,
}

/// One command of the timed list: label, kernel, seconds in each step.
struct Timed {
    /// Names of the nodes that the command belongs to, joined by `+`.
    label: String,
    kernel: String,
    /// One for each step.
    seconds: Vec<f64>,
}

/// What the profiler and its caller share.
#[derive(Default)]
struct Book {
    /// Whether lists are timed.
    on: bool,
    /// In the order of the list.
    timed: Vec<Timed>,
}

/// The timings of a [`Profiler`], to be asked from outside.
#[derive(Clone, Default)]
pub struct Recording(Arc<Mutex<Book>>);

impl Recording {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Times the lists that run from now on.
    pub fn start(&self) {
        *self.book() = Book { on: true, timed: Vec::new() };
    }

    /// Ends it, and gives the kernels by the time that they lose.
    pub fn finish(&self, graph: &Graph, symbols: &Symbols, bandwidth: f64) -> Result<Vec<KernelTime>> {
        // Takes `on` along: it is off by default.
        let timed = std::mem::take(&mut *self.book()).timed;
        let mut kernels: HashMap<String, KernelTime> = HashMap::new();
        let mut floors: HashMap<&str, f64> = HashMap::new();
        for node in graph.nodes() {
            let bytes = traffic::of_node(graph, node, symbols)? as f64;
            floors.insert(&node.name, if bandwidth > 0.0 { bytes / bandwidth } else { 0.0 });
        }
        for Timed { label, kernel, seconds } in timed {
            // A node of several dispatches has its floor once; several nodes in one dispatch add theirs.
            let floor: f64 = label.split('+').filter_map(|node| floors.remove(node)).sum();
            let row = kernels.entry(kernel.clone()).or_insert(KernelTime {
                kernel,
                count: 0,
                seconds: 0.0,
                floor_seconds: 0.0,
                loss_seconds: 0.0,
            });
            let median = Rate::from_runs(&seconds).median;
            row.count += 1;
            row.seconds += median;
            row.floor_seconds += floor;
            row.loss_seconds = row.seconds - row.floor_seconds;
        }
        let mut rows: Vec<KernelTime> = kernels.into_values().collect();
        rows.sort_by(|a, b| b.loss_seconds.total_cmp(&a.loss_seconds));
        Ok(rows)
    }
}

/// See the module.
pub struct Profiler {
    device: Box<dyn Device>,
    /// Names by handle.
    kernels: HashMap<KernelId, String>,
    /// What each list holds, because a device does not tell.
    lists: HashMap<ListId, Vec<Command>>,
    recording: Recording,
}

impl Profiler {
    /// A device, and what it will have timed.
    pub fn new(device: Box<dyn Device>) -> (Profiler, Recording) {
        let recording = Recording::default();
        let profiler =
            Profiler { device, kernels: HashMap::new(), lists: HashMap::new(), recording: recording.clone() };
        (profiler, recording)
    }

    /// Label and kernel of a command.
    fn name_command(&self, command: &Command) -> (String, String) {
        match command {
            Command::Dispatch { label, kernel, .. } => {
                (label.clone(), self.kernels.get(kernel).cloned().unwrap_or_default())
            }
            Command::Copy { .. } => (String::new(), "copy".into()),
            Command::Fill { .. } => (String::new(), "fill".into()),
        }
    }

    /// Runs a list command by command, and notes the seconds.
    fn time(&mut self, list: ListId, symbols: &Symbols) -> Result<()> {
        let commands = self.lists.get(&list).cloned().unwrap_or_default();
        let seconds = self.device.time_commands(&commands, symbols)?;
        let names: Vec<(String, String)> =
            commands.iter().map(|command| self.name_command(command)).collect();
        let mut book = self.recording.book();
        // Another list, such as that of the other phase, begins anew.
        let same = book.timed.len() == names.len()
            && book
                .timed
                .iter()
                .zip(&names)
                .all(|(t, (label, kernel))| t.label == *label && t.kernel == *kernel);
        if !same {
            let fresh = |(label, kernel)| Timed { label, kernel, seconds: Vec::new() };
            book.timed = names.into_iter().map(fresh).collect();
        }
        book.timed.iter_mut().zip(seconds).for_each(|(timed, seconds)| timed.seconds.push(seconds));
        Ok(())
    }
}

impl Device for Profiler {
    tapml_device::forward!(device: info, create_buffer, destroy_buffer, write, read, wait, take_findings,
        memory, reopens);

    fn reopen(&mut self, lost: Error) -> Result<()> {
        // Handles of the lost device stand for nothing.
        self.kernels.clear();
        self.lists.clear();
        self.device.reopen(lost)
    }

    fn create_kernel(&mut self, desc: &KernelDesc) -> Result<KernelId> {
        let id = self.device.create_kernel(desc)?;
        self.kernels.insert(id, desc.name.clone());
        Ok(id)
    }

    fn destroy_kernel(&mut self, kernel: KernelId) -> Result<()> {
        self.kernels.remove(&kernel);
        self.device.destroy_kernel(kernel)
    }

    fn record(&mut self, commands: &[Command]) -> Result<ListId> {
        let id = self.device.record(commands)?;
        self.lists.insert(id, commands.to_vec());
        Ok(id)
    }

    fn replay(&mut self, list: ListId, symbols: &Symbols) -> Result<()> {
        let on = self.recording.book().on;
        if on { self.time(list, symbols) } else { self.device.replay(list, symbols) }
    }

    fn step(
        &mut self,
        list: ListId,
        symbols: &Symbols,
        writes: &[Put<'_>],
        reads: &mut [Get<'_>],
    ) -> Result<()> {
        let on = self.recording.book().on;
        if !on {
            return self.device.step(list, symbols, writes, reads);
        }
        writes.iter().try_for_each(|put| self.write(put.buffer, put.offset, put.data))?;
        self.time(list, symbols)?;
        reads.iter_mut().try_for_each(|get| self.read(get.buffer, get.offset, get.out))
    }

    fn run_steps(&mut self, list: ListId, turns: &[BatchedStep<'_>], reads: &mut [Get<'_>]) -> Result<()> {
        let on = self.recording.book().on;
        if !on {
            return self.device.run_steps(list, turns, reads);
        }
        one_by_one(self, list, turns, reads)
    }

    fn destroy_list(&mut self, list: ListId) -> Result<()> {
        self.lists.remove(&list);
        self.device.destroy_list(list)
    }

    fn time_commands(&mut self, commands: &[Command], symbols: &Symbols) -> Result<Vec<f64>> {
        self.device.time_commands(commands, symbols)
    }
}
