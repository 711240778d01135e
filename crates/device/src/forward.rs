//! Methods that a device within another hands on unchanged.
//!
//! A device that adds something, such as times or checks, writes only what it changes and forwards the
//! rest.

/// In an `impl Device`: the methods named, each handed to the device in this field.
///
/// [`Device::step`](crate::Device::step), [`run_steps`](crate::Device::run_steps) and
/// [`time_commands`](crate::Device::time_commands) are left out on
/// purpose: by default they are made of the others, so that none passes by what the outer device does.
#[macro_export]
macro_rules! forward {
    ($to:ident: $($method:ident),+ $(,)?) => { $($crate::forward!(@ $to $method);)+ };
    (@ $to:ident info) => {
        fn info(&self) -> &$crate::DeviceInfo {
            self.$to.info()
        }
    };
    (@ $to:ident create_buffer) => {
        fn create_buffer(&mut self, label: &str, size: u64) -> $crate::Result<$crate::BufferId> {
            self.$to.create_buffer(label, size)
        }
    };
    (@ $to:ident destroy_buffer) => {
        fn destroy_buffer(&mut self, buffer: $crate::BufferId) -> $crate::Result<()> {
            self.$to.destroy_buffer(buffer)
        }
    };
    (@ $to:ident write) => {
        fn write(&mut self, buffer: $crate::BufferId, offset: u64, data: &[u8]) -> $crate::Result<()> {
            self.$to.write(buffer, offset, data)
        }
    };
    (@ $to:ident read) => {
        fn read(&mut self, buffer: $crate::BufferId, offset: u64, out: &mut [u8]) -> $crate::Result<()> {
            self.$to.read(buffer, offset, out)
        }
    };
    (@ $to:ident create_kernel) => {
        fn create_kernel(&mut self, desc: &$crate::KernelDesc) -> $crate::Result<$crate::KernelId> {
            self.$to.create_kernel(desc)
        }
    };
    (@ $to:ident prepare_kernels) => {
        fn prepare_kernels(&mut self, descs: &[$crate::KernelDesc]) {
            self.$to.prepare_kernels(descs);
        }
    };
    (@ $to:ident destroy_kernel) => {
        fn destroy_kernel(&mut self, kernel: $crate::KernelId) -> $crate::Result<()> {
            self.$to.destroy_kernel(kernel)
        }
    };
    (@ $to:ident record) => {
        fn record(&mut self, commands: &[$crate::Command]) -> $crate::Result<$crate::ListId> {
            self.$to.record(commands)
        }
    };
    (@ $to:ident replay) => {
        fn replay(&mut self, list: $crate::ListId, symbols: &$crate::Symbols) -> $crate::Result<()> {
            self.$to.replay(list, symbols)
        }
    };
    (@ $to:ident destroy_list) => {
        fn destroy_list(&mut self, list: $crate::ListId) -> $crate::Result<()> {
            self.$to.destroy_list(list)
        }
    };
    (@ $to:ident wait) => {
        fn wait(&mut self) -> $crate::Result<()> {
            self.$to.wait()
        }
    };
    (@ $to:ident take_findings) => {
        fn take_findings(&mut self) -> Vec<$crate::Finding> {
            self.$to.take_findings()
        }
    };
    (@ $to:ident reopens) => {
        fn reopens(&self) -> bool {
            self.$to.reopens()
        }
    };
    (@ $to:ident reopen) => {
        fn reopen(&mut self, lost: $crate::Error) -> $crate::Result<()> {
            self.$to.reopen(lost)
        }
    };
    (@ $to:ident memory) => {
        fn memory(&self) -> (u64, u64) {
            self.$to.memory()
        }
    };
}
