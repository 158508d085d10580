//! Builds the payloads of kernel events, in the layouts of 64-bit systems that `docs/format`
//! describes.
#![expect(missing_docs, reason = "the names are those of the events or types that they write")]

use std::io::Write;

use stackhound_etl::write::{EtlWriter, Issuer, Payload as PayloadSpec, RecordSpec, WriteError};
use stackhound_types::{Address, FileTime, Pid, PointerSize, Tid};

use crate::event::KernelEvent;
use crate::image::Image;
use crate::output::PROCESSORS;
use crate::truth::{Process, Thread};

/// A buffer for one payload. Its memory is reused.
#[derive(Debug, Default)]
pub struct Payload(Vec<u8>);

const STILL_ACTIVE: u32 = 0x103;
/// `MEM_COMMIT | MEM_RESERVE`.
pub const ALLOCATE: u32 = 0x3000;
/// `MEM_RELEASE`.
pub(crate) const RELEASE: u32 = 0x8000;

impl Payload {
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Writes a kernel event with this payload to the header buffer, and empties it. The header contains thread
    /// and process.
    ///
    /// # Errors
    /// If the header buffer is full or was written.
    pub fn write_to_header<W: Write>(
        &mut self,
        writer: &mut EtlWriter<W>,
        event: KernelEvent,
        issuer: Issuer,
    ) -> Result<(), WriteError> {
        let record = RecordSpec {
            time: writer.session().start,
            pointer_size: PointerSize::Eight,
            header: event.with_ids().header(issuer),
            payload: PayloadSpec::Bytes(self.as_bytes()),
        };
        writer.write_to_header(&record)?;
        self.clear();
        Ok(())
    }

    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Payload {
        self.0.extend_from_slice(bytes);
        self
    }

    pub fn zeros(&mut self, count: usize) -> &mut Payload {
        self.0.resize(self.0.len() + count, 0);
        self
    }

    pub fn u8(&mut self, value: u8) -> &mut Payload {
        self.bytes(&[value])
    }

    pub fn u16(&mut self, value: u16) -> &mut Payload {
        self.bytes(&value.to_le_bytes())
    }

    pub fn u32(&mut self, value: u32) -> &mut Payload {
        self.bytes(&value.to_le_bytes())
    }

    pub fn u64(&mut self, value: u64) -> &mut Payload {
        self.bytes(&value.to_le_bytes())
    }

    pub fn time(&mut self, value: i64) -> &mut Payload {
        self.bytes(&value.to_le_bytes())
    }

    pub fn address(&mut self, value: Address) -> &mut Payload {
        self.u64(value.0)
    }

    /// A pointer of the given size.
    pub fn pointer(&mut self, value: u64, size: PointerSize) -> &mut Payload {
        self.bytes(&value.to_le_bytes()[..size.bytes()])
    }

    /// Text in UTF-16, with a terminating zero.
    pub fn utf16(&mut self, text: &str) -> &mut Payload {
        for unit in text.encode_utf16().chain([0]) {
            self.u16(unit);
        }
        self
    }

    /// Text in bytes, with a terminating zero.
    pub fn ansi(&mut self, text: &str) -> &mut Payload {
        self.bytes(text.as_bytes()).u8(0)
    }

    /// Text in UTF-16, in a field of `units` code units.
    fn fixed_utf16(&mut self, text: &str, units: usize) -> &mut Payload {
        let end = self.0.len() + 2 * units;
        self.utf16(text);
        self.0.resize(end, 0);
        self
    }
}

/// Addresses of kernel objects, derived from their numbers.
pub(crate) mod object {
    use stackhound_types::Pid;

    const POOL: u64 = 0xffff_9f0c_0000_0000;

    pub fn process(pid: Pid) -> u64 {
        POOL + 0x1_0000_0000 + u64::from(pid.0) * 0x240
    }

    pub fn file_object(number: u64) -> u64 {
        POOL + 0x2_0000_0000 + number * 0x1b0
    }

    pub fn irp(number: u64) -> u64 {
        POOL + 0x3_0000_0000 + number % 0x1000 * 0x410
    }

    /// Identifies a file across all of its opens.
    pub fn file_key(number: u64) -> u64 {
        0xffff_b58a_0000_0000 + number * 0x170
    }

    /// The control block of a registry key.
    pub fn key_control_block(number: u64) -> u64 {
        0xffff_b58b_0000_0000 + number * 0x130
    }

    /// A network connection.
    pub fn connection(number: u64) -> u64 {
        POOL + 0x4_0000_0000 + number * 0x680
    }
}

/// Relative ids of the user's SID.
const USER: [u32; 5] = [21, 1_004_336_348, 1_177_238_915, 682_003_330, 1001];
const SYSTEM: [u32; 1] = [18];

pub fn process(out: &mut Payload, process: &Process, exit_status: Option<u32>) {
    out.u64(process.object).u32(process.pid.0).u32(process.parent.0);
    out.u32(process.session.unwrap_or(u32::MAX)).u32(exit_status.unwrap_or(STILL_ACTIVE));
    // The page directory, then the flags.
    out.u64(0x1_0000_0000 + u64::from(process.pid.0) * 0x3000).u32(if process.is_wow64 { 2 } else { 0 });
    let ids: &[u32] = if process.session == Some(1) { &USER } else { &SYSTEM };
    // The SID is preceded by the pointer and the attributes of the token's user, which have no
    // meaning.
    out.u64(process.object + 0x80).u64(0);
    out.u8(1).u8(ids.len() as u8).bytes(&[0, 0, 0, 0, 0, 5]);
    for &id in ids {
        out.u32(id);
    }
    // No package and no application.
    out.ansi(&process.name).utf16(&process.command_line).utf16("").utf16("");
}

pub fn thread(out: &mut Payload, pid: Pid, thread: &Thread) {
    let tid = thread.tid;
    let kernel_stack = 0xffff_c10f_0000_0000 + u64::from(tid.0) * 0x7000;
    let user_stack = 0x10_0000_0000 + u64::from(tid.0) * 0x10_0000;
    let in_kernel = thread.start_address.0 >> 63 != 0;
    out.u32(pid.0).u32(tid.0).u64(kernel_stack).u64(kernel_stack - 0x6000);
    if in_kernel {
        out.u64(0).u64(0);
    } else {
        out.u64(user_stack).u64(user_stack - 0x10_0000 + 0xc_0000);
    }
    out.u64((1 << PROCESSORS) - 1).address(thread.start_address);
    // Thread environment block; no service; priorities and flags; no name.
    out.u64(if in_kernel { 0 } else { 0x11_0000_0000 + u64::from(tid.0) * 0x2000 });
    out.u32(0).u8(8).u8(5).u8(2).u8(0).utf16("");
}

/// `ProcessStart` of Microsoft-Windows-Kernel-Process, version 3.
pub(crate) fn process_start(out: &mut Payload, process: &Process, program: Option<&Image>, time: FileTime) {
    let number = process.object;
    out.u32(process.pid.0).u64(number).time(time.0).u32(process.parent.0).u64(0);
    out.u32(process.session.unwrap_or(u32::MAX)).u32(0);
    // The type of the token; whether it is elevated; the mandatory label.
    let label = process.integrity().to_le_bytes();
    out.u32(1).u32(0).bytes(&[1, 1, 0, 0, 0, 0, 0, 16]).bytes(&label);
    out.utf16(program.map_or("", |image| &image.path));
    out.u32(program.map_or(0, |image| image.checksum)).u32(program.map_or(0, |image| image.time_date_stamp));
    out.utf16("").utf16("");
}

/// `ThreadStart` of Microsoft-Windows-Kernel-Process.
pub(crate) fn thread_start(out: &mut Payload, pid: Pid, thread: &Thread) {
    let user_stack = 0x10_0000_0000 + u64::from(thread.tid.0) * 0x10_0000;
    out.u32(pid.0).u32(thread.tid.0).u64(0).u64(0).u64(user_stack).u64(user_stack - 0x10_0000);
    out.address(thread.start_address).address(thread.start_address).u64(0).u32(0);
}

pub fn image(out: &mut Payload, pid: Pid, image: &Image) {
    out.address(image.base).u64(image.size.into()).u32(pid.0).u32(image.checksum).u32(image.time_date_stamp);
    // Signature level and type: signed by Windows, catalog.
    out.u8(12).u8(2).u16(0).address(image.base).zeros(16).utf16(&image.path);
}

/// A switch from one thread to another.
#[derive(Clone, Copy, Debug)]
pub struct Switch {
    pub new: Tid,
    pub old: Tid,
    pub priorities: (u8, u8),
    pub wait_reason: u8,
    pub user_wait: bool,
    pub old_state: u8,
    pub ideal_processor: u16,
    pub waited_ticks: u32,
}

pub fn context_switch(out: &mut Payload, switch: &Switch) {
    out.u32(switch.new.0).u32(switch.old.0).u8(switch.priorities.0).u8(switch.priorities.1);
    // The previous idle state; no decrement.
    out.u8(u8::from(switch.old.0 == 0)).u8(0);
    out.u8(switch.wait_reason).u8(switch.user_wait.into()).u8(switch.old_state);
    out.u8(switch.ideal_processor as u8).u32(switch.waited_ticks).u32(0);
}

pub(crate) fn ready_thread(out: &mut Payload, tid: Tid, by_deferred_call: bool) {
    // The reason is the end of a wait.
    out.u32(tid.0).u8(1).u8(0).u8(by_deferred_call.into()).u8(0);
}

pub fn sample(out: &mut Payload, address: Address, tid: Tid) {
    out.address(address).u32(tid.0).u16(1).u16(0);
}

pub(crate) fn deferred_call(out: &mut Payload, started: i64, routine: Address) {
    out.time(started).address(routine);
}

pub(crate) fn interrupt(out: &mut Payload, started: i64, routine: Address, vector: u16) {
    out.time(started).address(routine).u8(1).u16(vector).u8(0);
}

/// An open file, as events refer to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OpenFile {
    pub file: u32,
    pub open: u64,
}

/// The kind of a create.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Create {
    /// Of an existing file: FILE_OPEN, with the result FILE_OPENED.
    Existing,
    /// Of a new file: FILE_CREATE, with the result FILE_CREATED.
    New,
}

impl Create {
    /// The create disposition.
    fn disposition(self) -> u32 {
        match self {
            Create::Existing => 1,
            Create::New => 2,
        }
    }

    /// The information value at the end of the request.
    pub fn result(self) -> u32 {
        match self {
            Create::Existing => 1,
            Create::New => 2,
        }
    }
}

pub(crate) fn file_create(out: &mut Payload, irp: u64, file: OpenFile, create: Create, tid: Tid, path: &str) {
    out.u64(object::irp(irp)).u64(object::file_object(file.open)).u32(tid.0);
    // Synchronous and not a directory; normal attributes; shared for reading.
    out.u32(create.disposition() << 24 | 0x60).u32(0x80).u32(1).utf16(path);
}

pub(crate) fn file_transfer(out: &mut Payload, irp: u64, file: OpenFile, tid: Tid, offset: u64, size: u32) {
    out.u64(offset).u64(object::irp(irp)).u64(object::file_object(file.open));
    out.u64(object::file_key(file.file.into())).u32(tid.0).u32(size).u32(0x6_0900).u32(0);
}

/// The payload of cleanup and close.
pub(crate) fn file_simple(out: &mut Payload, irp: u64, file: OpenFile, tid: Tid) {
    out.u64(object::irp(irp)).u64(object::file_object(file.open));
    out.u64(object::file_key(file.file.into())).u32(tid.0);
}

pub(crate) fn file_operation_end(out: &mut Payload, irp: u64, information: u64, status: u32) {
    out.u64(object::irp(irp)).u64(information).u32(status);
}

pub(crate) fn file_name(out: &mut Payload, file: u32, path: &str) {
    out.u64(object::file_key(file.into())).utf16(path);
}

pub(crate) fn disk_init(out: &mut Payload, irp: u64, tid: Tid) {
    out.u64(object::irp(irp)).u32(tid.0);
}

/// A transfer between disk and memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Transfer {
    pub irp: u64,
    pub file: u32,
    pub offset: u64,
    pub size: u32,
    /// Set when the transfer starts.
    pub started: i64,
    pub is_write: bool,
}

pub(crate) fn disk_transfer(out: &mut Payload, transfer: &Transfer, now: i64, tid: Tid) {
    out.u32(0).u32(0x6_0043).u32(transfer.size).u32(0).u64(transfer.offset);
    out.u64(object::file_key(transfer.file.into())).u64(object::irp(transfer.irp));
    out.time(now - transfer.started).u32(tid.0);
}

pub(crate) fn hard_fault(out: &mut Payload, transfer: &Transfer, address: Address, tid: Tid) {
    out.time(transfer.started).u64(transfer.offset).address(address);
    out.u64(object::file_key(transfer.file.into())).u32(tid.0).u32(transfer.size);
}

pub fn virtual_memory(out: &mut Payload, base: u64, size: u64, pid: Pid, flags: u32) {
    out.u64(base).u64(size).u32(pid.0).u32(flags);
}

/// An operation on a registry key. `key` is the number of its control block, if any.
pub(crate) fn registry(out: &mut Payload, started: i64, key: Option<u64>, name: &str) {
    let block = key.map_or(0, object::key_control_block);
    out.time(started).u32(0).u32(0).u64(block).utf16(name);
}

pub(crate) fn tcp(out: &mut Payload, pid: Pid, size: u32, connection: u64, is_send: bool, now: i64) {
    // Addresses reserved for documentation; HTTPS.
    out.u32(pid.0).u32(size).bytes(&[203, 0, 113, 10]).bytes(&[192, 0, 2, 15]);
    out.bytes(&443u16.to_be_bytes()).bytes(&(49_152 + (connection % 16_384) as u16).to_be_bytes());
    if is_send {
        let tick = (now / 156_250) as u32;
        out.u32(tick).u32(tick);
    }
    out.u32(0).u64(object::connection(connection));
}

pub(crate) fn cpu(out: &mut Payload) {
    out.u32(2400).u32(PROCESSORS.into()).u32(16_384).u32(4096).u32(0x1_0000);
    out.fixed_utf16("DESKTOP-CONTOSO", 256).fixed_utf16("WORKGROUP", 134).u64(0);
    // Highest user address; x64, family 6; PAE and NX enabled; memory speed.
    out.u64(0x7fff_fffe_ffff).u16(9).u16(6).u16(0x8e0a).u8(1).u8(1).u32(2667);
}

/// The enabled kernel events, as the eight group masks.
pub type Groups = [u32; 8];
/// No kernel events.
pub const NO_GROUPS: Groups = [0; 8];
/// The kernel events of scenarios.
pub const GROUPS: Groups = [0x0603_2707, 0xc286, 0x40, 0, 0, 0, 0, 0];
/// The group mask that only enables system calls.
pub(crate) const SYSTEM_CALL_GROUP: usize = 2;

/// Group masks, followed by the version of the kernel events.
pub fn group_masks(out: &mut Payload, groups: Groups) {
    for mask in groups {
        out.u32(mask);
    }
    out.u32(0x50);
}

/// The machine is not a partition of another one, and its clock has no offset.
pub fn partition_info(out: &mut Payload) {
    out.zeros(48);
}

/// The sampling interval, in 100 ns.
pub(crate) fn sampling_interval(out: &mut Payload) {
    out.u32(0).u32(10_000).u32(10_000).utf16("Timer");
}
