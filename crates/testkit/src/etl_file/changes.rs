//! Writes changes of memory: events of Microsoft-Windows-Threat-Intelligence, and those of the
//! kernel logger.

use stackhound_etl::record::Descriptor;
use stackhound_etl::write::stack::Trigger;
use stackhound_etl::write::{HeaderSpec, Issuer, ItemSpec, WriteError};
use stackhound_scenario::{event, payload};
use stackhound_schema::provider_guid;
use stackhound_types::{Guid, Pid, RawTime, Tid};

use super::{Instance, POINTER_SIZE, Recorder, target};
use crate::event_spec::{Change, ChangeKind, ChangedBy, FrameSpec};

fn target_issuer(program: &str) -> Issuer {
    let pid = target(program);
    Issuer::new(pid, Tid(pid.0 + 1))
}

/// `PS_PROTECTION` of a light process whose signer is antimalware.
const PROTECTED_ANTIMALWARE: u8 = 0x31;

impl Recorder<'_> {
    /// Writes a change of memory with its stack.
    pub(super) fn change(
        &mut self,
        actor: &Instance<'_>,
        change: &Change,
        stack: &[FrameSpec],
    ) -> Result<RawTime, WriteError> {
        let (issuer, protection) = match change.by {
            ChangedBy::Actor | ChangedBy::Driver => (actor.issuer(), 0),
            ChangedBy::Other(program) => (target_issuer(program), 0),
            ChangedBy::Protected(program) => (target_issuer(program), PROTECTED_ANTIMALWARE),
        };
        let owner = change.target.map_or(actor.pid, target);
        let base = self.world.address(change.at);
        let is_local = Some(owner) == issuer.pid;
        let (id, service) = match change.kind {
            ChangeKind::Reserve => {
                payload::virtual_memory(&mut self.payload, base, change.size, owner, payload::ALLOCATE);
                let time = self.kernel(event::VIRTUAL_ALLOC, Issuer::UNKNOWN)?;
                if let (Some(pid), Some(tid)) = (issuer.pid, issuer.tid) {
                    let names = ["EtwTraceStack", "NtAllocateVirtualMemory", "KiSystemServiceCopyEnd"];
                    let stacks = [self.kernel_frames(&names), self.addresses(stack)];
                    self.stacks(Trigger { time, pid, tid }, &stacks)?;
                }
                return Ok(time);
            }
            ChangeKind::Unload | ChangeKind::Load => {
                let FrameSpec::In(unit, 0) = change.at else { panic!("an image starts at its base") };
                let event =
                    if change.kind == ChangeKind::Load { event::IMAGE_LOAD } else { event::IMAGE_UNLOAD };
                // The header names the owner, also if another process maps or unmaps the image.
                return self.image(event, owner, unit, Issuer::new(owner, Tid(owner.0 + 4)));
            }
            ChangeKind::Allocate(_) => (if is_local { 6 } else { 1 }, "NtAllocateVirtualMemory"),
            ChangeKind::Protect(..) => match change.by {
                ChangedBy::Driver => (27, "NtProtectVirtualMemory"),
                _ => (if is_local { 7 } else { 2 }, "NtProtectVirtualMemory"),
            },
            ChangeKind::Write => (if is_local { 12 } else { 14 }, "NtWriteVirtualMemory"),
        };
        if change.kind == ChangeKind::Write {
            self.payload.u32(0);
        }
        self.threat_process(issuer.pid.unwrap_or(Pid::IDLE), protection);
        self.payload.u32(issuer.tid.unwrap_or(Tid(0)).0).u64(0);
        self.threat_process(owner, 0);
        if change.kind != ChangeKind::Write {
            self.threat_process(owner, 0);
        }
        self.payload.u64(base).u64(change.size);
        match change.kind {
            ChangeKind::Allocate(protection) => drop(self.payload.u32(payload::ALLOCATE).u32(protection)),
            ChangeKind::Protect(from, to) => drop(self.payload.u32(to).u32(from)),
            _ => {}
        }
        let descriptor =
            Descriptor { id, version: 1, channel: 16, level: 4, opcode: 0, task: 0, keyword: 1 << 63 };
        let mut frames = self.kernel_frames(&["EtwTraceStack", service, "KiSystemServiceCopyEnd"]);
        frames.extend(self.addresses(stack));
        let items = [ItemSpec::StackTrace { pointer_size: POINTER_SIZE, match_id: 0, frames: &frames }];
        self.record(HeaderSpec::Event {
            provider: provider_guid::THREAT_INTELLIGENCE,
            descriptor,
            property: 0,
            issuer,
            activity: Guid::ZERO,
            items: if stack.is_empty() { &[] } else { &items },
        })
    }

    /// The facts about a process in events of the Threat-Intelligence provider: its id, creation
    /// time, start key, signature levels and protection.
    fn threat_process(&mut self, pid: Pid, protection: u8) {
        self.payload.u32(pid.0).u64(0).u64(0).u8(0).u8(0).u8(protection);
    }
}
