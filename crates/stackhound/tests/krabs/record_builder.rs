//! `test_record_builder`: 17 cases. Events built from values: with all of them, with some, and with
//! none; and their extended data items.

use stackhound::Guid;
use stackhound::etl::record::ExtendedType;
use stackhound::testing::{OwnedEvent, RecordBuilder};

use crate::rows::{Rows, builder, check, incomplete, read};
use crate::schemas::{
    HTTP_SERVICE_2, IMAGE_LOAD_V3, LSA_301, POWERSHELL, POWERSHELL_7942, WININET_1057, store,
};

const CONTAINER: Guid =
    Guid::new(0x86e2_a814, 0x8893, 0x431d, [0xa1, 0xdc, 0xf4, 0x49, 0x31, 0xd6, 0xb9, 0x9a]);
const KEY: u64 = 0x1234_5678_9abc_def0;

fn some() -> RecordBuilder {
    builder(POWERSHELL_7942).with("ClassName", "Made").with("Message", "a made-up message")
}

fn all() -> RecordBuilder {
    let names = ["MethodName", "WorkflowGuid", "JobData", "ActivityName", "ActivityGuid", "Parameters"];
    names.into_iter().fold(some(), |builder, name| builder.with(name, "text"))
}

/// Whether the event can be built, otherwise the error.
fn packed(builder: &RecordBuilder) -> String {
    match builder.pack(&mut store()) {
        Ok(_) => "made".into(),
        Err(error) => error.to_string(),
    }
}

/// A property of an event that is built from some values, as text.
fn of_incomplete(builder: &RecordBuilder, name: &str) -> String {
    let mut store = store();
    let event = builder.pack_incomplete(&mut store).expect("values that suit");
    let plan = event.plan(&mut store).expect("a description");
    let parser = event.parser(&plan);
    let value = parser.value(name).expect("a property").value().expect("a single value");
    let (_, field) = plan.schema().properties().find(|(_, field)| *field.name == *name).expect("a property");
    field.render(value).to_string()
}

/// The types of an event's extended data items.
fn items(event: &OwnedEvent) -> String {
    let items = event.event().record().extended_items().map(|item| item.item_type.0.to_string());
    items.collect::<Vec<_>>().join(" ")
}

fn text_of(event: &OwnedEvent, item_type: ExtendedType) -> String {
    let data = event.event().record().extended_items().find(item_type);
    data.map_or("absent".into(), |data| String::from_utf8_lossy(data).into_owned())
}

fn start_key(event: &OwnedEvent) -> String {
    let key = read(POWERSHELL, event, |view| {
        let data = view.event().record().extended_items().find(ExtendedType::PROCESS_START_KEY)?;
        Some(u64::from_le_bytes(data.try_into().ok()?))
    });
    key.map_or("absent".into(), |key| format!("{key:#x}"))
}

pub fn rows() -> Rows {
    let given: Vec<String> = some().values().iter().map(|(name, _)| name.clone()).collect();
    let wininet = builder(WININET_1057).with("URL", "https://microsoft.com").with("Status", 300_u32);
    let logon = builder(LSA_301).with("TargetUserName", "").with("LogonType", 5_u32);
    let image = builder(IMAGE_LOAD_V3).with("ProcessId", 123).with("FileName", "file.exe");
    let url = builder(HTTP_SERVICE_2).with("Url", "https://example.com/").trim_last_nul();
    let in_container = incomplete(&some().container_id(CONTAINER));
    let with_key = incomplete(&some().process_start_key(KEY));
    let twice = incomplete(&some().container_id(CONTAINER).container_id(CONTAINER));
    let both = incomplete(&some().process_start_key(KEY).container_id(CONTAINER));
    let container = text_of(&in_container, ExtendedType::CONTAINER_ID);
    let rows = [
        ("values are kept in their order", given.join(" "), "ClassName Message"),
        (
            "a missing value is an error that names the property",
            packed(&some()),
            "no value was given for property MethodName",
        ),
        ("with all values the event is built", packed(&all()), "made"),
        (
            "a value of another type is an error that names both",
            packed(&builder(POWERSHELL_7942).with("ClassName", 45)),
            "property ClassName is Utf16, not a number",
        ),
        // Intentional: krabs ignores such a value.
        (
            "a value without a property is an error",
            packed(&all().with("Mesage", "text")),
            "there is no property Mesage",
        ),
        ("with some values an event can also be built", items(&incomplete(&some())), ""),
        ("a given value can be read", of_incomplete(&some(), "ClassName"), "Made"),
        (
            "a given value after missing ones can be read",
            of_incomplete(&some(), "Message"),
            "a made-up message",
        ),
        ("a number after missing texts can be read", of_incomplete(&wininet, "Status"), "300"),
        ("8-bit text can be read", of_incomplete(&wininet, "URL"), "https://microsoft.com"),
        ("without any value an event can be built", of_incomplete(&builder(POWERSHELL_7942), "Message"), ""),
        ("a number after a missing identifier can be read", of_incomplete(&logon, "LogonType"), "5"),
        ("a missing identifier is the null SID", of_incomplete(&logon, "TargetUserSid"), "S-1-0-0"),
        ("a kernel event is built with the built-in tables", of_incomplete(&image, "FileName"), "file.exe"),
        ("a last text without its null can be read", of_incomplete(&url, "Url"), "https://example.com/"),
        ("an event contains its extended item", items(&in_container), "16"),
        ("without one there is none", items(&incomplete(&some())), ""),
        ("several items keep their order", items(&twice), "16 16"),
        ("items of several types keep their order", items(&both), "13 16"),
        ("a container is its GUID as text", container.clone(), "86e2a814-8893-431d-a1dc-f44931d6b99a"),
        (
            "this text can be parsed as a GUID",
            container.parse::<Guid>().map_or(String::new(), |guid| (guid == CONTAINER).to_string()),
            "true",
        ),
        ("a process's start key can be read", start_key(&with_key), "0x123456789abcdef0"),
        (
            "it is an item of eight bytes",
            text_of(
                &incomplete(&some().process_start_key(0x4141_4141_4141_4141)),
                ExtendedType::PROCESS_START_KEY,
            ),
            "AAAAAAAA",
        ),
        // Intentional: krabs returns 0.
        ("an event without a start key has none", start_key(&incomplete(&some())), "absent"),
    ];
    check(rows.map(|(name, is, expected)| (name, is, expected.to_owned())))
}
