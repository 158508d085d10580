//! How much memory the process has: where consumers must not grow, tests read it in the log.

use windows_sys::Win32::System::ProcessStatus::{K32GetProcessMemoryInfo, PROCESS_MEMORY_COUNTERS};
use windows_sys::Win32::System::Threading::GetCurrentProcess;

/// Bytes now, and at most up to now.
pub(super) fn of_process() -> (usize, usize) {
    let size = size_of::<PROCESS_MEMORY_COUNTERS>() as u32;
    let mut counters = PROCESS_MEMORY_COUNTERS { cb: size, ..PROCESS_MEMORY_COUNTERS::default() };
    // SAFETY: has no conditions.
    let process = unsafe { GetCurrentProcess() };
    // SAFETY: the block has the size that it is said to have.
    let known = unsafe { K32GetProcessMemoryInfo(process, &mut counters, size) };
    if known == 0 { (0, 0) } else { (counters.WorkingSetSize, counters.PeakWorkingSetSize) }
}
