//! GUIDs of well-known providers. The prefix `Microsoft-Windows-` is omitted from the names.
//!
//! Generated from `builtin/*.txt` by the test `constants`, which also compares the result.
#![expect(missing_docs, reason = "each constant is named after its provider")]

use stackhound_types::Guid;

pub const ANTIMALWARE_SCAN_INTERFACE: Guid = Guid::from_u128(0x2a576b87_09a7_520e_c21a_4942f0271d67);
pub const DNS_CLIENT: Guid = Guid::from_u128(0x1c95126e_7eea_49a9_a3fe_a378b03ddb4d);
pub const DOT_NET_RUNTIME: Guid = Guid::from_u128(0xe13c0d23_ccbc_4e12_931b_d9cc2eee27e4);
pub const DOT_NET_RUNTIME_PRIVATE: Guid = Guid::from_u128(0x763fd754_7086_4dfe_95eb_c01a46faf4ca);
pub const DOT_NET_RUNTIME_RUNDOWN: Guid = Guid::from_u128(0xa669021c_c450_4609_a035_5af59af4df18);
pub const DOT_NET_RUNTIME_STRESS: Guid = Guid::from_u128(0xcc2bcbba_16b6_4cf3_8990_d74c2e8af500);
pub const HTTP_SERVICE: Guid = Guid::from_u128(0xdd5ef90a_6398_47a4_ad34_4dcecdef795f);
pub const KERNEL_AUDIT_API_CALLS: Guid = Guid::from_u128(0xe02a841c_75a3_4fa7_afc8_ae09cf9b7f23);
pub const KERNEL_EVENT_TRACING: Guid = Guid::from_u128(0xb675ec37_bdb6_4648_bc92_f3fdc74d3ca2);
pub const KERNEL_FILE: Guid = Guid::from_u128(0xedd08927_9cc4_4e65_b970_c2560fb5c289);
pub const KERNEL_MEMORY: Guid = Guid::from_u128(0xd1d93ef7_e1f2_4f45_9943_03d245fe6c00);
pub const KERNEL_NETWORK: Guid = Guid::from_u128(0x7dd42a49_5329_4832_8dfd_43d979153a88);
pub const KERNEL_PROCESS: Guid = Guid::from_u128(0x22fb2cd6_0e7b_422b_a0c7_2fad1fd0e716);
pub const KERNEL_REGISTRY: Guid = Guid::from_u128(0x70eb4f03_c1de_4f73_a051_33d13d5413bd);
pub const POWER_SHELL: Guid = Guid::from_u128(0xa0c1853b_5c40_4b15_8766_3cf1c58f985a);
pub const RPC: Guid = Guid::from_u128(0x6ad52b32_d609_4be9_ae07_ce8dae937e39);
pub const SECURITY_AUDITING: Guid = Guid::from_u128(0x54849625_5478_4994_a5ba_3e3b0328c30d);
pub const THREAT_INTELLIGENCE: Guid = Guid::from_u128(0xf4e1897c_bb5d_5668_f1d8_040f4d8dd344);
pub const WIN_I_NET: Guid = Guid::from_u128(0x43d1a55c_76d6_4f7e_995c_64c711e5cafe);
