//! Sysmon's text of a stack: frames separated by `|`, innermost first.
//!
//! A frame is `path+offset` or `UNKNOWN(address)`, with hexadecimal numbers, followed by `(wow64)`
//! if it is 32-bit code on 64-bit Windows. Offsets outside of any module (`+ffe50747`) and frames
//! without an address (`UNKNOWN(00000000)(wow64)`) occur. Reading keeps everything that is needed
//! to write the same text.

use std::fmt;

/// A part of the text that is not a valid frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("byte {offset} of the call trace: expected path+offset or UNKNOWN(address)")]
pub struct FrameError {
    /// Offset of the part in the text, in bytes.
    pub offset: usize,
}

/// A number of 1 to 16 hexadecimal digits with its spelling. Equal values have the same text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Hex {
    value: u64,
    width: u8,
    /// Bit 15 is set if the last digit is a capital letter, bit 14 for the one before it, and so
    /// on.
    capitals: u16,
}

/// The bit for the digit at this distance from the end.
fn digit_bit(from_end: usize) -> u16 {
    0x8000 >> from_end
}

impl Hex {
    /// Parses digits. `None` unless there are 1 to 16 hexadecimal digits.
    pub fn parse(digits: &str) -> Option<Hex> {
        let width = u8::try_from(digits.len()).ok().filter(|width| (1..=16).contains(width))?;
        let (mut value, mut capitals) = (0, 0);
        for (from_end, digit) in digits.bytes().rev().enumerate() {
            let number = char::from(digit).to_digit(16)?;
            value |= u64::from(number) << (4 * from_end);
            if digit.is_ascii_uppercase() {
                capitals |= digit_bit(from_end);
            }
        }
        Some(Hex { value, width, capitals })
    }

    /// A value with the fewest digits, in lower case, as Sysmon writes offsets.
    pub fn offset(value: u64) -> Hex {
        let width = (64 - value.leading_zeros()).div_ceil(4).max(1) as u8;
        Hex { value, width, capitals: 0 }
    }

    /// A value with 16 digits, or 8 for an address of a 32-bit system, in upper case, as Sysmon
    /// writes addresses. A value that needs more than 8 digits has 16.
    pub fn address(value: u64, is_32_bit: bool) -> Hex {
        let width = if is_32_bit && value <= u64::from(u32::MAX) { 8 } else { 16 };
        let is_letter = |from_end: &usize| value >> (4 * from_end) & 0xf > 9;
        let capitals = (0..16).filter(is_letter).fold(0, |capitals, from_end| capitals | digit_bit(from_end));
        Hex { value, width, capitals }
    }

    /// The value.
    pub fn value(self) -> u64 {
        self.value
    }

    /// The number of digits.
    pub fn width(self) -> usize {
        self.width.into()
    }

    /// Whether it is a kernel address: of a 64-bit system if it has more than 8 digits, otherwise
    /// of a 32-bit system.
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
            if self.capitals & digit_bit(from_end) != 0 {
                digit.make_ascii_uppercase();
            }
        }
        f.write_str(str::from_utf8(&digits[..width]).map_err(|_| fmt::Error)?)
    }
}

/// The location of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FrameLocation<'a> {
    /// In a module.
    Module {
        /// Path of the file. A path that contains `|` cannot be read back.
        path: &'a str,
        /// Offset in the module.
        offset: Hex,
    },
    /// In no module. Address 0 is an unknown address.
    Unknown {
        /// The address.
        address: Hex,
    },
}

/// A frame of a call trace.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Frame<'a> {
    /// The location of the frame.
    pub location: FrameLocation<'a>,
    /// Whether the frame is marked as 32-bit code on 64-bit Windows.
    pub is_wow64: bool,
}

const WOW64: &str = "(wow64)";

impl<'a> Frame<'a> {
    /// A frame in a module, of native code.
    pub fn module(path: &'a str, offset: u64) -> Frame<'a> {
        Frame { location: FrameLocation::Module { path, offset: Hex::offset(offset) }, is_wow64: false }
    }

    /// A frame in no module on a 64-bit system.
    pub fn unknown(address: u64) -> Frame<'a> {
        Frame { location: FrameLocation::Unknown { address: Hex::address(address, false) }, is_wow64: false }
    }

    /// Marks the frame as 32-bit code on 64-bit Windows. An address that fits then has 8 digits.
    pub fn wow64(self) -> Frame<'a> {
        let location = match self.location {
            FrameLocation::Unknown { address } => {
                FrameLocation::Unknown { address: Hex::address(address.value, true) }
            }
            module => module,
        };
        Frame { location, is_wow64: true }
    }

    /// Parses one frame in linear time.
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

    /// Whether it is a kernel frame, by its address.
    pub fn is_kernel(&self) -> bool {
        match self.location {
            FrameLocation::Module { .. } => false,
            // Large-address-aware 32-bit programs use addresses above 2 GiB.
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

/// Parses the frames of a text, innermost first. A part that is not a valid frame yields an error,
/// and parsing continues with the next part. An empty text has no frames.
pub fn frames(text: &str) -> impl Iterator<Item = Result<Frame<'_>, FrameError>> {
    let pieces = (!text.is_empty()).then(|| text.split('|'));
    let start = text.as_ptr() as usize;
    pieces.into_iter().flatten().map(move |piece| {
        // Each piece is a slice of the text.
        let offset = piece.as_ptr() as usize - start;
        Frame::parse(piece).ok_or(FrameError { offset })
    })
}

/// Writes frames as one text. The inverse of [`frames`].
pub fn text<'a>(frames: impl IntoIterator<Item = Frame<'a>>) -> String {
    let texts: Vec<String> = frames.into_iter().map(|frame| frame.to_string()).collect();
    texts.join("|")
}

#[cfg(test)]
mod tests;
