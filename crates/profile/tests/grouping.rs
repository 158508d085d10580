//! Patterns on stacks whose results were worked out by hand, and what holds for all stacks.

use std::collections::BTreeMap;

use proptest::prelude::*;
use stackhound_profile::{
    Butterfly, CodeKind, Frame, FrameId, FrameName, Grouping, Groups, InlineName, Module, ModuleOffset,
    Nanos, Origin, PATTERN_LENGTH_MAX, PATTERNS_MAX, PRESETS, Patterns, Process, Profile, ProfileBuilder,
    Sample, Sums, Thread, preset,
};
use stackhound_types::{AddressKind, Mode};

/// The program of the only process.
const PROGRAM: &str = r"C:\App\app.exe";

/// A profile with a sample for each stack, whose weight is the number after it. Frames are separated
/// by ` > `, outermost first: `path!function`, `path+1` for one without a name, or a text.
fn profile(program: &str, stacks: &[(&str, u32)]) -> Profile {
    let mut builder = ProfileBuilder::new("", 0);
    let process = builder.process(Process { name: "app.exe".into(), ..Process::default() }).unwrap();
    builder.set_program(process, program);
    let thread = Thread { process, tid: Some(1), name: String::new(), start: None, end: None };
    let thread = builder.thread(thread).unwrap();
    let mut frames: BTreeMap<String, FrameId> = BTreeMap::new();
    for (index, (stack, weight)) in stacks.iter().enumerate() {
        let mut id = None;
        for text in stack.split(" > ") {
            let frame = *frames.entry(text.to_owned()).or_insert_with(|| frame(&mut builder, text));
            id = Some(builder.stack(id, frame).unwrap());
        }
        let time = Nanos(index as u64);
        builder.sample(Sample { time, thread, stack: id.unwrap(), weight: *weight, cpu: None });
    }
    builder.finish()
}

fn frame(builder: &mut ProfileBuilder, text: &str) -> FrameId {
    let (path, function) = match (text.rsplit_once('!'), text.rsplit_once('+')) {
        (Some((path, function)), _) if !path.starts_with("jit:") => (path, Some(function)),
        (None, Some((path, _))) => (path, None),
        _ => {
            let origin = if text.starts_with("jit:") { Origin::Method } else { Origin::Remark };
            let mode = (origin == Origin::Method).then_some(Mode::User);
            return builder
                .frame(Frame {
                    name: text.into(),
                    origin,
                    mode,
                    code: if mode.is_some() { CodeKind::Jit } else { CodeKind::Remark },
                    location: None,
                    source: None,
                    inlines: Box::default(),
                })
                .unwrap();
        }
    };
    let name = path.rsplit('\\').next().unwrap();
    let module = Module { name: name.into(), path: path.into(), pdb: None, image: None };
    let module = builder.module(module).unwrap();
    let location = ModuleOffset { module, rva: 1, kind: AddressKind::Return, offset: None };
    let (name, origin) = match function {
        Some(function) => (format!("{name}!{function}"), Origin::Pdb),
        None => (format!("{name}+0x1"), Origin::Module),
    };
    let (mode, location) = (Some(Mode::User), Some(location));
    let code = CodeKind::User;
    builder
        .frame(Frame { name, origin, mode, code, location, source: None, inlines: Box::default() })
        .unwrap()
}

/// The stacks of a profile, each once, with their weights.
fn shown(profile: &Profile) -> Vec<String> {
    let mut stacks: BTreeMap<String, u32> = BTreeMap::new();
    for sample in profile.samples() {
        let mut names: Vec<&str> =
            profile.stack(sample.stack).map(|frame| &*profile.frame(frame).name).collect();
        names.reverse();
        *stacks.entry(names.join(" > ")).or_default() += sample.weight;
    }
    stacks.into_iter().map(|(stack, weight)| format!("{stack} = {weight}")).collect()
}

/// Applies patterns: each is an option and its text.
fn patterns(options: &[(&str, &str)]) -> Patterns {
    let mut patterns = Patterns::default();
    for (option, text) in options {
        match *option {
            "group" => patterns.group(text),
            "fold" => patterns.fold(text),
            "exclude" => patterns.exclude(text),
            "include" => patterns.include(text),
            "own" => patterns.own_directory(text),
            _ => patterns.preset(preset(text).unwrap()),
        }
        .unwrap();
    }
    patterns
}

/// The grouped stacks, and the weight that was left out.
fn grouped(mut profile: Profile, patterns: &Patterns) -> (Vec<String>, u64) {
    let threads: Vec<_> = profile.samples().map(|sample| sample.thread).collect();
    let regrouped = patterns.regroup(&profile, threads, Grouping::Function);
    let excluded = profile.replace_stacks(regrouped);
    let stacks = shown(&profile);
    profile.remove_unused();
    assert_eq!(shown(&profile), stacks);
    let mut is_used = vec![false; profile.frames().len()];
    let samples = profile.samples();
    samples.flat_map(|sample| profile.stack(sample.stack)).for_each(|frame| is_used[frame.index()] = true);
    assert!(is_used.into_iter().all(|is_used| is_used));
    (stacks, excluded)
}

/// Stacks of a program that calls a library and the system. All weights are different powers of 2, so
/// that each sum says which stacks are in it.
const STACKS: &[(&str, u32)] = &[
    (
        r"C:\Windows\System32\ntdll.dll!RtlUserThreadStart > C:\Windows\System32\kernel32.dll!BaseThreadInitThunk > C:\App\app.exe!main > C:\App\app.exe!work > C:\App\plugins\core.dll!Math::Matrix::multiply",
        1,
    ),
    (
        r"C:\Windows\System32\ntdll.dll!RtlUserThreadStart > C:\Windows\System32\kernel32.dll!BaseThreadInitThunk > C:\App\app.exe!main > C:\Windows\System32\kernelbase.dll!ReadFile > C:\Windows\System32\ntdll.dll!NtReadFile > \SystemRoot\system32\ntoskrnl.exe!KiSystemServiceCopyEnd > \SystemRoot\system32\ntoskrnl.exe!NtReadFile > \SystemRoot\system32\drivers\ntfs.sys+1",
        2,
    ),
    (
        r"C:\Windows\System32\ntdll.dll!RtlUserThreadStart > C:\Windows\System32\ntdll.dll!TppWorkerThread > C:\Lib\lib.dll+1 > C:\Lib\lib.dll+1 > C:\App\app.exe!callback",
        4,
    ),
    (
        r"[no stack] > jit:clr!App.Shop.Order..ctor > jit:clr!App.Shop.Order.Total > jit:clr!System.Decimal.Add",
        8,
    ),
];

#[test]
fn presets() {
    let rows: &[(&str, &[&str])] = &[
        (
            "just-my-code",
            &[
                "[no stack] > jit:clr!App.Shop.Order..ctor > jit:clr!App.Shop.Order.Total > other code <<jit:clr!System.Decimal.Add>> = 8",
                "other code <<ntdll.dll!RtlUserThreadStart>> > app.exe!callback = 4",
                "other code <<ntdll.dll!RtlUserThreadStart>> > app.exe!main > app.exe!work > core.dll!Math::Matrix::multiply = 1",
                "other code <<ntdll.dll!RtlUserThreadStart>> > app.exe!main > other code <<kernelbase.dll!ReadFile>> = 2",
            ],
        ),
        (
            "modules",
            &[
                "[no stack] > module clr = 8",
                "module ntdll.dll > module kernel32.dll > module app.exe > module core.dll = 1",
                "module ntdll.dll > module kernel32.dll > module app.exe > module kernelbase.dll > module ntdll.dll > module ntoskrnl.exe > module ntfs.sys = 2",
                "module ntdll.dll > module lib.dll > module app.exe = 4",
            ],
        ),
        (
            "module-entries",
            &[
                "[no stack] > module clr <<jit:clr!App.Shop.Order..ctor>> = 8",
                "module ntdll.dll <<ntdll.dll!RtlUserThreadStart>> > module kernel32.dll <<kernel32.dll!BaseThreadInitThunk>> > module app.exe <<app.exe!main>> > module core.dll <<core.dll!Math::Matrix::multiply>> = 1",
                "module ntdll.dll <<ntdll.dll!RtlUserThreadStart>> > module kernel32.dll <<kernel32.dll!BaseThreadInitThunk>> > module app.exe <<app.exe!main>> > module kernelbase.dll <<kernelbase.dll!ReadFile>> > module ntdll.dll <<ntdll.dll!NtReadFile>> > module ntoskrnl.exe <<ntoskrnl.exe!NtReadFile>> > module ntfs.sys <<ntfs.sys!?>> = 2",
                "module ntdll.dll <<ntdll.dll!RtlUserThreadStart>> > module lib.dll <<lib.dll!?>> > module app.exe <<app.exe!callback>> = 4",
            ],
        ),
        (
            "path-entries",
            &[
                "[no stack] > module jit:clr <<jit:clr!App.Shop.Order..ctor>> = 8",
                r"module C:\Windows\System32\ntdll.dll <<ntdll.dll!RtlUserThreadStart>> > module C:\Lib\lib.dll <<lib.dll!?>> > module C:\App\app.exe <<app.exe!callback>> = 4",
                r"module C:\Windows\System32\ntdll.dll <<ntdll.dll!RtlUserThreadStart>> > module C:\Windows\System32\kernel32.dll <<kernel32.dll!BaseThreadInitThunk>> > module C:\App\app.exe <<app.exe!main>> > module C:\App\plugins\core.dll <<core.dll!Math::Matrix::multiply>> = 1",
                r"module C:\Windows\System32\ntdll.dll <<ntdll.dll!RtlUserThreadStart>> > module C:\Windows\System32\kernel32.dll <<kernel32.dll!BaseThreadInitThunk>> > module C:\App\app.exe <<app.exe!main>> > module C:\Windows\System32\kernelbase.dll <<kernelbase.dll!ReadFile>> > module C:\Windows\System32\ntdll.dll <<ntdll.dll!NtReadFile>> > module \SystemRoot\system32\ntoskrnl.exe <<ntoskrnl.exe!NtReadFile>> > module \SystemRoot\system32\drivers\ntfs.sys <<ntfs.sys!?>> = 2",
            ],
        ),
        (
            "classes",
            &[
                "[no stack] > class clr!App.Shop.Order > class clr!System.Decimal = 8",
                "ntdll.dll!RtlUserThreadStart > kernel32.dll!BaseThreadInitThunk > app.exe!main > app.exe!work > class core.dll!Math::Matrix = 1",
                "ntdll.dll!RtlUserThreadStart > kernel32.dll!BaseThreadInitThunk > app.exe!main > kernelbase.dll!ReadFile > ntdll.dll!NtReadFile > ntoskrnl.exe!NtReadFile > ntfs.sys!? = 2",
                "ntdll.dll!RtlUserThreadStart > ntdll.dll!TppWorkerThread > lib.dll!? > app.exe!callback = 4",
            ],
        ),
        (
            "class-entries",
            &[
                "[no stack] > class clr!App.Shop.Order <<jit:clr!App.Shop.Order..ctor>> > class clr!System.Decimal <<jit:clr!System.Decimal.Add>> = 8",
                "ntdll.dll!RtlUserThreadStart > kernel32.dll!BaseThreadInitThunk > app.exe!main > app.exe!work > class core.dll!Math::Matrix <<core.dll!Math::Matrix::multiply>> = 1",
                "ntdll.dll!RtlUserThreadStart > kernel32.dll!BaseThreadInitThunk > app.exe!main > kernelbase.dll!ReadFile > ntdll.dll!NtReadFile > ntoskrnl.exe!NtReadFile > ntfs.sys!? = 2",
                "ntdll.dll!RtlUserThreadStart > ntdll.dll!TppWorkerThread > lib.dll!? > app.exe!callback = 4",
            ],
        ),
        (
            "system-entries",
            &[
                "Windows <<ntdll.dll!RtlUserThreadStart>> > module app.exe <<app.exe!main>> > Windows <<kernelbase.dll!ReadFile>> = 2",
                "Windows <<ntdll.dll!RtlUserThreadStart>> > module app.exe <<app.exe!main>> > module core.dll <<core.dll!Math::Matrix::multiply>> = 1",
                "Windows <<ntdll.dll!RtlUserThreadStart>> > module lib.dll <<lib.dll!?>> > module app.exe <<app.exe!callback>> = 4",
                "[no stack] > module clr <<jit:clr!App.Shop.Order..ctor>> > .NET libraries <<jit:clr!System.Decimal.Add>> = 8",
            ],
        ),
    ];
    for (name, expected) in rows {
        let (stacks, excluded) = grouped(profile(PROGRAM, STACKS), &patterns(&[("preset", name)]));
        assert_eq!(stacks, *expected, "{name}");
        assert_eq!(excluded, 0, "{name}");
    }
    let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
    assert_eq!(names.len(), rows.len());
    assert!(rows.iter().all(|(name, _)| names.contains(name)));
}

#[test]
fn groups_apply_in_their_order() {
    // Groups, and what they make of the two stacks.
    let rows: &[(&str, &str)] = &[
        // After a simple group, later patterns apply to the new name.
        ("a!->one;one->two", "two > b!g > two"),
        ("one->two;a!->one", "one > b!g > one"),
        ("a!->one;a!->two", "one > b!g > one"),
        // After an entry group, none does.
        ("a!=>one;one->two;a!->two", "one <<a!f>> > b!g > one <<a!h>>"),
        ("a!->one;one=>two", "two <<a!f>> > b!g > two <<a!h>>"),
        // A group without a name leaves frames alone.
        ("a!h->;a!=>one", "one <<a!f>> > b!g > a!h"),
        ("a!=>one;a!h->", "one <<a!f>> > b!g > one <<a!h>>"),
        ("a!->one;one->;one->two", "one > b!g > one"),
        // Names of captures, of everything that matched, and a name without captures.
        ("{%}!{%}->$2 of $1", "f of a > g of b > h of a"),
        ("a!->[$&]", "[a!] > b!g > [a!]"),
        ("a!->US$", "US$ > b!g > US$"),
        ("{x}|a!->$1", "a!f > b!g > a!h"),
        // Frames of one entry group are one only if they call each other.
        ("*=>all", "all <<a!f>>"),
        ("*->all", "all"),
        ("[comment] A!F -> x ; ; b!g->y", "x > y > a!h"),
        (r"@^a!(?:f|h)$->$&", "a!f > b!g > a!h"),
        ("^!->x", "a!f > b!g > a!h"),
        ("f|g|h->x", "x"),
        // The `!` is in no run of letters.
        ("a%f->x;a*h->y;%!g->z", "a!f > z > y"),
        ("a!.->x;a!(->x;a!+->x", "a!f > b!g > a!h"),
    ];
    for (groups, expected) in rows {
        let (stacks, _) = grouped(profile("", &[("a!f > b!g > a!h", 1)]), &patterns(&[("group", groups)]));
        assert_eq!(stacks, [format!("{expected} = 1")], "{groups}");
    }
}

#[test]
fn stacks_are_excluded_folded_and_included_in_this_order() {
    type Row = (&'static [(&'static str, &'static str)], &'static [&'static str], u64);
    let rows: &[Row] = &[
        (&[], &["a!f > a!g > b!h = 1", "b!h > c!i = 2", "c!i > c!j > c!i = 4"], 0),
        // Exclude: any pattern and any frame.
        (&[("exclude", "a!g")], &["b!h > c!i = 2", "c!i > c!j > c!i = 4"], 1),
        (&[("exclude", "a!g;c!j")], &["b!h > c!i = 2"], 5),
        // A folded frame still excludes and includes.
        (&[("exclude", "a!g"), ("fold", "a!g")], &["b!h > c!i = 2", "c!i > c!j > c!i = 4"], 1),
        (&[("include", "a!g"), ("fold", "a!g")], &["a!f > b!h = 1"], 6),
        // Fold: the innermost frame counts for its caller, the outermost one disappears.
        (&[("fold", "b!h")], &["a!f > a!g = 1", "c!i = 2", "c!i > c!j > c!i = 4"], 0),
        (&[("fold", "c!j")], &["a!f > a!g > b!h = 1", "b!h > c!i = 2", "c!i = 4"], 0),
        (&[("fold", "a!;b!"), ("fold", "c!i")], &["[folded] = 3", "c!j = 4"], 0),
        // Include: every pattern, not necessarily of different frames.
        (&[("include", "b!h")], &["a!f > a!g > b!h = 1", "b!h > c!i = 2"], 4),
        (&[("include", "b!h"), ("include", "c!")], &["b!h > c!i = 2"], 5),
        (&[("include", "b!h;b!h")], &["a!f > a!g > b!h = 1", "b!h > c!i = 2"], 4),
        (&[("include", "b!h"), ("exclude", "c!")], &["a!f > a!g > b!h = 1"], 6),
        (&[("include", "nothing")], &[], 7),
        // All of them see the names of groups.
        (
            &[("group", "a!->one"), ("exclude", "a!")],
            &["b!h > c!i = 2", "c!i > c!j > c!i = 4", "one > b!h = 1"],
            0,
        ),
        (&[("group", "a!->one"), ("include", "one")], &["one > b!h = 1"], 6),
        (&[("group", "a!->one"), ("fold", "one")], &["b!h = 1", "b!h > c!i = 2", "c!i > c!j > c!i = 4"], 0),
        // A frame inside an entry group is not tested: it became its caller.
        (
            &[("group", "a!=>one"), ("exclude", "a!g")],
            &["b!h > c!i = 2", "c!i > c!j > c!i = 4", "one <<a!f>> > b!h = 1"],
            0,
        ),
        // If the entry point is folded, the next frame of the group is the entry point.
        (
            &[("group", "a!=>one"), ("fold", "<<a!f")],
            &["b!h > c!i = 2", "c!i > c!j > c!i = 4", "one <<a!g>> > b!h = 1"],
            0,
        ),
    ];
    let stacks = &[("a!f > a!g > b!h", 1), ("b!h > c!i", 2), ("c!i > c!j > c!i > c!i", 4)];
    for (options, expected, excluded) in rows {
        let found = grouped(profile("", stacks), &patterns(options));
        assert_eq!(
            found,
            (expected.iter().map(|&stack| stack.to_owned()).collect(), *excluded),
            "{options:?}"
        );
    }
}

#[test]
fn own_code_is_in_the_directories_of_programs_and_in_listed_ones() {
    let stack = r"C:\Windows\System32\ntdll.dll!start > \Device\HarddiskVolume3\App\app.exe!main > C:\App\x.dll!f > C:\Application\y.dll!g > [no stack]";
    let other = "other code <<ntdll.dll!start>>";
    let rows: &[(&str, &[&str], String)] = &[
        (
            r"\Device\HarddiskVolume3\App\app.exe",
            &[],
            format!("{other} > app.exe!main > other code <<x.dll!f>> > [no stack]"),
        ),
        (r"c:\APP\app.exe", &[], format!("{other} > x.dll!f > other code <<y.dll!g>> > [no stack]")),
        // Listed directories are on any volume.
        ("", &[r"C:\App"], format!("{other} > app.exe!main > x.dll!f > other code <<y.dll!g>> > [no stack]")),
        (
            "",
            &[r"d:/app\", r"\application"],
            format!("{other} > app.exe!main > x.dll!f > y.dll!g > [no stack]"),
        ),
        // Directories of Windows and of hosts contain the code of others, and so does the root.
        (r"C:\Windows\System32\svchost.exe", &[], format!("{other} > [no stack]")),
        (r"C:\App\dotnet.exe", &[], format!("{other} > [no stack]")),
        (r"C:\app.exe", &[], format!("{other} > [no stack]")),
        ("", &[], format!("{other} > [no stack]")),
    ];
    for (program, listed, expected) in rows {
        let mut options = vec![("preset", "just-my-code")];
        options.extend(listed.iter().map(|directory| ("own", *directory)));
        let (stacks, _) = grouped(profile(program, &[(stack, 1)]), &patterns(&options));
        assert_eq!(stacks, [format!("{expected} = 1")], "{program} {listed:?}");
    }
    // Groups of the user come first.
    let options = [("group", r"\ntdll!->;y.dll!->why"), ("preset", "just-my-code")];
    let (stacks, _) = grouped(profile(r"C:\App\a.exe", &[(stack, 1)]), &patterns(&options));
    assert_eq!(stacks, ["ntdll.dll!start > other code <<app.exe!main>> > x.dll!f > why > [no stack] = 1"]);
}

#[test]
fn bad_patterns_get_one_sentence() {
    let long = "x".repeat(PATTERN_LENGTH_MAX + 1);
    let many = vec!["x->y"; PATTERNS_MAX + 1].join(";");
    let rows: &[(&str, &str)] = &[
        ("", "the pattern `` is empty, and would match every frame; `*` does that"),
        (" ; ", "the pattern ` ; ` is empty, and would match every frame; `*` does that"),
        ("->x", "the pattern `` is empty, and would match every frame; `*` does that"),
        ("@->x", "the pattern `@` is empty, and would match every frame; `*` does that"),
        ("x", "expected PATTERN->NAME or PATTERN=>NAME, found `x`"),
        ("{x->y", "the braces of the pattern `{x` do not match"),
        ("x}->y", "the braces of the pattern `x}` do not match"),
        ("{x}->$2", "the name `$2` refers to $2, but the pattern has 1 captures in braces"),
        ("@(->y", "the pattern `@(` is not a regular expression: unclosed group"),
        (&format!("{long}->y"), "a pattern has 1025 bytes; at most 1024 are allowed"),
        (r"@\w{900}{900}->y", r"the pattern `@\w{900}{900}` is too large"),
        (&many, "there are more than 64 patterns of one kind"),
    ];
    for (text, expected) in rows {
        assert_eq!(Patterns::default().group(text).unwrap_err().to_string(), *expected);
    }
    let mut patterns = Patterns::default();
    for _ in 0..PATTERNS_MAX {
        patterns.include("x").unwrap();
    }
    assert!(patterns.include("x").is_err());
    assert!(Patterns::default().own_directory(r"C:\").is_err());
}

/// Stacks of the functions `f` to `i` in the modules `a` to `c`.
fn random_stacks() -> impl Strategy<Value = Vec<(String, u32)>> {
    let frame = prop_oneof![
        8 => ("[abc]", "[fghi]").prop_map(|(module, function)| format!("{module}!{function}")),
        1 => "[abc]\\+1",
        1 => Just("[no stack]".to_owned()),
    ];
    let stack = prop::collection::vec(frame, 1..9).prop_map(|frames| frames.join(" > "));
    prop::collection::vec((stack, 1_u32..100), 1..20)
}

fn random_options() -> impl Strategy<Value = Vec<(&'static str, String)>> {
    let pattern = "[abc]?!?[fghi?*]";
    let option = prop_oneof![
        ("[abc]!|![fg]|\\*", prop_oneof!["->", "=>"], "|one|two|a!f")
            .prop_map(|(pattern, arrow, name)| ("group", format!("{pattern}{arrow}{name}"))),
        pattern.prop_map(|text| ("fold", text)),
        pattern.prop_map(|text| ("exclude", text)),
        pattern.prop_map(|text| ("include", text)),
        prop::sample::select(PRESETS).prop_map(|preset| ("preset", preset.name.to_owned())),
    ];
    prop::collection::vec(option, 0..5)
}

proptest! {
    #[test]
    fn weights_are_conserved(stacks in random_stacks(), options in random_options()) {
        let stacks: Vec<(&str, u32)> = stacks.iter().map(|(stack, weight)| (&**stack, *weight)).collect();
        let options: Vec<(&str, &str)> = options.iter().map(|(option, text)| (*option, &**text)).collect();
        let total: u64 = stacks.iter().map(|(_, weight)| u64::from(*weight)).sum();
        let mut found = profile(PROGRAM, &stacks);
        let threads: Vec<_> = found.samples().map(|sample| sample.thread).collect();
        let patterns = patterns(&options);
        let excluded = found.replace_stacks(patterns.regroup(&found, threads, Grouping::Function));
        prop_assert_eq!(found.weight() + excluded, total);
        if !patterns.selects() {
            prop_assert_eq!(excluded, 0);
        }
        for sample in found.samples() {
            let names: Vec<&str> = found.stack(sample.stack).map(|id| &*found.frame(id).name).collect();
            prop_assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{:?}", names);
        }
        // Without another group, a second time changes nothing.
        let before = shown(&found);
        let none = Patterns::default();
        prop_assert_eq!(grouped(found, &none), (before, 0));
    }

    /// The callers of a function add up to its total, and so do its callees and its own sum: by any
    /// grouping.
    #[test]
    fn butterflies_add_up(
        stacks in random_stacks(),
        options in random_options(),
        function in prop::sample::select(vec!["a!f", "b!g", "c!?", "a!", "one", "!"]),
    ) {
        let stacks: Vec<(&str, u32)> = stacks.iter().map(|(stack, weight)| (&**stack, *weight)).collect();
        let options: Vec<(&str, &str)> = options.iter().map(|(option, text)| (*option, &**text)).collect();
        let mut found = profile(PROGRAM, &stacks);
        let regrouped = patterns(&options).regroup(&found, [], Grouping::Function);
        found.replace_stacks(regrouped);
        let groups = Groups::new(&found, Grouping::Function);
        let observed = || found.samples().map(|sample| (sample.stack, Sums::one(sample.weight.into())));
        let is_function = |group: usize| groups.names()[group].contains(function);
        let butterfly = Butterfly::new(&found, &groups, observed(), is_function);
        let sum = |sums: &mut dyn Iterator<Item = &Sums>| sums.map(|sums| sums.amount).sum::<u64>();
        let total = butterfly.function.total.amount;
        prop_assert_eq!(sum(&mut butterfly.callers.values()), total);
        prop_assert_eq!(sum(&mut butterfly.callees.values()), total);
        let own = butterfly.callees.get(&None).copied().unwrap_or_default();
        prop_assert_eq!(own, butterfly.function.own);
        prop_assert_eq!(butterfly.whole.amount, found.weight());
        // The function is neither its own caller nor its own callee.
        let neighbours = butterfly.callers.keys().chain(butterfly.callees.keys()).flatten();
        prop_assert!(neighbours.into_iter().all(|&group| !is_function(group)));
        // One function alone: the same sums as in the list of functions.
        let totals = groups.totals(&found, observed());
        for (group, expected) in totals.iter().enumerate() {
            let one = Butterfly::new(&found, &groups, observed(), |number| number == group);
            prop_assert_eq!(one.function, *expected);
        }
    }
}

/// Inlined functions are parts of the frame that contains their code.
#[test]
fn inlined_functions_are_frames() {
    let stacks = || {
        let mut builder = ProfileBuilder::new("", 0);
        let process = builder.process(Process::default()).unwrap();
        let thread = Thread { process, tid: Some(1), name: String::new(), start: None, end: None };
        let thread = builder.thread(thread).unwrap();
        let [unused, outer, inner] =
            ["unused", "outer", "inner"].map(|name| frame(&mut builder, &format!(r"C:\App\app.exe!{name}")));
        let inline = |name: &str| InlineName { text: format!("app.exe!{name} [inlined]"), source: None };
        let inlines = vec![inline("second"), inline("first")];
        let name =
            FrameName { text: "app.exe!inner".into(), origin: Origin::Pdb, offset: 4, source: None, inlines };
        builder.name_frame(inner, name);
        builder.stack(None, unused).unwrap();
        let caller = builder.stack(None, outer).unwrap();
        let stack = builder.stack(Some(caller), inner).unwrap();
        builder.sample(Sample { time: Nanos(0), thread, stack, weight: 7, cpu: None });
        builder.finish()
    };
    for (options, expected, excluded) in [
        (
            &[][..],
            &["app.exe!outer > app.exe!inner > app.exe!first [inlined] > app.exe!second [inlined] = 7"][..],
            0,
        ),
        (&[("fold", "!first")], &["app.exe!outer > app.exe!inner > app.exe!second [inlined] = 7"], 0),
        (
            &[("fold", "!inner")],
            &["app.exe!outer > app.exe!first [inlined] > app.exe!second [inlined] = 7"],
            0,
        ),
        (&[("group", "!inner->own;!first->own")], &["app.exe!outer > own > app.exe!second [inlined] = 7"], 0),
        (
            &[("include", "!second")],
            &["app.exe!outer > app.exe!inner > app.exe!first [inlined] > app.exe!second [inlined] = 7"],
            0,
        ),
        (&[("exclude", "!second")], &[], 7),
    ] {
        let (found, left_out) = grouped(stacks(), &patterns(options));
        assert_eq!(
            (&*found, left_out),
            (&*expected.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>(), excluded),
            "{options:?}"
        );
    }
    let mut unused = stacks();
    let before = shown(&unused);
    unused.remove_unused();
    assert_eq!((shown(&unused), unused.frames().len()), (before, 4));
}
