//! Network packets that a trace contains.
//!
//! Two providers log packets with all or some of their bytes:
//!
//! - **Microsoft-Windows-NDIS-PacketCapture** (`netsh trace start capture=yes`). Event 1001 is a packet, or
//!   before Windows 8.1 a fragment of one. Keywords mark the first and the last fragment, the direction and
//!   the format. The fragments of a packet are joined if one thread logged them on one processor, in one
//!   direction and on one interface, and no record in between can be missing.
//! - **Microsoft-Windows-PktMon** (`pktmon start --capture`). Events 160 and 170 are a packet at a component
//!   that it passes or where it is dropped. The first appearance of each packet is delivered.
//!
//! Fields are found by name, in the descriptions of the trace or else in the built-in ones. This module does
//! not know how packets are written, and interprets only the size in IP headers.

use std::collections::{HashMap, VecDeque};

use rustc_hash::FxHashSet;
use stackhound_pipeline::EventView;
use stackhound_schema::event_id::{ndis_packet_capture, pkt_mon};
use stackhound_schema::{Value, provider_guid};
use stackhound_trace::TraceTime;
use stackhound_types::{FileTime, Pid, Tid};

use crate::fields::number;

/// The format of a packet. The values are the registered numbers of link types (LINKTYPE).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LinkType {
    /// Ethernet frames without checksum.
    Ethernet = 1,
    /// IP packets.
    Ip = 101,
    /// Frames of wireless networks (802.11).
    Wifi = 105,
}

/// The place where a packet was captured.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Location {
    /// Numbers of network interfaces of Windows: the adapter, and the filter driver below the point of the
    /// capture, which is the adapter itself if there is none.
    Interface {
        /// The adapter.
        miniport: u32,
        /// The layer below.
        lower: u32,
    },
    /// A component of Packet Monitor.
    Component(u16),
}

/// A captured packet.
#[derive(Debug)]
pub struct Packet<'p> {
    /// When its last part was logged.
    pub time: FileTime,
    /// Where it was captured.
    pub location: Location,
    /// Its format.
    pub link_type: LinkType,
    /// Whether it was sent, else received; `None` if that is not known.
    pub is_sent: Option<bool>,
    /// The captured bytes.
    pub data: &'p [u8],
    /// Its size on the network in bytes. NDIS does not state it; it is then the size that the IP header
    /// states, if that is larger than the number of captured bytes.
    pub original_size: u32,
    /// The process and thread in whose context it was logged: often not those that sent or receive it.
    pub context: Option<(Pid, Tid)>,
    /// Why Packet Monitor reports that it was dropped: a number of Windows.
    pub drop_reason: Option<u32>,
}

/// The numbers of packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PacketCounts {
    /// Packets that were delivered.
    pub packets: u64,
    /// Packets of which a fragment is missing, or can be.
    pub incomplete: u64,
    /// Further appearances of packets.
    pub repeated: u64,
    /// Packets of virtual switches (event 1003), whose layout is not known.
    pub of_switches: u64,
    /// Packets of Packet Monitor in a format that is not known.
    pub of_unknown_format: u64,
    /// Events of packets that could not be read.
    pub malformed: u64,
}

impl PacketCounts {
    /// Packets that were not delivered, except further appearances.
    pub fn left_out(&self) -> u64 {
        self.incomplete + self.of_switches + self.of_unknown_format + self.malformed
    }
}

/// A fragment of a packet of a virtual switch, which the built-in descriptions do not have.
const SWITCH_FRAGMENT: u16 = 1003;

/// Keywords of NDIS-PacketCapture.
const MEDIA_WIRELESS_WAN: u64 = 0x200;
const MEDIA_WIFI: u64 = 0x1_0000;
const START: u64 = 0x4000_0000;
const END: u64 = 0x8000_0000;
const SENT: u64 = 0x1_0000_0000;
const RECEIVED: u64 = 0x2_0000_0000;

/// Maximum size of a packet that is joined of fragments. Packets that adapters segment have up to 256 KiB.
const JOINED_MAX: usize = 1 << 20;
/// Maximum number of packets that wait for further fragments.
const WAITING_MAX: usize = 1 << 10;
/// The number of packets of Packet Monitor that are remembered. A packet passes its components at once.
const REMEMBERED: usize = 1 << 16;

/// What the fragments of a packet have in common: session, processor, thread, interface and keywords.
type Flow = (u32, Option<u16>, Option<Tid>, (u32, u32), u64);

/// A packet whose last fragment is not logged yet.
#[derive(Debug)]
struct Waiting {
    data: Vec<u8>,
    since: TraceTime,
    is_incomplete: bool,
}

/// Finds the packets in the events of a trace, in their order.
#[derive(Debug, Default)]
pub struct Packets {
    waiting: HashMap<Flow, Waiting>,
    /// The current packet, for its memory.
    data: Vec<u8>,
    /// Group and number of packets that appeared, by session.
    appeared: FxHashSet<(u32, u64, u64)>,
    /// The same in their order.
    order: VecDeque<(u32, u64, u64)>,
    counts: PacketCounts,
}

impl Packets {
    /// Adds an event. Returns the packet that it completes.
    pub fn observe<'p>(&'p mut self, view: &'p EventView<'_>) -> Option<Packet<'p>> {
        let event = view.event();
        if !event.kind().has_descriptor() {
            return None;
        }
        match (event.entry().tag, event.guid()?) {
            (ndis_packet_capture::PACKET_FRAGMENT, provider_guid::NDIS_PACKET_CAPTURE) => self.fragment(view),
            (SWITCH_FRAGMENT, provider_guid::NDIS_PACKET_CAPTURE) => {
                self.counts.of_switches += 1;
                None
            }
            (pkt_mon::FRAME_PAYLOAD | pkt_mon::FRAME_DROP_PAYLOAD, provider_guid::PKT_MON) => {
                self.frame(view)
            }
            _ => None,
        }
    }

    /// The numbers after the last event.
    pub fn finish(mut self) -> PacketCounts {
        self.counts.incomplete += self.waiting.len() as u64;
        self.counts
    }

    /// Whether an event of packets has been observed.
    pub fn has_any(&self) -> bool {
        self.counts != PacketCounts::default() || !self.waiting.is_empty()
    }

    fn fragment<'p>(&'p mut self, view: &'p EventView<'_>) -> Option<Packet<'p>> {
        let event = view.event();
        let keywords = event.record().descriptor().map_or(0, |descriptor| descriptor.keyword);
        let interface = |name| number(view, name).and_then(|number| u32::try_from(number).ok());
        let (Some(miniport), Some(lower), Some((_, Value::Binary(bytes)))) =
            (interface("MiniportIfIndex"), interface("LowerIfIndex"), view.field("Fragment"))
        else {
            self.counts.malformed += 1;
            return None;
        };
        let common = keywords & (SENT | RECEIVED | MEDIA_WIFI | MEDIA_WIRELESS_WAN);
        let flow = (event.session_number(), event.processor(), event.header_tid(), (miniport, lower), common);
        let (is_first, is_last) = (keywords & START != 0, keywords & END != 0);
        self.data.clear();
        let before = self.waiting.remove(&flow);
        if is_first {
            // The end of the packet before is missing.
            self.counts.incomplete += u64::from(before.is_some());
        }
        if is_first && is_last {
            self.data.extend_from_slice(bytes);
        } else {
            let new = || Waiting { data: Vec::new(), since: view.time(), is_incomplete: !is_first };
            let mut waiting = before.filter(|_| !is_first).unwrap_or_else(new);
            waiting.is_incomplete |= waiting.data.len() + bytes.len() > JOINED_MAX;
            if !waiting.is_incomplete {
                waiting.data.extend_from_slice(bytes);
            }
            let losses = view.trace_state().losses();
            waiting.is_incomplete |=
                losses.on_processor(event.source(), event.processor(), waiting.since.0, view.time().0);
            if !is_last {
                if self.waiting.len() >= WAITING_MAX {
                    self.counts.incomplete += self.waiting.drain().count() as u64;
                }
                self.waiting.insert(flow, waiting);
                return None;
            }
            if waiting.is_incomplete {
                self.counts.incomplete += 1;
                return None;
            }
            self.data = waiting.data;
        }
        let link_type = match () {
            () if keywords & MEDIA_WIFI != 0 => LinkType::Wifi,
            () if keywords & MEDIA_WIRELESS_WAN != 0 => LinkType::Ip,
            () => LinkType::Ethernet,
        };
        // NDIS logs decrypted frames, whose header still states that they are encrypted.
        if link_type == LinkType::Wifi
            && let Some(flags) = self.data.get_mut(1)
        {
            *flags &= !WIFI_PROTECTED;
        }
        self.counts.packets += 1;
        let size = self.data.len() as u32;
        Some(Packet {
            time: event.utc(),
            location: Location::Interface { miniport, lower },
            link_type,
            is_sent: match (keywords & SENT != 0, keywords & RECEIVED != 0) {
                (true, false) => Some(true),
                (false, true) => Some(false),
                _ => None,
            },
            original_size: stated_size(&self.data, link_type).map_or(size, |stated| stated.max(size)),
            data: &self.data,
            context: event.header_pid().zip(event.header_tid()),
            drop_reason: None,
        })
    }

    fn frame<'p>(&'p mut self, view: &'p EventView<'_>) -> Option<Packet<'p>> {
        let event = view.event();
        let field = |name| number(view, name);
        let (Some(group), Some(of_group), Some(component), Some(format), Some(original), Some(direction)) = (
            field("PktGroupId"),
            field("PktNumber"),
            field("ComponentId"),
            field("PacketType"),
            field("OriginalPayloadSize"),
            field("DirTag"),
        ) else {
            self.counts.malformed += 1;
            return None;
        };
        let Some((_, Value::Binary(bytes))) = view.field("Payload") else {
            self.counts.malformed += 1;
            return None;
        };
        let link_type = match format {
            1 => LinkType::Ethernet,
            2 => LinkType::Wifi,
            3 => LinkType::Ip,
            _ => {
                self.counts.of_unknown_format += 1;
                return None;
            }
        };
        let id = (event.session_number(), group, of_group);
        if !self.appeared.insert(id) {
            self.counts.repeated += 1;
            return None;
        }
        self.order.push_back(id);
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.appeared.remove(&oldest);
        }
        self.data.clear();
        self.data.extend_from_slice(bytes);
        self.counts.packets += 1;
        let is_dropped = event.entry().tag == pkt_mon::FRAME_DROP_PAYLOAD;
        Some(Packet {
            time: event.utc(),
            location: Location::Component(component as u16),
            link_type,
            is_sent: match direction {
                2 | 4 => Some(true),
                1 | 3 => Some(false),
                _ => None,
            },
            original_size: (original as u32).max(bytes.len() as u32),
            data: &self.data,
            context: event.header_pid().zip(event.header_tid()),
            drop_reason: field("DropReason").filter(|_| is_dropped).map(|reason| reason as u32),
        })
    }
}

/// The bit of the second byte of a frame header that states that the frame is encrypted.
const WIFI_PROTECTED: u8 = 0x40;

const ETHERNET_HEADER: usize = 14;
const IPV6_HEADER: u32 = 40;

/// The size that the IP header states, with the header of the frame. 0 is stated for packets that the
/// adapter segments.
fn stated_size(data: &[u8], link_type: LinkType) -> Option<u32> {
    let u16_at = |at: usize| Some(u16::from_be_bytes(data.get(at..at + 2)?.try_into().ok()?));
    let (start, version) = match link_type {
        LinkType::Ethernet => (
            ETHERNET_HEADER,
            u16_at(12).and_then(|kind| match kind {
                0x0800 => Some(4),
                0x86dd => Some(6),
                _ => None,
            })?,
        ),
        LinkType::Ip => (0, data.first()? >> 4),
        LinkType::Wifi => return None,
    };
    let size = match version {
        4 => u32::from(u16_at(start + 2)?),
        6 => u32::from(u16_at(start + 4)?) + IPV6_HEADER,
        _ => return None,
    };
    Some(size + start as u32)
}
