use std::collections::{BTreeMap, HashMap, HashSet};
use std::error::Error;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use object::LittleEndian as LE;
use object::pe::{IMAGE_DIRECTORY_ENTRY_EXCEPTION, ImageSectionHeader};
use object::read::pe::{ImageNtHeaders, PeFile64};
use stackhound_etl::LogFileMode;
use stackhound_etl::write::stack::{self, Trigger};
use stackhound_etl::write::{EtlWriter, Issuer, Payload as PayloadSpec, RecordSpec, Session};
use stackhound_qemu_plugin::protocol::{Kind, Record};
use stackhound_record_names::{Mapping, MemoryMap};
use stackhound_record_qemu::program::{Progress, Recorder};
use stackhound_scenario::event::{self, KernelEvent};
use stackhound_scenario::payload::{self, GROUPS, NO_GROUPS, Payload};
use stackhound_scenario::{Image, Process, Thread};
use stackhound_types::{Address, Pid, PointerSize, RawTime, Tid};

/// The number of calls in the code of Windows programs from one sample to the next. A prime, so that no loop has this
/// length.
const INTERVAL: u64 = 23;
/// The maximum number of frames of a stack that Windows records.
const FRAMES_MAX: usize = 192;
const POINTER_SIZE: PointerSize = PointerSize::Eight;
const PROGRAM: Pid = Pid(1000);
/// The function of the kernel that all system calls enter.
const SERVICE: Address = Address(0xffff_f801_2000_1000);
/// The thread that controls the session.
const SYSTEM: Issuer = Issuer::new(Pid::SYSTEM, Tid(8));

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

/// A mapped image of a Windows program.
struct Module {
    path: PathBuf,
    size: u64,
    time_date_stamp: u32,
    checksum: u32,
    /// The addresses of its code, relative to its base.
    code: (u64, u64),
    /// Its functions by its table for exceptions: the relative addresses of their begin and end.
    functions: Vec<(u32, u32)>,
}

impl Module {
    /// Reads the file of a mapping if it contains code. Wine maps headers and code next to each other.
    fn read(mapping: &Mapping) -> Option<Module> {
        let extension = mapping.name.extension()?.to_string_lossy().to_lowercase();
        if mapping.offset != 0 || !["exe", "dll", "drv"].contains(&&*extension) {
            return None;
        }
        let bytes = std::fs::read(&mapping.name).ok()?;
        let file = PeFile64::parse(&*bytes).ok()?;
        let headers = file.nt_headers();
        let is_code = |found: &&ImageSectionHeader| found.characteristics.get(LE).0 & 0x20 != 0;
        let code = file.section_table().iter().find(is_code)?;
        let start = u64::from(code.virtual_address.get(LE));
        if mapping.addresses.end - mapping.addresses.start <= start {
            return None;
        }
        let table = file.data_directory(IMAGE_DIRECTORY_ENTRY_EXCEPTION)?;
        let table = table.data(&*bytes, &file.section_table()).ok()?;
        let number = |bytes: &[u8]| bytes.first_chunk().map_or(0, |&bytes| u32::from_le_bytes(bytes));
        let functions = table.chunks_exact(12).map(|entry| (number(entry), number(&entry[4..]))).collect();
        Some(Module {
            functions,
            path: mapping.name.clone(),
            size: headers.optional_header().size_of_image.get(LE).into(),
            time_date_stamp: headers.file_header().time_date_stamp.get(LE),
            checksum: headers.optional_header().check_sum.get(LE),
            code: (start, start + u64::from(code.virtual_size.get(LE))),
        })
    }
}

/// The mapped images, by base address.
#[derive(Default)]
struct Modules {
    loaded: BTreeMap<u64, Module>,
}

impl Modules {
    /// Finds the images in a map of memory. Returns the bases of those that were loaded, and those that were unloaded.
    fn update(&mut self, map: &MemoryMap) -> (Vec<u64>, Vec<(u64, Module)>) {
        let mut before = std::mem::take(&mut self.loaded);
        let (mut loaded, mut unloaded) = (Vec::new(), Vec::new());
        for mapping in map.mappings() {
            let base = mapping.addresses.start;
            let module = match before.remove(&base) {
                Some(known) if known.path == mapping.name => Some(known),
                other => {
                    unloaded.extend(other.map(|other| (base, other)));
                    let new = Module::read(mapping);
                    loaded.extend(new.is_some().then_some(base));
                    new
                }
            };
            self.loaded.extend(module.map(|module| (base, module)));
        }
        unloaded.extend(before);
        (loaded, unloaded)
    }

    /// The begin of the function that contains an address.
    fn function_at(&self, address: u64) -> Option<u64> {
        let (base, module) = self.loaded.range(..=address).next_back()?;
        let rva = u32::try_from(address - base).ok()?;
        let index = module.functions.partition_point(|&(_, end)| end <= rva);
        let &(begin, _) = module.functions.get(index).filter(|&&(begin, _)| begin <= rva)?;
        Some(base + u64::from(begin))
    }

    /// Whether an address is in the code of an image.
    fn has(&self, address: u64) -> bool {
        self.loaded
            .range(..=address)
            .next_back()
            .is_some_and(|(base, module)| (module.code.0..module.code.1).contains(&(address - base)))
    }
}

/// An open frame of a thread's stack in the code of Windows programs.
#[derive(Clone, Copy)]
struct Frame {
    /// Where its return address is stored. The frame ends when the stack pointer rises above.
    slot: u64,
    number: u64,
    /// Its first instruction.
    function: Option<u64>,
    /// Where its caller continues. `None` if no call started it: Wine's code for Linux has begun or continued there,
    /// as for exceptions and callbacks.
    return_address: Option<u64>,
    /// The called code is not that of a Windows program: a system call.
    is_system_call: bool,
}

/// An exact stack: innermost first, the address in each frame, its function, and the number of the frame.
type Exact = Vec<(u64, Option<u64>, u64)>;

/// The open frames of all threads. Only instructions of Windows programs count. Their system calls execute on stacks of
/// Wine, which are next to those of the program: the frames stay open meanwhile.
#[derive(Default)]
struct Frames {
    threads: HashMap<u32, Vec<Frame>>,
    count: u64,
}

impl Frames {
    /// An instruction of a Windows program executes with this stack pointer.
    fn executes(&mut self, tid: u32, sp: u64) -> &mut Vec<Frame> {
        let frames = self.threads.entry(tid).or_default();
        while frames.last().is_some_and(|top| top.slot < sp) {
            frames.pop();
        }
        // It has not returned from the system call, or has just begun.
        if frames.last().is_none_or(|top| top.is_system_call) {
            self.count += 1;
            let slot = frames.last().map_or(u64::MAX, |top| top.slot);
            let (number, function, return_address) = (self.count, None, None);
            frames.push(Frame { slot, number, function, return_address, is_system_call: false });
        }
        frames
    }

    /// A return address is read from a slot.
    fn returns(&mut self, tid: u32, slot: u64) {
        let frames = self.executes(tid, slot);
        if frames.last().is_some_and(|top| top.slot == slot) {
            frames.pop();
        }
    }

    fn called(&mut self, tid: u32, record: &Record, is_system_call: bool) {
        self.executes(tid, record.sp_before);
        self.count += 1;
        let frame = Frame {
            slot: record.sp_after,
            number: self.count,
            function: Some(record.pc_after),
            return_address: Some(record.pc_before + u64::from(record.length)),
            is_system_call,
        };
        self.threads.entry(tid).or_default().push(frame);
    }

    /// The stack of code at an address, without the frame that it has called.
    fn at(&self, tid: u32, address: u64) -> Exact {
        let mut exact = Exact::new();
        let mut address = Some(address);
        for frame in self.threads.get(&tid).into_iter().flatten().rev().skip(1) {
            let Some(at) = address else { break };
            exact.push((at, frame.function, frame.number));
            address = frame.return_address;
        }
        exact
    }
}

/// A trace, and the truth about its events.
struct Output {
    writer: EtlWriter<BufWriter<File>>,
    truth: BufWriter<File>,
    payload: Payload,
    start: i64,
    now: i64,
    /// The thread that executes.
    running: Tid,
    /// The rundown is complete.
    is_complete: bool,
}

impl Output {
    fn create(folder: &Path, name: &str) -> Result<Output> {
        let session = Session {
            build: 19_041,
            // A system logger that writes to a file without a size limit.
            mode: LogFileMode(0x0200_0001),
            name: "NT Kernel Logger".to_owned(),
            file_name: format!(r"C:\{name}.etl"),
            ..Session::default()
        };
        let now = session.start.0;
        let file = File::create(folder.join(format!("{name}.etl")))?;
        let truth = BufWriter::new(File::create(folder.join(format!("{name}.jsonl")))?);
        let writer = EtlWriter::new(session, BufWriter::new(file))?;
        let mut output = Output {
            writer,
            truth,
            payload: Payload::default(),
            start: now,
            now,
            running: Tid(0),
            is_complete: false,
        };
        output.begin()?;
        Ok(output)
    }

    fn begin(&mut self) -> Result<()> {
        payload::group_masks(&mut self.payload, NO_GROUPS);
        self.payload.write_to_header(&mut self.writer, event::EXTENSION, SYSTEM)?;
        payload::partition_info(&mut self.payload);
        self.payload.write_to_header(&mut self.writer, event::PARTITION_INFO, SYSTEM)?;
        payload::group_masks(&mut self.payload, NO_GROUPS);
        self.kernel(event::END_EXTENSION, Issuer::UNKNOWN)?;
        payload::group_masks(&mut self.payload, GROUPS);
        self.kernel(event::EXTENSION, Issuer::UNKNOWN)?;
        let program = Process {
            parent: Pid(600),
            session: Some(1),
            command_line: "program.exe".to_owned(),
            ..Process::of_kernel(PROGRAM, "program.exe")
        };
        for process in
            [Process::of_kernel(Pid::IDLE, "Idle"), Process::of_kernel(Pid::SYSTEM, "System"), program]
        {
            payload::process(&mut self.payload, &process, None);
            self.kernel(event::PROCESS_DC_START, Issuer::UNKNOWN)?;
        }
        Ok(())
    }

    /// Writes the images that were loaded. The first ones are those of the rundown.
    fn load(&mut self, bases: &[u64], modules: &Modules) -> Result<()> {
        let event = if self.is_complete { event::IMAGE_LOAD } else { event::IMAGE_DC_START.with_ids() };
        for base in bases {
            self.image(event, *base, &modules.loaded[base])?;
        }
        if !self.is_complete && !bases.is_empty() {
            self.is_complete = true;
            self.kernel(event::RUNDOWN_COMPLETE, Issuer::UNKNOWN)?;
        }
        Ok(())
    }

    fn image(&mut self, event: KernelEvent, base: u64, module: &Module) -> Result<()> {
        let name = module.path.file_name().unwrap_or_default().to_string_lossy();
        let image = Image {
            path: format!(r"\Device\HarddiskVolume3\Windows\System32\{name}"),
            base: Address(base),
            size: u32::try_from(module.size)?,
            checksum: module.checksum,
            time_date_stamp: module.time_date_stamp,
        };
        payload::image(&mut self.payload, PROGRAM, &image);
        self.kernel(event, SYSTEM)?;
        Ok(())
    }

    fn thread(&mut self, tid: Tid, start: u64) -> Result<()> {
        let thread = Thread { tid, start_address: Address(start), started: None, ended: None };
        payload::thread(&mut self.payload, PROGRAM, &thread);
        self.kernel(event::THREAD_START, Issuer::new(PROGRAM, tid))?;
        Ok(())
    }

    /// An event with a stack, whose first address is that of the event.
    fn stack(&mut self, event: KernelEvent, tid: Tid, addresses: &[Address], truth: &str) -> Result<()> {
        if self.running != tid {
            let switch = payload::Switch {
                new: tid,
                old: self.running,
                priorities: (8, 8),
                wait_reason: 6,
                user_wait: true,
                old_state: 5,
                ideal_processor: 0,
                waited_ticks: 0,
            };
            payload::context_switch(&mut self.payload, &switch);
            self.kernel(event::CONTEXT_SWITCH, Issuer::UNKNOWN)?;
            self.running = tid;
        }
        let is_call = event == event::SYSTEM_CALL_ENTER;
        if is_call {
            self.payload.address(SERVICE);
        } else {
            payload::sample(&mut self.payload, addresses[0], tid);
        }
        let time = self.kernel(event, Issuer::UNKNOWN)?;
        self.now += 40;
        let addresses = &addresses[..addresses.len().min(FRAMES_MAX)];
        let trigger = Trigger { time, pid: PROGRAM, tid };
        let record = stack::frames(RawTime(self.now), POINTER_SIZE, trigger, addresses);
        self.writer.write(0, &record)?;
        if is_call {
            self.payload.u32(0);
            self.kernel(event::SYSTEM_CALL_EXIT, Issuer::UNKNOWN)?;
        }
        writeln!(self.truth, "[{},{truth}]", time.0 - self.start)?;
        Ok(())
    }

    fn kernel(&mut self, event: KernelEvent, issuer: Issuer) -> Result<RawTime> {
        self.now += 40;
        let time = RawTime(self.now);
        let payload = PayloadSpec::Bytes(self.payload.as_bytes());
        let header = event.header(issuer);
        self.writer.write(0, &RecordSpec { time, pointer_size: POINTER_SIZE, header, payload })?;
        self.payload.clear();
        Ok(time)
    }
}

/// A kind of forgery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Forgery {
    /// None: for comparison.
    Genuine,
    /// A return address is replaced by an address in the code of the same image.
    AnyCode,
    /// A return address is replaced by the start of a function of another stack.
    FunctionStart,
    /// A return address is replaced by one of another stack.
    ReturnAddress,
    /// A frame is removed.
    Removed,
    /// A return address of another stack is inserted.
    Inserted,
    /// All frames outside of the innermost are those of another stack.
    OtherStack,
}

/// All kinds.
const FORGERIES: [Forgery; 7] = [
    Forgery::Genuine,
    Forgery::AnyCode,
    Forgery::FunctionStart,
    Forgery::ReturnAddress,
    Forgery::Removed,
    Forgery::Inserted,
    Forgery::OtherStack,
];

/// A sequence of numbers that is the same in all runs (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, count: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % count.max(1) as u64) as usize
    }
}

/// Forges a stack. `other` is another stack of the program. Returns `None` if this kind does not fit.
fn forge(
    kind: Forgery,
    exact: &Exact,
    other: &Exact,
    modules: &Modules,
    random: &mut Random,
) -> Option<Vec<Address>> {
    let mut addresses: Vec<u64> = exact.iter().map(|frame| frame.0).collect();
    if kind == Forgery::Genuine {
        return Some(addresses.into_iter().map(Address).collect());
    }
    // Neither the innermost frame, which the system states, nor the last one, which has no caller.
    let at = 1 + random.below(addresses.len().checked_sub(3)?);
    let from = 1 + random.below(other.len().checked_sub(3)?);
    match kind {
        Forgery::AnyCode => {
            let (base, module) = modules.loaded.range(..=addresses[at]).next_back()?;
            addresses[at] =
                base + module.code.0 + random.below((module.code.1 - module.code.0) as usize) as u64;
        }
        Forgery::FunctionStart => addresses[at] = other[from].1?,
        Forgery::ReturnAddress => addresses[at] = other[from].0,
        Forgery::Removed => drop(addresses.remove(at)),
        Forgery::Inserted => addresses.insert(at, other[from].0),
        Forgery::OtherStack => {
            addresses.truncate(1);
            addresses.extend(other[1..].iter().map(|frame| frame.0));
        }
        Forgery::Genuine => {}
    }
    let genuine = exact.iter().map(|frame| frame.0);
    (!genuine.eq(addresses.iter().copied())).then(|| addresses.into_iter().map(Address).collect())
}

pub fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let folder = PathBuf::from(arguments.next().ok_or("expected a folder and a program")?);
    let arguments: Vec<OsString> = arguments.collect();
    let mut recorder = Recorder::start(&arguments)?;
    let mut exact = Output::create(&folder, "exact")?;
    let mut forged = Output::create(&folder, "forged")?;
    let mut modules = Modules::default();
    let mut frames = Frames::default();
    let mut threads = HashSet::new();
    let (mut tid, mut calls, mut system_calls, mut samples) = (0, 0_u64, 0_u64, 0_u64);
    let mut others: Vec<Exact> = Vec::new();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    loop {
        let record = match recorder.advance()? {
            Progress::Record(record) => record,
            Progress::Waiting => continue,
            Progress::Ended => break,
        };
        match record.kind {
            Kind::Maps => {
                let (loaded, unloaded) = modules.update(recorder.memory_map());
                for output in [&mut exact, &mut forged] {
                    for (base, module) in &unloaded {
                        output.image(event::IMAGE_UNLOAD, *base, module)?;
                    }
                    output.load(&loaded, &modules)?;
                }
                continue;
            }
            Kind::Thread => tid = record.sp_before as u32,
            Kind::ThreadEnd => drop(frames.threads.remove(&tid)),
            Kind::Return if modules.has(record.pc_before) => frames.returns(tid, record.sp_before),
            Kind::Load if modules.has(record.pc_before) => {
                frames.executes(tid, record.sp_before);
            }
            _ => {}
        }
        if record.kind != Kind::Call || !modules.has(record.pc_before) {
            continue;
        }
        calls += 1;
        let is_system_call = !modules.has(record.pc_after);
        frames.called(tid, &record, is_system_call);
        if !is_system_call && !calls.is_multiple_of(INTERVAL) {
            continue;
        }
        let (event, address) = match is_system_call {
            true => (event::SYSTEM_CALL_ENTER, record.pc_before + u64::from(record.length)),
            false => (event::SAMPLED_PROFILE, record.pc_before),
        };
        let stack = frames.at(tid, address);
        if threads.insert(tid) {
            let start = stack.last().and_then(|frame| frame.1).unwrap_or(address);
            exact.thread(Tid(tid), start)?;
            forged.thread(Tid(tid), start)?;
        }
        let text = |value: Option<u64>| value.map_or("null".to_owned(), |value| value.to_string());
        // The address before a return address is that of the call.
        let inside = |address: u64| modules.function_at(address - 1);
        let frame = |&(address, function, number): &(u64, Option<u64>, u64)| {
            format!("[{},{},{number}]", text(function), text(inside(address)))
        };
        let truth: Vec<String> = stack.iter().map(frame).collect();
        let addresses: Vec<Address> = stack.iter().map(|frame| Address(frame.0)).collect();
        exact.stack(event, Tid(tid), &addresses, &format!("{tid},[{}]", truth.join(",")))?;
        if !is_system_call {
            samples += 1;
            continue;
        }
        system_calls += 1;
        if !others.is_empty() {
            let other = &others[random.below(others.len())];
            for kind in FORGERIES {
                if let Some(addresses) = forge(kind, &stack, other, &modules, &mut random) {
                    let truth = format!("\"{kind:?}\"");
                    forged.stack(event::SYSTEM_CALL_ENTER, Tid(tid), &addresses, &truth)?;
                }
            }
        }
        if others.len() < 4096 {
            others.push(stack);
        }
    }
    for mut output in [exact, forged] {
        output.truth.flush()?;
        output.writer.finish()?.0.flush()?;
    }
    println!(
        "{calls} calls in {} images: {system_calls} system calls, {samples} samples",
        modules.loaded.len()
    );
    Ok(())
}
