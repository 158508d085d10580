//! Processes, images and the machine.

use stackhound_schema::kernel::view::*;

use super::{hook_ids, row, widened};
use crate::{Case, Source};

const IMAGE_ID: &str = "b3e675d7-2554-4f18-830b-2762732560de";
const SYS_CONFIG_EX: &str = "9b79ee91-b5fd-41c0-a243-4248e266e9d0";

pub static MACHINE: &[Case] = &[
    Case {
        source: hook_ids(&[0x0301, 0x0302, 0x0303, 0x0304, 0x0327]),
        view: |payload, _, version, pointer| {
            let v = Process::parse(payload, version, pointer)?;
            // One field with two names.
            let table = (version == 1).then_some(v.directory_table_base).flatten();
            let base = (version != 1).then_some(v.directory_table_base).flatten();
            let (process, parent) = match version {
                0 => (
                    widened(payload, 0, pointer, v.process_id.0),
                    widened(payload, pointer.bytes(), pointer, v.parent_id.0),
                ),
                _ => (v.process_id.into(), v.parent_id.into()),
            };
            Ok(vec![
                row("UniqueProcessKey", v.unique_process_key),
                row("PageDirectoryBase", table),
                row("ProcessId", process),
                row("ParentId", parent),
                row("SessionId", v.session_id),
                row("ExitStatus", v.exit_status),
                row("DirectoryTableBase", base),
                row("Flags", v.flags),
                row("UserSID", v.user_sid),
                row("ImageFileName", v.image_file_name),
                row("CommandLine", v.command_line),
                row("PackageFullName", v.package_full_name),
                row("ApplicationId", v.application_id),
                row("ExitTime", v.exit_time),
            ])
        },
        left_out: &[],
        longest: 200,
    },
    Case {
        source: hook_ids(&[0x030A, 0x140A, 0x1402, 0x1403, 0x1404]),
        view: |payload, _, version, pointer| {
            let v = Image::parse(payload, version, pointer)?;
            let (old, new) = (version == 0, version > 0);
            let identity = v.identity;
            let signature = identity.and_then(|i| i.signature);
            Ok(vec![
                row("BaseAddress", old.then_some(v.image_base)),
                row("ModuleSize", old.then_some(v.image_size)),
                row("ImageFileName", old.then_some(v.file_name)),
                row("ImageBase", new.then_some(v.image_base)),
                row("ImageSize", new.then_some(v.image_size)),
                row("ProcessId", v.process_id),
                row("ImageChecksum", identity.map(|i| i.image_checksum)),
                row("TimeDateStamp", identity.map(|i| i.time_date_stamp)),
                row("SignatureLevel", signature.map(|s| s.level)),
                row("SignatureType", signature.map(|s| s.kind)),
                row("DefaultBase", identity.map(|i| i.default_base)),
                row("FileName", new.then_some(v.file_name)),
            ])
        },
        left_out: &["Reserved0", "Reserved1", "Reserved2", "Reserved3", "Reserved4"],
        longest: 160,
    },
    Case {
        source: hook_ids(&[0x1421]),
        view: |payload, _, version, pointer| {
            Ok(vec![row("ImageBase", KernelBase::parse(payload, version, pointer)?.image_base)])
        },
        left_out: &[],
        longest: 12,
    },
    Case {
        source: hook_ids(&[0x0B0A]),
        view: |payload, _, version, pointer| {
            let v = CpuConfig::parse(payload, version, pointer)?;
            let d = v.detail;
            Ok(vec![
                row("MHz", v.mhz),
                row("NumberOfProcessors", v.number_of_processors),
                row("MemSize", v.mem_size),
                row("PageSize", v.page_size),
                row("AllocationGranularity", v.allocation_granularity),
                row("ComputerName", v.computer_name),
                row("DomainName", v.domain_name),
                row("HyperThreadingFlag", v.hyper_threading_flag),
                row("HighestUserAddress", d.map(|d| d.highest_user_address)),
                row("ProcessorArchitecture", d.map(|d| d.processor_architecture)),
                row("ProcessorLevel", d.map(|d| d.processor_level)),
                row("ProcessorRevision", d.map(|d| d.processor_revision)),
                row("PaeEnabled", d.map(|d| d.pae_enabled)),
                row("NxEnabled", d.map(|d| d.nx_enabled)),
                row("MemorySpeed", d.map(|d| d.memory_speed)),
            ])
        },
        left_out: &[],
        longest: 840,
    },
    Case {
        source: Source::Class(IMAGE_ID, &[36, 37]),
        view: |payload, _, version, pointer| {
            let v = DbgIdRsds::parse(payload, version, pointer)?;
            Ok(vec![
                row("ImageBase", v.image_base),
                row("ProcessId", v.process_id),
                row("GuidSig", v.guid),
                row("Age", v.age),
                row("PdbFileName", v.pdb_file_name),
            ])
        },
        left_out: &[],
        longest: 60,
    },
    Case {
        source: Source::Class(IMAGE_ID, &[64]),
        view: |payload, _, version, pointer| {
            let v = FileVersion::parse(payload, version, pointer)?;
            Ok(vec![
                row("ImageSize", v.image_size),
                row("TimeDateStamp", v.time_date_stamp),
                row("OrigFileName", v.original_file_name),
                row("FileDescription", v.description),
                row("FileVersion", v.file_version),
                row("ProductName", v.product),
                row("CompanyName", v.company),
            ])
        },
        left_out: &["BinFileVersion", "VerLanguage", "ProductVersion", "FileId", "ProgramId"],
        longest: 60,
    },
    Case {
        source: Source::Class(SYS_CONFIG_EX, &[33]),
        view: |payload, _, version, pointer| {
            let v = SystemPaths::parse(payload, version, pointer)?;
            Ok(vec![
                row("SystemDirectory", v.system_directory),
                row("SystemWindowsDirectory", v.system_windows_directory),
            ])
        },
        left_out: &[],
        longest: 60,
    },
    Case {
        source: Source::Class(SYS_CONFIG_EX, &[35]),
        view: |payload, _, version, pointer| {
            let v = VolumeMapping::parse(payload, version, pointer)?;
            Ok(vec![row("NtPath", v.nt_path), row("DosPath", v.dos_path)])
        },
        left_out: &[],
        longest: 60,
    },
];
