//! `describe_InvalidParsing`: 7 cases. Errors of handlers that request missing or mistyped
//! properties. The build makes no difference.

use std::sync::mpsc;

use stackhound::Provider;
use stackhound::schema::Error;

use crate::rows::{Rows, builder, check, incomplete, read, trace};
use crate::schemas::{WININET, WININET_1057};

pub fn rows() -> Rows {
    let event = incomplete(&builder(WININET_1057).with("Status", 200_u32));
    let result = |parse: fn(&stackhound::EventView<'_>) -> Result<String, Error>| {
        read(WININET, &event, parse).unwrap_or_else(|error| error.to_string())
    };
    // An error that a handler returns does not end the trace, and is passed to the error handlers.
    let (sender, errors) = mpsc::channel();
    let provider = Provider::guid(WININET).on_event(|view| -> Result<(), Error> {
        view.parser()?.parse::<i16>("Status")?;
        Ok(())
    });
    let stats = trace(&event)
        .enable(provider)
        .on_error(move |error| {
            let _ = sender.send(error.error.to_string());
        })
        .run(|_| ())
        .expect("a trace");
    let rows = [
        (
            "a name that no property has",
            result(|view| view.parser()?.parse::<String>("InvalidName")),
            "there is no property InvalidName",
        ),
        (
            "a name that no property has, tried",
            result(|view| Ok(format!("{:?}", view.parser()?.try_parse::<String>("InvalidName")))),
            "None",
        ),
        (
            "a smaller integer type",
            result(|view| Ok(view.parser()?.parse::<i16>("Status")?.to_string())),
            "property Status is U32, not i16",
        ),
        (
            "a smaller integer type, tried",
            result(|view| Ok(format!("{:?}", view.parser()?.try_parse::<i16>("Status")))),
            "None",
        ),
        (
            "a smaller integer type, with a default",
            result(|view| Ok(view.parser()?.try_parse::<i16>("Status").unwrap_or(15).to_string())),
            "15",
        ),
        (
            "text for a number",
            result(|view| view.parser()?.parse::<String>("Status")),
            "property Status is U32, not text",
        ),
        (
            "a number for text",
            result(|view| Ok(view.parser()?.parse::<u32>("URL")?.to_string())),
            "property URL is Ansi, not u32",
        ),
        ("the right type", result(|view| Ok(view.parser()?.parse::<u32>("Status")?.to_string())), "200"),
        (
            "an error of a handler is reported",
            errors.recv().expect("an error"),
            "property Status is U32, not i16",
        ),
        ("the trace continues to its end", stats.delivered.to_string(), "1"),
    ];
    check(rows.map(|(name, is, expected)| (name, is, expected.to_owned())))
}
