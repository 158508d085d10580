//! Sysmon's text of a stack: frames with `|` between them, innermost first.
//!
//! A frame is `path+offset` or `UNKNOWN(address)`, both in hexadecimal digits, with `(wow64)` behind it if it is 32-bit code
//! of a process on 64-bit Windows. Offsets that lie outside of any module (`+ffe50747`) and frames without an address
//! (`UNKNOWN(00000000)(wow64)`) do occur. Reading keeps what is needed to write the very same text.

use std::fmt;

/// A piece of the text that is no frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("byte {offset} of the call trace: neither path+offset nor UNKNOWN(address)")]
pub struct FrameError {
    /// Where it begins, in bytes from 0.
    pub offset: usize,
}

/// A number of 1 to 16 hexadecimal digits, as it is written: equal numbers are written the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Hex {
    value: u64,
    width: u8,
    /// Bit 15 is set if the last digit is a capital letter, bit 14 for the one before it, and so on.
    capitals: u16,
}

/// Bit of the digit that stands so many places before the end.
fn location(from_end: usize) -> u16 {
    0x8000 >> from_end
}

impl Hex {
    /// Reads digits; `None` if there are none, too many, or others.
    pub fn parse(digits: &str) -> Option<Hex> {
        let width = u8::try_from(digits.len()).ok().filter(|width| (1..=16).contains(width))?;
        let (mut value, mut capitals) = (0, 0);
        for (from_end, digit) in digits.bytes().rev().enumerate() {
            let number = char::from(digit).to_digit(16)?;
            value |= u64::from(number) << (4 * from_end);
            if digit.is_ascii_uppercase() {
                capitals |= location(from_end);
            }
        }
        Some(Hex { value, width, capitals })
    }

    /// In as few digits as it takes, with small letters: as Sysmon writes offsets.
    pub fn offset(value: u64) -> Hex {
        let width = (64 - value.leading_zeros()).div_ceil(4).max(1) as u8;
        Hex { value, width, capitals: 0 }
    }

    /// In 16 digits, or 8 for the address of a 32-bit system, with capital letters: as Sysmon writes addresses. An address
    /// that needs more than 8 digits has 16.
    pub fn address(value: u64, is_32_bit: bool) -> Hex {
        let width = if is_32_bit && value <= u64::from(u32::MAX) { 8 } else { 16 };
        let is_letter = |from_end: &usize| value >> (4 * from_end) & 0xf > 9;
        let capitals = (0..16).filter(is_letter).fold(0, |capitals, from_end| capitals | location(from_end));
        Hex { value, width, capitals }
    }

    /// The number.
    pub fn value(self) -> u64 {
        self.value
    }

    /// How many digits it has.
    pub fn width(self) -> usize {
        self.width.into()
    }

    /// Whether it is an address of the kernel's half: of a 64-bit system if it has more than 8 digits, of a 32-bit system
    /// otherwise.
    pub fn is_kernel_address(self) -> bool {
        if self.width > 8 { self.value >= 0xffff_8000_0000_0000 } else { self.value >= 0x8000_0000 }
    }
}

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut digits = [0; 16];
        let width = self.width();
        for (from_end, digit) in digits[..width].iter_mut().rev().enumerate() {
            let number = (self.value >> (4 * from_end) & 0xf) as usize;
            *digit = b"0123456789abcdef"[number];
            if self.capitals & location(from_end) != 0 {
                digit.make_ascii_uppercase();
            }
        }
        f.write_str(str::from_utf8(&digits[..width]).map_err(|_| fmt::Error)?)
    }
}

/// Where a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FrameLocation<'a> {
    /// In a module.
    Module {
        /// Path of its file. A path with `|` in it cannot be read back.
        path: &'a str,
        /// Offset in it.
        offset: Hex,
    },
    /// In no module; nowhere if the address is 0.
    Unknown {
        /// The address.
        address: Hex,
    },
}

/// A frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Frame<'a> {
    /// Where it is.
    pub location: FrameLocation<'a>,
    /// Whether it is marked as 32-bit code of a process on 64-bit Windows.
    pub is_wow64: bool,
}

const WOW64: &str = "(wow64)";

impl<'a> Frame<'a> {
    /// A frame in a module, of the width of the system.
    pub fn module(path: &'a str, offset: u64) -> Frame<'a> {
        Frame { location: FrameLocation::Module { path, offset: Hex::offset(offset) }, is_wow64: false }
    }

    /// A frame in no module, of a 64-bit system.
    pub fn unknown(address: u64) -> Frame<'a> {
        Frame { location: FrameLocation::Unknown { address: Hex::address(address, false) }, is_wow64: false }
    }

    /// The same as 32-bit code on 64-bit Windows. An address that fits has 8 digits then.
    pub fn wow64(self) -> Frame<'a> {
        let location = match self.location {
            FrameLocation::Unknown { address } => {
                FrameLocation::Unknown { address: Hex::address(address.value, true) }
            }
            module => module,
        };
        Frame { location, is_wow64: true }
    }

    /// Reads one frame. Costs no more than its length.
    fn parse(text: &'a str) -> Option<Frame<'a>> {
        let (text, is_wow64) = match text.strip_suffix(WOW64) {
            Some(text) => (text, true),
            None => (text, false),
        };
        let unknown =
            text.strip_prefix("UNKNOWN(").and_then(|rest| rest.strip_suffix(')')).and_then(Hex::parse);
        let location = match unknown {
            Some(address) => FrameLocation::Unknown { address },
            None => {
                let (path, digits) = text.rsplit_once('+').filter(|(path, _)| !path.is_empty())?;
                FrameLocation::Module { path, offset: Hex::parse(digits)? }
            }
        };
        Some(Frame { location, is_wow64 })
    }

    /// Whether it is a kernel frame: by its address alone.
    pub fn is_kernel(&self) -> bool {
        match self.location {
            FrameLocation::Module { .. } => false,
            // Programs with large addresses use more than half of the 32 bits.
            FrameLocation::Unknown { address } => address.is_kernel_address() && !self.is_wow64,
        }
    }
}

impl fmt::Display for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.location {
            FrameLocation::Module { path, offset } => write!(f, "{path}+{offset}")?,
            FrameLocation::Unknown { address } => write!(f, "UNKNOWN({address})")?,
        }
        f.write_str(if self.is_wow64 { WOW64 } else { "" })
    }
}

/// The frames of a text, innermost first. A piece that is no frame gives an error, and the next piece follows. An empty text
/// has no frames.
pub fn frames(text: &str) -> impl Iterator<Item = Result<Frame<'_>, FrameError>> {
    let pieces = (!text.is_empty()).then(|| text.split('|'));
    let start = text.as_ptr() as usize;
    pieces.into_iter().flatten().map(move |piece| {
        // Pieces are parts of the text.
        let offset = piece.as_ptr() as usize - start;
        Frame::parse(piece).ok_or(FrameError { offset })
    })
}

/// Frames as one text: the inverse of [`frames`].
pub fn text<'a>(frames: impl IntoIterator<Item = Frame<'a>>) -> String {
    let mut text = String::new();
    for frame in frames {
        if !text.is_empty() {
            text.push('|');
        }
        text.push_str(&frame.to_string());
    }
    text
}

#[cfg(test)]
mod tests;
