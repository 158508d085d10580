//! The clocks of session time stamps, together with the system time.

use windows_sys::Win32::Foundation::FILETIME;
use windows_sys::Win32::System::Performance::{QueryPerformanceCounter, QueryPerformanceFrequency};
use windows_sys::Win32::System::SystemInformation::GetSystemTimePreciseAsFileTime;
use windows_sys::Win32::System::Threading::{ALL_PROCESSOR_GROUPS, GetActiveProcessorCount};

use crate::Error;
use crate::time::ticks;

/// A clock of sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clock {
    /// The performance counter.
    PerformanceCounter,
    /// System time: 100 ns since 1601.
    SystemTime,
    /// The cycle counter of the processor.
    CpuCycles,
}

/// One moment by two clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// Ticks of the session's clock.
    pub raw: i64,
    /// 100 ns since 1601, UTC.
    pub system_time: i64,
}

/// The number of active logical processors in all groups.
pub fn active_processors() -> u32 {
    // SAFETY: only a number is passed, and the call cannot fail for all groups.
    unsafe { GetActiveProcessorCount(ALL_PROCESSOR_GROUPS) }
}

/// The quickest of this number of readings is used, because the thread may be interrupted between
/// the clocks.
const READINGS: usize = 8;

impl Clock {
    /// Reads this clock and the system time together. `None` if programs cannot read the clock.
    pub fn now(self) -> Option<Moment> {
        let reading = || {
            let before = self.read()?;
            let system_time = system_time();
            Some((self.read()? - before, Moment { raw: before, system_time }))
        };
        let readings: Option<Vec<_>> = (0..READINGS).map(|_| reading()).collect();
        let (took, moment) = readings?.into_iter().min_by_key(|(took, _)| *took)?;
        Some(Moment { raw: moment.raw + took / 2, ..moment })
    }

    fn read(self) -> Option<i64> {
        match self {
            Clock::SystemTime => Some(system_time()),
            Clock::PerformanceCounter => {
                let mut ticks = 0;
                // SAFETY: one number is written, and the call cannot fail since Windows XP.
                unsafe { QueryPerformanceCounter(&mut ticks) };
                Some(ticks)
            }
            Clock::CpuCycles => cycles(),
        }
    }

    /// Ticks of the performance counter per second.
    pub fn performance_frequency() -> Result<u64, Error> {
        let mut frequency = 0;
        // SAFETY: one number is written.
        let done = unsafe { QueryPerformanceFrequency(&mut frequency) };
        if done == 0 { Err(Error::last("QueryPerformanceFrequency")) } else { Ok(frequency as u64) }
    }
}

fn system_time() -> i64 {
    let mut time = FILETIME { dwLowDateTime: 0, dwHighDateTime: 0 };
    // SAFETY: one structure is written.
    unsafe { GetSystemTimePreciseAsFileTime(&mut time) };
    ticks(&time).cast_signed()
}

#[cfg(target_arch = "x86_64")]
fn cycles() -> Option<i64> {
    // SAFETY: every processor that runs 64-bit Windows has the instruction, and Windows permits it.
    Some(unsafe { std::arch::x86_64::_rdtsc() } as i64)
}

/// Programs cannot read the counter that ETW uses on other processors.
#[cfg(not(target_arch = "x86_64"))]
fn cycles() -> Option<i64> {
    None
}
