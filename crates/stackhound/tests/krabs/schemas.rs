//! The schemas that the cases need: names and types of a few events of Windows, as facts, in
//! manifests written for these tests, and one artificial provider with a property of every type.

use stackhound::Guid;
use stackhound::schema::SchemaStore;

/// The identity of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    pub provider: Guid,
    pub id: u16,
    pub version: u8,
    pub opcode: u8,
}

/// Microsoft-Windows-PowerShell.
pub const POWERSHELL: Guid =
    Guid::new(0xa0c1_853b, 0x5c40, 0x4b15, [0x87, 0x66, 0x3c, 0xf1, 0xc5, 0x8f, 0x98, 0x5a]);
/// Microsoft-Windows-WinINet.
pub const WININET: Guid =
    Guid::new(0x43d1_a55c, 0x76d6, 0x4f7e, [0x99, 0x5c, 0x64, 0xc7, 0x11, 0xe5, 0xca, 0xfe]);
/// Microsoft-Windows-HttpService.
pub const HTTP_SERVICE: Guid =
    Guid::new(0xdd5e_f90a, 0x6398, 0x47a4, [0xad, 0x34, 0x4d, 0xce, 0xcd, 0xef, 0x79, 0x5f]);
/// LsaSrv.
pub const LSA: Guid =
    Guid::new(0x199f_e037, 0x2b82, 0x40a9, [0x82, 0xac, 0xe1, 0xd4, 0x6c, 0x79, 0x2b, 0x99]);
/// The Image class of the kernel.
pub const IMAGE: Guid =
    Guid::new(0x2cb1_5d1d, 0x5fc1, 0x11d2, [0xab, 0xe1, 0x00, 0xa0, 0xc9, 0x11, 0xf5, 0x18]);
/// The artificial provider.
pub const TYPES: Guid =
    Guid::new(0x5d1e_f9a0, 0x0b1c, 0x4c1f, [0x8e, 0x21, 0x3a, 0x6f, 0x90, 0x4e, 0x77, 0x01]);

/// Three texts: `ContextInfo`, `UserData`, `Payload`.
pub const POWERSHELL_7937: Kind = Kind { provider: POWERSHELL, id: 7937, version: 1, opcode: 0 };
/// Eight texts: `ClassName`, `MethodName`, `WorkflowGuid`, `Message`, `JobData`, `ActivityName`,
/// `ActivityGuid`, `Parameters`.
pub const POWERSHELL_7942: Kind = Kind { provider: POWERSHELL, id: 7942, version: 1, opcode: 0 };
/// Four 8-bit texts, `URL`, `Verb`, `RequestHeaders` and `ResponseHeaders`, then `Status` and
/// `UsageLogRequestCache` (u32).
pub const WININET_1057: Kind = Kind { provider: WININET, id: 1057, version: 0, opcode: 0 };
/// `RequestObj` (pointer), `HttpVerb` (u32), and at the end the text `Url`, whose terminating null
/// is missing in real events.
pub const HTTP_SERVICE_2: Kind = Kind { provider: HTTP_SERVICE, id: 2, version: 0, opcode: 12 };
/// `TargetUserSid`, a security identifier, before `TargetUserName`, `TargetDomainName` and
/// `LogonType` (u32).
pub const LSA_301: Kind = Kind { provider: LSA, id: 301, version: 0, opcode: 0 };
/// A kernel event with a built-in schema: the load of an image. Opcode 2 is its unload.
pub const IMAGE_LOAD_V3: Kind = Kind { provider: IMAGE, id: 0, version: 3, opcode: 10 };
/// One property of each type without a length: `Int8` … `UInt64`, `Float`, `Double`, `Boolean`,
/// `Byte` (a Boolean in one byte), `Guid`, `Pointer`, `FileTime`, `SystemTime`, `Sid`, `HexInt32`,
/// `HexInt64`.
pub const EVERY_NUMBER: Kind = Kind { provider: TYPES, id: 1, version: 0, opcode: 0 };
/// Text in every form: `Wide`, `Narrow`, `CountedWide`, `CountedNarrow`, `After` (u32).
pub const EVERY_TEXT: Kind = Kind { provider: TYPES, id: 2, version: 0, opcode: 0 };
/// Bytes: `Size` (u32), `Blob` (`Size` bytes), `Address6` (an IPv6 address), `Address4` (an IPv4
/// address), `Port` (a port), `SocketSize` (u32), `Socket` (a socket address).
pub const EVERY_BINARY: Kind = Kind { provider: TYPES, id: 3, version: 0, opcode: 0 };
/// Arrays, structures and names: `Three` (three u16), `Count` (u16), `Numbers` (`Count` u32),
/// `Point` (`X` and `Y`, i32), `Color` (a value map), `Access` (a bit map), `After` (u32).
pub const EVERY_SHAPE: Kind = Kind { provider: TYPES, id: 4, version: 0, opcode: 0 };

/// A store with all of these schemas.
pub fn store() -> SchemaStore {
    let mut store = SchemaStore::new();
    for (name, guid, content) in [
        ("Microsoft-Windows-PowerShell", POWERSHELL, POWERSHELL_EVENTS),
        ("Microsoft-Windows-WinINet", WININET, WININET_EVENTS),
        ("Microsoft-Windows-HttpService", HTTP_SERVICE, HTTP_SERVICE_EVENTS),
        ("LsaSrv", LSA, LSA_EVENTS),
        ("Stackhound-Every-Type", TYPES, TYPES_EVENTS),
    ] {
        store.learn_manifest(manifest(name, guid, content).as_bytes()).expect("a valid manifest");
    }
    store
}

fn manifest(name: &str, guid: Guid, content: &str) -> String {
    format!(
        r#"<instrumentationManifest><instrumentation><events>
        <provider name="{name}" guid="{{{guid}}}" symbol="P">{content}</provider>
        </events></instrumentation></instrumentationManifest>"#
    )
}

const POWERSHELL_EVENTS: &str = r#"
    <events>
      <event value="7937" version="1" task="T7937" template="Logged"/>
      <event value="7942" version="1" task="T7942" template="Workflow"/>
    </events>
    <templates>
      <template tid="Logged">
        <data name="ContextInfo" inType="win:UnicodeString"/>
        <data name="UserData" inType="win:UnicodeString"/>
        <data name="Payload" inType="win:UnicodeString"/>
      </template>
      <template tid="Workflow">
        <data name="ClassName" inType="win:UnicodeString"/>
        <data name="MethodName" inType="win:UnicodeString"/>
        <data name="WorkflowGuid" inType="win:UnicodeString"/>
        <data name="Message" inType="win:UnicodeString"/>
        <data name="JobData" inType="win:UnicodeString"/>
        <data name="ActivityName" inType="win:UnicodeString"/>
        <data name="ActivityGuid" inType="win:UnicodeString"/>
        <data name="Parameters" inType="win:UnicodeString"/>
      </template>
    </templates>"#;

const WININET_EVENTS: &str = r#"
    <events><event value="1057" version="0" task="UsageLogRequest" template="Usage"/></events>
    <templates>
      <template tid="Usage">
        <data name="URL" inType="win:AnsiString"/>
        <data name="Verb" inType="win:AnsiString"/>
        <data name="RequestHeaders" inType="win:AnsiString"/>
        <data name="ResponseHeaders" inType="win:AnsiString"/>
        <data name="Status" inType="win:UInt32"/>
        <data name="UsageLogRequestCache" inType="win:UInt32"/>
      </template>
    </templates>"#;

const HTTP_SERVICE_EVENTS: &str = r#"
    <opcodes><opcode name="Parse" value="12"/></opcodes>
    <events><event value="2" version="0" task="Request" opcode="Parse" template="Parse"/></events>
    <templates>
      <template tid="Parse">
        <data name="RequestObj" inType="win:Pointer"/>
        <data name="HttpVerb" inType="win:UInt32"/>
        <data name="Url" inType="win:UnicodeString"/>
      </template>
    </templates>"#;

const LSA_EVENTS: &str = r#"
    <events><event value="301" version="0" task="Logon" template="Logon"/></events>
    <templates>
      <template tid="Logon">
        <data name="TargetUserSid" inType="win:SID"/>
        <data name="TargetUserName" inType="win:UnicodeString"/>
        <data name="TargetDomainName" inType="win:UnicodeString"/>
        <data name="TargetLogonId" inType="win:HexInt64"/>
        <data name="TargetLogonGuid" inType="win:GUID"/>
        <data name="LogonType" inType="win:UInt32"/>
        <data name="EventIdx" inType="win:UInt32"/>
        <data name="EventCountTotal" inType="win:UInt32"/>
        <data name="UserClaims" inType="win:UnicodeString"/>
        <data name="DeviceClaims" inType="win:UnicodeString"/>
      </template>
    </templates>"#;

const TYPES_EVENTS: &str = r#"
    <maps>
      <valueMap name="Colors"><map value="1" message="red"/><map value="2" message="blue"/></valueMap>
      <bitMap name="Rights"><map value="0x1" message="Read"/><map value="0x2" message="Write"/></bitMap>
    </maps>
    <events>
      <event value="1" task="EveryNumber" template="EveryNumber"/>
      <event value="2" task="EveryText" template="EveryText"/>
      <event value="3" task="EveryBinary" template="EveryBinary"/>
      <event value="4" task="EveryShape" template="EveryShape"/>
    </events>
    <templates>
      <template tid="EveryNumber">
        <data name="Int8" inType="win:Int8"/>
        <data name="UInt8" inType="win:UInt8"/>
        <data name="Int16" inType="win:Int16"/>
        <data name="UInt16" inType="win:UInt16"/>
        <data name="Int32" inType="win:Int32"/>
        <data name="UInt32" inType="win:UInt32"/>
        <data name="Int64" inType="win:Int64"/>
        <data name="UInt64" inType="win:UInt64"/>
        <data name="Float" inType="win:Float"/>
        <data name="Double" inType="win:Double"/>
        <data name="Boolean" inType="win:Boolean"/>
        <data name="Byte" inType="win:UInt8" outType="xs:boolean"/>
        <data name="Guid" inType="win:GUID"/>
        <data name="Pointer" inType="win:Pointer"/>
        <data name="FileTime" inType="win:FILETIME"/>
        <data name="SystemTime" inType="win:SYSTEMTIME"/>
        <data name="Sid" inType="win:SID"/>
        <data name="HexInt32" inType="win:HexInt32"/>
        <data name="HexInt64" inType="win:HexInt64"/>
      </template>
      <template tid="EveryText">
        <data name="Wide" inType="win:UnicodeString"/>
        <data name="Narrow" inType="win:AnsiString"/>
        <data name="CountedWide" inType="win:CountedUnicodeString"/>
        <data name="CountedNarrow" inType="win:CountedAnsiString"/>
        <data name="After" inType="win:UInt32"/>
      </template>
      <template tid="EveryBinary">
        <data name="Size" inType="win:UInt32"/>
        <data name="Blob" inType="win:Binary" length="Size"/>
        <data name="Address6" inType="win:Binary" outType="win:IPv6"/>
        <data name="Address4" inType="win:UInt32" outType="win:IPv4"/>
        <data name="Port" inType="win:UInt16" outType="win:Port"/>
        <data name="SocketSize" inType="win:UInt32"/>
        <data name="Socket" inType="win:Binary" outType="win:SocketAddress" length="SocketSize"/>
      </template>
      <template tid="EveryShape">
        <data name="Three" inType="win:UInt16" count="3"/>
        <data name="Count" inType="win:UInt16"/>
        <data name="Numbers" inType="win:UInt32" count="Count"/>
        <struct name="Point">
          <data name="X" inType="win:Int32"/>
          <data name="Y" inType="win:Int32"/>
        </struct>
        <data name="Color" inType="win:UInt32" map="Colors"/>
        <data name="Access" inType="win:UInt32" map="Rights"/>
        <data name="After" inType="win:UInt32"/>
      </template>
    </templates>"#;

#[test]
fn every_kind_of_event_has_a_schema() {
    use stackhound::PointerSize::Eight;
    use stackhound::schema::Identity;

    let mut store = store();
    for (kind, properties, last) in [
        (POWERSHELL_7937, 3, "Payload"),
        (POWERSHELL_7942, 8, "Parameters"),
        (WININET_1057, 6, "UsageLogRequestCache"),
        (HTTP_SERVICE_2, 3, "Url"),
        (LSA_301, 10, "DeviceClaims"),
        (EVERY_NUMBER, 19, "HexInt64"),
        (EVERY_TEXT, 5, "After"),
        (EVERY_BINARY, 7, "Socket"),
        (EVERY_SHAPE, 7, "After"),
    ] {
        let Kind { provider, id, version, opcode } = kind;
        let identity = Identity::Manifest { provider, id, version, opcode, task: 0 };
        let plan = store.lookup(&identity, &[], Eight).unwrap_or_else(|| panic!("{kind:?}"));
        let names: Vec<&str> = plan.schema().top_level().map(|at| &*plan.schema().fields[at].name).collect();
        assert_eq!((names.len(), names.last().copied()), (properties, Some(last)), "{kind:?}");
    }
    let Kind { provider: class, version, opcode, .. } = IMAGE_LOAD_V3;
    for opcode in [opcode, 2] {
        let plan = store.lookup(&Identity::Classic { class, opcode, version }, &[], Eight).unwrap();
        assert_eq!(plan.schema().fields.last().map(|field| &*field.name), Some("FileName"));
    }
}
