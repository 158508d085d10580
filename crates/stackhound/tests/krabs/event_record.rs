//! `describe_EventRecord`: 11 cases. The properties of events that handlers can read.

use stackhound::Guid;
use stackhound::etl::record::ExtendedType;
use stackhound::schema::Ansi;

use crate::rows::{Rows, builder, check, incomplete, read};
use crate::schemas::{IMAGE, IMAGE_LOAD_V3, POWERSHELL, POWERSHELL_7937, WININET, WININET_1057};

const CONTAINER: Guid = Guid([0x5a; 16]);

pub fn rows() -> Rows {
    let user = builder(POWERSHELL_7937).with("UserData", "This is some user data");
    let user_event = incomplete(&user);
    let page = builder(WININET_1057).with("URL", "http://www.microsoft.com").with("Status", 0x0102_0304_u32);
    let page_event = incomplete(&page);
    // In code page 1252.
    let foreign = incomplete(&builder(WININET_1057).with("URL", &b"http://caf\xe9.example.com"[..]));
    let image = incomplete(&builder(IMAGE_LOAD_V3).with("FileName", "file.exe").with("ProcessId", 123_u32));
    let in_container = incomplete(&user.clone().container_id(CONTAINER));
    let with_key = incomplete(&user.process_start_key(0x1234_5678_9abc_def0));
    let item = |event, item_type| {
        read(POWERSHELL, event, move |view| {
            view.event().record().extended_items().find(item_type).map(<[u8]>::to_vec)
        })
    };
    let container = item(&in_container, ExtendedType::CONTAINER_ID).expect("a container");
    let key = item(&with_key, ExtendedType::PROCESS_START_KEY).expect("a key");
    let rows = [
        (
            "the provider",
            read(POWERSHELL, &user_event, |view| {
                view.provider_guid().map_or(String::new(), |guid| guid.to_string())
            }),
            "a0c1853b-5c40-4b15-8766-3cf1c58f985a",
        ),
        (
            "the provider's name",
            read(POWERSHELL, &user_event, |view| view.provider().into_owned()),
            "Microsoft-Windows-PowerShell",
        ),
        ("the id", read(POWERSHELL, &user_event, |view| view.id().to_string()), "7937"),
        ("the version", read(POWERSHELL, &user_event, |view| view.version().to_string()), "1"),
        (
            "UTF-16 text",
            read(POWERSHELL, &user_event, |view| view.parser()?.parse::<String>("UserData")).expect("text"),
            "This is some user data",
        ),
        (
            "8-bit text",
            read(WININET, &page_event, |view| view.parser()?.parse::<String>("URL")).expect("text"),
            "http://www.microsoft.com",
        ),
        // Intentional: the code page of the machine is not known elsewhere. Text that is not valid
        // UTF-8 is read as Latin-1.
        (
            "8-bit text beyond ASCII",
            read(WININET, &foreign, |view| view.parser()?.parse::<String>("URL")).expect("text"),
            "http://café.example.com",
        ),
        (
            "its bytes, for callers that know the code page",
            read(WININET, &foreign, |view| {
                Ok::<_, stackhound::schema::Error>(view.parser()?.parse::<Ansi<'_>>("URL")?.bytes()[10])
            })
            .expect("text")
            .to_string(),
            "233",
        ),
        (
            "a number",
            read(WININET, &page_event, |view| view.parser()?.parse::<u32>("Status"))
                .expect("a number")
                .to_string(),
            "16909060",
        ),
        (
            "the payload",
            read(POWERSHELL, &user_event, |view| view.payload().len()).to_string(),
            // Three texts with their terminating nulls.
            "50",
        ),
        (
            "the bytes of a property",
            read(WININET, &page_event, |view| {
                Ok::<_, stackhound::schema::Error>(format!("{:?}", view.parser()?.bytes("Status")?))
            })
            .expect("bytes"),
            "[4, 3, 2, 1]",
        ),
        (
            "the container",
            std::str::from_utf8(&container).expect("text").to_owned(),
            "5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a5a",
        ),
        (
            "the process's start key",
            format!("{:#x}", u64::from_le_bytes(key.try_into().expect("eight bytes"))),
            "0x123456789abcdef0",
        ),
        ("no start key", format!("{:?}", item(&user_event, ExtendedType::PROCESS_START_KEY)), "None"),
        (
            "UTF-16 text of a kernel event",
            read(IMAGE, &image, |view| view.parser()?.parse::<String>("FileName")).expect("text"),
            "file.exe",
        ),
    ];
    check(rows.map(|(name, is, expected)| (name, is, expected.to_owned())))
}
