//! Four events: of a provider with fields of many types, of the kernel, of a classic provider, and
//! one without a known schema.

use std::io::{Cursor, Write};

use stackhound::etl::record::Descriptor;
use stackhound::etl::write::{EtlWriter, EventClass, HeaderSpec, Issuer, Payload, RecordSpec, Session};
use stackhound::schema::SchemaStore;
use stackhound::{FileTime, Guid, Pid, PointerSize, RawTime, Tid};
use tempfile::NamedTempFile;

pub const PROVIDER: Guid =
    Guid::new(0x5d1e_f9a0, 0x0b1c, 0x4c1f, [0x8e, 0x21, 0x3a, 0x6f, 0x90, 0x4e, 0x77, 0x01]);
pub const UNKNOWN: Guid = Guid([9; 16]);
pub const ACTIVITY: Guid = Guid([1; 16]);
pub const GUID_VALUE: Guid = Guid([3; 16]);
/// 1 February 2024.
pub const TIME: FileTime = FileTime(133_512_192_000_000_000);
/// The local system.
pub const SID: [u8; 12] = [1, 1, 0, 0, 0, 0, 0, 5, 18, 0, 0, 0];

const MANIFEST: &str = r#"
<instrumentationManifest><instrumentation><events>
  <provider name="Stackhound-Test" guid="{5d1ef9a0-0b1c-4c1f-8e21-3a6f904e7701}" symbol="P">
    <events><event value="7" version="2" task="Fetch" template="Fetched"/></events>
    <tasks><task name="Fetch" value="11"/></tasks>
    <maps><valueMap name="Colors">
      <map value="1" message="$(string.red)"/><map value="2" message="$(string.green)"/>
    </valueMap></maps>
    <templates><template tid="Fetched">
      <data name="Url" inType="win:UnicodeString"/>
      <data name="Verb" inType="win:AnsiString"/>
      <data name="Narrow" inType="win:AnsiString"/>
      <data name="Counted" inType="win:CountedUnicodeString"/>
      <data name="ProcessId" inType="win:UInt32" outType="win:PID"/>
      <data name="Address" inType="win:UInt32" outType="win:IPv4"/>
      <data name="Port" inType="win:UInt16" outType="win:Port"/>
      <data name="Status" inType="win:HexInt32"/>
      <data name="Ratio" inType="win:Double"/>
      <data name="Flag" inType="win:Boolean"/>
      <data name="Offset" inType="win:Int32"/>
      <data name="Color" inType="win:UInt32" map="Colors"/>
      <data name="Base" inType="win:Pointer"/>
      <data name="When" inType="win:FILETIME"/>
      <data name="Id" inType="win:GUID"/>
      <data name="User" inType="win:SID"/>
      <data name="Ports" inType="win:UInt16" count="2"/>
    </template></templates>
  </provider>
</events></instrumentation>
<localization><resources culture="en-US"><stringTable>
  <string id="red" value="red"/><string id="green" value="green"/>
</stringTable></resources></localization></instrumentationManifest>"#;

pub fn schemas() -> SchemaStore {
    let mut schemas = SchemaStore::new();
    schemas.learn_manifest(MANIFEST.as_bytes()).expect("a valid manifest");
    schemas
}

fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

fn fetched() -> Vec<u8> {
    let counted = utf16("two");
    [
        &utf16("https://Example.org/ä\0")[..],
        b"GET\0",
        b"Zo\xeb\0",
        &(counted.len() as u16).to_le_bytes(),
        &counted,
        &4242_u32.to_le_bytes(),
        &[10, 0, 0, 1],
        &443_u16.to_be_bytes(),
        &0xc000_0005_u32.to_le_bytes(),
        &0.25_f64.to_le_bytes(),
        &1_u32.to_le_bytes(),
        &(-8_i32).to_le_bytes(),
        &2_u32.to_le_bytes(),
        &0x7ff6_1234_0000_u64.to_le_bytes(),
        &TIME.0.to_le_bytes(),
        &GUID_VALUE.0,
        &SID,
        &81_u16.to_le_bytes(),
        &82_u16.to_le_bytes(),
    ]
    .concat()
}

/// The payload of `Process/Start`, version 4, on a 64-bit system.
fn process_start() -> Vec<u8> {
    [
        &0xffff_9a01_0000_u64.to_le_bytes()[..],
        &1001_u32.to_le_bytes(),
        &4_u32.to_le_bytes(),
        &1_u32.to_le_bytes(),
        &0x103_u32.to_le_bytes(),
        &0x1000_u64.to_le_bytes(),
        &0_u32.to_le_bytes(),
        // A TOKEN_USER structure before the SID, as the kernel writes it.
        &1_u64.to_le_bytes(),
        &0_u64.to_le_bytes(),
        &SID,
        b"app.exe\0",
        &utf16("app.exe /q\0"),
        &utf16("\0"),
        &utf16("\0"),
    ]
    .concat()
}

/// A temporary trace file.
pub fn etl_file() -> NamedTempFile {
    let mut file = NamedTempFile::new().expect("a file");
    let session = Session::default();
    let start = session.start;
    let mut writer = EtlWriter::new(session, Cursor::new(Vec::new())).expect("a session");
    let event = |provider, descriptor, issuer, activity| HeaderSpec::Event {
        provider,
        descriptor,
        property: 0,
        issuer,
        activity,
        items: &[],
    };
    let descriptor = Descriptor {
        id: 7,
        version: 2,
        channel: 16,
        level: 4,
        opcode: 3,
        task: 11,
        keyword: 0x8000_0000_0000_0030,
    };
    let plain = Descriptor { id: 0, version: 0, channel: 0, level: 0, opcode: 0, task: 0, keyword: 0 };
    let class = EventClass { guid: Guid([8; 16]), opcode: 1, level: 2, version: 1 };
    let (fetched, started) = (fetched(), process_start());
    let headers = [
        (event(PROVIDER, descriptor, Issuer::new(Pid(812), Tid(900)), ACTIVITY), &fetched[..]),
        (HeaderSpec::System { hook_id: 0x0301, version: 4, issuer: Issuer::new(Pid(4), Tid(8)) }, &started),
        (HeaderSpec::Full { class, issuer: Issuer::new(Pid(76), Tid(80)) }, &[]),
        (event(UNKNOWN, plain, Issuer::new(Pid(77), Tid(84)), Guid::ZERO), &[1, 2, 3, 4]),
    ];
    for (number, (header, payload)) in headers.into_iter().enumerate() {
        let time = RawTime(start.0 + 1000 * number as i64);
        let payload = Payload::Bytes(payload);
        let record = RecordSpec { time, pointer_size: PointerSize::Eight, header, payload };
        writer.write(0, &record).expect("a record");
    }
    let (bytes, _) = writer.finish().expect("a trace");
    file.write_all(bytes.get_ref()).expect("written");
    file
}
