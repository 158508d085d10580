//! Snail: headers, session, samples, stacks, processes, threads and machine of Windows 10 and 11.

use super::Event::{self, Class, Container, HookId, NotKernel};
use super::Ours::{self, At, By, Constant, Count, Is, NoValue, Shown, Whole};
use super::{Decoded, Reading, number, reading};
use crate::decoded::DecodedValue;
use crate::headers;

const IMAGE_ID: &str = "b3e675d7-2554-4f18-830b-2762732560de";
const SYS_CONFIG_EX: &str = "9b79ee91-b5fd-41c0-a243-4248e266e9d0";

const DIAGNOSTICS_HUB: Event = NotKernel("an event of Visual Studio's diagnostics hub, which has a manifest");
pub static READINGS: &[Reading] = &[
    reading(0, "WmiBufferHeader", Container(headers::buffer), &[SNAIL_BUFFER]),
    reading(
        1,
        "SystemTraceHeader",
        Container(headers::record),
        &[
            &[
                ("header_type()", SYSTEM64),
                ("packet().group()", Constant("group", "etl::parser::event_trace_group::header", 0)),
            ],
            SNAIL_HEADER,
        ],
    ),
    reading(
        2,
        "PerfInfoTraceHeader",
        Container(headers::record),
        &[
            &[
                ("header_type()", PERFINFO64),
                ("packet().group()", Constant("group", "etl::parser::event_trace_group::perfinfo", 0x0F)),
            ],
            SNAIL_HEADER,
        ],
    ),
    reading(
        3,
        "PerfInfoTraceHeaderExtPmc",
        Container(headers::record),
        &[&[("header_type()", PERFINFO64), ("packet().group()", THREAD_GROUP)], SNAIL_HEADER],
    ),
    reading(
        4,
        "PerfInfoTraceHeaderExtPebsExtPmc",
        Container(headers::record),
        &[&[("header_type()", PERFINFO64), ("packet().group()", THREAD_GROUP)], SNAIL_HEADER],
    ),
    reading(
        5,
        "FullHeaderTraceHeader",
        Container(headers::record),
        &[&[("header_type()", FULL64)], SNAIL_HEADER],
    ),
    reading(
        6,
        "EventHeaderTraceHeader",
        Container(headers::record),
        &[&[("header_type()", EVENT64)], SNAIL_HEADER],
    ),
    reading(7, "Kernel_EventTraceV2HeaderEventView", HookId(0x0000, 2), &[SNAIL, SNAIL_LOGFILE]),
    reading(
        8,
        "Kernel_EventTraceV2HeaderPartitionInfoExtensionTypeGroup",
        HookId(0x0050, 2),
        &[SNAIL, SNAIL_SESSION],
    ),
    reading(9, "Kernel_EventTraceV2HeaderExtensionTypeGroup", HookId(0x0005, 2), &[SNAIL, SNAIL_SESSION]),
    reading(10, "Kernel_PerfinfoV2SampledProfileEventView", HookId(0x0F2E, 2), &[SNAIL, SNAIL_PERFINFO]),
    reading(11, "Kernel_PerfinfoV2PmcCounterProfileEventView", HookId(0x0F2F, 2), &[SNAIL, SNAIL_PERFINFO]),
    reading(12, "Kernel_PerfinfoV2PmcCounterConfigEventView", HookId(0x0F30, 2), &[SNAIL, SNAIL_PERFINFO]),
    reading(
        13,
        "Kernel_PerfinfoV2SampledProfileIntervalEventView",
        HookId(0x0F49, 3),
        &[SNAIL, SNAIL_PERFINFO],
    ),
    reading(
        14,
        "Kernel_PerfinfoV2PmcCounterCorruptionEventView",
        HookId(0x0F31, 2),
        &[SNAIL, SNAIL_PERFINFO],
    ),
    reading(15, "Kernel_StackwalkV2StackEventView", HookId(0x1820, 2), &[SNAIL_STACK, SNAIL]),
    reading(16, "Kernel_StackwalkV2KeyEventView", HookId(0x1825, 2), &[SNAIL_STACK, SNAIL]),
    reading(17, "Kernel_StackwalkV2TypeGroup1EventView", HookId(0x1824, 2), &[SNAIL_STACK, SNAIL]),
    reading(18, "Kernel_ImageV2LoadEventView", HookId(0x1403, 3), &[SNAIL, SNAIL_IMAGE]),
    reading(19, "Kernel_ProcessV4TypeGroup1EventView", HookId(0x0301, 4), &[SNAIL, SNAIL_PROCESS]),
    reading(20, "Kernel_ProcessV2TypeGroup2EventView", HookId(0x0321, 2), &[SNAIL, SNAIL_PROCESS]),
    reading(21, "Kernel_ThreadV3TypeGroup1EventView", HookId(0x0501, 3), &[SNAIL, SNAIL_THREAD]),
    reading(22, "Kernel_ThreadV4TypeGroup1EventView", HookId(0x0501, 4), &[SNAIL, SNAIL_THREAD]),
    reading(23, "Kernel_ThreadV4ContextSwitchEventView", HookId(0x0524, 4), &[SNAIL, SNAIL_SWITCH]),
    reading(
        24,
        "Kernel_ThreadV2SetNameEventView",
        HookId(0x0548, 2),
        &[&[("thread_id()", Is("ThreadId"))], SNAIL, SNAIL_THREAD],
    ),
    reading(25, "Kernel_SystemConfigV3CpuEventView", HookId(0x0B0A, 3), &[SNAIL, SNAIL_CONFIG]),
    reading(26, "Kernel_SystemConfigV2PhysicalDiskEventView", HookId(0x0B0B, 2), &[SNAIL, SNAIL_CONFIG]),
    reading(27, "Kernel_SystemConfigV2LogicalDiskEventView", HookId(0x0B0C, 2), &[SNAIL, SNAIL_CONFIG]),
    reading(28, "Kernel_SystemConfigV5PnpEventView", HookId(0x0B16, 5), &[SNAIL, SNAIL_CONFIG]),
    reading(29, "Xperf_ImageIdV2InfoEventView", Class(IMAGE_ID, 0), &[SNAIL, SNAIL_IMAGE]),
    reading(30, "Xperf_ImageIdV2DbgIdPdbInfoEventView", Class(IMAGE_ID, 36), &[SNAIL, SNAIL_IMAGE]),
    reading(31, "Xperf_SysConfigExV0BuildInfoEventView", Class(SYS_CONFIG_EX, 32), &[SNAIL, SNAIL_CONFIG]),
    reading(32, "Xperf_SysConfigExV0SysPathsEventView", Class(SYS_CONFIG_EX, 33), &[SNAIL, SNAIL_CONFIG]),
    reading(
        33,
        "Xperf_SysConfigExV0VolumeMappingEventView",
        Class(SYS_CONFIG_EX, 35),
        &[SNAIL, SNAIL_CONFIG],
    ),
    reading(34, "VsDiagHub_TargetProfilingStartedV2EventView", DIAGNOSTICS_HUB, &[]),
    reading(35, "VsDiagHub_TargetProfilingStoppedV1EventView", DIAGNOSTICS_HUB, &[]),
    reading(36, "VsDiagHub_MachineInfoV0EventView", DIAGNOSTICS_HUB, &[]),
    reading(37, "VsDiagHub_CounterInfoV0EventView", DIAGNOSTICS_HUB, &[]),
    reading(38, "SnailProfiler_ProfileTarget", NotKernel("an event of the project's own profiler"), &[]),
];

fn sid(decoded: &Decoded<'_>) -> Vec<u8> {
    match decoded.fields.get("UserSID") {
        Some(DecodedValue::Bytes(bytes)) => bytes.clone(),
        other => panic!("UserSID is {other:?}"),
    }
}

/// Names that most records of this project share.
const SNAIL: &[(&str, Ours)] = &[
    ("dynamic_size()", Whole),
    ("process_id()", Is("ProcessId")),
    ("time_date_stamp()", Is("TimeDateStamp")),
    ("image_base()", Is("ImageBase")),
    ("image_size()", Is("ImageSize")),
];

const SNAIL_BUFFER: &[(&str, Ours)] = &[
    ("wnode().buffer_size()", Is("buffer_size")),
    ("wnode().saved_offset()", Is("saved_offset")),
    ("wnode().current_offset()", Is("current_offset")),
    ("wnode().reference_count()", Is("reference_count")),
    ("wnode().timestamp()", Is("time_stamp")),
    ("wnode().sequence_number()", Is("sequence_number")),
    ("wnode().clock()", Is("clock")),
    ("wnode().client_context().processor_index()", Is("processor")),
    ("wnode().client_context().logger_id()", Is("logger_id")),
    ("wnode().state()", Is("state")),
    ("offset()", Is("offset")),
    ("buffer_flag().count()", By(|d| number(d, "flags").count_ones().into())),
    ("buffer_type()", Constant("buffer_type", "etl::parser::etw_buffer_type::header", 4)),
    ("start_time()", Is("start_time")),
    ("start_perf_clock()", Is("start_perf_clock")),
    (
        "buffer_header.buffer_flag().test(etl::parser::etw_buffer_flag::flush_marker)",
        Constant("flags", "true", 1),
    ),
];

const FIXED_HEADER: &str = "etl::parser::generic_trace_marker::trace_header_flag | \
                            etl::parser::generic_trace_marker::trace_header_event_trace_flag";

const SYSTEM64: Ours = Shown("kind", "etl::parser::trace_header_type::system64", "SYSTEM64");
const PERFINFO64: Ours = Shown("kind", "etl::parser::trace_header_type::perfinfo64", "PERFINFO64");
const FULL64: Ours = Shown("kind", "etl::parser::trace_header_type::full_header64", "FULL64");
const EVENT64: Ours = Shown("kind", "etl::parser::trace_header_type::event_header64", "EVENT64");
const THREAD_GROUP: Ours = Constant("group", "etl::parser::event_trace_group::thread", 5);

const SNAIL_HEADER: &[(&str, Ours)] = &[
    ("version()", Is("version")),
    ("header_flags()", Constant("marker", FIXED_HEADER, 0xC0)),
    ("packet().size()", Is("size")),
    ("size()", Is("size")),
    ("packet().type()", Is("opcode")),
    ("thread_id()", Is("tid")),
    ("process_id()", Is("pid")),
    ("system_time()", Is("time")),
    ("timestamp()", Is("time")),
    ("kernel_time()", Is("kernel_time")),
    ("user_time()", Is("user_time")),
    ("processor_time()", Is("processor_time")),
    ("ext_pmc_count()", Count("counters")),
    ("ext_pebs()", Is("pebs")),
    (
        "trace_header.has_ext_pebs()",
        By(|d| DecodedValue::Number((d.fields.get("pebs") != Some(&DecodedValue::Absent)).into())),
    ),
    ("trace_class().type()", Is("opcode")),
    ("trace_class().level()", Is("level")),
    ("trace_class().version()", Is("version")),
    ("flags()", Is("event_flags")),
    ("event_property()", Is("event_property")),
    ("event_descriptor().id()", Is("id")),
    ("event_descriptor().version()", Is("event_version")),
    ("event_descriptor().channel()", Is("channel")),
    ("event_descriptor().level()", Is("event_level")),
    ("event_descriptor().opcode()", Is("event_opcode")),
    ("event_descriptor().task()", Is("task")),
    ("event_descriptor().keyword()", Is("keyword")),
];

const SNAIL_LOGFILE: &[(&str, Ours)] = &[
    ("buffer_size()", Is("BufferSize")),
    ("os_version_major()", Is("MajorVersion")),
    ("os_version_minor()", Is("MinorVersion")),
    ("sp_version_major()", Is("SubVersion")),
    ("sp_version_minor()", Is("SubMinorVersion")),
    ("provider_version()", Is("ProviderVersion")),
    ("number_of_processors()", Is("NumberOfProcessors")),
    ("end_time()", Is("EndTime")),
    ("timer_resolution()", Is("TimerResolution")),
    ("max_file_size()", Is("MaximumFileSize")),
    ("log_file_mode().count()", By(|d| number(d, "LogFileMode").count_ones().into())),
    ("buffers_written()", Is("BuffersWritten")),
    ("start_buffers()", Is("StartBuffers")),
    ("pointer_size()", Is("PointerSize")),
    ("events_lost()", Is("EventsLost")),
    ("cpu_speed()", Is("CpuSpeedInMHz")),
    ("logger_name()", Is("LoggerName")),
    ("log_file_name()", Is("LogFileName")),
    ("time_zone_information().bias()", Is("TimeZone.Bias")),
    ("time_zone_information().standard_name()", Is("TimeZone.StandardName")),
    ("time_zone_information().standard_date().year()", At("TimeZone.StandardDate", 0)),
    ("time_zone_information().standard_date().month()", At("TimeZone.StandardDate", 1)),
    ("time_zone_information().standard_date().day_of_week()", At("TimeZone.StandardDate", 2)),
    ("time_zone_information().standard_date().day()", At("TimeZone.StandardDate", 3)),
    ("time_zone_information().standard_date().hour()", At("TimeZone.StandardDate", 4)),
    ("time_zone_information().standard_date().minute()", At("TimeZone.StandardDate", 5)),
    ("time_zone_information().standard_date().second()", At("TimeZone.StandardDate", 6)),
    ("time_zone_information().standard_date().milliseconds()", At("TimeZone.StandardDate", 7)),
    ("time_zone_information().standard_bias()", Is("TimeZone.StandardBias")),
    ("time_zone_information().daylight_name()", Is("TimeZone.DaylightName")),
    ("time_zone_information().daylight_date().year()", At("TimeZone.DaylightDate", 0)),
    ("time_zone_information().daylight_date().month()", At("TimeZone.DaylightDate", 1)),
    ("time_zone_information().daylight_date().day_of_week()", At("TimeZone.DaylightDate", 2)),
    ("time_zone_information().daylight_date().day()", At("TimeZone.DaylightDate", 3)),
    ("time_zone_information().daylight_date().hour()", At("TimeZone.DaylightDate", 4)),
    ("time_zone_information().daylight_date().minute()", At("TimeZone.DaylightDate", 5)),
    ("time_zone_information().daylight_date().second()", At("TimeZone.DaylightDate", 6)),
    ("time_zone_information().daylight_date().milliseconds()", At("TimeZone.DaylightDate", 7)),
    ("time_zone_information().daylight_bias()", Is("TimeZone.DaylightBias")),
    ("boot_time()", Is("BootTime")),
    ("perf_freq()", Is("PerfFreq")),
    ("start_time()", Is("StartTime")),
    ("reserved_flags()", Is("ReservedFlags")),
    ("buffers_lost()", Is("BuffersLost")),
    ("session_name()", Is("SessionName")),
    ("file_name()", Is("LogFileNameString")),
    (
        "event.log_file_mode().test(etl::parser::log_file_mode::file_mode_sequential)",
        Constant("LogFileMode", "true", 0x1_0001),
    ),
    (
        "event.log_file_mode().test(etl::parser::log_file_mode::relog_mode)",
        Constant("LogFileMode", "true", 0x1_0001),
    ),
];

const SNAIL_SESSION: &[(&str, Ours)] = &[
    ("event_version_()", Is("EventVersion")),
    ("reserved()", Is("Reserved")),
    ("partition_type()", Is("PartitionType")),
    ("qpc_offset_from_root()", Is("QpcOffsetFromRoot")),
    ("group_mask_1()", Is("GroupMask1")),
    ("group_mask_2()", Is("GroupMask2")),
    ("group_mask_3()", Is("GroupMask3")),
    ("group_mask_4()", Is("GroupMask4")),
    ("group_mask_5()", Is("GroupMask5")),
    ("group_mask_6()", Is("GroupMask6")),
    ("group_mask_7()", Is("GroupMask7")),
    ("group_mask_8()", Is("GroupMask8")),
    ("kernel_event_version()", Is("KernelEventVersion")),
];

const SNAIL_PERFINFO: &[(&str, Ours)] = &[
    ("instruction_pointer()", Is("InstructionPointer")),
    ("thread_id()", Is("ThreadId")),
    ("count()", Is("Count")),
    // Two bytes, which Snail reads as one number.
    ("reserved()", By(|d| DecodedValue::Number(number(d, "Rank") << 8 | number(d, "Flags")))),
    ("profile_source()", Is("ProfileSource")),
    ("counter_count()", Is("CounterCount")),
    ("source()", Is("Source")),
    ("old_interval()", Is("OldInterval")),
    ("new_interval()", Is("NewInterval")),
    ("source_name()", Is("SourceName")),
    ("processor_number()", Is("ProcessorNumber")),
    ("counter_status(0).profile_source()", At("CounterStatus.ProfileSource", 0)),
    ("counter_status(0).last_known_good_timestamp()", At("CounterStatus.LastKnownGoodTimeStamp", 0)),
];

const SNAIL_STACK: &[(&str, Ours)] = &[
    ("event_timestamp()", Is("EventTimeStamp")),
    ("process_id()", Is("StackProcess")),
    ("thread_id()", Is("StackThread")),
    ("stack_key()", Is("StackKey")),
    ("stack_size()", Count("Stack")),
    ("stack_begin == stack_begin", NoValue),
    ("stack_end == stack_end", NoValue),
    ("stack_begin != stack_end", NoValue),
    ("stack_begin < stack_end", NoValue),
    ("stack_begin <= stack_begin", NoValue),
    ("stack_end <= stack_end", NoValue),
    ("stack_end > stack_begin", NoValue),
    ("stack_begin >= stack_begin", NoValue),
    ("stack_end >= stack_end", NoValue),
];

const SNAIL_IMAGE: &[(&str, Ours)] = &[
    ("image_checksum()", Is("ImageChecksum")),
    ("signature_level()", Is("SignatureLevel")),
    ("signature_type()", Is("SignatureType")),
    ("default_base()", Is("DefaultBase")),
    ("file_name()", Is("FileName")),
    ("original_file_name()", Is("OriginalFileName")),
    ("age()", Is("Age")),
    ("pdb_file_name()", Is("PdbFileName")),
];

const SNAIL_PROCESS: &[(&str, Ours)] = &[
    ("unique_process_key()", Is("UniqueProcessKey")),
    ("parent_id()", Is("ParentId")),
    ("session_id()", Is("SessionId")),
    ("exit_status()", Is("ExitStatus")),
    ("directory_table_base()", Is("DirectoryTableBase")),
    ("flags()", Is("Flags")),
    // Two pointers before the SID, which are meaningless and not part of any field.
    (
        "user_sid_token_user()",
        By(|d| {
            d.payload[0x24..0x34].as_chunks::<8>().0.iter().map(|&bytes| u64::from_le_bytes(bytes)).collect()
        }),
    ),
    ("user_sid().revision()", By(|d| sid(d)[0].into())),
    ("user_sid().sub_authority_count()", By(|d| sid(d)[1].into())),
    // The first byte of the authority, and the number of sub-authorities, because the corpus does
    // not contain which part was tested.
    ("user_sid().identifier_authority()", By(|d| sid(d)[2].into())),
    ("user_sid().sub_authority()", By(|d| DecodedValue::Number((sid(d).len() as i128 - 8) / 4))),
    ("image_filename()", Is("ImageFileName")),
    ("command_line()", Is("CommandLine")),
    ("package_full_name()", Is("PackageFullName")),
    ("application_id()", Is("ApplicationId")),
    (
        "event.has_sid()",
        By(|d| DecodedValue::Number((d.fields.get("UserSID") != Some(&DecodedValue::Absent)).into())),
    ),
    ("page_fault_count()", Is("PageFaultCount")),
    ("handle_count()", Is("HandleCount")),
    ("reserved()", Is("Reserved")),
    ("peak_virtual_size()", Is("PeakVirtualSize")),
    ("peak_working_set_size()", Is("PeakWorkingSetSize")),
    ("peak_pagefile_usage()", Is("PeakPagefileUsage")),
    ("quota_peak_paged_pool_usage()", Is("QuotaPeakPagedPoolUsage")),
    ("quota_peak_non_paged_pool_usage()", Is("QuotaPeakNonPagedPoolUsage")),
    ("virtual_size()", Is("VirtualSize")),
    ("working_set_size()", Is("WorkingSetSize")),
    ("pagefile_usage()", Is("PagefileUsage")),
    ("quota_paged_pool_usage()", Is("QuotaPagedPoolUsage")),
    ("quota_non_paged_pool_usage()", Is("QuotaNonPagedPoolUsage")),
    ("private_page_count()", Is("PrivatePageCount")),
];

const SNAIL_THREAD: &[(&str, Ours)] = &[
    // Version 3 also contains the name, which Snail does not read.
    ("thread_id()", Is("TThreadId")),
    ("stack_base()", Is("StackBase")),
    ("stack_limit()", Is("StackLimit")),
    ("user_stack_base()", Is("UserStackBase")),
    ("user_stack_limit()", Is("UserStackLimit")),
    ("affinity()", Is("Affinity")),
    ("win32_start_addr()", Is("Win32StartAddr")),
    ("teb_base()", Is("TebBase")),
    ("sub_process_tag()", Is("SubProcessTag")),
    ("base_priority()", Is("BasePriority")),
    ("page_priority()", Is("PagePriority")),
    ("io_priority()", Is("IoPriority")),
    ("flags()", Is("ThreadFlags")),
    ("thread_name()", Is("ThreadName")),
];

const SNAIL_SWITCH: &[(&str, Ours)] = &[
    ("new_thread_id()", Is("NewThreadId")),
    ("old_thread_id()", Is("OldThreadId")),
    ("new_thread_priority()", Is("NewThreadPriority")),
    ("old_thread_priority()", Is("OldThreadPriority")),
    ("previous_c_state()", Is("PreviousCState")),
    ("spare_byte()", Is("SpareByte")),
    ("old_thread_wait_reason()", Is("OldThreadWaitReason")),
    ("thread_flags()", Is("ThreadFlags")),
    ("old_thread_state()", Is("OldThreadState")),
    ("old_thread_wait_ideal_processor()", Is("OldThreadWaitIdealProcessor")),
    ("new_thread_wait_time()", Is("NewThreadWaitTime")),
    ("reserved()", Is("Reserved")),
];

const SNAIL_CONFIG: &[(&str, Ours)] = &[
    ("mhz()", Is("MHz")),
    ("number_of_processors()", Is("NumberOfProcessors")),
    ("mem_size()", Is("MemSize")),
    ("page_size()", Is("PageSize")),
    ("allocation_granularity()", Is("AllocationGranularity")),
    ("computer_name()", Is("ComputerName")),
    ("domain_name()", Is("DomainName")),
    ("hyper_threading_flag()", Is("HyperThreadingFlag")),
    ("highest_user_address()", Is("HighestUserAddress")),
    ("processor_architecture()", Is("ProcessorArchitecture")),
    ("processor_level()", Is("ProcessorLevel")),
    ("processor_revision()", Is("ProcessorRevision")),
    ("pae_enabled()", Is("PaeEnabled")),
    ("nx_enabled()", Is("NxEnabled")),
    ("memory_speed()", Is("MemorySpeed")),
    ("disk_number()", Is("DiskNumber")),
    ("bytes_per_sector()", Is("BytesPerSector")),
    ("sectors_per_track()", Is("SectorsPerTrack")),
    ("tracks_per_cylinder()", Is("TracksPerCylinder")),
    ("cylinders()", Is("Cylinders")),
    ("scsi_port()", Is("SCSIPort")),
    ("scsi_path()", Is("SCSIPath")),
    ("scsi_target()", Is("SCSITarget")),
    ("scsi_lun()", Is("SCSILun")),
    ("manufacturer()", Is("Manufacturer")),
    ("partition_count()", Is("PartitionCount")),
    ("write_cache_enabled()", Is("WriteCacheEnabled")),
    ("boot_drive_letter()", Is("BootDriveLetter")),
    ("spare()", Is("Spare")),
    ("start_offset()", Is("StartOffset")),
    ("partition_size()", Is("PartitionSize")),
    ("size()", Is("Size")),
    ("drive_type()", Constant("DriveType", "etl::parser::drive_type::partition", 1)),
    ("drive_letter()", Is("DriveLetterString")),
    ("partition_number()", Is("PartitionNumber")),
    ("sectors_per_cluster()", Is("SectorsPerCluster")),
    ("number_of_free_clusters()", Is("NumberOfFreeClusters")),
    ("total_number_of_clusters()", Is("TotalNumberOfClusters")),
    ("file_system()", Is("FileSystem")),
    ("volume_extent()", Is("VolumeExt")),
    ("upper_filters_count()", Is("UpperFiltersCount")),
    ("lower_filters_count()", Is("LowerFiltersCount")),
    ("dev_status()", Is("DevStatus")),
    ("dev_problem()", Is("DevProblem")),
    ("device_id()", Is("DeviceID")),
    ("device_description()", Is("DeviceDescription")),
    ("friendly_name()", Is("FriendlyName")),
    ("pdo_name()", Is("PdoName")),
    ("service_name()", Is("ServiceName")),
    ("install_date()", Is("InstallDate")),
    ("build_lab()", Is("BuildLab")),
    ("product_name()", Is("ProductName")),
    ("system_directory()", Is("SystemDirectory")),
    ("system_windows_directory()", Is("SystemWindowsDirectory")),
    ("nt_path()", Is("NtPath")),
    ("dos_path()", Is("DosPath")),
];
