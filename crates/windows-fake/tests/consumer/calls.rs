//! The calls of a consumer, and the data that its callbacks received.

use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::Mutex;

use stackhound_etl::record::Records;
use stackhound_etl::{BUFFER_HEADER_SIZE, BufferHeader};
use windows_sys::Win32::Foundation::GetLastError;
use windows_sys::Win32::System::Diagnostics::Etw::{
    CONTROLTRACE_HANDLE, ControlTraceW, ETW_BUFFER_CALLBACK_INFORMATION, ETW_BUFFER_HEADER,
    ETW_OPEN_TRACE_OPTIONS, ETW_PROCESS_TRACE_MODE_RAW_TIMESTAMP, EVENT_RECORD, EVENT_TRACE_CONTROL,
    EVENT_TRACE_CONTROL_STOP, EVENT_TRACE_LOGFILEW, EVENT_TRACE_PROPERTIES, EVENT_TRACE_REAL_TIME_MODE,
    OpenTraceW, PROCESS_TRACE_MODE_EVENT_RECORD, PROCESS_TRACE_MODE_RAW_TIMESTAMP,
    PROCESS_TRACE_MODE_REAL_TIME, PROCESSTRACE_HANDLE, ProcessTrace, QueryAllTracesW, StartTraceW,
    TRACE_LOGFILE_HEADER, WNODE_FLAG_TRACED_GUID,
};
use windows_sys::Win32::System::LibraryLoader::{GetModuleHandleW, GetProcAddress};
use windows_sys::core::BOOL;

use super::trace_files;

/// The interface by which events are received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interface {
    Events,
    Raw,
}

/// One received event.
#[derive(Debug)]
pub struct ReceivedEvent {
    pub time: i64,
    pub processor: u16,
    pub number: u32,
}

/// All data that the callbacks received.
#[derive(Debug, Default)]
pub struct Received {
    pub events: Vec<ReceivedEvent>,
    /// Number of events that report a lost buffer.
    pub lost: u32,
    pub buffers: u32,
    /// Whether the last call was that of the buffer callback.
    pub ended_in_callback: bool,
    stop_after: u32,
}

static RECEIVED: Mutex<Option<Received>> = Mutex::new(None);
/// The settings are an environment variable of the process, so only one test can run at a time.
static ONE: Mutex<()> = Mutex::new(());
static FILES: Mutex<Option<PathBuf>> = Mutex::new(None);

fn with_received<T>(use_it: impl FnOnce(&mut Received) -> T) -> T {
    use_it(RECEIVED.lock().unwrap().get_or_insert_default())
}

/// Runs a test with these settings, and with a trace for every session.
pub fn with_settings<T>(settings: &str, test: impl FnOnce() -> T) -> T {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let (etl_file, log) = (folder.path().join("trace.etl"), folder.path().join("log.txt"));
    std::fs::write(&etl_file, trace_files::etl_file()).unwrap();
    std::fs::write(&log, "").unwrap();
    let line = format!("trace = {}", etl_file.display());
    let settings = match settings.split_once("[*]\n") {
        Some((before, after)) => format!("log = {}\n{before}[*]\n{line}\n{after}", log.display()),
        None => format!("log = {}\n{settings}[*]\n{line}\n", log.display()),
    };
    let file = folder.path().join("settings.txt");
    std::fs::write(&file, settings).unwrap();
    // SAFETY: only one test runs at a time, and it has not started other threads yet.
    unsafe { std::env::set_var("STACKHOUND_FAKE", &file) };
    *FILES.lock().unwrap() = Some(log);
    *RECEIVED.lock().unwrap() = None;
    let outcome = test();
    for name in session_names() {
        assert_eq!(Block::new(&name).control(0, EVENT_TRACE_CONTROL_STOP), 0);
    }
    // SAFETY: see above.
    unsafe { std::env::remove_var("STACKHOUND_FAKE") };
    outcome
}

/// The log of the fake so far.
pub fn log() -> String {
    std::fs::read_to_string(FILES.lock().unwrap().as_ref().unwrap()).unwrap()
}

/// Number of events that the callbacks received so far.
pub fn received_events() -> u64 {
    with_received(|received| received.events.len() as u64)
}

/// Lets the buffer callback end processing after this many buffers.
pub fn stop_after_buffer(count: u32) {
    with_received(|received| received.stop_after = count);
}

fn utf16(text: &str) -> Vec<u16> {
    text.encode_utf16().chain([0]).collect()
}

/// A block of properties with room for two names.
pub struct Block {
    words: Vec<u64>,
    name: Vec<u16>,
}

const NAME_ROOM: usize = 1024;

impl Block {
    pub fn new(name: &str) -> Block {
        let size = size_of::<EVENT_TRACE_PROPERTIES>() + 2 * NAME_ROOM;
        let mut block = Block { words: vec![0; size.div_ceil(8)], name: utf16(name) };
        let properties = block.properties();
        properties.Wnode.BufferSize = size as u32;
        properties.Wnode.Flags = WNODE_FLAG_TRACED_GUID;
        properties.Wnode.ClientContext = 1;
        properties.BufferSize = 64;
        properties.MinimumBuffers = 20;
        properties.MaximumBuffers = 128;
        properties.FlushTimer = 1;
        properties.LogFileMode = EVENT_TRACE_REAL_TIME_MODE;
        properties.LoggerNameOffset = size_of::<EVENT_TRACE_PROPERTIES>() as u32;
        properties.LogFileNameOffset = properties.LoggerNameOffset + NAME_ROOM as u32;
        block
    }

    fn properties(&mut self) -> &mut EVENT_TRACE_PROPERTIES {
        // SAFETY: the memory is aligned and large enough, and all bit patterns are valid.
        unsafe { &mut *self.words.as_mut_ptr().cast() }
    }

    pub fn control(&mut self, handle: u64, code: EVENT_TRACE_CONTROL) -> u32 {
        let name = self.name.clone();
        let handle = CONTROLTRACE_HANDLE { Value: handle };
        // A call clears the flags, so they must be set again.
        self.properties().Wnode.Flags = WNODE_FLAG_TRACED_GUID;
        // SAFETY: the pointers are valid during the call.
        unsafe { ControlTraceW(handle, name.as_ptr(), self.properties(), code) }
    }

    /// Number of lost events and lost buffers.
    pub fn counters(&mut self) -> (u32, u32) {
        let properties = self.properties();
        (properties.EventsLost, properties.RealTimeBuffersLost)
    }
}

pub fn start(name: &str, mut block: Block) -> Result<u64, u32> {
    let mut handle = CONTROLTRACE_HANDLE::default();
    // SAFETY: the pointers are valid during the call.
    match unsafe { StartTraceW(&mut handle, utf16(name).as_ptr(), block.properties()) } {
        0 => Ok(handle.Value),
        code => Err(code),
    }
}

pub fn stop(handle: u64) -> u32 {
    Block::new("").control(handle, EVENT_TRACE_CONTROL_STOP)
}

pub fn session_names() -> Vec<String> {
    let mut blocks: Vec<Block> = (0..64).map(|_| Block::new("")).collect();
    let mut pointers: Vec<_> = blocks.iter_mut().map(|block| &raw mut *block.properties()).collect();
    let mut count = 0;
    // SAFETY: there are 64 valid pointers to blocks.
    assert_eq!(unsafe { QueryAllTracesW(pointers.as_mut_ptr(), 64, &mut count) }, 0);
    let name = |block: &Block| {
        let words = &block.words[size_of::<EVENT_TRACE_PROPERTIES>() / 8..];
        let units = words.iter().flat_map(|word| [0, 16, 32, 48].map(|by| (word >> by) as u16));
        String::from_utf16(&units.take_while(|&unit| unit != 0).collect::<Vec<_>>()).unwrap()
    };
    blocks[..count as usize].iter().map(name).collect()
}

fn address(library: &str, name: &std::ffi::CStr) -> Option<unsafe extern "system" fn() -> isize> {
    // SAFETY: the name is zero-terminated. Both libraries are always loaded: this program uses
    // advapi32.dll, which uses sechost.dll.
    let library = unsafe { GetModuleHandleW(utf16(library).as_ptr()) };
    assert!(!library.is_null());
    // SAFETY: both arguments are valid.
    unsafe { GetProcAddress(library, name.as_ptr().cast()) }
}

/// Whether the functions for raw buffers exist.
pub fn has_raw() -> bool {
    let found = [
        c"OpenTraceFromRealTimeLogger",
        c"ProcessTraceBufferIncrementReference",
        c"ProcessTraceBufferDecrementReference",
    ]
    .map(|name| (address("sechost.dll", name).is_some(), address("advapi32.dll", name).is_some()));
    // As on Windows, advapi32.dll does not export them.
    assert!(found == [(found[0].0, false); 3]);
    found[0].0
}

type OpenRealTime =
    unsafe extern "system" fn(*const u16, *const ETW_OPEN_TRACE_OPTIONS, *mut TRACE_LOGFILE_HEADER) -> u64;
type Reference = unsafe extern "system" fn(u64, *const ETW_BUFFER_HEADER) -> u32;
type Dereference = unsafe extern "system" fn(*const ETW_BUFFER_HEADER) -> u32;

pub fn open(name: &str, interface: Interface) -> Result<u64, u32> {
    let mut name = utf16(name);
    let (handle, header) = match interface {
        Interface::Events => {
            let mut logfile = EVENT_TRACE_LOGFILEW { LoggerName: name.as_mut_ptr(), ..Default::default() };
            logfile.Anonymous1.ProcessTraceMode = PROCESS_TRACE_MODE_EVENT_RECORD
                | PROCESS_TRACE_MODE_REAL_TIME
                | PROCESS_TRACE_MODE_RAW_TIMESTAMP;
            logfile.Anonymous2.EventRecordCallback = Some(on_event);
            logfile.BufferCallback = Some(on_buffer);
            logfile.Context = 77 as *mut c_void;
            // SAFETY: the structure is valid during the call.
            (unsafe { OpenTraceW(&mut logfile) }.Value, Some(logfile.LogfileHeader))
        }
        Interface::Raw => {
            let options = ETW_OPEN_TRACE_OPTIONS {
                ProcessTraceModes: ETW_PROCESS_TRACE_MODE_RAW_TIMESTAMP,
                BufferCallback: Some(on_raw_buffer),
                BufferCallbackContext: 78 as *mut c_void,
                ..Default::default()
            };
            let function = address("sechost.dll", c"OpenTraceFromRealTimeLogger").unwrap();
            // SAFETY: this is the type of the function.
            let function: OpenRealTime = unsafe { std::mem::transmute(function) };
            let mut header = TRACE_LOGFILE_HEADER::default();
            // SAFETY: the pointers are valid during the call.
            let with_header = unsafe { function(name.as_ptr(), &options, &mut header) };
            assert_eq!(with_header, u64::MAX, "name and header cannot be combined");
            // SAFETY: see above.
            (unsafe { function(name.as_ptr(), &options, std::ptr::null_mut()) }, None)
        }
    };
    if handle == u64::MAX {
        // SAFETY: no preconditions.
        return Err(unsafe { GetLastError() });
    }
    if let Some(header) = header {
        assert_eq!(header.NumberOfProcessors, u32::from(trace_files::PROCESSORS));
        assert_eq!((header.ReservedFlags, header.PerfFreq), (1, 10_000_000));
    }
    Ok(handle)
}

pub fn process(trace: u64) -> (Received, u32) {
    let handle = PROCESSTRACE_HANDLE { Value: trace };
    // SAFETY: the handle was opened by this program, with valid callbacks.
    let code = unsafe { ProcessTrace(&handle, 1, std::ptr::null(), std::ptr::null()) };
    (RECEIVED.lock().unwrap().take().unwrap_or_default(), code)
}

unsafe extern "system" fn on_event(record: *mut EVENT_RECORD) {
    // SAFETY: Windows passes a valid structure.
    let record = unsafe { &*record };
    assert_eq!(record.UserContext as usize, 77);
    let header = &record.EventHeader;
    if header.ProviderId.data1 == 0x6a39_9ae0 {
        assert_eq!(header.EventDescriptor.Opcode, 33);
        return with_received(|received| received.lost += 1);
    }
    assert_eq!((header.ProviderId.data1, header.EventDescriptor.Opcode), (0xce1d_bfb4, 0x33));
    assert_eq!((header.ThreadId, header.ProcessId, header.Flags), (9, 8, 0x340));
    assert_eq!(record.UserDataLength, 4);
    // SAFETY: the payload has four bytes.
    let number = unsafe { record.UserData.cast::<u32>().read_unaligned() };
    // SAFETY: both members of the union are plain numbers.
    let processor = unsafe { record.BufferContext.Anonymous.ProcessorIndex };
    with_received(|received| {
        received.ended_in_callback = false;
        received.events.push(ReceivedEvent { time: header.TimeStamp, processor, number });
    });
}

unsafe extern "system" fn on_buffer(logfile: *mut EVENT_TRACE_LOGFILEW) -> u32 {
    // SAFETY: Windows passes a valid structure.
    let logfile = unsafe { &*logfile };
    assert_eq!(logfile.Context as usize, 77);
    with_received(|received| {
        received.ended_in_callback = true;
        received.buffers += 1;
        assert_eq!(logfile.BuffersRead, received.buffers);
        u32::from(received.stop_after != received.buffers)
    })
}

/// Reads the buffer on another thread, after the callback has returned.
unsafe extern "system" fn on_raw_buffer(
    buffer: *const ETW_BUFFER_HEADER,
    size: u32,
    information: *const ETW_BUFFER_CALLBACK_INFORMATION,
    context: *const c_void,
) -> BOOL {
    assert_eq!(context as usize, 78);
    // SAFETY: Windows passes a valid structure.
    let trace = unsafe { (*information).TraceHandle };
    // SAFETY: this is the type of the function.
    let keep: Reference = unsafe {
        std::mem::transmute(address("sechost.dll", c"ProcessTraceBufferIncrementReference").unwrap())
    };
    // SAFETY: the buffer is valid during this callback.
    assert_eq!(unsafe { keep(trace, buffer) }, 0);
    let address_of_buffer = buffer as usize;
    std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(5));
        // SAFETY: the reference keeps the buffer valid.
        let bytes = unsafe { std::slice::from_raw_parts(address_of_buffer as *const u8, size as usize) };
        let header = BufferHeader::read(bytes).unwrap();
        let bytes = &bytes[..header.filled(bytes.len()).unwrap()];
        let processor = header.processor();
        let events: Vec<ReceivedEvent> = Records::new(bytes, BUFFER_HEADER_SIZE)
            .map(|record| ReceivedEvent {
                time: record.time().0,
                processor,
                number: u32::from_le_bytes(record.payload().try_into().unwrap()),
            })
            .collect();
        // The order of the threads is undefined, so events are sorted by number.
        with_received(|received| {
            received.events.extend(events);
            received.events.sort_by_key(|event| event.number);
        });
        // SAFETY: this is the type of the function.
        let give_back: Dereference = unsafe {
            std::mem::transmute(address("sechost.dll", c"ProcessTraceBufferDecrementReference").unwrap())
        };
        // SAFETY: the reference was acquired once.
        assert_eq!(unsafe { give_back(address_of_buffer as *const ETW_BUFFER_HEADER) }, 0);
    });
    1
}
