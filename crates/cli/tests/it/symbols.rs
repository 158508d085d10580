//! `stackhound symbols` on images and PDBs of the corpus.

use std::path::PathBuf;

use crate::program::{refused, stackhound, text};
use serde_json::Value;

#[track_caller]
fn json(arguments: &[&str]) -> Value {
    let output = stackhound(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// A folder with these files.
fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    folder
}

fn in_folder(folder: &tempfile::TempDir, name: &str) -> String {
    let path: PathBuf = folder.path().join(name);
    text(&path).to_owned()
}

fn corpus(name: &str) -> Option<Vec<u8>> {
    stackhound_corpus::bytes(&format!("symbols/{name}"))
}

#[test]
fn stubs_of_wine_are_all_listed() {
    let (Some(ntdll), Some(tables)) = (corpus("wine/ntdll.dll"), corpus("syscalls/stubs-from-pe.json"))
    else {
        return;
    };
    let tables: Value = serde_json::from_slice(&tables).unwrap();
    let expected = tables["wine8"]["stubs"].as_object().unwrap();
    let folder = folder(&[("ntdll.dll", &ntdll)]);
    let stubs = json(&["symbols", "stubs", &in_folder(&folder, "ntdll.dll"), "--format", "json", "-q"]);
    let mut names = 0;
    for stub in stubs.as_array().unwrap() {
        assert_eq!(stub["state"], "intact");
        assert_eq!((&stub["int2e_return_rva"], &stub["leads_to"]), (&Value::Null, &Value::Null));
        let aliases = stub["aliases"].as_array().unwrap();
        for name in std::iter::once(&stub["name"]).chain(aliases) {
            let expected = &expected[name.as_str().unwrap()];
            assert_eq!(stub["ssn"], expected["ssn"]);
            let hex = |number: u64| Value::from(format!("{number:#x}"));
            assert_eq!(stub["rva"], hex(expected["rva"].as_u64().unwrap()));
            let syscall = expected["syscall_at"].as_u64().unwrap();
            assert_eq!((&stub["syscall_rva"], &stub["return_rva"]), (&hex(syscall), &hex(syscall + 2)));
            names += 1;
        }
    }
    assert_eq!(names, expected.len());
}

#[test]
fn a_hooked_stub_is_shown() {
    let Some(mut ntdll) = corpus("wine/ntdll.dll") else { return };
    // Offsets in this file equal its RVAs. NtAllocateVirtualMemory gets a jump out of the image.
    let clean = folder(&[("ntdll.dll", &ntdll)]);
    let stubs = json(&["symbols", "stubs", &in_folder(&clean, "ntdll.dll"), "--format", "json", "-q"]);
    let stubs = stubs.as_array().unwrap();
    let stub = stubs.iter().find(|stub| stub["name"] == "NtAllocateVirtualMemory").unwrap();
    let rva = u64::from_str_radix(&stub["rva"].as_str().unwrap()[2..], 16).unwrap();
    ntdll[rva as usize..][..5].copy_from_slice(&[0xe9, 0, 0, 0, 0x10]);
    let hooked = folder(&[("ntdll.dll", &ntdll)]);

    let output = stackhound(&["symbols", "stubs", &in_folder(&hooked, "ntdll.dll")]);
    let shown = String::from_utf8(output.stdout).unwrap();
    let line = shown.lines().find(|line| line.contains("NtAllocateVirtualMemory ")).unwrap();
    let leads_to = 0x1_7000_0000 + rva + 5 + 0x1000_0000;
    assert!(line.ends_with(&format!("hooked, leads to {leads_to:#x}")), "{line}");
    assert!(line.trim_start().starts_with('-'), "{line}");
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "228 stubs, 1 hooked, 0 foreign\n");
}

#[test]
fn bad_images_get_one_clear_sentence() {
    let mut cut = b"MZ".to_vec();
    cut.resize(100, 0);
    let folder = folder(&[
        ("empty", b""),
        ("text", b"This is text, and not short either: longer than a DOS header is."),
        ("cut", &cut),
    ]);
    let check = |name: &str, sentence: &str| {
        let path = in_folder(&folder, name);
        refused(&["symbols", "stubs", &path], &format!("{path}: {sentence}"));
    };
    check("empty", "not a PE image (shorter than a DOS header)");
    check("text", "not a PE image (it does not start with MZ)");
    check("cut", "not a PE image (no PE header, only a DOS one)");
    check("missing", "No such file or directory (os error 2)");
    check(".", "Is a directory (os error 21)");
}

/// `name+0x5`, `name`, or `-`.
fn shown(name: &Value) -> String {
    match (name["name"].as_str(), name["offset"].as_u64()) {
        (Some(name), Some(0)) => name.to_owned(),
        (Some(name), Some(offset)) => format!("{name}+{offset:#x}"),
        _ => "-".to_owned(),
    }
}

/// The three names of each address.
#[track_caller]
fn names(arguments: &[&str], rvas: &[&str]) -> Vec<[String; 3]> {
    let all = [&["symbols", "lookup", "--format", "json", "-q"], arguments, rvas].concat();
    let rows = json(&all);
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), rvas.len());
    rows.iter().map(|row| ["pdb", "export", "nearest_export"].map(|origin| shown(&row[origin]))).collect()
}

#[test]
fn addresses_get_the_names_of_each_origin() {
    let (Some(image), Some(pdb)) = (corpus("pairs/samply/softokn3.dll"), corpus("pairs/samply/softokn3.pdb"))
    else {
        return;
    };
    // Addresses of exports and function ranges from other readers: NSC_ModuleDBFunc has a range.
    // C_GetFunctionList, also named NSC_GetFunctionList, has no range in the image. FC_GetInterface
    // is the last export before 0x5a00, which is in a function that is not exported. The last
    // address is data.
    let rvas = ["0xc690", "0xf1b0", "61877", "0x5a00", "0x38000"];
    let (function, inside) = ("C_GetFunctionList", "C_GetFunctionList+0x5");
    let module = "NSC_ModuleDBFunc+0x10";
    let alone = folder(&[("softokn3.dll", &image)]);
    let exported = |of_leaf| {
        [
            [module, module],
            [function, function],
            [of_leaf, inside],
            ["-", "FC_GetInterface+0x300"],
            ["-", "-"],
        ]
    };
    let expected: Vec<_> =
        exported("-").iter().map(|[export, nearest]| ["-", export, nearest].map(String::from)).collect();
    assert_eq!(names(&["--image", &in_folder(&alone, "softokn3.dll")], &rvas), expected);

    // The PDB has age 2, and states age 1 for its image. It is found by the name in the image, in
    // any case.
    let both = folder(&[("softokn3.dll", &image), ("SOFTOKN3.pdb", &pdb)]);
    let named = [module, function, inside, "FC_InitToken+0x20", "-"];
    let expected: Vec<_> = named
        .iter()
        .zip(exported(inside))
        .map(|(pdb, [export, nearest])| [pdb, export, nearest].map(String::from))
        .collect();
    let (image, pdb) = (in_folder(&both, "softokn3.dll"), in_folder(&both, "SOFTOKN3.pdb"));
    assert_eq!(names(&["--image", &image], &rvas), expected);
    assert_eq!(names(&["--image", &image, "--pdb", &pdb], &rvas), expected);

    let expected: Vec<_> = named.iter().map(|pdb| [pdb, "-", "-"].map(String::from)).collect();
    assert_eq!(names(&["--pdb", &pdb], &rvas), expected);
}

#[test]
fn rows_contain_the_requested_addresses() {
    let Some(pdb) = corpus("pairs/symbolic/CrashWithException.pdb") else { return };
    let folder = folder(&[("crash.pdb", &pdb)]);
    let pdb = in_folder(&folder, "crash.pdb");
    let rows = json(&["symbols", "lookup", "--pdb", &pdb, "--format", "json", "4470", "0XFFFFFFFF"]);
    // main is at 0x1170.
    assert_eq!(rows[0]["rva"], "0x1176");
    assert_eq!(rows[0]["pdb"], serde_json::json!({"name": "main", "offset": 6}));
    let file = r"c:\users\sentry\source\repos\crashwithexception\crashwithexception\crashwithexception.cpp";
    assert_eq!(rows[0]["source"], serde_json::json!({"file": file, "line": 30}));
    assert_eq!(rows[1]["rva"], "0xffffffff");
    for key in ["pdb", "export", "nearest_export", "source"] {
        assert_eq!(rows[1].get(key), Some(&Value::Null), "{key}");
    }
    assert_eq!(rows[1]["inlines"], serde_json::json!([]));

    let output = stackhound(&["symbols", "lookup", "--pdb", &pdb, "0x1010", "0x3000"]);
    let shown = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[..2], ["0x1010", "  pdb             printf"]);
    assert!(lines.contains(&"  nearest export  -"));
    assert!(output.stderr.is_empty());
}

/// The expected lines are those of LLVM's symbolizer.
#[test]
fn inlined_functions_are_listed_with_their_source_lines() {
    let Some(pdb) = corpus("pairs/samply/WriteArgument.pdb") else { return };
    let folder = folder(&[("WriteArgument.pdb", &pdb)]);
    let pdb = in_folder(&folder, "WriteArgument.pdb");
    let rows = json(&["symbols", "lookup", "--pdb", &pdb, "--format", "json", "0x1078"]);
    let file = r"f:\dd\vctools\crt\vcstartup\src\startup\exe_common.inl";
    assert_eq!(shown(&rows[0]["pdb"]), "pre_c_initialization+0x8");
    assert_eq!(rows[0]["source"], serde_json::json!({"file": file, "line": 148}));
    let inlined = serde_json::json!({"function": "__scrt_main_policy::set_app_type", "source": {"file": file, "line": 44}});
    assert_eq!(rows[0]["inlines"], serde_json::json!([inlined]));
    let output = stackhound(&["symbols", "lookup", "--pdb", &pdb, "0x1078"]);
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(
        shown.contains(&format!(
            "  line            {file}:148\n  inlined         __scrt_main_policy::set_app_type ({file}:44)\n"
        )),
        "{shown}"
    );
}

#[test]
fn a_pdb_of_another_build_is_not_used() {
    let (Some(image), Some(pdb)) =
        (corpus("pairs/symbolic/CrashWithException.exe"), corpus("pairs/symbolic/crash.pdb"))
    else {
        return;
    };
    let same_folder = folder(&[("a.exe", &image), ("CrashWithException.pdb", &pdb)]);
    let (image, pdb) = (in_folder(&same_folder, "a.exe"), in_folder(&same_folder, "CrashWithException.pdb"));
    let builds = "expected F535C5FB2AE84BB8AA206C30BE566C5A1, found 3249D99D0C4049318610F4E4FB0B69361";
    refused(
        &["symbols", "lookup", "--image", &image, "--pdb", &pdb, "0x1176"],
        &format!("{pdb}: is of another build: {builds}"),
    );
    let output = stackhound(&["symbols", "lookup", "--image", &image, "--format", "json", "0x1176"]);
    let notes = String::from_utf8(output.stderr).unwrap();
    assert_eq!(notes, format!("note: {pdb} is not used: it is of another build: {builds}\n"));
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(rows[0]["pdb"], Value::Null);
}

#[test]
fn invalid_arguments_of_a_lookup_are_reported() {
    let folder =
        folder(&[("no.pdb", b"This is no PDB, but long enough to be looked at by whoever opens it as one.")]);
    let pdb = in_folder(&folder, "no.pdb");
    let check = |arguments: &[&str], sentence: &str| {
        let output = stackhound(&[&["symbols", "lookup"], arguments].concat());
        assert_eq!(output.status.code(), Some(2));
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(errors.lines().next(), Some(sentence));
    };
    let missing = "<--image <FILE>|--pdb <FILE>>; `stackhound symbols lookup --help` explains the arguments";
    check(&["0x1000"], &format!("error: `stackhound symbols lookup` expects {missing}"));
    let number = "expected a number of at most 32 bits, such as 0x1a2b or 6699";
    for rva in ["0xzz", "+1", "0x+1", "0x100000000", "main", ""] {
        check(&["--pdb", &pdb, rva], &format!("error: RVA: {number}"));
    }
    check(
        &["--pdb", &pdb, "1"],
        &format!("error: {pdb}: not a PDB: expected an MSF or MSFZ signature at offset 0"),
    );
    check(&["--image", &pdb, "1"], &format!("error: {pdb}: not a PE image (it does not start with MZ)"));
}
