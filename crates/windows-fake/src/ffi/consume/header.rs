//! The header that OpenTrace returns for a session, which replaces the logfile header of a file.

use stackhound_etl::EtlFile;
use windows_sys::Win32::System::Diagnostics::Etw::{
    TRACE_LOGFILE_HEADER, TRACE_LOGFILE_HEADER_0, TRACE_LOGFILE_HEADER_0_0, TRACE_LOGFILE_HEADER_1,
    TRACE_LOGFILE_HEADER_1_0,
};

/// Frequency of the performance counter in current versions of Windows: 10 MHz.
const PERF_FREQUENCY: i64 = 10_000_000;

/// The pointer size in real-time headers on 64-bit Windows, which is wrong: TraceEvent corrects it
/// for every real-time source (microsoft/perfview, issue 332).
const POINTER_SIZE: u32 = 4;

/// The header of a session with a clock of this type, on the machine of the trace. A running
/// session has no end time and no written buffers. The buffer size and the mode are zero, because
/// real-time headers are not known to contain them.
pub(super) fn of(clock: u32, etl_file: Option<&EtlFile>) -> TRACE_LOGFILE_HEADER {
    let mut header = TRACE_LOGFILE_HEADER {
        PerfFreq: PERF_FREQUENCY,
        ReservedFlags: clock,
        Anonymous2: TRACE_LOGFILE_HEADER_1 {
            Anonymous: TRACE_LOGFILE_HEADER_1_0 {
                StartBuffers: 1,
                PointerSize: POINTER_SIZE,
                EventsLost: 0,
                CpuSpeedInMHz: 1000,
            },
        },
        ..TRACE_LOGFILE_HEADER::default()
    };
    let Some(recorded) = etl_file.map(|etl_file| etl_file.session()) else { return header };
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
    header.Anonymous2 = TRACE_LOGFILE_HEADER_1 {
        Anonymous: TRACE_LOGFILE_HEADER_1_0 {
            StartBuffers: 1,
            PointerSize: POINTER_SIZE,
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
