//! `test_parser`: 10 cases. Properties of an event by type.
//!
//! krabs tells types apart in debug builds only, and in release builds reads what it is told to. Here there is one
//! behaviour, krabs's of debug builds with errors for exceptions.

use stackhound::schema::{Ansi, Error, Parser, Utf16};

use crate::rows::{Rows, builder, check, incomplete};
use crate::schemas::{
    EVERY_SHAPE, HTTP_SERVICE_2, Kind, POWERSHELL_7937, POWERSHELL_7942, WININET_1057, store,
};

const URL: &str = "https://www.example.com/api/v1/health";

/// What a property of an event reads as.
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

fn wide(kind: Kind, values: &[(&str, &str)], name: &str) -> String {
    read(kind, values, |parser| shown(parser.parse::<Utf16<'_>>(name)))
}

fn narrow(kind: Kind, values: &[(&str, &str)], name: &str) -> String {
    read(kind, values, |parser| shown(parser.parse::<Ansi<'_>>(name)))
}

pub fn rows() -> Rows {
    let context = [("ContextInfo", "Testing")];
    let url = [("Url", URL)];
    let page = [("URL", URL), ("Verb", "GET")];
    let count = |kind| read(kind, &[], |parser| parser.iter().count().to_string());
    let tried = |found: bool| if found { "something" } else { "nothing" }.to_owned();
    let bytes = read(POWERSHELL_7937, &context, |parser| {
        format!("{:?}", parser.bytes("ContextInfo").map(|bytes| (bytes.len(), bytes[0])))
    });
    let rows = [
        ("all properties are counted", count(POWERSHELL_7942), "8"),
        ("a structure and an array count once", count(EVERY_SHAPE), "7"),
        ("text of its own width", wide(POWERSHELL_7937, &context, "ContextInfo"), "Testing"),
        (
            "text of another width is an error",
            narrow(POWERSHELL_7937, &context, "ContextInfo"),
            "property ContextInfo is Utf16, not 8-bit text",
        ),
        (
            "tried, it is nothing",
            read(POWERSHELL_7937, &context, |parser| {
                tried(parser.try_parse::<Ansi<'_>>("ContextInfo").is_some())
            }),
            "nothing",
        ),
        (
            "narrow text as wide text is an error",
            wide(WININET_1057, &page, "Verb"),
            "property Verb is Ansi, not UTF-16 text",
        ),
        (
            "text as a number is an error",
            read(POWERSHELL_7937, &context, |parser| shown(parser.parse::<i32>("ContextInfo"))),
            "property ContextInfo is Utf16, not i32",
        ),
        (
            "tried as a number, it is nothing",
            read(POWERSHELL_7937, &context, |parser| tried(parser.try_parse::<i32>("ContextInfo").is_some())),
            "nothing",
        ),
        (
            "a property that there is not is an error",
            wide(POWERSHELL_7937, &context, "Context"),
            "there is no property Context",
        ),
        ("the bytes of any property, with its end", bytes, "Ok((16, 84))"),
        // On purpose: krabs reads anything as binary. Here that has a name of its own, which is in the row before.
        (
            "text is no binary",
            read(POWERSHELL_7937, &context, |parser| {
                parser.parse::<&[u8]>("ContextInfo").unwrap_err().to_string()
            }),
            "property ContextInfo is Utf16, not bytes",
        ),
        ("a last text without its end", wide(HTTP_SERVICE_2, &url, "Url"), URL),
        (
            "a last text without its end, behind other properties that were read",
            read(HTTP_SERVICE_2, &url, |parser| {
                let verb: u32 = parser.parse("HttpVerb").expect("a number");
                format!("{verb} {}", shown(parser.parse::<Utf16<'_>>("Url")))
            }),
            "0 https://www.example.com/api/v1/health",
        ),
        ("text in front of other text", narrow(WININET_1057, &page, "URL"), URL),
    ];
    check(rows.map(|(name, is, expected)| (name, is, expected.to_owned())))
}
