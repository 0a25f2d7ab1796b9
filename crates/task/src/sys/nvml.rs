//! NVML, loaded if it is installed. Names, structures and codes are those of NVIDIA's `nvml.h`,
//! which keeps old ones when it adds new ones.

use std::ffi::{CStr, CString, c_int, c_uint, c_ulonglong, c_void};
use std::mem;
use std::ptr;

/// The code of success; all others are errors.
const SUCCESS: c_int = 0;

/// The most processes that are read of one GPU, running or accounted: the driver accounts for
/// 4,000.
const MAX_PROCESSES: usize = 8192;

/// `nvmlDevice_t`.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Device(*mut c_void);

/// `nvmlProcessInfo_t`, as of version 2.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RunningProcess {
    pub(crate) pid: c_uint,
    /// Bytes in use; all ones if unknown.
    pub(crate) used_bytes: c_ulonglong,
    instance: c_uint,
    compute_instance: c_uint,
}

/// `nvmlAccountingStats_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AccountingStats {
    gpu_percent: c_uint,
    memory_percent: c_uint,
    /// The peak of the bytes in use; all ones if unknown.
    pub(crate) used_bytes_max: c_ulonglong,
    active_milliseconds: c_ulonglong,
    /// The start time, in microseconds of UNIX time.
    pub(crate) start_micros: c_ulonglong,
    is_running: c_uint,
    reserved: [c_uint; 5],
}

type Nothing = unsafe extern "C" fn() -> c_int;
type GetNumber = unsafe extern "C" fn(*mut c_uint) -> c_int;
type GetHandle = unsafe extern "C" fn(c_uint, *mut Device) -> c_int;
type GetRunning = unsafe extern "C" fn(Device, *mut c_uint, *mut RunningProcess) -> c_int;
type GetMode = unsafe extern "C" fn(Device, *mut c_uint) -> c_int;
type GetPids = unsafe extern "C" fn(Device, *mut c_uint, *mut c_uint) -> c_int;
type GetAccounted = unsafe extern "C" fn(Device, c_uint, *mut AccountingStats) -> c_int;

/// The library and the functions that are used.
pub(crate) struct Library {
    handle: *mut c_void,
    is_begun: bool,
    init: Nothing,
    shutdown: Nothing,
    count: GetNumber,
    handle_of: GetHandle,
    running: GetRunning,
    mode: GetMode,
    pids: GetPids,
    accounted: GetAccounted,
}

impl Library {
    /// Loads the library by its name or path.
    ///
    /// # Errors
    /// The library is missing, or lacks a function that is used.
    pub(crate) fn load(name: &CStr) -> Result<Self, String> {
        // SAFETY: the name is a string; loading runs the library's own initialisation.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(format!("{} is not installed", name.to_string_lossy()));
        }
        let find = |symbol: &str| {
            let text = CString::new(symbol).unwrap_or_default();
            // SAFETY: the library is loaded, and the symbol is a string.
            let found = unsafe { libc::dlsym(handle, text.as_ptr()) };
            if found.is_null() {
                Err(format!("the driver's library has no {symbol}"))
            } else {
                Ok(found)
            }
        };
        let running = find("nvmlDeviceGetComputeRunningProcesses_v3")
            .or_else(|_| find("nvmlDeviceGetComputeRunningProcesses_v2"));
        // SAFETY: each symbol is a function of the type that `nvml.h` gives for its name.
        let made = (|| unsafe {
            Ok(Self {
                handle,
                is_begun: false,
                init: mem::transmute::<*mut c_void, Nothing>(find("nvmlInit_v2")?),
                shutdown: mem::transmute::<*mut c_void, Nothing>(find("nvmlShutdown")?),
                count: mem::transmute::<*mut c_void, GetNumber>(find("nvmlDeviceGetCount_v2")?),
                handle_of: mem::transmute::<*mut c_void, GetHandle>(find(
                    "nvmlDeviceGetHandleByIndex_v2",
                )?),
                running: mem::transmute::<*mut c_void, GetRunning>(running?),
                mode: mem::transmute::<*mut c_void, GetMode>(find("nvmlDeviceGetAccountingMode")?),
                pids: mem::transmute::<*mut c_void, GetPids>(find("nvmlDeviceGetAccountingPids")?),
                accounted: mem::transmute::<*mut c_void, GetAccounted>(find(
                    "nvmlDeviceGetAccountingStats",
                )?),
            })
        })();
        if made.is_err() {
            // SAFETY: nothing of the library is in use.
            unsafe { libc::dlclose(handle) };
        }
        made
    }

    /// Initialises the library and returns its GPUs.
    ///
    /// # Errors
    /// The driver does not answer; the text has the code.
    pub(crate) fn devices(&mut self) -> Result<Vec<Device>, String> {
        // SAFETY: the functions have the types that they are called with, and write to buffers of
        // the stated size.
        unsafe {
            check((self.init)(), "nvmlInit_v2")?;
            self.is_begun = true;
            let mut count = 0;
            check((self.count)(&raw mut count), "nvmlDeviceGetCount_v2")?;
            let mut devices = Vec::new();
            for index in 0..count {
                let mut device = Device(ptr::null_mut());
                // A GPU that this user may not see cannot be used by the task.
                if (self.handle_of)(index, &raw mut device) == SUCCESS {
                    devices.push(device);
                }
            }
            Ok(devices)
        }
    }

    /// Returns the processes that have a context on a GPU now; `None` if the GPU does not report
    /// them.
    pub(crate) fn running(&self, device: Device) -> Option<Vec<RunningProcess>> {
        let mut infos = vec![RunningProcess::default(); MAX_PROCESSES];
        let mut count = MAX_PROCESSES as c_uint;
        // SAFETY: there is room for `count` entries.
        let code = unsafe { (self.running)(device, &raw mut count, infos.as_mut_ptr()) };
        infos.truncate(count as usize);
        (code == SUCCESS).then_some(infos)
    }

    /// True if the GPU keeps accounts of exited processes.
    pub(crate) fn accounts(&self, device: Device) -> bool {
        let mut mode = 0;
        // SAFETY: the function writes one number there.
        unsafe { (self.mode)(device, &raw mut mode) == SUCCESS && mode == 1 }
    }

    /// Returns the accounts of those processes of a GPU that are wanted.
    pub(crate) fn accounted(
        &self,
        device: Device,
        is_wanted: impl Fn(c_uint) -> bool,
    ) -> Vec<AccountingStats> {
        let mut pids = vec![0; MAX_PROCESSES];
        let mut count = MAX_PROCESSES as c_uint;
        // SAFETY: there is room for `count` entries.
        if unsafe { (self.pids)(device, &raw mut count, pids.as_mut_ptr()) } != SUCCESS {
            return Vec::new();
        }
        pids.truncate(count as usize);
        let of = |pid| {
            let mut stats = AccountingStats::default();
            // SAFETY: the function writes one such structure there.
            let code = unsafe { (self.accounted)(device, pid, &raw mut stats) };
            (code == SUCCESS).then_some(stats)
        };
        pids.into_iter().filter(|pid| is_wanted(*pid)).filter_map(of).collect()
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: functions and devices do not outlive this value, so nothing uses the library any
        // more.
        unsafe {
            if self.is_begun {
                (self.shutdown)();
            }
            libc::dlclose(self.handle);
        }
    }
}

fn check(code: c_int, call: &str) -> Result<(), String> {
    if code == SUCCESS { Ok(()) } else { Err(format!("{call} failed with code {code}")) }
}
