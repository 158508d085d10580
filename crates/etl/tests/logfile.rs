//! Logfile headers that Windows wrote.

use stackhound_corpus as corpus;

use stackhound_etl::EtlFile;
use stackhound_types::{FileTime, PointerSize};

#[test]
fn headers_of_32_bit_systems_are_read() {
    // Boot time, ticks per second, start time.
    for (name, boot_time, perf_freq, start_time) in [
        ("msbuild-PerfViewData.etl", 0x1d6_3839_e083_4940, 10_000_000, 0x1d6_387a_29c1_0712),
        ("perfview-smallEtlFile.etl", 0x1d1_f855_0082_c702, 3_117_777, 0x1d1_f8df_52c3_4482),
        ("sawbuck-image_data_32_v0.etl", 0x1cc_05af_df9b_437f, 2_337_949, 0x1cc_08c8_60a3_342c),
    ] {
        let Some(etl_file) = corpus::etl_file(name) else { return };
        let etl_file = EtlFile::open(etl_file.into()).unwrap();
        let session = etl_file.session();
        assert_eq!(session.pointer_size, PointerSize::Four);
        assert_eq!((session.boot_time, session.start_time), (FileTime(boot_time), FileTime(start_time)));
        assert_eq!((session.perf_freq, session.clock_type), (perf_freq, 1));
    }
}
