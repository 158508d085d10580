//! Class GUIDs of kernel events, as consumers see them.
//!
//! Generated from `tables/*.txt` by the test `constants`, which also compares the result.
#![expect(missing_docs, reason = "each constant is named after its class")]

use stackhound_types::Guid;

pub const ALPC: Guid = Guid::from_u128(0x45d8cccd_539f_4b72_a8b7_5c683142609a);
pub const CC: Guid = Guid::from_u128(0x7687a439_f752_45b8_b741_321aec0f8df9);
pub const CRIT_SEC: Guid = Guid::from_u128(0x3ac66736_cc59_4cff_8115_8df50e39816b);
pub const DBG_PRINT: Guid = Guid::from_u128(0x13976d09_a327_438c_950b_7f03192815c7);
pub const DISK_IO: Guid = Guid::from_u128(0x3d6fa8d4_fe05_11d0_9dda_00c04fd7ba7c);
pub const EVENT_META_DATA: Guid = Guid::from_u128(0xbbccf6c1_6cd1_48c4_80ff_839482e37671);
pub const EVENT_TRACE: Guid = Guid::from_u128(0x68fdd900_4a3e_11d1_84f4_0000f80464e3);
pub const FILE_IO: Guid = Guid::from_u128(0x90cbdc39_4a3e_11d1_84f4_0000f80464e3);
pub const HEAP: Guid = Guid::from_u128(0x222962ab_6180_4b88_a825_346b75f2a24a);
pub const IMAGE: Guid = Guid::from_u128(0x2cb15d1d_5fc1_11d2_abe1_00a0c911f518);
pub const IMAGE_ID: Guid = Guid::from_u128(0xb3e675d7_2554_4f18_830b_2762732560de);
pub const JOB: Guid = Guid::from_u128(0x3282fc76_feed_498e_8aa7_e70f459d430e);
pub const LAST_BRANCH: Guid = Guid::from_u128(0x99134383_5248_43fc_834b_529454e75df3);
pub const LOST_EVENT: Guid = Guid::from_u128(0x6a399ae0_4bc6_4de9_870b_3657f8947e7e);
pub const MOD_BOUND: Guid = Guid::from_u128(0xa9152f00_3f58_4bee_92a1_70c7d079d5dd);
pub const OBJECT: Guid = Guid::from_u128(0x89497f50_effe_4440_8cf2_ce6b1cdcaca7);
pub const PAGE_FAULT: Guid = Guid::from_u128(0x3d6fa8d3_fe05_11d0_9dda_00c04fd7ba7c);
pub const PERF_INFO: Guid = Guid::from_u128(0xce1dbfb4_137e_4da6_87b0_3f59aa102cbc);
pub const POOL: Guid = Guid::from_u128(0x0268a8b6_74fd_4302_9dd0_6e8f1795c0cf);
pub const POWER: Guid = Guid::from_u128(0xe43445e0_0903_48c3_b878_ff0fccebdd04);
pub const PROCESS: Guid = Guid::from_u128(0x3d6fa8d0_fe05_11d0_9dda_00c04fd7ba7c);
pub const REGISTRY: Guid = Guid::from_u128(0xae53722e_c863_11d2_8659_00c04fa321a1);
pub const SPLIT_IO: Guid = Guid::from_u128(0xd837ca92_12b9_44a5_ad6a_3a65b3578aa8);
pub const STACK_WALK: Guid = Guid::from_u128(0xdef2fe46_7bd6_4b80_bd94_f57fe20d0ce3);
pub const SYSTEM_CONFIG: Guid = Guid::from_u128(0x01853a65_418f_4f36_aefc_dc0f1d2fd235);
pub const SYS_CONFIG_EX: Guid = Guid::from_u128(0x9b79ee91_b5fd_41c0_a243_4248e266e9d0);
pub const TCP_IP: Guid = Guid::from_u128(0x9a280ac0_c8e0_11d1_84e2_00c04fb998a2);
pub const THREAD: Guid = Guid::from_u128(0x3d6fa8d1_fe05_11d0_9dda_00c04fd7ba7c);
pub const THREAD_POOL: Guid = Guid::from_u128(0xc861d0e2_a2c1_4d36_9f9c_970bab943a12);
pub const UDP_IP: Guid = Guid::from_u128(0xbf3a50c5_a9c9_4988_a005_2df0b7c80f80);
pub const UMS: Guid = Guid::from_u128(0x9aec974b_5b8e_4118_9b92_3186d8002ce5);
pub const WIN_SAT: Guid = Guid::from_u128(0xed54dff8_c409_4cf6_bf83_05e1e61a09c4);
pub const WNF: Guid = Guid::from_u128(0x42695762_ea50_497a_9068_5cbbb35e0b95);
