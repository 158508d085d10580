//! Converts the notation to fields with known offsets, for one pointer size.
//!
//! Alignment becomes explicit: the padding of a C compiler is a field without a name. Nothing is
//! aligned after the first field of variable size, because the kernel copies texts without padding.
//! The end of a structure is only padded if the structure is repeated.

use std::collections::BTreeMap;
use std::sync::Arc;

use stackhound_types::PointerSize;

use super::{CountText, FieldText, KindText, LayoutText, Packing};
use crate::model::{Count, Field, InType, Length, Map, OutType};

/// A name in a table that is not defined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LayoutError {
    #[error("unknown type {0}")]
    Type(String),
    #[error("unknown map {0}")]
    Map(String),
    #[error("no earlier field {0} for a count or length")]
    Count(String),
}

/// The maps of all tables by name.
pub(crate) type Maps<'t> = BTreeMap<&'t str, Arc<Map>>;

/// Fields in payload order, and the known part of their size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub fields: Vec<Field>,
    pub extent: Extent,
}

/// The size of a layout in bytes, as far as it does not depend on texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    fixed: usize,
    arrays: Vec<CountedArray>,
    /// Whether a field of unknown size follows.
    open: bool,
}

/// An array of elements of equal size. Its count is in a field at a known offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CountedArray {
    count_at: usize,
    count_size: usize,
    element_size: usize,
}

/// How well a layout fits a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fit {
    /// The payload is too short.
    TooShort,
    /// The payload is long enough, and may be longer.
    Sufficient,
    /// The payload has exactly this size.
    Exact,
}

impl Extent {
    pub(crate) fn fit(&self, payload: &[u8]) -> Fit {
        let mut size = self.fixed;
        for array in &self.arrays {
            let count = payload.get(array.count_at..array.count_at + array.count_size).unwrap_or_default();
            let count = count.iter().rev().fold(0usize, |value, &byte| value << 8 | usize::from(byte));
            size = size.saturating_add(count.saturating_mul(array.element_size));
        }
        match payload.len() {
            length if length < size => Fit::TooShort,
            length if length == size && !self.open => Fit::Exact,
            _ => Fit::Sufficient,
        }
    }
}

/// All alternatives of a layout. The first one is the default.
pub(crate) fn alternatives(
    text: &LayoutText<'_>,
    pointer: PointerSize,
    maps: &Maps<'_>,
) -> Result<Vec<Layout>, LayoutError> {
    let packings: &[bool] = match text.packing {
        Packing::Natural => &[true],
        Packing::Packed => &[false],
        Packing::Either => &[true, false],
    };
    let mut layouts = Vec::new();
    for &natural in packings {
        for n_cut in 0..=n_optional(&text.fields) {
            let mut builder = LayoutBuilder { pointer, natural, n_cut, maps, fields: Vec::new() };
            let extent = builder.top_level(kept(&text.fields, n_cut))?;
            let layout = Layout { fields: builder.fields, extent };
            if !layouts.contains(&layout) {
                layouts.push(layout);
            }
        }
    }
    Ok(layouts)
}

/// The number of points at which the layout, or a structure in it, may end early.
fn n_optional(fields: &[FieldText<'_>]) -> usize {
    let nested = fields.iter().map(|field| match &field.kind {
        KindText::Struct(members) => n_optional(members),
        KindText::Simple(_) => 0,
    });
    fields.iter().filter(|field| field.may_end_here).count().max(nested.max().unwrap_or(0))
}

/// The fields that remain if the layout ends at the `n_cut`th optional point from the end.
fn kept<'f, 't>(fields: &'f [FieldText<'t>], n_cut: usize) -> &'f [FieldText<'t>] {
    let Some(last_cut) = n_cut.checked_sub(1) else { return fields };
    let optional = (0..fields.len()).rev().filter(|&index| fields[index].may_end_here);
    &fields[..optional.take(last_cut + 1).last().unwrap_or(fields.len())]
}

/// A simple type for one pointer size.
struct Simple {
    in_type: InType,
    out_type: OutType,
    /// `None` for texts and SIDs.
    size: Option<usize>,
    align: usize,
}

fn simple(name: &str, pointer: PointerSize) -> Result<Simple, LayoutError> {
    use InType as I;
    use OutType as O;
    let number = |in_type, out_type, size| Simple { in_type, out_type, size: Some(size), align: size };
    let units = |in_type, out_type, size, align| Simple { in_type, out_type, size: Some(size), align };
    let variable = |in_type| Simple { in_type, out_type: O::Default, size: None, align: 1 };
    Ok(match name {
        "p" => number(I::Pointer, O::Default, pointer.bytes()),
        "code" => number(I::Pointer, O::CodePointer, pointer.bytes()),
        "u8" => number(I::U8, O::Default, 1),
        "u16" => number(I::U16, O::Default, 2),
        "u32" => number(I::U32, O::Default, 4),
        "u64" => number(I::U64, O::Default, 8),
        "i8" => number(I::I8, O::Default, 1),
        "i16" => number(I::I16, O::Default, 2),
        "i32" => number(I::I32, O::Default, 4),
        "i64" => number(I::I64, O::Default, 8),
        "x8" => number(I::U8, O::Hex, 1),
        "x16" => number(I::U16, O::Hex, 2),
        "x32" => number(I::HexInt32, O::Default, 4),
        "x64" => number(I::HexInt64, O::Default, 8),
        "f32" => number(I::F32, O::Default, 4),
        "f64" => number(I::F64, O::Default, 8),
        "bool" => number(I::Bool32, O::Default, 4),
        "bool8" => number(I::Bool8, O::Default, 1),
        "pid" => number(I::U32, O::Pid, 4),
        "tid" => number(I::U32, O::Tid, 4),
        "status" => number(I::U32, O::NtStatus, 4),
        "hresult" => number(I::U32, O::HResult, 4),
        "error" => number(I::U32, O::Win32Error, 4),
        "port" => number(I::U16, O::Port, 2),
        "ip4" => number(I::U32, O::Ipv4, 4),
        "ft" => number(I::FileTime, O::Default, 8),
        "raw" => number(I::RawTime, O::Default, 8),
        "guid" => units(I::Guid, O::Default, 16, 4),
        "systime" => units(I::SystemTime, O::Default, 16, 2),
        "ip6" => units(I::Binary, O::Ipv6, 16, 1),
        "wchar" => units(I::Utf16, O::Default, 2, 2),
        "char" => units(I::Ansi, O::Default, 1, 1),
        "bytes" => units(I::Binary, O::Default, 1, 1),
        "sockaddr" => units(I::Binary, O::SocketAddress, 1, 1),
        "wsz" => variable(I::Utf16),
        "asz" => variable(I::Ansi),
        "sid" => variable(I::WbemSid),
        "plainsid" => variable(I::Sid),
        _ => return Err(LayoutError::Type(name.to_owned())),
    })
}

/// Builds the fields of a layout in payload order.
struct LayoutBuilder<'t> {
    pointer: PointerSize,
    natural: bool,
    n_cut: usize,
    maps: &'t Maps<'t>,
    fields: Vec<Field>,
}

impl LayoutBuilder<'_> {
    fn top_level(&mut self, texts: &[FieldText<'_>]) -> Result<Extent, LayoutError> {
        let mut extent = Extent::default();
        // The offset and size of each field of fixed size, for arrays that it counts.
        let mut known = BTreeMap::new();
        // The offset of the next field; `None` after the first field of unknown size.
        let mut at = Some(0);
        for text in texts {
            at = self.align(text, at)?;
            let index = self.fields.len();
            let element_size = self.add_field(text)?;
            let size = match (text.count, element_size) {
                (CountText::One, Some(size)) => Some(size),
                (CountText::Fixed(n), Some(size)) => Some(size * usize::from(n)),
                _ => None,
            };
            if let (Some(at), Some(size)) = (at, size) {
                known.insert(index, (at, size));
            }
            at = at.zip(size).map(|(at, size)| at + size);
            if extent.open {
                continue;
            }
            let padded = at.unwrap_or(extent.fixed + size.unwrap_or(0));
            match (size, self.fields[index].count, element_size) {
                (Some(_), ..) => extent.fixed = padded,
                (None, Count::Field(counter), Some(element_size)) => match known.get(&usize::from(counter)) {
                    Some(&(count_at, count_size)) => {
                        extent.arrays.push(CountedArray { count_at, count_size, element_size });
                    }
                    None => extent.open = true,
                },
                _ => extent.open = true,
            }
        }
        Ok(extent)
    }

    /// Adds the padding before a field.
    fn align(&mut self, text: &FieldText<'_>, at: Option<usize>) -> Result<Option<usize>, LayoutError> {
        let Some(at) = at else { return Ok(None) };
        let aligned = if self.natural { at.next_multiple_of(self.alignment(text)?) } else { at };
        self.pad(aligned - at);
        Ok(Some(aligned))
    }

    fn pad(&mut self, size: usize) {
        if size > 0 {
            self.fields.push(Field::padding(size as u16));
        }
    }

    fn alignment(&self, text: &FieldText<'_>) -> Result<usize, LayoutError> {
        match &text.kind {
            KindText::Simple(name) => Ok(simple(name, self.pointer)?.align),
            KindText::Struct(members) => {
                members.iter().try_fold(1, |align, member| Ok(align.max(self.alignment(member)?)))
            }
        }
    }

    /// Adds a field, followed by the members of a structure. Returns the size of one element if it
    /// is fixed.
    fn add_field(&mut self, text: &FieldText<'_>) -> Result<Option<usize>, LayoutError> {
        let mut count = match text.count {
            CountText::One => Count::One,
            CountText::Fixed(n) => Count::Fixed(n),
            CountText::Field(name) => Count::Field(self.earlier(name)?),
            CountText::Rest => Count::Rest,
        };
        let name: Box<str> = text.name.into();
        let members = match &text.kind {
            KindText::Struct(members) => kept(members, self.n_cut),
            KindText::Simple(type_name) => {
                let Simple { in_type, out_type, size, .. } = simple(type_name, self.pointer)?;
                let mut length = Length::Natural;
                // For these types, brackets contain the length of a single value.
                if matches!(*type_name, "wchar" | "char" | "bytes" | "sockaddr") {
                    length = match std::mem::take(&mut count) {
                        Count::Fixed(n) => Length::Fixed(n),
                        Count::Field(field) => Length::Field(field),
                        _ => Length::Rest,
                    };
                }
                if out_type == OutType::Ipv6 {
                    length = Length::Fixed(16);
                }
                let map = match text.map {
                    Some(name) => {
                        Some(self.maps.get(name).ok_or_else(|| LayoutError::Map(name.to_owned()))?.clone())
                    }
                    None => None,
                };
                self.fields.push(Field { name, in_type, out_type, count, length, map });
                return Ok(size);
            }
        };

        let index = self.fields.len();
        let in_type = InType::Struct { members: 0 };
        let (out_type, length) = (OutType::Default, Length::Natural);
        self.fields.push(Field { name, in_type, out_type, count, length, map: None });
        let mut n_members = 0;
        let mut at = Some(0);
        for member in members {
            let n_before = self.fields.len();
            at = self.align(member, at)?;
            n_members += 1 + (self.fields.len() - n_before) as u16;
            let size = self.add_field(member)?;
            let n = match member.count {
                CountText::One => Some(1),
                CountText::Fixed(n) => Some(usize::from(n)),
                _ => None,
            };
            at = at.zip(size).zip(n).map(|((at, size), n)| at + size * n);
        }
        if let Some(end) = at.filter(|_| self.natural) {
            let size = end.next_multiple_of(self.alignment(text)?);
            self.pad(size - end);
            n_members += u16::from(size > end);
            at = Some(size);
        }
        self.fields[index].in_type = InType::Struct { members: n_members };
        Ok(at)
    }

    fn earlier(&self, name: &str) -> Result<u16, LayoutError> {
        let index = self.fields.iter().rposition(|field| &*field.name == name);
        index.map(|index| index as u16).ok_or_else(|| LayoutError::Count(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notation;

    fn layouts(text: &str, pointer: PointerSize) -> Vec<Layout> {
        let text = format!("class - A 3d6fa8d1-fe05-11d0-9dda-00c04fd7ba7c {{ 1 B v0 {text} }}");
        let table = notation::parse(&text).unwrap();
        alternatives(&table.classes[0].events[0].layouts[0], pointer, &Maps::new()).unwrap()
    }

    /// Fields by name, padding such as `+4`, structures as the number of their members in braces.
    #[track_caller]
    fn check_offsets(text: &str, four: &str, eight: &str) {
        for (pointer, expected) in [(PointerSize::Four, four), (PointerSize::Eight, eight)] {
            let layout = layouts(text, pointer).remove(0);
            let mut shown = Vec::new();
            for field in &layout.fields {
                shown.push(match (field.in_type, field.length) {
                    (InType::Binary, Length::Fixed(gap)) if field.is_padding() => format!("+{gap}"),
                    (InType::Struct { members }, _) => format!("{}{{{members}}}", field.name),
                    _ => field.name.to_string(),
                });
            }
            assert_eq!(shown.join(" "), expected, "{text} for {pointer:?}");
        }
    }

    #[test]
    fn padding_is_added_as_by_a_compiler() {
        check_offsets("{ A u32, B p, C u8, D u64 }", "A B C +7 D", "A +4 B C +7 D");
        check_offsets("packed { A u32, B p, C u8, D u64 }", "A B C D", "A B C D");
        check_offsets(
            "{ A u8, G guid, B u8, S systime, C u8, W wchar[2] }",
            "A +3 G B +1 S C +1 W",
            "A +3 G B +1 S C +1 W",
        );
        // Nothing is aligned after a text or an array of unknown length.
        check_offsets("{ A u8, B asz, C u64 }", "A B C", "A B C");
        check_offsets("{ N u32, A u8[N], C u64 }", "N A C", "N A C");
        check_offsets("{ N u8, S { P p, B u8 }[] }", "N +3 S{3} P B +3", "N +7 S{3} P B +7");
        check_offsets("packed { N u8, S { P p, B u8 }[] }", "N S{2} P B", "N S{2} P B");
        check_offsets(
            "{ A u8[3], T { I i32, W wchar[1] }, F ft }",
            "A +1 T{3} I W +2 +4 F",
            "A +1 T{3} I W +2 +4 F",
        );
    }

    #[track_caller]
    fn check_fit(text: &str, payload: &[u8], expected: &[Fit]) {
        let fits: Vec<Fit> = layouts(text, PointerSize::Four).iter().map(|l| l.extent.fit(payload)).collect();
        assert_eq!(fits, expected, "{text} with {} bytes", payload.len());
    }

    #[test]
    fn the_payload_decides_between_alternatives() {
        use Fit::{Exact, Sufficient, TooShort};
        check_fit("either { A u32, B u64 }", &[0; 16], &[Exact, Sufficient]);
        check_fit("either { A u32, B u64 }", &[0; 12], &[TooShort, Exact]);
        check_fit("either { A u64, B u32 }", &[0; 12], &[Exact]);
        check_fit("{ A u32 ? T wsz }", &[0; 4], &[Sufficient, Exact]);
        check_fit("{ A u32 ? B u16 ? C u16 }", &[0; 6], &[TooShort, Exact, Sufficient]);
        // Two elements of eight, six or two bytes.
        let text = "packed { N u16, S { A u16 ? B u32 ? C u16 }[N] }";
        check_fit(text, &[2; 18], &[TooShort, TooShort, TooShort]);
        check_fit(text, &[&[2, 0][..], &[0; 16]].concat(), &[Exact, Sufficient, Sufficient]);
        check_fit(text, &[&[2, 0][..], &[0; 12]].concat(), &[TooShort, Exact, Sufficient]);
        check_fit(text, &[&[2, 0][..], &[0; 5]].concat(), &[TooShort, TooShort, Sufficient]);
        check_fit(text, &[2], &[TooShort, TooShort, TooShort]);
    }

    #[test]
    fn unknown_names_are_errors() {
        let error = |text: &str| {
            let text = format!("class - A 3d6fa8d1-fe05-11d0-9dda-00c04fd7ba7c {{ 1 B v0 {text} }}");
            let table = notation::parse(&text).unwrap();
            alternatives(&table.classes[0].events[0].layouts[0], PointerSize::Four, &Maps::new()).unwrap_err()
        };
        assert_eq!(error("{ A word }"), LayoutError::Type("word".into()));
        assert_eq!(error("{ A u32=Color }"), LayoutError::Map("Color".into()));
        assert_eq!(error("{ A u32[B], B u32 }"), LayoutError::Count("B".into()));
    }
}
