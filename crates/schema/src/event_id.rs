//! Ids of events of well-known providers, in a module for each provider of
//! [`provider_guid`](crate::provider_guid). Only of the events that code of this project reads.
//!
//! Generated from `builtin/*.txt` by the test `constants`, which lists the ids and also compares the
//! result.
#![expect(missing_docs, reason = "each constant is named after its event")]

pub mod dns_client {
    pub const DNS_QUERY_START: u16 = 3006;
    pub const DNS_QUERY_STOP: u16 = 3008;
}
pub mod dot_net_runtime {
    pub const GC_START: u16 = 1;
    pub const GC_STOP: u16 = 2;
    pub const GC_RESTART_EE_STOP: u16 = 3;
    pub const GC_SUSPEND_EE_START: u16 = 9;
    pub const METHOD_DC_START_V2: u16 = 137;
    pub const METHOD_DC_STOP_V2: u16 = 138;
    pub const METHOD_DC_START_VERBOSE_V2: u16 = 139;
    pub const METHOD_DC_STOP_VERBOSE_V2: u16 = 140;
    pub const METHOD_LOAD: u16 = 141;
    pub const METHOD_UNLOAD: u16 = 142;
    pub const METHOD_LOAD_VERBOSE: u16 = 143;
    pub const METHOD_UNLOAD_VERBOSE: u16 = 144;
    pub const METHOD_JITTING_STARTED: u16 = 145;
    pub const LOADER_MODULE_DC_START_V2: u16 = 149;
    pub const LOADER_MODULE_DC_STOP_V2: u16 = 150;
    pub const LOADER_DOMAIN_MODULE_LOAD: u16 = 151;
    pub const LOADER_MODULE_LOAD: u16 = 152;
    pub const LOADER_MODULE_UNLOAD: u16 = 153;
}
pub mod dot_net_runtime_rundown {
    pub const METHOD_DC_START: u16 = 141;
    pub const METHOD_DC_STOP: u16 = 142;
    pub const METHOD_DC_START_VERBOSE: u16 = 143;
    pub const METHOD_DC_STOP_VERBOSE: u16 = 144;
    pub const LOADER_DOMAIN_MODULE_DC_START: u16 = 151;
    pub const LOADER_DOMAIN_MODULE_DC_STOP: u16 = 152;
    pub const LOADER_MODULE_DC_START: u16 = 153;
    pub const LOADER_MODULE_DC_STOP: u16 = 154;
}
pub mod kernel_audit_api_calls {
    pub const TERMINATE_PROCESS: u16 = 2;
    pub const CREATE_SYMBOLIC_LINK: u16 = 3;
    pub const SET_THREAD_CONTEXT: u16 = 4;
    pub const OPEN_PROCESS: u16 = 5;
    pub const OPEN_THREAD: u16 = 6;
}
pub mod kernel_event_tracing {
    pub const STACK_TRACE_USER_MODE_STACK_TRACE: u16 = 18;
}
pub mod kernel_file {
    pub const NAME_CREATE: u16 = 10;
    pub const CREATE: u16 = 12;
    pub const CLEANUP: u16 = 13;
    pub const READ: u16 = 15;
    pub const WRITE: u16 = 16;
    pub const FSCTL: u16 = 23;
    pub const OPERATION_END: u16 = 24;
    pub const DIR_NOTIFY: u16 = 25;
    pub const DELETE_PATH: u16 = 26;
    pub const RENAME_PATH: u16 = 27;
    pub const RENAME_29: u16 = 29;
    pub const CREATE_NEW_FILE: u16 = 30;
    pub const SET_SECURITY: u16 = 31;
    pub const QUERY_EA: u16 = 34;
}
pub mod kernel_process {
    pub const PROCESS_START: u16 = 1;
    pub const PROCESS_STOP: u16 = 2;
    pub const THREAD_START: u16 = 3;
    pub const THREAD_STOP: u16 = 4;
    pub const IMAGE_LOAD: u16 = 5;
    pub const IMAGE_UNLOAD: u16 = 6;
    pub const CPU_BASE_PRIORITY_CHANGE: u16 = 7;
    pub const IO_PRIORITY_CHANGE: u16 = 10;
    pub const PROCESS_FREEZE_START: u16 = 11;
    pub const PROCESS_FREEZE_STOP: u16 = 12;
    pub const PROCESS_RUNDOWN: u16 = 15;
}
pub mod ndis_packet_capture {
    pub const PACKET_FRAGMENT: u16 = 1001;
}
pub mod pkt_mon {
    pub const FRAME_PAYLOAD: u16 = 160;
    pub const FRAME_DROP_PAYLOAD: u16 = 170;
}
