//! `describe_Asserts`: 6 cases, three for each build of krabs. Here the build makes no difference.

use stackhound::schema::Error;

use crate::rows::{Rows, builder, check, incomplete, read};
use crate::schemas::{EVERY_NUMBER, TYPES, WININET, WININET_1057};

pub fn rows() -> Rows {
    let status = incomplete(&builder(WININET_1057).with("Status", 200_u32));
    let numbers =
        incomplete(&builder(EVERY_NUMBER).with("UInt16", 40_000_u16).with("Int32", -2).with("HexInt32", 200));
    let of_status = |parse: fn(&stackhound::EventView<'_>) -> Result<i128, Error>| {
        read(WININET, &status, parse).map_err(|error| error.to_string())
    };
    let of_numbers = |parse: fn(&stackhound::EventView<'_>) -> Result<i128, Error>| {
        read(TYPES, &numbers, parse).map_err(|error| error.to_string())
    };
    let refused = |error: &str| Err(error.to_owned());
    check([
        ("the same type", of_status(|view| Ok(view.parser()?.parse::<u32>("Status")?.into())), Ok(200)),
        // Intentional: krabs's release build reads the bits.
        (
            "a signed number for an unsigned one",
            of_status(|view| Ok(view.parser()?.parse::<i32>("Status")?.into())),
            refused("property Status is U32, not i32"),
        ),
        (
            "a smaller integer type",
            of_status(|view| Ok(view.parser()?.parse::<i16>("Status")?.into())),
            refused("property Status is U32, not i16"),
        ),
        // Intentional: no value is lost, although krabs rejects it.
        (
            "a larger integer type",
            of_status(|view| Ok(view.parser()?.parse::<u64>("Status")?.into())),
            Ok(200),
        ),
        (
            "a larger signed integer type",
            of_status(|view| Ok(view.parser()?.parse::<i64>("Status")?.into())),
            Ok(200),
        ),
        ("u16 as u32", of_numbers(|view| Ok(view.parser()?.parse::<u32>("UInt16")?.into())), Ok(40_000)),
        (
            "u16 as i16",
            of_numbers(|view| Ok(view.parser()?.parse::<i16>("UInt16")?.into())),
            refused("property UInt16 is U16, not i16"),
        ),
        ("i32 as i64", of_numbers(|view| Ok(view.parser()?.parse::<i64>("Int32")?.into())), Ok(-2)),
        (
            "i32 as u32",
            of_numbers(|view| Ok(view.parser()?.parse::<u32>("Int32")?.into())),
            refused("property Int32 is I32, not u32"),
        ),
        (
            "HexInt32 is a number",
            of_numbers(|view| Ok(view.parser()?.parse::<u32>("HexInt32")?.into())),
            Ok(200),
        ),
        (
            "a Boolean is not a number",
            of_numbers(|view| Ok(view.parser()?.parse::<u32>("Boolean")?.into())),
            refused("property Boolean is Bool32, not u32"),
        ),
    ])
}
