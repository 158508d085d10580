//! Writes compiled manifests, message tables and images that contain them, like the message and
//! resource compilers for a small manifest. The layouts are described in `docs/format/metadata.md`.

/// Bytes with offsets that are patched later.
#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn at(&self) -> u32 {
        self.0.len() as u32
    }

    fn u16(&mut self, value: u16) -> &mut Writer {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u32(&mut self, value: u32) -> &mut Writer {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u64(&mut self, value: u64) -> &mut Writer {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Writer {
        self.0.extend(bytes);
        self
    }

    fn patch(&mut self, at: u32, value: u32) {
        self.0[at as usize..at as usize + 4].copy_from_slice(&value.to_le_bytes());
    }

    fn text(&mut self, text: &str) -> &mut Writer {
        text.encode_utf16().chain([0]).for_each(|unit| {
            self.u16(unit);
        });
        self
    }

    /// Writes a name with its length, aligned to four bytes. Returns its offset.
    fn name(&mut self, name: &str) -> u32 {
        let at = self.at();
        self.u32(4 + 2 * (name.encode_utf16().count() as u32 + 1)).text(name);
        while !self.at().is_multiple_of(4) {
            self.0.push(0);
        }
        at
    }

    /// Writes a section: signature, size, count, then the output of `entries`, which returns the
    /// offsets that refer to names.
    fn section(
        &mut self,
        tag: &[u8; 4],
        count: u32,
        entries: impl FnOnce(&mut Writer) -> Vec<(u32, &'static str)>,
    ) {
        let start = self.at();
        self.bytes(tag).u32(0).u32(count);
        for (offset, name) in entries(self) {
            let at = self.name(name);
            self.patch(offset, at);
        }
        let size = self.at() - start;
        self.patch(start + 4, size);
    }
}

pub const NONE: u32 = u32::MAX;
pub const PROVIDER_MESSAGE: u32 = 0x9000_0001;
pub const TASK_MESSAGE: u32 = 0x7000_0007;
pub const EVENT_MESSAGE: u32 = 0xb000_0102;
pub const RED: u32 = 0xd000_0001;
pub const READ: u32 = 0xf000_0001;

/// The GUID of the provider.
pub const GUID: [u8; 16] = [9; 16];

/// A compiled manifest with all kinds of content: provider `Compiled-Provider`, event 258 version
/// 3, `Request/Again`, with fields of all kinds, and event 2 without fields.
pub fn manifest() -> Vec<u8> {
    let mut w = Writer::default();
    w.bytes(b"CRIM").u32(0).u16(5).u16(1).u32(1).bytes(&GUID).u32(36);
    const SECTIONS: u32 = 9;
    w.bytes(b"WEVT").u32(0).u32(PROVIDER_MESSAGE).u32(SECTIONS).u32(0);
    let list = w.at();
    (0..SECTIONS).for_each(|kind| {
        w.u32(0).u32(kind);
    });
    let mut starts = Vec::new();

    starts.push(w.at());
    let channel = w.at() + 12;
    w.section(b"CHAN", 1, |w| {
        w.u32(0).u32(0).u32(16).u32(NONE);
        vec![(w.at() - 12, "Compiled/Operational")]
    });
    // The offsets of the maps precede them, in any order.
    starts.push(w.at());
    let colors = w.at() + 12 + 8;
    let access = colors + 20 + 16;
    w.section(b"MAPS", 2, |w| {
        w.u32(access).u32(colors);
        w.bytes(b"VMAP").u32(36).u32(0).u32(0).u32(2).u32(1).u32(RED).u32(2).u32(NONE);
        w.bytes(b"BMAP").u32(28).u32(0).u32(1).u32(1).u32(1).u32(READ);
        vec![(colors + 8, "Color"), (access + 8, "Access")]
    });
    starts.push(w.at());
    let template = w.at() + 12;
    w.section(b"TTBL", 1, |w| template_of_all_kinds(w, colors, access));
    starts.push(w.at());
    w.bytes(b"PRVA").u32(0).u32(1).u16(1).u16(0x1000);
    let name = w.at() + 4;
    w.u32(name).text("Compiled-Provider");
    starts.push(w.at());
    let opcode = w.at() + 12 + 12;
    w.section(b"OPCO", 2, |w| {
        w.u16(0).u16(1).u32(NONE).u32(0).u16(7).u16(11).u32(NONE).u32(0);
        vec![(w.at() - 16, "win:Start"), (w.at() - 4, "Again")]
    });
    starts.push(w.at());
    let level = w.at() + 12;
    w.section(b"LEVL", 1, |w| {
        w.u32(4).u32(NONE).u32(0);
        vec![(w.at() - 4, "win:Informational")]
    });
    starts.push(w.at());
    let task = w.at() + 12;
    w.section(b"TASK", 1, |w| {
        w.u32(7).u32(TASK_MESSAGE).bytes(&[3; 16]).u32(0);
        vec![(w.at() - 4, "Request")]
    });
    starts.push(w.at());
    w.section(b"KEYW", 1, |w| {
        w.u64(0x10).u32(NONE).u32(0);
        vec![(w.at() - 4, "Read")]
    });
    starts.push(w.at());
    let events = w.at();
    w.bytes(b"EVNT").u32(16 + 2 * 48).u32(2).u32(0);
    w.u16(258).bytes(&[3, 16, 4, 11]).u16(7).u64(0x10).u32(EVENT_MESSAGE);
    w.u32(template).u32(opcode).u32(level).u32(task).u32(0).u32(0).u32(channel);
    w.u16(2).bytes(&[0, 0, 0, 0]).u16(0).u64(0).u32(NONE).bytes(&[0; 28]);
    debug_assert_eq!(w.at(), events + 16 + 2 * 48);

    for (index, start) in (0..).zip(starts) {
        w.patch(list + 8 * index, start);
    }
    let size = w.at();
    w.patch(40, size - 36);
    w.patch(4, size);
    w.0
}

/// `n` and `size` count `list` and `bytes`; `pair` has two elements, `fixed` four units; a
/// structure is at the end.
fn template_of_all_kinds(w: &mut Writer, colors: u32, access: u32) -> Vec<(u32, &'static str)> {
    const FIXED_LENGTH: u32 = 2;
    const LENGTH: u32 = 4;
    const FIXED_COUNT: u32 = 8;
    const COUNT: u32 = 16;
    const STRUCT: u32 = 1;
    type Row = (&'static str, u32, [u8; 4], u32, u16, u16);
    let rows: [Row; 12] = [
        ("n", 0, [4, 0, 0, 0], colors, 0, 0),
        ("size", 0, [8, 20, 0, 0], 0, 0, 0),
        ("bytes", LENGTH, [14, 0, 0, 0], 0, 0, 1),
        ("list", COUNT, [6, 0, 0, 0], 0, 0, 0),
        ("pair", FIXED_COUNT, [4, 0, 0, 0], access, 2, 0),
        ("fixed", FIXED_LENGTH, [1, 0, 0, 0], 0, 0, 4),
        ("text", 0, [1, 1, 0, 0], 0, 0, 0),
        ("address", 0, [14, 24, 0, 0], 0, 0, 0),
        // Members 9 and 10, with the number of elements in field 0.
        ("items", STRUCT | COUNT, [9, 0, 2, 0], 0, 0, 0),
        ("key", 0, [16, 19, 0, 0], 0, 0, 0),
        ("inner", STRUCT, [11, 0, 1, 0], 0, 0, 0),
        ("value", 0, [3, 0, 0, 0], 0, 0, 0),
    ];
    const TOP_LEVEL: u32 = 9;
    let start = w.at();
    w.bytes(b"TEMP").u32(0).u32(TOP_LEVEL).u32(rows.len() as u32).u32(0).u32(1).bytes(&[5; 16]);
    // A fragment of binary XML, which is not read.
    w.bytes(&[0x0f, 1, 1, 0]);
    let descriptors = w.at();
    w.patch(start + 16, descriptors);
    let mut names = Vec::new();
    for (name, flags, types, map, count, length) in rows {
        w.u32(flags).bytes(&types).u32(map).u16(count).u16(length);
        names.push((w.at(), name));
        w.u32(0);
    }
    let size = w.at() - start;
    w.patch(start + 4, size);
    names
}

/// A message table.
pub fn messages(texts: &[(u32, &str)]) -> Vec<u8> {
    let mut w = Writer::default();
    w.u32(texts.len() as u32);
    let blocks = w.at();
    texts.iter().for_each(|_| {
        w.u32(0).u32(0).u32(0);
    });
    for (block, (number, text)) in (0..).map(|index| blocks + 12 * index).zip(texts) {
        let at = w.at();
        w.patch(block, *number);
        w.patch(block + 4, *number);
        w.patch(block + 8, at);
        let text = format!("{text}\r\n");
        w.u16(4 + 2 * (text.encode_utf16().count() as u16 + 1)).u16(1).text(&text);
    }
    w.0
}

/// The texts of the sample manifest.
pub fn texts() -> Vec<u8> {
    messages(&[
        (PROVIDER_MESSAGE, "A compiled provider"),
        (TASK_MESSAGE, "A request"),
        (EVENT_MESSAGE, "%1 of %2%n"),
        (RED, "red"),
        (READ, "may read"),
    ])
}

/// A 64-bit image with these resources: a compiled manifest and a message table.
pub fn image(manifest: Option<&[u8]>, messages: Option<&[u8]>) -> Vec<u8> {
    const RVA: u32 = 0x1000;
    const FILE_OFFSET: usize = 0x200;
    const DIRECTORY: u32 = 0x8000_0000;
    let kinds: Vec<(bool, &[u8])> =
        manifest.map(|data| (true, data)).into_iter().chain(messages.map(|data| (false, data))).collect();
    let table = |w: &mut Writer, named: u16, ids: u16| {
        w.bytes(&[0; 12]).u16(named).u16(ids);
    };
    let mut r = Writer::default();
    table(&mut r, manifest.is_some().into(), messages.is_some().into());
    let root = r.at();
    kinds.iter().for_each(|_| {
        r.u32(11).u32(0);
    });
    for (entry, (is_manifest, data)) in (0..).map(|index| root + 8 * index).zip(kinds) {
        if is_manifest {
            let name = r.at();
            // A number of units, then the text without a terminator.
            r.u16("WEVT_TEMPLATE".len() as u16);
            for unit in "WEVT_TEMPLATE".encode_utf16() {
                r.u16(unit);
            }
            r.patch(entry, DIRECTORY | name);
        }
        let names = r.at();
        r.patch(entry + 4, DIRECTORY | names);
        table(&mut r, 0, 1);
        r.u32(1).u32(DIRECTORY | (names + 24));
        table(&mut r, 0, 1);
        r.u32(1033).u32(names + 48);
        r.u32(RVA + names + 64).u32(data.len() as u32).u32(0).u32(0).bytes(data);
        while !r.at().is_multiple_of(4) {
            r.0.push(0);
        }
    }
    let size = r.at();

    let mut w = Writer::default();
    w.bytes(b"MZ").bytes(&[0; 58]).u32(64).bytes(b"PE\0\0");
    w.u16(0x8664).u16(1).bytes(&[0; 12]).u16(240).u16(0x2022);
    w.u16(0x20b).bytes(&[0; 106]).u32(16);
    (0..16).for_each(|index| {
        w.u32(if index == 2 { RVA } else { 0 }).u32(if index == 2 { size } else { 0 });
    });
    w.bytes(b".rsrc\0\0\0")
        .u32(size)
        .u32(RVA)
        .u32(size)
        .u32(FILE_OFFSET as u32)
        .bytes(&[0; 12])
        .u32(0x4000_0040);
    w.0.resize(FILE_OFFSET, 0);
    w.bytes(&r.0);
    w.0
}
