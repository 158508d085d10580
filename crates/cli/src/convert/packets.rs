//! `convert -o FILE.pcapng`: the packets of a trace, for Wireshark.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::ops::ControlFlow;

use anyhow::{Result, bail};
use stackhound::analysis::packets::{LinkType, Location, Packet, PacketCounts, Packets};
use stackhound::trace::OpenTrace;
use stackhound_export::pcapng::{self, Direction, PcapngWriter};

use super::Arguments;
use crate::filter::EventFilter;
use crate::naming;
use crate::options::Common;
use crate::outcome::Outcome;
use crate::output::{NewFile, at_end, counted};
use crate::progress::Progress;
use crate::reading::or_stop;

const APPLICATION: &str = concat!("stackhound ", env!("CARGO_PKG_VERSION"));

pub fn run(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    let trace = super::one_capture(arguments, common)?;
    let mut file = File {
        writer: PcapngWriter::new(NewFile::create(&arguments.output)?, APPLICATION)?,
        interfaces: HashMap::new(),
        comment: String::new(),
    };
    let (counts, damaged) = write(arguments, common, &trace, &mut file)?;
    let interfaces = file.interfaces.len() as u64;
    file.writer.finish()?.finish()?;
    if !common.quiet {
        report(&counts, interfaces);
    }
    Ok(Outcome { damaged, ..Outcome::default() })
}

/// Writes the packets of the selected events. Returns also whether a byte of the trace is damaged.
fn write(
    arguments: &Arguments,
    common: &Common,
    trace: &OpenTrace,
    file: &mut File,
) -> Result<(PacketCounts, bool)> {
    let filter = EventFilter::new(&arguments.filters, trace)?;
    let mut pipeline = super::pipeline(arguments, common, trace, &filter)?;
    let mut progress = Progress::of(common, trace);
    let (mut packets, mut failure) = (Packets::default(), None);
    let outcome = pipeline.run(|view| {
        progress.tick_at(view);
        if filter.is_past(view) {
            return ControlFlow::Break(());
        }
        let packet = if filter.wants(view) { packets.observe(view) } else { None };
        or_stop(packet.map_or(Ok(()), |packet| file.write(&packet)), &mut failure)
    });
    if let Some(error) = failure {
        return Err(error);
    }
    if !packets.has_any() {
        bail!(
            "the trace has no selected packets of Microsoft-Windows-NDIS-PacketCapture or \
             Microsoft-Windows-PktMon"
        );
    }
    naming::finish(progress, &outcome, &pipeline, Some(&filter), common);
    Ok((packets.finish(), !outcome.trace.damage.is_empty()))
}

/// The file that is written, and its interfaces.
struct File {
    writer: PcapngWriter<NewFile>,
    interfaces: HashMap<(Location, LinkType), u32>,
    /// The current comment, for its memory.
    comment: String,
}

impl File {
    fn write(&mut self, packet: &Packet<'_>) -> Result<()> {
        let key = (packet.location, packet.link_type);
        let interface = match self.interfaces.get(&key) {
            Some(number) => *number,
            None => {
                let (name, description) = named(packet.location, packet.link_type);
                let number = self.writer.interface(packet.link_type as u16, &name, &description)?;
                self.interfaces.insert(key, number);
                number
            }
        };
        self.comment.clear();
        if let Some((pid, tid)) = packet.context {
            write!(self.comment, "PID={} TID={}", pid.0, tid.0)?;
        }
        if let Some(reason) = packet.drop_reason {
            write!(
                self.comment,
                "{}dropped, reason {reason}",
                if self.comment.is_empty() { "" } else { " " }
            )?;
        }
        self.writer.packet(&pcapng::Packet {
            interface,
            time: packet.time,
            direction: packet.is_sent.map(|is_sent| if is_sent { Direction::Out } else { Direction::In }),
            data: packet.data,
            original_size: packet.original_size,
            comment: &self.comment,
        })?;
        Ok(())
    }
}

/// The name of an interface, and its description.
fn named(location: Location, link_type: LinkType) -> (String, String) {
    let medium = match link_type {
        LinkType::Ethernet => "eth",
        LinkType::Wifi => "wifi",
        LinkType::Ip => "mbb",
    };
    match location {
        Location::Interface { miniport, lower } if miniport == lower => {
            (format!("{medium}:{lower}"), String::new())
        }
        Location::Interface { miniport, lower } => {
            (format!("{medium}:{lower}"), format!("filter over interface {miniport}"))
        }
        Location::Component(component) => {
            (format!("{medium}:component:{component}"), "component of Packet Monitor".to_owned())
        }
    }
}

/// Reports the packets, and those that were left out.
fn report(counts: &PacketCounts, interfaces: u64) {
    let others = super::others(
        "left out",
        &[
            (counts.incomplete, "incomplete"),
            (counts.of_switches, "of virtual switches"),
            (counts.of_unknown_format, "of an unknown format"),
            (counts.malformed, "unreadable"),
            (counts.repeated, "further appearances"),
        ],
    );
    let packets = counted(counts.packets, "packet", "packets");
    at_end(format_args!("{packets} of {}{others}", counted(interfaces, "interface", "interfaces")));
}
