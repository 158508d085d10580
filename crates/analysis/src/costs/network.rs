//! Bytes that processes sent and received over TCP and UDP, by endpoint.
//!
//! The process is the one that owns the connection, as the payload states it: the thread of the event
//! is arbitrary. Retransmitted bytes were sent before and have columns of their own. `TCPCopy` events
//! repeat received bytes, and do not count.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rustc_hash::FxHashMap;
use stackhound_pipeline::EventView;
use stackhound_profile::Full;
use stackhound_schema::Value;
use stackhound_schema::kernel::hook_id;

use super::{Column, Figures, Key, Label, Measure, Metric, Observations, bytes, count};
use crate::fields::{self, number};

const SENT: usize = 1;
const SENDS: usize = 2;
const RECEIVED: usize = 3;
const RECEIVES: usize = 4;
const RETRANSMITTED: usize = 5;
const RETRANSMITS: usize = 6;

pub(super) const METRIC: Metric = Metric {
    name: "network",
    columns: COLUMNS,
    dimensions: &["endpoint", "connection"],
    start: || Box::new(Network::default()),
};

const COLUMNS: &[Column] = &[
    bytes("bytes", 0),
    bytes("sent_bytes", SENT),
    count("sends", SENDS),
    bytes("received_bytes", RECEIVED),
    count("receives", RECEIVES),
    bytes("retransmitted_bytes", RETRANSMITTED),
    count("retransmits", RETRANSMITS),
];

const TCP: u16 = 0x06;
const UDP: u16 = 0x08;
/// The types of events, which both groups have. Those of IPv6 are larger by 16.
const SEND: u8 = 10;
const RECEIVE: u8 = 11;
const RETRANSMIT: u8 = 14;
const IPV6: u8 = 16;

/// Maximum number of connections whose names are kept.
const CONNECTIONS_MAX: usize = 1 << 16;

/// Protocol, local and remote endpoint.
type Connection = (u16, Option<(IpAddr, u16)>, Option<(IpAddr, u16)>);

#[derive(Debug, Default)]
struct Network {
    connections: FxHashMap<Connection, [Label; 2]>,
}

/// An address and a port.
fn endpoint(view: &EventView<'_>, address: &str, port: &str) -> Option<(IpAddr, u16)> {
    let address = match view.field(address)?.1 {
        Value::Binary(bytes) => match bytes.len() {
            4 => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?)),
            _ => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)),
        },
        // In network byte order.
        value => IpAddr::V4(Ipv4Addr::from(u32::try_from(value.as_u64()?).ok()?.to_le_bytes())),
    };
    Some((address, u16::try_from(number(view, port)?).ok()?.swap_bytes()))
}

impl Network {
    fn labels(&mut self, view: &EventView<'_>, group: u16, out: &mut Observations) -> [Label; 2] {
        let (local, remote) = (endpoint(view, "saddr", "sport"), endpoint(view, "daddr", "dport"));
        let connection = (group, local, remote);
        if let Some(&labels) = self.connections.get(&connection) {
            return labels;
        }
        let protocol = if group == TCP { "TCP" } else { "UDP" };
        let shown = |endpoint: Option<(IpAddr, u16)>| match endpoint {
            Some((address, port)) => std::net::SocketAddr::new(address, port).to_string(),
            None => "unknown".to_owned(),
        };
        let (local, remote) = (shown(local), shown(remote));
        let labels = [
            out.label(&format!("{protocol} {remote}")),
            out.label(&format!("{protocol} {local} ↔ {remote}")),
        ];
        if self.connections.len() >= CONNECTIONS_MAX {
            self.connections.clear();
        }
        self.connections.insert(connection, labels);
        labels
    }
}

impl Measure for Network {
    fn observe(
        &mut self,
        view: &EventView<'_>,
        out: &mut Observations,
        wanted: &mut dyn FnMut() -> bool,
    ) -> Result<(), Full> {
        let Some(id) = view.kernel_id() else { return Ok(()) };
        let (group, kind) = (id >> 8, (id & 0xff) as u8);
        if !matches!(group, TCP | UDP) {
            return Ok(());
        }
        let kind = if (IPV6 + SEND..0x30).contains(&kind) { kind - IPV6 } else { kind };
        let (times, amount) = match kind {
            SEND => (SENDS, SENT),
            RECEIVE => (RECEIVES, RECEIVED),
            RETRANSMIT if group == TCP => (RETRANSMITS, RETRANSMITTED),
            _ => return Ok(()),
        };
        if out.is_repeated(view) {
            return Ok(());
        }
        out.events += 1;
        let Some(size) = number(view, "size").filter(|_| out.window.contains(view.time())) else {
            return Ok(());
        };
        if !wanted() {
            return Ok(());
        }
        let pid = fields::pid(view, "PID").or(view.pid());
        let (process, thread) = out.parts.thread_in(view, pid, None)?;
        let stack = match view.pid() == pid {
            true => out.stack(view, process)?,
            // The stack of another process.
            false => out.no_stack()?,
        };
        let labels = self.labels(view, group, out);
        let figures = Figures::default()
            .with(0, if kind == RETRANSMIT { 0 } else { size })
            .with(times, 1)
            .with(amount, size);
        out.add(Key { thread, stack, labels }, figures);
        Ok(())
    }
}

const _: () = assert!(hook_id::TCP_IP_SEND_IPV4 == TCP << 8 | SEND as u16);
const _: () = assert!(hook_id::TCP_IP_RETRANSMIT_IPV6 == TCP << 8 | (RETRANSMIT + IPV6) as u16);
