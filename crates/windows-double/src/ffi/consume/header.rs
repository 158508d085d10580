//! What OpenTrace tells of a session, instead of the first record of a file.

use stackhound_etl::{LogFileMode, PointerSize, Recording};
use windows_sys::Win32::System::Diagnostics::Etw::{
    TRACE_LOGFILE_HEADER, TRACE_LOGFILE_HEADER_0, TRACE_LOGFILE_HEADER_0_0, TRACE_LOGFILE_HEADER_1,
    TRACE_LOGFILE_HEADER_1_0,
};

use crate::ffi::sessions::{Running, lock};

/// A performance counter of 10 MHz, as Windows has it today.
const PERF_FREQUENCY: i64 = 10_000_000;

/// The session's facts: as it was asked for, on the machine of the recording. A running session has no end, and has
/// written nothing yet.
pub(super) fn of(running: &Running, recording: Option<&Recording>) -> TRACE_LOGFILE_HEADER {
    let session = lock(&running.session);
    let mut header = TRACE_LOGFILE_HEADER {
        BufferSize: session.buffer_size * 1024,
        NumberOfProcessors: 1,
        LogFileMode: session.mode,
        PerfFreq: PERF_FREQUENCY,
        ReservedFlags: session.clock,
        Anonymous2: TRACE_LOGFILE_HEADER_1 {
            Anonymous: TRACE_LOGFILE_HEADER_1_0 {
                StartBuffers: 1,
                PointerSize: 8,
                EventsLost: 0,
                CpuSpeedInMHz: 1000,
            },
        },
        ..TRACE_LOGFILE_HEADER::default()
    };
    let Some(recorded) = recording.map(|recording| recording.session()) else { return header };
    header.Anonymous1 = TRACE_LOGFILE_HEADER_0 {
        VersionDetail: TRACE_LOGFILE_HEADER_0_0 {
            MajorVersion: recorded.windows_version.0,
            MinorVersion: recorded.windows_version.1,
            SubVersion: recorded.layout_version.0,
            SubMinorVersion: recorded.layout_version.1,
        },
    };
    header.ProviderVersion = recorded.build;
    header.NumberOfProcessors = recorded.processors;
    header.TimerResolution = recorded.timer_resolution;
    // Whether processors have buffers of their own, the recording knows.
    let shared = LogFileMode::NO_PER_PROCESSOR_BUFFERING;
    header.LogFileMode &= !shared.0;
    if recorded.mode.has(shared) {
        header.LogFileMode |= shared.0;
    }
    header.Anonymous2 = TRACE_LOGFILE_HEADER_1 {
        Anonymous: TRACE_LOGFILE_HEADER_1_0 {
            StartBuffers: 1,
            PointerSize: match recorded.pointer_size {
                PointerSize::Four => 4,
                PointerSize::Eight => 8,
            },
            EventsLost: 0,
            CpuSpeedInMHz: recorded.cpu_mhz,
        },
    };
    header.TimeZone.Bias = recorded.utc_bias;
    header.BootTime = recorded.boot_time.0;
    header.PerfFreq = recorded.perf_freq as i64;
    header.StartTime = recorded.start_time.0;
    header.ReservedFlags = recorded.clock_type;
    header
}
