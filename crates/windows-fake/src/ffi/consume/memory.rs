//! The memory usage of the process. It is logged, so that tests can check that consumers do not
//! grow.

use windows_sys::Win32::System::ProcessStatus::{K32GetProcessMemoryInfo, PROCESS_MEMORY_COUNTERS};
use windows_sys::Win32::System::Threading::GetCurrentProcess;

/// Current and peak resident memory, in bytes.
pub(super) fn of_process() -> (usize, usize) {
    let size = size_of::<PROCESS_MEMORY_COUNTERS>() as u32;
    let mut counters = PROCESS_MEMORY_COUNTERS { cb: size, ..PROCESS_MEMORY_COUNTERS::default() };
    // SAFETY: no preconditions.
    let process = unsafe { GetCurrentProcess() };
    // SAFETY: the block has the size that is passed.
    let known = unsafe { K32GetProcessMemoryInfo(process, &mut counters, size) };
    if known == 0 { (0, 0) } else { (counters.WorkingSetSize, counters.PeakWorkingSetSize) }
}
