//! GUIDs of well-known providers. The prefix `Microsoft-Windows-` is omitted from the names.
//!
//! Generated from `builtin/*.txt` by the test `constants`, which also compares the result.
#![expect(missing_docs, reason = "each constant is named after its provider")]

use stackhound_types::Guid;

pub const ANTIMALWARE_ENGINE: Guid = Guid::from_u128(0x0a002690_3839_4e3a_b3b6_96d8df868d99);
pub const ANTIMALWARE_SCAN_INTERFACE: Guid = Guid::from_u128(0x2a576b87_09a7_520e_c21a_4942f0271d67);
pub const CODE_INTEGRITY: Guid = Guid::from_u128(0x4ee76bd8_3cf4_44a0_a0ac_3937643e37a3);
pub const COM: Guid = Guid::from_u128(0xd4263c98_310c_4d97_ba39_b55354f08584);
pub const COM_RUNTIME: Guid = Guid::from_u128(0xbf406804_6afa_46e7_8a48_6c357e1d6d61);
pub const CRYPTO_DPAPI: Guid = Guid::from_u128(0x89fe8f40_cdce_464e_8217_15ef97d4c7c3);
pub const DNS_CLIENT: Guid = Guid::from_u128(0x1c95126e_7eea_49a9_a3fe_a378b03ddb4d);
pub const DOT_NET_RUNTIME: Guid = Guid::from_u128(0xe13c0d23_ccbc_4e12_931b_d9cc2eee27e4);
pub const DOT_NET_RUNTIME_PRIVATE: Guid = Guid::from_u128(0x763fd754_7086_4dfe_95eb_c01a46faf4ca);
pub const DOT_NET_RUNTIME_RUNDOWN: Guid = Guid::from_u128(0xa669021c_c450_4609_a035_5af59af4df18);
pub const DOT_NET_RUNTIME_STRESS: Guid = Guid::from_u128(0xcc2bcbba_16b6_4cf3_8990_d74c2e8af500);
pub const DXG_KRNL: Guid = Guid::from_u128(0x802ec45a_1e99_4b83_9920_87c98277ba9d);
pub const HTTP_SERVICE: Guid = Guid::from_u128(0xdd5ef90a_6398_47a4_ad34_4dcecdef795f);
pub const KERNEL_AUDIT_API_CALLS: Guid = Guid::from_u128(0xe02a841c_75a3_4fa7_afc8_ae09cf9b7f23);
pub const KERNEL_DISK: Guid = Guid::from_u128(0xc7bde69a_e1e0_4177_b6ef_283ad1525271);
pub const KERNEL_EVENT_TRACING: Guid = Guid::from_u128(0xb675ec37_bdb6_4648_bc92_f3fdc74d3ca2);
pub const KERNEL_FILE: Guid = Guid::from_u128(0xedd08927_9cc4_4e65_b970_c2560fb5c289);
pub const KERNEL_GENERAL: Guid = Guid::from_u128(0xa68ca8b7_004f_d7b6_a698_07e2de0f1f5d);
pub const KERNEL_MEMORY: Guid = Guid::from_u128(0xd1d93ef7_e1f2_4f45_9943_03d245fe6c00);
pub const KERNEL_NETWORK: Guid = Guid::from_u128(0x7dd42a49_5329_4832_8dfd_43d979153a88);
pub const KERNEL_PN_P: Guid = Guid::from_u128(0x9c205a39_1250_487d_abd7_e831c6290539);
pub const KERNEL_POWER: Guid = Guid::from_u128(0x331c3b3a_2005_44c2_ac5e_77220c37d6b4);
pub const KERNEL_PROCESS: Guid = Guid::from_u128(0x22fb2cd6_0e7b_422b_a0c7_2fad1fd0e716);
pub const KERNEL_PROCESSOR_POWER: Guid = Guid::from_u128(0x0f67e49f_fe51_4e9f_b490_6f2948cc6027);
pub const KERNEL_REGISTRY: Guid = Guid::from_u128(0x70eb4f03_c1de_4f73_a051_33d13d5413bd);
pub const LDAP_CLIENT: Guid = Guid::from_u128(0x099614a5_5dd7_4788_8bc9_e29f43db28fc);
pub const NDIS_PACKET_CAPTURE: Guid = Guid::from_u128(0x2ed6006e_4729_4609_b423_3ee7bcd678ef);
pub const PKT_MON: Guid = Guid::from_u128(0x4d4f80d9_c8bd_4d73_bb5b_19c90402c5ac);
pub const POWER_SHELL: Guid = Guid::from_u128(0xa0c1853b_5c40_4b15_8766_3cf1c58f985a);
pub const RPC: Guid = Guid::from_u128(0x6ad52b32_d609_4be9_ae07_ce8dae937e39);
pub const SECURITY_AUDITING: Guid = Guid::from_u128(0x54849625_5478_4994_a5ba_3e3b0328c30d);
pub const SECURITY_MITIGATIONS: Guid = Guid::from_u128(0xfae10392_f0af_4ac0_b8ff_9f4d920c3cdf);
pub const SMB_CLIENT: Guid = Guid::from_u128(0x988c59c5_0a1c_45b6_a555_0c62276e327d);
pub const SYSMON: Guid = Guid::from_u128(0x5770385f_c22a_43e0_bf4c_06f5698ffbd9);
pub const TASK_SCHEDULER: Guid = Guid::from_u128(0xde7b24ea_73c8_4a09_985d_5bdadcfa9017);
pub const TCPIP: Guid = Guid::from_u128(0x2f07e2ee_15db_40f1_90ef_9d7ba282188a);
pub const THREAT_INTELLIGENCE: Guid = Guid::from_u128(0xf4e1897c_bb5d_5668_f1d8_040f4d8dd344);
pub const USER32: Guid = Guid::from_u128(0xb0aa8734_56f7_41cc_b2f4_de228e98b946);
pub const WIN32K: Guid = Guid::from_u128(0x8c416c79_d49b_4f01_a467_e56d3aa8234c);
pub const WINSOCK_AFD: Guid = Guid::from_u128(0xe53c6823_7bb8_44bb_90dc_3f86090d48a6);
pub const WIN_HTTP: Guid = Guid::from_u128(0x7d44233d_3055_4b9c_ba64_0d47ca40a232);
pub const WIN_I_NET: Guid = Guid::from_u128(0x43d1a55c_76d6_4f7e_995c_64c711e5cafe);
pub const WMI_ACTIVITY: Guid = Guid::from_u128(0x1418ef04_b0b4_4623_bf7e_d74ab47bbdaa);
