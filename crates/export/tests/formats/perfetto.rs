//! The trace as bytes: packets with known fields, and the expected number of samples.
//! `scripts/check-perfetto.py` checks the contents of packets with Perfetto's own definitions.

use proptest::prelude::*;
use prost::encoding::{DecodeContext, decode_key, decode_varint, skip_field};
use stackhound_export::perfetto;

use crate::profiles::facts;

/// The fields of each packet, in order.
fn fields(mut trace: &[u8]) -> Vec<Vec<u32>> {
    let mut packets = Vec::new();
    while !trace.is_empty() {
        assert_eq!(decode_key(&mut trace).expect("a key").0, 1, "not a packet");
        let length = decode_varint(&mut trace).expect("a length") as usize;
        let (mut packet, rest) = trace.split_at(length);
        trace = rest;
        let mut found = Vec::new();
        while !packet.is_empty() {
            let (tag, wire) = decode_key(&mut packet).expect("a key");
            skip_field(wire, tag, &mut packet, DecodeContext::default()).expect("a field");
            found.push(tag);
        }
        packets.push(found);
    }
    packets
}

proptest! {
    #[test]
    fn samples_and_events_have_packets(facts in facts()) {
        let mut trace = Vec::new();
        perfetto::write(&facts.build(), &mut trace).unwrap();
        let packets = fields(&trace);
        let with = |field: u32| packets.iter().filter(|found| found.contains(&field)).count();
        prop_assert_eq!(with(10), packets.len(), "packets without a sequence");
        prop_assert_eq!(with(66) as u64, facts.weight());
        let intervals = facts.markers.iter().filter(|marker| marker.2.is_some()).count();
        prop_assert_eq!(with(11), facts.markers.len() + intervals);
        prop_assert_eq!(with(60), facts.processes.len() + facts.threads.len());
    }
}
