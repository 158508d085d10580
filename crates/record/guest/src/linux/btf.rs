//! The types of a Linux kernel, as its image describes them: BTF, <https://docs.kernel.org/bpf/btf.html>.

use memchr::memmem;

use crate::memory::Image;

/// Magic, version, flags and length of the header.
const HEADER: [u8; 8] = [0x9f, 0xeb, 1, 0, 24, 0, 0, 0];
const STRUCT: u32 = 4;
const UNION: u32 = 5;
/// Maximum depth of members without a name.
const DEPTH_MAX: usize = 8;
/// Maximum number of types.
const TYPES_MAX: usize = 1 << 20;

/// The types. Their members are read when they are asked for.
pub(super) struct Types<'i> {
    image: &'i Image,
    /// The offset of each type, from number 1.
    types: Vec<usize>,
    strings: usize,
}

impl<'i> Types<'i> {
    pub fn find(image: &'i Image) -> Option<Types<'i>> {
        memmem::find_iter(&image.bytes, &HEADER).find_map(|at| Types::read(image, at))
    }

    fn read(image: &'i Image, at: usize) -> Option<Types<'i>> {
        let field = |number: usize| image.half(at + 8 + 4 * number).map(|value| value as usize);
        let body = at + usize::from(HEADER[4]);
        let mut next = body.checked_add(field(0)?)?;
        let end = next.checked_add(field(1)?)?;
        let strings = body.checked_add(field(2)?)?;
        let mut types = Vec::new();
        while next < end && types.len() < TYPES_MAX {
            types.push(next);
            let information = image.half(next + 4)?;
            let count = (information & 0xffff) as usize;
            let details = match information >> 24 & 0x1f {
                // Integers, variables, tags of declarations.
                1 | 14 | 17 => 4,
                // Arrays.
                3 => 12,
                // Structures, unions, sections, enumerations of 64 bits.
                STRUCT | UNION | 15 | 19 => 12 * count,
                // Enumerations, parameters.
                6 | 13 => 8 * count,
                0..20 => 0,
                _ => return None,
            };
            next += 12 + details;
        }
        (next == end).then_some(Types { image, types, strings })
    }

    /// Returns the size of a structure or a union in bytes.
    pub fn size(&self, name: &str) -> Option<u64> {
        self.image.half(self.named(name)? + 8).map(u64::from)
    }

    /// Returns the offset of a member in bytes. The member can be in one without a name.
    pub fn offset(&self, name: &str, member: &str) -> Option<u64> {
        self.member(self.named(name)?, member, DEPTH_MAX)
    }

    fn named(&self, name: &str) -> Option<usize> {
        let wanted = |&at: &usize| {
            self.kind(at).is_some_and(|kind| kind == STRUCT || kind == UNION) && self.has_name(at, name)
        };
        self.types.iter().copied().find(wanted)
    }

    fn member(&self, at: usize, wanted: &str, depth: usize) -> Option<u64> {
        let information = self.image.half(at + 4)?;
        let has_bit_fields = information >> 31 != 0;
        (0..(information & 0xffff) as usize).find_map(|number| {
            let member = at + 12 + 12 * number;
            let bits = self.image.half(member + 8)?;
            let offset = u64::from(if has_bit_fields { bits & 0xff_ffff } else { bits } / 8);
            if self.has_name(member, wanted) {
                return Some(offset);
            }
            if self.image.half(member)? != 0 || depth == 0 {
                return None;
            }
            let inner = *self.types.get((self.image.half(member + 4)? as usize).checked_sub(1)?)?;
            let kind = self.kind(inner)?;
            let is_composed = kind == STRUCT || kind == UNION;
            Some(offset + is_composed.then(|| self.member(inner, wanted, depth - 1)).flatten()?)
        })
    }

    fn kind(&self, at: usize) -> Option<u32> {
        Some(self.image.half(at + 4)? >> 24 & 0x1f)
    }

    /// Whether the type or member at an offset has a name.
    fn has_name(&self, at: usize, name: &str) -> bool {
        let Some(start) = self.image.half(at).map(|name| self.strings + name as usize) else { return false };
        let found = self.image.bytes.get(start..).and_then(|text| text.get(..=name.len()));
        found.and_then(|text| text.split_last()) == Some((&0, name.as_bytes()))
    }
}
