//! The driver's service.

use windows_sys::Win32::Foundation::GetLastError;
use windows_sys::Win32::System::Services::{
    CloseServiceHandle, ControlService, CreateServiceW, DeleteService, OpenSCManagerW, QueryServiceStatus,
    SC_HANDLE, SC_MANAGER_ALL_ACCESS, SERVICE_ALL_ACCESS, SERVICE_CONTROL_STOP, SERVICE_DEMAND_START,
    SERVICE_ERROR_NORMAL, SERVICE_KERNEL_DRIVER, SERVICE_STATUS, StartServiceW,
};

/// A service that exists.
pub struct Service {
    manager: SC_HANDLE,
    service: SC_HANDLE,
}

fn wide(text: &str) -> Vec<u16> {
    text.encode_utf16().chain([0]).collect()
}

/// The last error of a function that has failed.
fn checked(succeeded: i32) -> Result<(), u32> {
    // SAFETY: no pointers.
    if succeeded != 0 { Ok(()) } else { Err(unsafe { GetLastError() }) }
}

impl Service {
    /// Creates the service, for the driver that `scripts/kstack-check.sh` has copied.
    ///
    /// Its name contains the name of the kernel, because a service that is deleted while its driver
    /// runs is removed only later.
    pub fn create(kernel: &str) -> Service {
        let none = std::ptr::null();
        // SAFETY: only null pointers.
        let manager = unsafe { OpenSCManagerW(none, none, SC_MANAGER_ALL_ACCESS) };
        assert!(!manager.is_null(), "the service manager opens");
        let name = wide(&format!("StackhoundKstack-{kernel}"));
        let path = wide(r"C:\windows\system32\drivers\stackhound-kstack.sys");
        // SAFETY: zero-terminated texts, and null where it is allowed.
        let service = unsafe {
            CreateServiceW(
                manager,
                name.as_ptr(),
                name.as_ptr(),
                SERVICE_ALL_ACCESS,
                SERVICE_KERNEL_DRIVER,
                SERVICE_DEMAND_START,
                SERVICE_ERROR_NORMAL,
                path.as_ptr(),
                none,
                std::ptr::null_mut(),
                none,
                none,
                none,
            )
        };
        assert!(!service.is_null(), "the service is created");
        Service { manager, service }
    }

    /// Starts the service.
    ///
    /// # Errors
    /// The Win32 error.
    pub fn start(&self) -> Result<(), u32> {
        // SAFETY: the handle is open; there are no arguments.
        checked(unsafe { StartServiceW(self.service, 0, std::ptr::null()) })
    }

    /// Requests the service to stop.
    ///
    /// # Errors
    /// The Win32 error.
    pub fn stop(&self) -> Result<SERVICE_STATUS, u32> {
        let mut status = SERVICE_STATUS::default();
        // SAFETY: the handle is open; `status` is a variable.
        checked(unsafe { ControlService(self.service, SERVICE_CONTROL_STOP, &mut status) }).map(|()| status)
    }

    /// The status of the service.
    pub fn status(&self) -> SERVICE_STATUS {
        let mut status = SERVICE_STATUS::default();
        // SAFETY: the handle is open; `status` is a variable.
        checked(unsafe { QueryServiceStatus(self.service, &mut status) }).expect("the service has a status");
        status
    }

    /// Deletes the service.
    pub fn delete(self) {
        // SAFETY: the handle is open.
        checked(unsafe { DeleteService(self.service) }).expect("the service is deleted");
        for handle in [self.service, self.manager] {
            // SAFETY: open, and not used again.
            unsafe { CloseServiceHandle(handle) };
        }
    }
}
