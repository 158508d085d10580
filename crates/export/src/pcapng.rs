//! Packets in the format pcapng, which Wireshark and other tools read.
//!
//! Writes one section in the byte order of x86, with interface description blocks and enhanced packet
//! blocks: <https://www.ietf.org/archive/id/draft-ietf-opsawg-pcapng-04.html>. Times have units of 100 ns.
//! Does not interpret packets.

use std::io::{self, Write};

use stackhound_types::FileTime;

/// Types of blocks.
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;

/// Codes of options.
const COMMENT: u16 = 1;
const SECTION_APPLICATION: u16 = 4;
const INTERFACE_NAME: u16 = 2;
const INTERFACE_DESCRIPTION: u16 = 3;
const INTERFACE_RESOLUTION: u16 = 9;
const PACKET_FLAGS: u16 = 2;

/// The resolution of times: 10⁻⁷ seconds.
const RESOLUTION: u8 = 7;

/// 1970-01-01 in units of 100 ns since 1601-01-01.
const UNIX_EPOCH: i64 = 116_444_736_000_000_000;

/// The direction of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// Received.
    In = 1,
    /// Sent.
    Out = 2,
}

/// A packet to be written.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'p> {
    /// The number that [`PcapngWriter::interface`] returned.
    pub interface: u32,
    /// When it was captured. Times before 1970 become 1970.
    pub time: FileTime,
    /// Its direction, if it is known.
    pub direction: Option<Direction>,
    /// The captured bytes.
    pub data: &'p [u8],
    /// The size of the whole packet in bytes. At least the number of captured bytes is written.
    pub original_size: u32,
    /// A remark for readers; empty for none.
    pub comment: &'p str,
}

/// Writes a file. Memory holds one block.
#[derive(Debug)]
pub struct PcapngWriter<W> {
    out: W,
    block: Vec<u8>,
    interfaces: u32,
}

impl<W: Write> PcapngWriter<W> {
    /// Begins a file. `application` is the name of the program that writes it.
    ///
    /// # Errors
    /// Those of the output.
    pub fn new(out: W, application: &str) -> io::Result<PcapngWriter<W>> {
        let mut writer = PcapngWriter { out, block: Vec::new(), interfaces: 0 };
        writer.begin(SECTION);
        // The mark of the byte order, version 1.0, and an unknown length of the section.
        writer.block.extend(0x1a2b_3c4d_u32.to_le_bytes());
        writer.block.extend([1, 0, 0, 0]);
        writer.block.extend((-1_i64).to_le_bytes());
        writer.option(SECTION_APPLICATION, application.as_bytes());
        writer.end()?;
        Ok(writer)
    }

    /// Describes an interface, and returns its number. `link_type` is the registered number of the format
    /// of its packets (LINKTYPE), such as 1 for Ethernet.
    ///
    /// # Errors
    /// Those of the output.
    pub fn interface(&mut self, link_type: u16, name: &str, description: &str) -> io::Result<u32> {
        self.begin(INTERFACE);
        self.block.extend(link_type.to_le_bytes());
        // Reserved, and no limit of the captured bytes.
        self.block.extend([0; 6]);
        self.option(INTERFACE_NAME, name.as_bytes());
        if !description.is_empty() {
            self.option(INTERFACE_DESCRIPTION, description.as_bytes());
        }
        self.option(INTERFACE_RESOLUTION, &[RESOLUTION]);
        self.end()?;
        self.interfaces += 1;
        Ok(self.interfaces - 1)
    }

    /// Writes a packet.
    ///
    /// # Errors
    /// Those of the output, and [`io::ErrorKind::InvalidInput`] if the packet has more than 4 GiB.
    pub fn packet(&mut self, packet: &Packet<'_>) -> io::Result<()> {
        let size = u32::try_from(packet.data.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let time = packet.time.0.saturating_sub(UNIX_EPOCH).max(0);
        self.begin(PACKET);
        let header =
            [packet.interface, (time >> 32) as u32, time as u32, size, packet.original_size.max(size)];
        self.block.extend(header.into_iter().flat_map(u32::to_le_bytes));
        self.block.extend_from_slice(packet.data);
        self.pad();
        if !packet.comment.is_empty() {
            self.option(COMMENT, packet.comment.as_bytes());
        }
        if let Some(direction) = packet.direction {
            self.option(PACKET_FLAGS, &(direction as u32).to_le_bytes());
        }
        self.end()
    }

    /// Ends the file.
    ///
    /// # Errors
    /// Those of the output.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }

    fn begin(&mut self, kind: u32) {
        self.block.clear();
        // The length follows when it is known.
        self.block.extend(kind.to_le_bytes());
        self.block.extend([0; 4]);
    }

    /// Appends an option. Texts that are too long are cut.
    fn option(&mut self, code: u16, value: &[u8]) {
        let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
        self.block.extend(code.to_le_bytes());
        self.block.extend(length.to_le_bytes());
        self.block.extend_from_slice(&value[..usize::from(length)]);
        self.pad();
    }

    fn pad(&mut self) {
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    /// Ends the options, and writes the block.
    fn end(&mut self) -> io::Result<()> {
        self.block.extend([0; 4]);
        let length = u32::try_from(self.block.len() + 4).map_err(|_| io::ErrorKind::InvalidInput)?;
        self.block[4..8].copy_from_slice(&length.to_le_bytes());
        self.block.extend(length.to_le_bytes());
        self.out.write_all(&self.block)
    }
}
