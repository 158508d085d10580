//! The installation file: its sections reference each other correctly, and it installs the driver
//! as a service.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;

const TEXT: &str = include_str!("../stackhound_kstack.inf");
const DRIVER: &str = "stackhound_kstack.sys";

/// A line of a section: the key before the equals sign, if there is one, and the values, which are
/// separated by commas.
type Line = (Option<String>, Vec<String>);

/// The sections, in their order.
fn sections() -> Vec<(String, Vec<Line>)> {
    let mut sections: Vec<(String, Vec<Line>)> = Vec::new();
    for line in TEXT.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(';')) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            sections.push((name.to_owned(), Vec::new()));
            continue;
        }
        let (key, values) = line.split_once('=').map_or((None, line), |(key, rest)| (Some(key), rest));
        let quoted = values.contains('"');
        let values: Vec<String> = match quoted {
            true => vec![values.trim().trim_matches('"').to_owned()],
            false => values.split(',').map(|value| value.trim().to_owned()).collect(),
        };
        let last = &mut sections.last_mut().expect("a section comes first").1;
        last.push((key.map(|key| key.trim().to_owned()), values));
    }
    sections
}

fn section(name: &str) -> Vec<Line> {
    let mut found = sections().into_iter().filter(|(section, _)| section == name);
    let lines = found.next().unwrap_or_else(|| panic!("there is no [{name}]")).1;
    assert!(found.next().is_none(), "there are two [{name}]");
    lines
}

/// The values of a key.
fn values(name: &str, key: &str) -> Vec<String> {
    let lines = section(name);
    let mut found = lines.into_iter().filter(|(line_key, _)| line_key.as_deref() == Some(key));
    let values = found.next().unwrap_or_else(|| panic!("[{name}] has no {key}")).1;
    assert!(found.next().is_none(), "[{name}] has two {key}");
    values
}

#[test]
fn the_sections_are_those_that_are_referenced() {
    let [service, flags, service_section] = &values("DefaultInstall.NTamd64.Services", "AddService")[..]
    else {
        panic!("AddService has three values")
    };
    assert_eq!((service.as_str(), flags.as_str()), ("StackhoundKstack", ""));
    let files = values("DefaultInstall.NTamd64", "CopyFiles");
    // The sections with which Windows begins.
    let mut expected: BTreeSet<String> = [
        "Version",
        "DestinationDirs",
        "SourceDisksNames",
        "SourceDisksFiles",
        "DefaultInstall.NTamd64",
        "DefaultInstall.NTamd64.Services",
        "Strings",
    ]
    .map(str::to_owned)
    .into();
    expected.insert(service_section.clone());
    expected.extend(files);
    let present: BTreeSet<String> = sections().into_iter().map(|(name, _)| name).collect();
    assert_eq!(present, expected);
    assert_eq!(present.len(), sections().len(), "a section occurs twice");
}

#[test]
fn the_driver_is_copied_to_the_folder_of_its_service() {
    let files = &values("DefaultInstall.NTamd64", "CopyFiles")[0];
    assert_eq!(section(files), [(None, vec![DRIVER.to_owned()])]);
    let disk = &values("SourceDisksFiles", DRIVER)[0];
    assert_eq!(values("SourceDisksNames", disk).len(), 1);
    let folder = &values("DestinationDirs", files)[0];
    assert_eq!(folder, "13", "the driver store");
    let service = &values("DefaultInstall.NTamd64.Services", "AddService")[2];
    assert_eq!(values(service, "ServiceBinary"), [format!("%{folder}%\\{DRIVER}")]);
}

#[test]
fn the_service_is_a_driver_that_starts_on_demand() {
    let service = &values("DefaultInstall.NTamd64.Services", "AddService")[2];
    for (key, number) in [("ServiceType", "1"), ("StartType", "3"), ("ErrorControl", "1")] {
        assert_eq!(values(service, key), [number], "{key}");
    }
}

#[test]
fn the_strings_are_those_that_are_used() {
    let texts: BTreeSet<String> = section("Strings").into_iter().filter_map(|(key, _)| key).collect();
    let others = sections().into_iter().filter(|(name, _)| name != "Strings");
    let values: Vec<String> = others.flat_map(|(_, lines)| lines).flat_map(|(_, values)| values).collect();
    let used = values.iter().flat_map(|value| value.split('%').skip(1).step_by(2));
    let used: BTreeSet<String> =
        used.filter(|name| name.parse::<u32>().is_err()).map(str::to_owned).collect();
    assert_eq!(texts, used);
}

#[test]
fn windows_accepts_it_as_a_primitive_driver_of_this_version() {
    let version = |key| values("Version", key);
    assert_eq!(version("Signature"), ["$WINDOWS NT$"]);
    assert_eq!(version("PnpLockdown"), ["1"]);
    assert_eq!(version("CatalogFile"), ["stackhound_kstack.cat"]);
    assert_eq!(version("Provider"), ["%Provider%"]);
    assert_eq!(version("DriverVer")[1], concat!(env!("CARGO_PKG_VERSION"), ".0"));
    let guid = &version("ClassGuid")[0];
    let digits = guid.trim_matches(['{', '}']).split('-').map(str::len).collect::<Vec<_>>();
    assert_eq!(digits, [8, 4, 4, 4, 12], "{guid}");
    // Lines end with CR LF, and the text does not depend on a code page.
    assert!(TEXT.is_ascii() && TEXT.split_inclusive('\n').all(|line| line.ends_with("\r\n")));
}
