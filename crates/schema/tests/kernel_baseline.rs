//! Compares the fields of events with the output of Microsoft's own decoder (TraceEvent) for the
//! same trace. The output contains up to five events of every kind.

use std::collections::BTreeMap;

use stackhound_etl::record::Record;
use stackhound_etl::{Clock, EtlFile};
use stackhound_schema::{Item, Schema, kernel};
use stackhound_types::RawTime;

/// Event names of the baseline and of this crate. UDP over IPv4 is omitted, because the baseline
/// reads it with the layout of version 0.
const EVENTS: [(&str, &str); 48] = [
    ("Windows Kernel/EventTrace", "EventTrace/Header"),
    ("Windows Kernel/EventTrace/Extension", "EventTrace/Extension"),
    ("Windows Kernel/EventTrace/EndExtension", "EventTrace/EndExtension"),
    ("Windows Kernel/EventTrace/RundownComplete", "EventTrace/RDComplete"),
    ("Windows Kernel/SysConfig/SystemPaths", "SysConfigEx/SystemPaths"),
    ("Windows Kernel/SysConfig/UnknownVolume", "SysConfigEx/UnknownVolume"),
    ("Windows Kernel/SysConfig/VolumeMapping", "SysConfigEx/VolumeMapping"),
    ("Windows Kernel/SysConfig/BuildInfo", "SysConfigEx/BuildInfo"),
    ("Windows Kernel/SystemConfig/CPU", "SystemConfig/CPU"),
    ("Windows Kernel/SystemConfig/NIC", "SystemConfig/NIC"),
    ("Windows Kernel/SystemConfig/Network", "SystemConfig/Network"),
    ("Windows Kernel/SystemConfig/Services", "SystemConfig/Services"),
    ("Windows Kernel/SystemConfig/PhyDisk", "SystemConfig/PhyDisk"),
    ("Windows Kernel/SystemConfig/LogDisk", "SystemConfig/LogDisk"),
    ("Windows Kernel/SystemConfig/IDEChannel", "SystemConfig/IDEChannel"),
    ("Windows Kernel/SystemConfig/PnP", "SystemConfig/PnP"),
    ("Windows Kernel/SystemConfig/Power", "SystemConfig/Power"),
    ("Windows Kernel/Process/Start", "Process/Start"),
    ("Windows Kernel/Process/Stop", "Process/End"),
    ("Windows Kernel/Process/DCStart", "Process/DCStart"),
    ("Windows Kernel/Process/DCStop", "Process/DCEnd"),
    ("Windows Kernel/Process/Defunct", "Process/Defunct"),
    ("Windows Kernel/Process/PerfCtr", "Process/PerfCtr"),
    ("Windows Kernel/Process/PerfCtrRundown", "Process/PerfCtrRundown"),
    ("Windows Kernel/Thread/Start", "Thread/Start"),
    ("Windows Kernel/Thread/Stop", "Thread/End"),
    ("Windows Kernel/Image/Load", "Image/Load"),
    ("Windows Kernel/Image/Unload", "Image/Unload"),
    ("Windows Kernel/Image/DCStart", "Image/DCStart"),
    ("Windows Kernel/Image/DCStop", "Image/DCEnd"),
    ("Windows Kernel/PerfInfo/Sample", "PerfInfo/SampledProfile"),
    ("Windows Kernel/PerfInfo/CollectionStart", "PerfInfo/SampledProfileIntervalCollectionStart"),
    ("Windows Kernel/PerfInfo/CollectionEnd", "PerfInfo/SampledProfileIntervalCollectionEnd"),
    ("Windows Kernel/DiskIO/Read", "DiskIo/Read"),
    ("Windows Kernel/DiskIO/Write", "DiskIo/Write"),
    ("Windows Kernel/DiskIO/FlushBuffers", "DiskIo/FlushBuffers"),
    ("Windows Kernel/DiskIO/ReadInit", "DiskIo/ReadInit"),
    ("Windows Kernel/DiskIO/WriteInit", "DiskIo/WriteInit"),
    ("Windows Kernel/DiskIO/FlushInit", "DiskIo/FlushInit"),
    ("Windows Kernel/Memory/HardFault", "PageFault/HardFault"),
    ("Windows Kernel/TcpIp/SendIPV6", "TcpIp/SendIPV6"),
    ("Windows Kernel/TcpIp/RecvIPV6", "TcpIp/RecvIPV6"),
    ("Windows Kernel/UdpIp/SendIPV6", "UdpIp/SendIPV6"),
    ("Windows Kernel/UdpIp/RecvIPV6", "UdpIp/RecvIPV6"),
    ("KernelTraceControl/ImageID", "ImageId/Info"),
    ("KernelTraceControl/ImageID/DbgID_RSDS", "ImageId/DbgIdRsds"),
    ("KernelTraceControl/ImageID/DbgID_ILRSDS", "ImageId/DbgIdIlRsds"),
    ("KernelTraceControl/ImageID/FileVersion", "ImageId/FileVersion"),
];

/// Field names of the baseline and of this crate, if they differ in more than case.
const FIELDS: [(&str, &str); 9] = [
    ("MaxFileSize", "MaximumFileSize"),
    ("CPUSpeed", "CpuSpeedInMHz"),
    ("LogFileName", "LogFileNameString"),
    ("Value", "NtPath"),
    ("PageDirectoryBase", "DirectoryTableBase"),
    ("MemoryCount", "PageFaultCount"),
    // From version 3 on, this field contains the thread's affinity.
    ("StartAddr", "Affinity"),
    ("SampleSource", "Source"),
    ("FileKey", "FileObject"),
];

/// Fields that the baseline computes from several fields, from the header or from other events, or
/// formats differently.
const BASELINE_ONLY: [&str; 20] = [
    "Version",
    "EndTime",
    "BootTime",
    "StartTime",
    "InstallDate",
    "BuildTime",
    "UtcOffsetMinutes",
    "Flags",
    "IrpFlags",
    "Priority",
    "ProcessorNumber",
    "ExecutingDPC",
    "ExecutingISR",
    "ElapsedTimeMSec",
    "DiskServiceTimeMSec",
    "ParentThreadID",
    "ParentProcessID",
    // Contains the drive letter.
    "FileName",
    // The name of the service's process, from other events.
    "ProcessName",
    // Empty in this trace.
    "ThreadName",
];

/// A field that is wrong in the baseline: it contains the upper half of the image's size instead of
/// the process.
const WRONG: (&str, &str) = ("KernelTraceControl/ImageID", "ProcessID");

/// An event of the baseline.
struct Line<'t> {
    name: &'t str,
    milliseconds: f64,
    fields: Vec<(&'t str, &'t str)>,
}

/// `EVENT 1,234.567: Provider/Event PID=…; …; DataLen=16; Field=value; …`
fn lines(baseline: &str) -> Vec<Line<'_>> {
    let parse = |line| -> Option<Line<'_>> {
        let line = str::strip_prefix(line, "EVENT ")?;
        let (time, line) = line.split_once(": ")?;
        let (name, line) = line.split_once(" PID=")?;
        let (_, fields) = line.split_once("DataLen=")?;
        let (_, fields) = fields.split_once("; ")?;
        let fields = fields.split("; ").filter_map(|field| field.split_once('=')).collect();
        Some(Line { name, milliseconds: time.replace(',', "").parse().ok()?, fields })
    };
    baseline.lines().filter_map(parse).collect()
}

/// The single values of a payload, formatted and as numbers.
type Shown = BTreeMap<String, (String, Option<u64>)>;

fn shown(schema: &Schema, record: &Record<'_>) -> Shown {
    let mut shown = Shown::new();
    for decoded in schema.decode(record.payload(), record.pointer_size()).flatten() {
        if let Item::Value(value) = decoded.item {
            let number = value.as_u64().or(value.as_i64().map(i64::cast_unsigned));
            shown
                .insert(decoded.field.name.to_lowercase(), (decoded.field.render(value).to_string(), number));
        }
    }
    shown
}

fn milliseconds(clock: Clock, from: RawTime, to: RawTime) -> f64 {
    (to.0 - from.0) as f64 * 1000.0 / clock.ticks_per_second() as f64
}

/// A number with thousands separators.
fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut grouped = String::from(if number < 0 { "-" } else { "" });
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Whether a field has the value in the baseline, which abbreviates long texts and shows numbers as
/// signed.
fn agrees(ours: &(String, Option<u64>), theirs: &str) -> bool {
    let mut spellings = vec![ours.0.clone()];
    if let Some(number) = ours.1 {
        spellings.extend([
            grouped(number as i64),
            grouped((number as u32 as i32).into()),
            format!("{number:#010x}"),
        ]);
    }
    spellings.iter().any(|ours| match theirs.strip_suffix("...") {
        Some(start) => ours.starts_with(start),
        None => ours == theirs || *ours == theirs.replace(',', ""),
    })
}

#[test]
fn fields_match_the_baseline() {
    let Some(baseline) = stackhound_corpus::text("etl/perfview-net452-x64.baseline.txt") else { return };
    let bytes = stackhound_corpus::etl_file("perfview-net452-x64.etl").expect("a readable trace");
    let etl_file = EtlFile::open(bytes.into()).expect("a readable trace");
    let (clock, start) = (etl_file.clock(), etl_file.session().reference);

    let mut events: BTreeMap<&str, Vec<(f64, Shown)>> = BTreeMap::new();
    for buffer in &etl_file.index().buffers {
        let (block, _) = etl_file.block(buffer, None).expect("a readable buffer");
        for entry in block.entries() {
            let record = block.record(entry);
            let (version, pointer, payload) = (record.version(), record.pointer_size(), record.payload());
            let schema = match (record.hook_id(), record.guid()) {
                (Some(hook_id), _) => kernel::lookup_for(hook_id, version, pointer, payload),
                (None, Some(class)) if record.kind().is_classic() => {
                    kernel::lookup_classic_for(class, record.opcode(), version, pointer, payload)
                }
                _ => None,
            };
            let Some(schema) = schema else { continue };
            if EVENTS.iter().any(|(_, ours)| *ours == &*schema.event_name) {
                let time = milliseconds(clock, start, record.time());
                events.entry(&schema.event_name).or_default().push((time, shown(schema, &record)));
            }
        }
    }

    let (mut n_events, mut n_fields) = (0, 0);
    for line in lines(&baseline) {
        let Some((_, ours)) = EVENTS.iter().find(|(theirs, _)| *theirs == line.name) else { continue };
        let compared: Vec<_> = line
            .fields
            .iter()
            .filter(|(field, _)| !BASELINE_ONLY.contains(field) && (line.name, *field) != WRONG)
            .map(|&(field, value)| {
                let name = FIELDS.iter().find(|(theirs, _)| *theirs == field).map_or(field, |(_, ours)| ours);
                (name.to_lowercase(), value)
            })
            .collect();
        let same = |(time, shown): &(f64, Shown)| {
            (time - line.milliseconds).abs() < 0.0015
                && compared
                    .iter()
                    .all(|(name, value)| shown.get(name).is_some_and(|ours| agrees(ours, value)))
        };
        let at_the_time: Vec<_> =
            events[ours].iter().filter(|(time, _)| (time - line.milliseconds).abs() < 0.0015).collect();
        assert!(events[ours].iter().any(same), "{ours}: {compared:?} is not among {at_the_time:#?}");
        n_events += 1;
        n_fields += compared.len();
    }
    assert_eq!((n_events, n_fields), (162, 1002));
}
