//! The devices that OpenCL lists, and what each tells about itself.
#![allow(unsafe_code)]

use crate::error::{ClResult, check};
use crate::sys::{self, Api, ClObject, ClStatus};
use std::ptr;

/// A question to OpenCL about an object: its answer's size, then its bytes.
type Ask = unsafe extern "system" fn(ClObject, u32, usize, *mut std::ffi::c_void, *mut usize) -> ClStatus;

/// The bytes of an answer; at most 64 KiB, since sizes come from the driver.
fn answer(ask: Ask, object: ClObject, what: u32) -> ClResult<Vec<u8>> {
    let mut size = 0;
    // SAFETY: asks for the size alone.
    check(unsafe { ask(object, what, 0, ptr::null_mut(), &mut size) })?;
    let mut bytes = vec![0u8; size.min(1 << 16)];
    // SAFETY: room for as many bytes as are said.
    check(unsafe { ask(object, what, bytes.len(), bytes.as_mut_ptr().cast(), ptr::null_mut()) })?;
    Ok(bytes)
}

/// A text of OpenCL, without the zero at its end.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_matches(['\0', ' ']).to_string()
}

/// A device of this machine that is not open.
#[derive(Clone, Copy)]
pub(crate) struct ListedDevice {
    /// The loaded functions.
    pub(crate) api: &'static Api,
    /// The driver that it belongs to.
    platform: ClObject,
    /// The device itself, which needs no release.
    pub(crate) device: ClObject,
}

impl ListedDevice {
    /// All devices of all platforms.
    ///
    /// At most 64 platforms, and 64 devices of each. A platform that does not answer has none.
    pub(crate) fn all(api: &'static Api) -> ClResult<Vec<ListedDevice>> {
        let mut count = 0;
        // SAFETY: asks for the number alone.
        check(unsafe { (api.clGetPlatformIDs)(0, ptr::null_mut(), &mut count) })?;
        let mut platforms = vec![ptr::null_mut(); count.min(64) as usize];
        // SAFETY: room for as many as are said.
        check(unsafe {
            (api.clGetPlatformIDs)(platforms.len() as u32, platforms.as_mut_ptr(), ptr::null_mut())
        })?;
        let of = |platform: ClObject| {
            let mut devices = vec![ptr::null_mut(); 64];
            let mut count = 0;
            let (room, start) = (devices.len() as u32, devices.as_mut_ptr());
            // SAFETY: room for as many as are said. A platform without a device answers with an error.
            let status =
                unsafe { (api.clGetDeviceIDs)(platform, sys::DEVICE_TYPE_ALL, room, start, &mut count) };
            devices.truncate(if status == 0 { count as usize } else { 0 });
            devices.into_iter().map(move |device| ListedDevice { api, platform, device })
        };
        Ok(platforms.into_iter().flat_map(of).collect())
    }

    /// A question whose answer is a text.
    pub(crate) fn text(&self, what: u32) -> ClResult<String> {
        Ok(text(&answer(self.api.clGetDeviceInfo, self.device, what)?))
    }

    /// Name of the driver's platform, which begins the name of the driver.
    pub(crate) fn platform_name(&self) -> ClResult<String> {
        Ok(text(&answer(self.api.clGetPlatformInfo, self.platform, sys::PLATFORM_NAME)?))
    }

    /// A number of 4 or 8 bytes.
    pub(crate) fn number(&self, what: u32) -> ClResult<u64> {
        Ok(self.numbers(what)?.first().copied().unwrap_or(0))
    }

    /// Numbers: one of 4 bytes, or as many of 8 as there are.
    pub(crate) fn numbers(&self, what: u32) -> ClResult<Vec<u64>> {
        let bytes = answer(self.api.clGetDeviceInfo, self.device, what)?;
        if let Some(word) = bytes.as_chunks::<4>().0.first().filter(|_| bytes.len() == 4) {
            return Ok(vec![u64::from(u32::from_ne_bytes(*word))]);
        }
        Ok(bytes.as_chunks::<8>().0.iter().map(|chunk| u64::from_ne_bytes(*chunk)).collect())
    }
}
