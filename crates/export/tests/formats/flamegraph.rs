//! The flame graph: well-formed XML with the weight of all samples.

use std::collections::BTreeMap;

use proptest::prelude::*;
use quick_xml::Reader;
use quick_xml::events::Event;
use stackhound_export::flamegraph::compared::{self, Change, Compared};
use stackhound_export::flamegraph::{self, Form, Options};
use stackhound_profile::ProfileBuilder;
use stackhound_types::Mode;

use crate::profiles::{Facts, code_kind, facts, shown};

/// A box: number of samples to its left, its weight, vertical position, and tooltip. The horizontal
/// position and the width are checked while reading.
type Shown = (u64, u64, u64, String);

/// The total weight, the boxes, and all other texts. Reading the image also checks that it is XML.
fn read(image: &[u8]) -> (u64, Vec<Shown>, Vec<String>) {
    let mut reader = Reader::from_reader(image);
    reader.config_mut().check_end_names = true;
    let (mut total, mut boxes, mut texts, mut path) =
        (None, Vec::<Shown>::new(), vec![String::new()], Vec::new());
    let mut buffer = Vec::new();
    loop {
        let event = reader.read_event_into(&mut buffer).expect("XML");
        let is_empty = matches!(event, Event::Empty(_));
        match event {
            Event::Eof => break,
            Event::Start(start) | Event::Empty(start) => {
                let name = start.name().as_ref().to_owned();
                let attributes: BTreeMap<String, String> = start
                    .attributes()
                    .map(|attribute| attribute.expect("an attribute"))
                    .map(|found| (found.key.as_ref().to_owned(), found.value.into_owned()))
                    .collect();
                let number = |key: &str| attributes.get(key).map(|value| value.parse::<u64>().unwrap());
                total = total.or(number("data-total"));
                if let (Some(left), Some(weight)) = (number("data-x"), number("data-w")) {
                    boxes.push((left, weight, u64::MAX, String::new()));
                } else if let (Some(last), "rect") = (boxes.last_mut(), &*name)
                    && last.2 == u64::MAX
                {
                    last.2 = number("y").unwrap();
                    // The attributes have four decimals.
                    for (key, part) in [("x", last.0), ("width", last.1)] {
                        let percent: f64 = attributes[key].strip_suffix('%').unwrap().parse().unwrap();
                        let expected = part as f64 * 100.0 / total.unwrap() as f64;
                        assert!((percent - expected).abs() < 1e-4, "{key}: {percent}, not {expected}");
                    }
                }
                if !is_empty {
                    path.push(name);
                }
                texts.push(String::new());
            }
            Event::End(_) => drop(path.pop()),
            Event::Text(text) if path.ends_with(&["g".to_owned(), "title".to_owned()]) => {
                boxes.last_mut().unwrap().3.push_str(&text);
            }
            Event::GeneralRef(name) if path.ends_with(&["g".to_owned(), "title".to_owned()]) => {
                let c = match &*name {
                    "amp" => "&",
                    "lt" => "<",
                    "gt" => ">",
                    "quot" => "\"",
                    "#39" => "'",
                    other => panic!("{other}"),
                };
                boxes.last_mut().unwrap().3.push_str(c);
            }
            Event::Text(text) => texts.last_mut().unwrap().push_str(&text),
            _ => {}
        }
        buffer.clear();
    }
    (total.expect("a total"), boxes, texts)
}

fn options(form: Form) -> Options {
    Options { form, filter: String::new() }
}

fn image(facts: &Facts, options: &Options) -> Vec<u8> {
    let mut image = Vec::new();
    flamegraph::write(&facts.build(), options, &mut image).unwrap();
    image
}

/// The boxes without positions: one for each prefix of a path, with the weight of all paths that
/// have the prefix.
fn expected(facts: &Facts) -> (u64, Vec<(u64, String)>) {
    let (mut total, mut boxes) = (0, BTreeMap::<Vec<String>, u64>::new());
    for &(thread, _, stack, weight) in &facts.samples {
        let (process, pid) = &facts.processes[facts.threads[thread].0];
        if facts.is_timed && *pid == Some(0) {
            continue;
        }
        total += u64::from(weight);
        let process = pid.map_or(process.clone(), |pid| format!("{process} ({pid})"));
        let mut path = vec!["all (".to_owned(), format!("{} (process, ", shown(&process))];
        path.extend(facts.stacks[stack].iter().map(|&frame| {
            let frame = &facts.frames[frame];
            format!("{} ({}, ", shown(&frame.0), code_kind(frame).name())
        }));
        for length in 1..=path.len() {
            *boxes.entry(path[..length].to_vec()).or_default() += u64::from(weight);
        }
    }
    let boxes = boxes.into_iter().map(|(path, weight)| (weight, path.last().unwrap().clone()));
    let mut boxes: Vec<_> = boxes.collect();
    boxes.sort();
    (total, boxes)
}

proptest! {
    #[test]
    fn widths_are_the_weights_of_samples(facts in facts(), is_icicle: bool) {
        let form = if is_icicle { Form::Icicle } else { Form::Flame };
        let (total, wanted) = expected(&facts);
        prop_assume!(total > 0);
        let image = image(&facts, &options(form));
        let (read_total, boxes, texts) = read(&image);
        prop_assert_eq!(read_total, total);
        let mut found: Vec<(u64, String)> = boxes.iter().map(|(_, weight, _, title)| {
            let samples = if *weight == 1 { "sample" } else { "samples" };
            let share = *weight as f64 * 100.0 / total as f64;
            let end = format!("{weight} {samples}, {share:.2} %)");
            (*weight, title.strip_suffix(&end).unwrap_or_else(|| panic!("{title}: {end}")).to_owned())
        }).collect();
        found.sort();
        prop_assert_eq!(found, wanted);
        // Each box is next to one that contains it, towards the base of the stack, and boxes of a
        // row do not overlap.
        let base = boxes[0].2;
        for (left, weight, y, title) in &boxes[1..] {
            let below = if is_icicle { y - 17 } else { y + 17 };
            prop_assert_eq!(is_icicle, *y > base);
            prop_assert!(boxes.iter().any(|(l, w, row, _)| *row == below && l <= left && left + weight <= l + w), "{}", title);
            let overlaps = boxes.iter().filter(|(l, w, row, _)| row == y && l < &(left + weight) && left < &(l + w));
            prop_assert_eq!(overlaps.count(), 1);
        }
        let idle = facts.weight() - total;
        prop_assert_eq!(texts.iter().any(|text| text.starts_with("idle: ")), idle > 0);
        prop_assert_eq!(image.clone(), self::image(&facts, &options(form)), "different output for the same profile");
        // The image loads nothing. Names of namespaces are not loaded.
        let text = String::from_utf8(image).unwrap();
        prop_assert!(!text.contains("src=") && !text.contains("href") && !text.contains("@import"));
    }
}

fn one_sample(pid: u32) -> Facts {
    Facts {
        is_timed: true,
        processes: vec![("p".to_owned(), Some(pid))],
        threads: vec![(0, Some(0))],
        frames: vec![
            ("k".to_owned(), Some(Mode::Kernel), Some((0, 8, None))),
            ("u".to_owned(), Some(Mode::User), Some((0, 8, None))),
            ("j".to_owned(), Some(Mode::User), None),
            ("x".to_owned(), Some(Mode::User), None),
            ("n".to_owned(), Some(Mode::Kernel), None),
            ("[r]".to_owned(), None, None),
        ],
        stacks: vec![vec![0, 1, 2, 3, 4, 5]],
        samples: vec![(0, 1_500_000_000, 0, 1)],
        switches: Vec::new(),
        markers: Vec::new(),
    }
}

#[test]
fn images_need_samples_that_are_not_idle() {
    let profile = ProfileBuilder::new("nothing", 0).finish();
    let refused =
        |profile| flamegraph::write(profile, &options(Form::Flame), &mut Vec::new()).unwrap_err().to_string();
    assert!(refused(&profile).starts_with("no selected event has a stack"));
    assert!(refused(&one_sample(0).build()).starts_with("all selected samples are of idle"));
}

/// Frames of one process, each with one stack.
fn flat(frames: &[(&str, u32)]) -> Facts {
    let (mut facts, numbers) = (one_sample(8), 0..frames.len());
    let frame = |(name, _): &(&str, u32)| ((*name).to_owned(), Some(Mode::User), Some((0, 8, None)));
    facts.frames = frames.iter().map(frame).collect();
    facts.stacks = numbers.clone().map(|number| vec![number]).collect();
    facts.samples = numbers.map(|number| (0, 0, number, frames[number].1)).collect();
    facts
}

/// A frame of exactly 0.01 % is drawn.
#[test]
fn narrow_frames_are_left_out_and_counted() {
    type Row<'t> = (&'t [(&'t str, u32)], &'t [(&'t str, u64)], &'t str);
    let table: &[Row<'_>] = &[
        (&[("a", 1), ("b", 20_000), ("c", 1)], &[("b", 1)], "2 frames narrower than 0.01 % not shown"),
        (&[("a", 1), ("b", 10_000)], &[("b", 1)], "1 frame narrower than 0.01 % not shown"),
        (&[("a", 1), ("b", 9_999)], &[("a", 0), ("b", 1)], ""),
        (
            &[("a", 2), ("b", 20_000), ("c", 3)],
            &[("b", 2), ("c", 20_002)],
            "1 frame narrower than 0.01 % not shown",
        ),
    ];
    for (frames, drawn, line) in table {
        let (_, boxes, texts) = read(&image(&flat(frames), &options(Form::Flame)));
        let found: Vec<_> = boxes.iter().skip(2).map(|(left, .., title)| (&title[..1], *left)).collect();
        assert_eq!(found, *drawn);
        let lines: Vec<_> =
            texts.iter().map(|text| text.trim()).filter(|text| text.ends_with("not shown")).collect();
        assert_eq!(lines, [*line].into_iter().filter(|line| !line.is_empty()).collect::<Vec<_>>());
    }
}

/// Without the script, a long line is cut where the image ends. The script continues it below.
#[test]
fn the_script_gets_whole_lines_of_the_header() {
    let whole = format!("process = '{}…'", "x".repeat(400));
    let long = "y".repeat(2_000);
    let table = [
        (&whole, format!("filter: process = &#39;{}…&#39;", "x".repeat(400))),
        (&long, format!("filter: {}…", "y".repeat(1_000 - "filter: ".len()))),
    ];
    for (filter, expected) in table {
        let options = Options { form: Form::Flame, filter: filter.clone() };
        let image = String::from_utf8(image(&one_sample(8), &options)).unwrap();
        assert!(image.contains(&format!("data-text=\"{expected}\"")), "{image}");
        let shown = image.split(">filter: ").nth(1).unwrap().split("</text>").next().unwrap();
        assert!(shown.chars().count() < 170 && shown.ends_with('…'), "{shown}");
    }
}

/// The relative luminance of WCAG 2.
fn luminance(color: &str) -> f64 {
    let part = |at: usize| {
        let value = f64::from(u8::from_str_radix(&color[at..at + 2], 16).unwrap()) / 255.0;
        if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * part(0) + 0.7152 * part(2) + 0.0722 * part(4)
}

#[test]
fn the_header_explains_the_image_and_its_colors() {
    let options = Options { form: Form::Flame, filter: "pid = 8 & <x>".to_owned() };
    let image = String::from_utf8(image(&one_sample(8), &options)).unwrap();
    for text in ["a trace.etl", "1 sample, +1.500 s to +1.500 s", "filter: pid = 8 &amp; &lt;x&gt;"] {
        assert!(image.contains(&format!(">{text}</text>")), "{text}");
    }
    assert!(image.contains("role=\"graphics-document\"") && image.contains("<title>a trace.etl</title>"));
    for button in ["search", "reset"] {
        let element = image.split('<').find(|part| part.contains(&format!("id=\"{button}\""))).unwrap();
        assert!(element.contains("role=\"button\" tabindex=\"0\""), "{element}");
    }
    let legend = &image[image.find("id=\"legend\"").unwrap()..image.find("id=\"controls\"").unwrap()];
    for kind in ["process", "kernel", "user", "JIT", "unbacked", "unknown", "remark"] {
        assert!(legend.contains(&format!(">{kind}</text>")), "{kind}");
    }
    let colors: Vec<&str> = image.split("fill: #").skip(1).map(|rest| &rest[..6]).collect();
    // Four shades of each kind, and the color of found frames.
    assert_eq!(colors.len(), 7 * 4 + 1);
    for color in colors {
        assert!((luminance(color) + 0.05) / 0.05 >= 7.0, "black on #{color}");
    }
}

/// A tree of boxes: for each the caller among the earlier ones, and its own weight.
fn compared_boxes(calls: &[(prop::sample::Index, u64)]) -> Vec<Compared> {
    let of = |caller, name: String, weight, number: usize| Compared {
        caller,
        name,
        weight,
        change: Change::ALL[number % 4],
        size: number as f64 / 7.0,
        note: format!("A {number} ms"),
    };
    let mut boxes = vec![of(None, "all".to_owned(), 0, 2)];
    for (number, (caller, weight)) in calls.iter().enumerate() {
        let caller = caller.index(boxes.len());
        boxes.push(of(Some(caller), format!("f{number}"), *weight, number));
        let mut at = Some(caller);
        while let Some(caller) = at {
            boxes[caller].weight += weight;
            at = boxes[caller].caller;
        }
    }
    boxes
}

proptest! {
    #[test]
    fn compared_boxes_have_the_given_widths_and_colors(
        calls in prop::collection::vec((any::<prop::sample::Index>(), 0_u64..4), 1..30),
        is_icicle: bool,
    ) {
        let boxes = compared_boxes(&calls);
        let form = if is_icicle { Form::Icicle } else { Form::Flame };
        let mut image = Vec::new();
        let header = vec!["A & B".to_owned()];
        let written = compared::write("<title>", header, &boxes, form, &mut image);
        if boxes[0].weight == 0 {
            prop_assert!(written.unwrap_err().to_string().starts_with("no selected event has a stack"));
            return Ok(());
        }
        written.unwrap();
        let (total, found, _) = read(&image);
        prop_assert_eq!(total, boxes[0].weight);
        let mut found: Vec<_> = found.into_iter().map(|(_, weight, _, title)| (weight, title)).collect();
        let drawn = boxes.iter().filter(|of| of.weight > 0);
        let mut expected: Vec<_> = drawn.map(|of| (of.weight, format!("{} ({})", of.name, of.note))).collect();
        found.sort();
        expected.sort();
        prop_assert_eq!(found, expected);
        let text = String::from_utf8(image).unwrap();
        prop_assert!(text.contains(">A &amp; B</text>") && text.contains(">&lt;title&gt;</text>"));
        for of in boxes.iter().filter(|of| of.weight > 0) {
            let class = ['m', 'l', 'o', 'q'][Change::ALL.iter().position(|change| *change == of.change).unwrap()];
            // Four shades, the most saturated one from three quarters of the largest difference on.
            let shade = if of.size >= 0.75 { 0 } else if of.size >= 0.5 { 1 } else if of.size >= 0.25 { 2 } else { 3 };
            let rect = format!("<title>{} ({})</title><rect class=\"{class}{shade}\"", of.name, of.note);
            prop_assert!(text.contains(&rect), "{}", rect);
        }
    }
}

#[test]
fn text_is_readable_on_the_colors_of_changes() {
    let boxes: Vec<_> = Change::ALL
        .into_iter()
        .enumerate()
        .map(|(number, change)| {
            let (caller, name) = ((number > 0).then_some(0), format!("f{number}"));
            Compared {
                caller,
                name,
                weight: if number == 0 { 3 } else { 1 },
                change,
                size: 1.0,
                note: String::new(),
            }
        })
        .collect();
    let mut image = Vec::new();
    compared::write("", Vec::new(), &boxes, Form::Flame, &mut image).unwrap();
    let image = String::from_utf8(image).unwrap();
    let legend = &image[image.find("id=\"legend\"").unwrap()..image.find("id=\"controls\"").unwrap()];
    for change in ["more in B", "less in B", "no change", "may be lost"] {
        assert!(legend.contains(&format!(">{change}</text>")), "{change}");
    }
    let colors: Vec<&str> = image.split("fill: #").skip(1).map(|rest| &rest[..6]).collect();
    assert_eq!(colors.len(), 4 * 4 + 1);
    for color in colors {
        assert!((luminance(color) + 0.05) / 0.05 >= 7.0, "black on #{color}");
    }
}
