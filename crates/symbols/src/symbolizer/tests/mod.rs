//! Tests of resolving, with custom loaders.

mod files;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use proptest::prelude::*;

use super::*;
use crate::failure::{Cause, FileKind};
use crate::name::{Inline, Line, Name, Names, Symbols};

/// Functions of 0x100 bytes, named after module and number. The last quarter of each has no name.
#[derive(Debug)]
struct Regular {
    module: String,
    memory: usize,
}

impl Symbols for Regular {
    fn names(&self, rva: Rva, kind: AddressKind) -> Names<'_> {
        let function = kind.looked_up(rva).0 / 0x100;
        let offset = rva.0 - function * 0x100;
        let name =
            |origin: &str| Some(Name { text: format!("{}_{origin}{function}", self.module).into(), offset });
        let export = if offset < 0x80 { name("export") } else { None };
        Names { pdb: if offset < 0xc0 { name("pdb") } else { None }, nearest_export: name("export"), export }
    }

    fn line(&self, rva: Rva, kind: AddressKind) -> Option<Line<'_>> {
        Some(Line { file: "main.c".into(), line: kind.looked_up(rva).0 / 16 + 1 })
    }

    fn inlines(&self, rva: Rva, kind: AddressKind) -> Vec<Inline<'_>> {
        let line = self.line(rva, kind);
        vec![Inline { function: "inlined".into(), line }; (rva.0 % 3) as usize]
    }

    fn memory(&self) -> usize {
        self.memory
    }
}

pub(super) fn table_of(memory: usize) -> Loaded {
    regular("table", memory)
}

fn regular(module: &str, memory: usize) -> Loaded {
    let symbols = Regular { module: module.to_owned(), memory };
    Loaded { symbols: Some(Box::new(symbols)), ..Loaded::default() }
}

fn module(number: u32) -> ModuleIdentity {
    ModuleIdentity { name: format!("m{number}.dll"), image: None, pdb: None }
}

fn options(threads: usize, memory_limit: usize) -> WorkOptions {
    WorkOptions { threads, memory_limit }
}

fn name(text: &str, offset: u32) -> Option<ResolvedName> {
    Some(ResolvedName { text: text.into(), offset })
}

#[test]
fn an_address_gets_its_names() {
    let loader: Loader = Box::new(|identity| regular(&identity.name, 100));
    let mut symbolizer = Symbolizer::with_loader(&options(1, 1 << 20), loader).unwrap();
    let number = symbolizer.module(&module(7));
    let called = symbolizer.request(number, Rva(0x100), AddressKind::Return);
    let current = symbolizer.request(number, Rva(0x100), AddressKind::Instruction);
    let tail = symbolizer.request(number, Rva(0x1f0), AddressKind::Instruction);
    assert!(symbolizer.frame(called).is_none(), "not waited for");
    symbolizer.wait();
    let called = symbolizer.frame(called).unwrap();
    assert_eq!((&called.pdb, &called.export), (&None, &None), "after the end of the symbol");
    assert_eq!(called.nearest_export, name("m7.dll_export0", 0x100));
    assert_eq!(called.line, Some(ResolvedLine { file: "main.c".into(), line: 16 }));
    assert_eq!(called.best().unwrap().1.offset, 0x100);
    let current = symbolizer.frame(current).unwrap();
    assert_eq!(current.pdb, name("m7.dll_pdb1", 0));
    assert_eq!(current.inlines.len(), 1);
    assert_eq!(symbolizer.frame(tail).unwrap().best().unwrap().0, crate::Origin::NearestExport);
    let same = (&current.export.as_ref().unwrap().text, &current.nearest_export.as_ref().unwrap().text);
    assert!(Arc::ptr_eq(same.0, same.1), "equal texts are stored once");
}

#[test]
fn requests_and_modules_are_counted_once() {
    let loader: Loader = Box::new(|identity| regular(&identity.name, 100));
    let mut symbolizer = Symbolizer::with_loader(&options(2, 1 << 20), loader).unwrap();
    let numbers: Vec<_> = [3, 5, 3].into_iter().map(|number| symbolizer.module(&module(number))).collect();
    assert_eq!(numbers.iter().map(|number| number.index()).collect::<Vec<_>>(), [0, 1, 0]);
    let mut frame = |number: usize, rva, kind| symbolizer.request(numbers[number], Rva(rva), kind).index();
    let frames = [
        frame(0, 1, AddressKind::Return),
        frame(0, 1, AddressKind::Instruction),
        frame(1, 1, AddressKind::Return),
        frame(2, 1, AddressKind::Return),
        frame(0, u32::MAX, AddressKind::Return),
        frame(0, 1, AddressKind::Return),
    ];
    assert_eq!(frames, [0, 1, 2, 0, 3, 0]);
    symbolizer.wait();
    let stats = symbolizer.stats();
    assert_eq!((stats.modules, stats.misses, stats.hits, stats.resolved), (2, 4, 2, 4));
}

/// Fifty modules, and many requests in mixed order. Each module is loaded once, never on the thread
/// of the caller.
#[test]
fn each_module_is_loaded_once() {
    let loads: Arc<Vec<AtomicU32>> = Arc::new((0..50).map(|_| AtomicU32::new(0)).collect());
    let caller = std::thread::current().id();
    let counted = Arc::clone(&loads);
    let loader: Loader = Box::new(move |identity| {
        assert_ne!(std::thread::current().id(), caller);
        let number: usize = identity.name[1..identity.name.len() - 4].parse().unwrap();
        counted[number].fetch_add(1, Ordering::Relaxed);
        regular(&identity.name, 1000)
    });
    let mut symbolizer = Symbolizer::with_loader(&options(3, 1 << 20), loader).unwrap();
    let numbers: Vec<_> = (0..50).map(|number| symbolizer.module(&module(number))).collect();
    for round in 0..100_000u32 {
        let number = numbers[(round.wrapping_mul(2_654_435_761) >> 8) as usize % 50];
        let frame = symbolizer.request(number, Rva(round / 4), AddressKind::Return);
        if round % 10_000 == 0 {
            symbolizer.wait_through(frame);
        }
    }
    symbolizer.wait();
    assert!(loads.iter().all(|loads| loads.load(Ordering::Relaxed) == 1));
    let stats = symbolizer.stats();
    assert_eq!((stats.loads, stats.evictions, stats.panics), (50, 0, 0));
    assert_eq!(stats.resolved, stats.misses);
    assert_eq!(stats.memory_peak, 50 * 1512);
}

#[test]
fn failures_are_counted_once_and_names_fall_back() {
    let loader: Loader = Box::new(|identity| {
        let failure = |file, cause| Failure { file, cause, detail: String::new() };
        match identity.name.as_str() {
            "m0.dll" => Loaded {
                failures: vec![failure(FileKind::Pdb, Cause::WrongAge)],
                ..regular(&identity.name, 1 << 30)
            },
            _ => Loaded {
                failures: vec![
                    failure(FileKind::Pdb, Cause::Damaged),
                    failure(FileKind::Image, Cause::NotInPath),
                ],
                ..Loaded::default()
            },
        }
    });
    let mut symbolizer = Symbolizer::with_loader(&options(2, 0), loader).unwrap();
    let numbers: Vec<_> = (0..3).map(|number| symbolizer.module(&module(number))).collect();
    assert_eq!(symbolizer.failures(numbers[0]), None);
    for rva in 0..5 {
        for &number in &numbers {
            symbolizer.request(number, Rva(rva), AddressKind::Return);
        }
        symbolizer.wait();
    }
    assert_eq!(symbolizer.failures(numbers[0]).unwrap().len(), 1);
    assert_eq!(symbolizer.failures(numbers[2]).unwrap().len(), 2);
    let stats = symbolizer.stats();
    assert_eq!((stats.loads, stats.evictions, stats.memory_peak), (15, 15, 0), "no table fits");
    assert_eq!((stats.resolved, stats.named), (15, 5));
    let failures: Vec<_> = stats.failures.into_iter().collect();
    assert_eq!(
        failures,
        [
            ((FileKind::Pdb, Cause::WrongAge), 1),
            ((FileKind::Pdb, Cause::Damaged), 2),
            ((FileKind::Image, Cause::NotInPath), 2)
        ]
    );
}

/// Panics at one address.
struct Fragile;

impl Symbols for Fragile {
    fn names(&self, rva: Rva, _: AddressKind) -> Names<'_> {
        assert_ne!(rva.0, 13, "intentional panic");
        Names { pdb: Some(Name { text: "f".into(), offset: rva.0 }), ..Names::default() }
    }

    fn line(&self, _: Rva, _: AddressKind) -> Option<Line<'_>> {
        None
    }

    fn inlines(&self, _: Rva, _: AddressKind) -> Vec<Inline<'_>> {
        Vec::new()
    }

    fn memory(&self) -> usize {
        1
    }
}

#[test]
fn a_panic_costs_one_name_or_one_module() {
    let loader: Loader = Box::new(|identity| {
        assert_ne!(identity.name, "m1.dll", "intentional panic");
        Loaded { symbols: Some(Box::new(Fragile)), ..Loaded::default() }
    });
    let mut symbolizer = Symbolizer::with_loader(&options(1, 1 << 20), loader).unwrap();
    let (good, bad) = (symbolizer.module(&module(0)), symbolizer.module(&module(1)));
    let frames: Vec<_> = (0..20).map(|rva| symbolizer.request(good, Rva(rva), AddressKind::Return)).collect();
    let lost = symbolizer.request(bad, Rva(1), AddressKind::Return);
    symbolizer.wait();
    for (rva, frame) in frames.into_iter().enumerate() {
        assert_eq!(symbolizer.frame(frame).unwrap().best().is_some(), rva != 13);
    }
    assert_eq!(symbolizer.frame(lost), Some(&ResolvedFrame::default()));
    assert_eq!(symbolizer.stats().panics, 2);
}

#[test]
fn code_around_an_address() {
    let loader: Loader = Box::new(|_| {
        let image = Some(crate::fixtures::Fixture::new("x.pdb", 0).image());
        Loaded { image, ..Loaded::default() }
    });
    let mut symbolizer = Symbolizer::with_loader(&options(1, 1 << 20), loader).unwrap();
    let number = symbolizer.module(&module(0));
    // All code is calls of five bytes.
    let code =
        |from: u32, to: u32| (from..to).map(|at| if at % 5 == 0x1000 % 5 { 0xe8 } else { 0 }).collect();
    type Row = (u32, Option<(u32, u32, bool)>);
    let rows: [Row; 6] = [
        (0x1032, Some((0x1022, 0x1042, true))),
        (0x1033, Some((0x1023, 0x1043, false))),
        (0x1000, Some((0x1000, 0x1010, false))),
        (0x1005, Some((0x1000, 0x1015, true))),
        (0x1ff8, Some((0x1fe8, 0x2000, false))),
        (0x9000, None),
    ];
    for (rva, expected) in rows {
        let frame = symbolizer.request(number, Rva(rva), AddressKind::Return);
        symbolizer.wait();
        let site = symbolizer.frame(frame).unwrap().call_site.as_deref();
        let expected = expected.map(|(from, to, ends_call)| ResolvedCallSite {
            before: code(from, rva),
            after: code(rva, to),
            ends_call: Some(ends_call),
            // The calls have the distance 0.
            instruction: ends_call.then(|| format!("call {rva:#x}").into()),
        });
        assert_eq!(site, expected.as_ref(), "{rva:#x}");
    }
}

/// Requests as (module, address, whether to wait after it).
fn requests() -> impl Strategy<Value = Vec<(u32, u32, bool)>> {
    prop::collection::vec((0..20u32, 0..0x600u32, prop::bool::weighted(0.02)), 1..400)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// The names do not depend on order, number of threads or memory.
    #[test]
    fn names_do_not_depend_on_history(requests in requests(), threads in 1..4usize, tables in 0..5usize) {
        let run = |requests: &mut dyn Iterator<Item = &(u32, u32, bool)>, threads, limit| {
            let loader: Loader = Box::new(|identity| regular(&identity.name, 1000));
            let mut symbolizer = Symbolizer::with_loader(&options(threads, limit), loader).unwrap();
            let mut frames = std::collections::BTreeMap::new();
            for &(number, rva, wait) in requests {
                let location = symbolizer.module(&module(number));
                frames.insert((number, rva), symbolizer.request(location, Rva(rva), AddressKind::Return));
                if wait {
                    symbolizer.wait();
                }
            }
            symbolizer.wait();
            let stats = symbolizer.stats();
            assert!(stats.memory_peak <= limit);
            let frame = |frame: FrameNumber| symbolizer.frame(frame).unwrap().clone();
            let named = frames.into_iter().map(|(key, number)| (key, frame(number))).collect::<Vec<_>>();
            (named, stats.resolved, stats.named, stats.hits)
        };
        let plain = run(&mut requests.iter(), 1, 1 << 20);
        prop_assert_eq!(&run(&mut requests.iter().rev(), threads, tables * 1512), &plain);
    }
}

/// This does not measure time. That a repeated request allocates nothing is tested by the
/// measurements.
#[test]
fn hits_do_not_use_the_threads() {
    let loads = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&loads);
    let loader: Loader = Box::new(move |identity| {
        counted.fetch_add(1, Ordering::Relaxed);
        regular(&identity.name, 10)
    });
    let mut symbolizer = Symbolizer::with_loader(&options(1, 0), loader).unwrap();
    let number = symbolizer.module(&module(0));
    for _ in 0..1000 {
        for rva in 0..10 {
            symbolizer.request(number, Rva(rva), AddressKind::Return);
        }
        symbolizer.wait();
    }
    assert_eq!(loads.load(Ordering::Relaxed), 1);
    assert_eq!(symbolizer.stats().hits, 9990);
}
