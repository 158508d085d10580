//! `test_parser`: 10 cases. Properties of an event by type.
//!
//! krabs checks types only in debug builds; release builds read any requested type. Here all builds
//! behave like the debug builds of krabs, with errors in place of exceptions.

use stackhound::schema::{Ansi, Error, Parser, Utf16};

use crate::rows::{Rows, builder, check, incomplete};
use crate::schemas::{
    EVERY_SHAPE, HTTP_SERVICE_2, Kind, POWERSHELL_7937, POWERSHELL_7942, WININET_1057, store,
};

const URL: &str = "https://www.example.com/api/v1/health";

/// A property of an event as text, or the error.
fn read(kind: Kind, values: &[(&str, &str)], show: impl Fn(&Parser<'_>) -> String) -> String {
    let mut store = store();
    let event = values.iter().fold(builder(kind), |builder, (name, value)| builder.with(*name, *value));
    let event = incomplete(&event.trim_last_nul());
    let plan = event.plan(&mut store).expect("a description");
    show(&event.parser(&plan))
}

fn shown(read: Result<impl ToString, Error>) -> String {
    read.map_or_else(|error| error.to_string(), |value| value.to_string())
}

fn utf16(kind: Kind, values: &[(&str, &str)], name: &str) -> String {
    read(kind, values, |parser| shown(parser.parse::<Utf16<'_>>(name)))
}

fn ansi(kind: Kind, values: &[(&str, &str)], name: &str) -> String {
    read(kind, values, |parser| shown(parser.parse::<Ansi<'_>>(name)))
}

pub fn rows() -> Rows {
    let context = [("ContextInfo", "Testing")];
    let url = [("Url", URL)];
    let page = [("URL", URL), ("Verb", "GET")];
    let count = |kind| read(kind, &[], |parser| parser.iter().count().to_string());
    let tried = |found: bool| if found { "a value" } else { "none" }.to_owned();
    let bytes = read(POWERSHELL_7937, &context, |parser| {
        format!("{:?}", parser.bytes("ContextInfo").map(|bytes| (bytes.len(), bytes[0])))
    });
    let rows = [
        ("all properties are counted", count(POWERSHELL_7942), "8"),
        ("a structure and an array count once", count(EVERY_SHAPE), "7"),
        ("text of its own encoding", utf16(POWERSHELL_7937, &context, "ContextInfo"), "Testing"),
        (
            "text of another encoding is an error",
            ansi(POWERSHELL_7937, &context, "ContextInfo"),
            "property ContextInfo is Utf16, not 8-bit text",
        ),
        (
            "tried, the result is none",
            read(POWERSHELL_7937, &context, |parser| {
                tried(parser.try_parse::<Ansi<'_>>("ContextInfo").is_some())
            }),
            "none",
        ),
        (
            "8-bit text as UTF-16 text is an error",
            utf16(WININET_1057, &page, "Verb"),
            "property Verb is Ansi, not UTF-16 text",
        ),
        (
            "text as a number is an error",
            read(POWERSHELL_7937, &context, |parser| shown(parser.parse::<i32>("ContextInfo"))),
            "property ContextInfo is Utf16, not i32",
        ),
        (
            "tried as a number, the result is none",
            read(POWERSHELL_7937, &context, |parser| tried(parser.try_parse::<i32>("ContextInfo").is_some())),
            "none",
        ),
        (
            "a missing property is an error",
            utf16(POWERSHELL_7937, &context, "Context"),
            "there is no property Context",
        ),
        ("the bytes of any property, with its terminating null", bytes, "Ok((16, 84))"),
        // Intentional: krabs reads any property as binary. Here, this is a separate function, as in
        // the previous row.
        (
            "text is not binary",
            read(POWERSHELL_7937, &context, |parser| {
                parser.parse::<&[u8]>("ContextInfo").unwrap_err().to_string()
            }),
            "property ContextInfo is Utf16, not bytes",
        ),
        ("a last text without its terminating null", utf16(HTTP_SERVICE_2, &url, "Url"), URL),
        (
            "a last text without its terminating null, after another property was read",
            read(HTTP_SERVICE_2, &url, |parser| {
                let verb: u32 = parser.parse("HttpVerb").expect("a number");
                format!("{verb} {}", shown(parser.parse::<Utf16<'_>>("Url")))
            }),
            "0 https://www.example.com/api/v1/health",
        ),
        ("text before other text", ansi(WININET_1057, &page, "URL"), URL),
    ];
    check(rows.map(|(name, is, expected)| (name, is, expected.to_owned())))
}
