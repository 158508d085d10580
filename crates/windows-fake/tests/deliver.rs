//! Delivery of the kinds of records that do not occur in the available traces. For all others, see
//! `live/tests/round_trip.rs`.

use stackhound_etl::record::HeaderKind;
use stackhound_etw_fake::deliver::{deliver, flags};

#[test]
fn flags_distinguish_kinds_that_do_not_occur_in_traces() {
    // Written by hand from the layouts in docs/format/records.md: COMPACT64, INSTANCE64, and
    // PERFINFO64 with counters.
    let compact =
        [&[2, 0, 4, 0xc0, 0x1c, 0, 1, 3, 9, 0, 0, 0, 8, 0, 0, 0][..], &7i64.to_le_bytes(), b"rest"].concat();
    let counted = [
        &[1, 0x82, 0x11, 0xc0, 0x2c, 0, 0x24, 5][..],
        &7i64.to_le_bytes(),
        &[1; 8],
        &[2; 8],
        &[3; 8],
        b"rest",
    ]
    .concat();
    let mut instance = vec![0; 0x48];
    instance[..8].copy_from_slice(&[0x4c, 0, 21, 0xc0, 3, 4, 2, 0]);
    instance[0x18..0x28].copy_from_slice(&[0xab; 16]);
    instance[0x30] = 5;
    instance.extend(b"rest");
    let common = flags::CLASSIC_HEADER | flags::HEADER_64;
    for (kind, bytes, expected, n_items) in [
        (HeaderKind::Compact64, compact, common | flags::NO_CPUTIME, 0),
        (HeaderKind::PerfInfo64, counted, common | flags::NO_CPUTIME | flags::EXTENDED_INFO, 2),
        (HeaderKind::Instance64, instance, common | flags::EXTENDED_INFO, 1),
    ] {
        let record = stackhound_etl::record::Records::new(&bytes, 0).next().expect("a record");
        assert_eq!(record.kind(), kind);
        let event = deliver(&record, 0).expect("delivered");
        assert_eq!(u16::from_le_bytes([event.header[4], event.header[5]]), expected, "{kind:?}");
        assert_eq!((event.items.len(), event.payload), (n_items, &b"rest"[..]), "{kind:?}");
        let unknown = event.header[8..16] == [0xff; 8];
        assert_eq!(unknown, kind == HeaderKind::PerfInfo64, "{kind:?}");
    }
}
