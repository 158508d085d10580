//! Builds the index of a large generated trace and queries it at random contexts. Usage: `scale
//! [FRAMES]`. The default is 20 million frames, with 100 transitions per frame. Prints one table;
//! see `docs/speed.md`.

use std::hint::black_box;
use std::time::Instant;

use stackhound_calltree::{
    Builder, Change, ContextId, Cpu, EndType, Error, LocationInfo, ModuleInfo, Pattern, StackId, StackInfo,
    StackKind, StartType, Trace,
};

const STACKS: u32 = 4;
const FUNCTIONS: u64 = 60_000;
const QUERIES: u32 = 2_000_000;
const ROUNDS: usize = 10;
/// The depth of the measured backtraces.
const DEPTH: u64 = 30;

/// Xorshift (Marsaglia 2003) with a fixed seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }
}

fn main() -> Result<(), Error> {
    let frames: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(20_000_000);
    let start = Instant::now();
    let (builder, transitions) = generate(frames)?;
    let fed = start.elapsed();
    let fed_memory = memory();
    let start = Instant::now();
    let built = builder.finish(transitions)?;
    let laid_out = start.elapsed();
    let bytes = built.as_bytes().to_vec();
    let start = Instant::now();
    let trace = Trace::open(bytes.clone().into())?;
    let opened = start.elapsed();
    println!("transitions                      {:>14}", trace.transition_count());
    println!("frames                           {:>14}", trace.frame_count());
    println!("bytes                            {:>14}", bytes.len());
    println!("bytes per frame                  {:>14.2}", bytes.len() as f64 / trace.frame_count() as f64);
    println!("build: changes                   {:>11.2} s", fed.as_secs_f64());
    println!("build: index                     {:>11.2} s", laid_out.as_secs_f64());
    println!("build: memory before the index   {:>11} MB", fed_memory.0 / 1000);
    println!("build: most memory               {:>11} MB", memory().1 / 1000);
    println!("opening, checksums included      {:>11.0} ms", opened.as_secs_f64() * 1e3);

    let mut random = Random(7);
    let contexts: Vec<ContextId> = (0..QUERIES).map(|_| ContextId(random.below(transitions + 1))).collect();
    let context_to_frame = timed(&contexts, |context| {
        trace
            .context(context)
            .ok()
            .and_then(|context| context.stack())
            .and_then(|stack| stack.frame())
            .map(|f| f.id())
    });
    println!("context to frame                 {:>11} ns", context_to_frame);
    let frame_at = |context| trace.context(context).ok()?.stack()?.frame();
    let deep: Vec<ContextId> = contexts
        .iter()
        .copied()
        .filter(|context| frame_at(*context).is_some_and(|f| f.depth() == DEPTH - 1))
        .collect();
    let mut numbers = Vec::new();
    let backtrace = timed(&deep, |context| {
        numbers.clear();
        if let Some(stack) = trace.context(context).ok().and_then(|context| context.stack()) {
            stack.frame_ids(&mut numbers);
        }
        assert_eq!(numbers.len() as u64, DEPTH);
    });
    println!("backtrace of {DEPTH} from a context    {backtrace:>11} ns");
    let frames: Vec<_> = deep.iter().filter_map(|context| frame_at(*context)).collect();
    let backtrace = timed(&frames, |frame| {
        numbers.clear();
        frame.ancestor_ids(&mut numbers);
        assert_eq!(numbers.len() as u64, DEPTH - 1);
    });
    println!("backtrace of {DEPTH} from a frame      {backtrace:>11} ns");
    let parent = timed(&contexts[..contexts.len() / 10], |context| {
        let stack = trace.context(context).ok().and_then(|context| context.stack())?;
        stack.frame()?.parent().map(|frame| (frame.first_context().id(), frame.last_context().id()))
    });
    println!("parent with first and last       {:>11} ns", parent);
    let start = Instant::now();
    let calls = trace.calls(&Pattern::new("module3!function1??")?);
    println!("calls by name: found             {:>14}", calls.len());
    println!("calls by name                    {:>11.0} ms", start.elapsed().as_secs_f64() * 1e3);
    Ok(())
}

/// Returns the nanoseconds per query, as the median of ten rounds.
fn timed<Q: Copy, T>(queries: &[Q], mut query: impl FnMut(Q) -> T) -> u128 {
    let rounds = queries.chunks(queries.len().div_ceil(ROUNDS).max(1));
    let mut times: Vec<u128> = rounds
        .map(|round| {
            let start = Instant::now();
            for one in round {
                black_box(query(*one));
            }
            start.elapsed().as_nanos() / round.len() as u128
        })
        .collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or(0)
}

/// Generates calls and returns on four stacks, about 30 deep. A few functions are called often.
fn generate(frames: u64) -> Result<(Builder, u64), Error> {
    let mut builder = Builder::new();
    let modules = [0, 1, 2, 3, 4, 5]
        .map(|number| builder.module(ModuleInfo { name: format!("module{number}"), path: None, base: None }));
    let locations: Vec<_> = (0..FUNCTIONS)
        .map(|number| {
            builder.location(LocationInfo {
                address: None,
                module: Some(modules[number as usize % modules.len()]),
                rva: Some(number * 64),
                symbol: Some(format!("function{number}")),
                symbol_offset: 0,
            })
        })
        .collect();
    for thread in 0..STACKS {
        builder.stack(StackInfo {
            kind: StackKind::User,
            process: Some(1),
            thread: Some(thread),
            cpu: None,
            name: None,
            region: None,
        });
    }
    let mut random = Random(42);
    let mut depths = [0_u64; STACKS as usize];
    let (mut now, mut stack, mut made) = (0, StackId(0), 0);
    builder.apply(Change::Enter { cpu: Cpu(0), stack, first: ContextId(0) })?;
    while made < frames {
        // A call and its return, each with 50 transitions on average.
        now += 1 + random.below(99);
        let depth = &mut depths[stack.0 as usize];
        // A shallow stack usually grows, a deep stack usually shrinks.
        let calls = *depth == 0 || random.below(64) >= *depth;
        if calls {
            let location = locations[random.below(FUNCTIONS).min(random.below(FUNCTIONS)) as usize];
            let first = ContextId(now + 1);
            builder.apply(Change::Open { stack, first, start: StartType::Call, location: Some(location) })?;
            *depth += 1;
            made += 1;
        } else {
            let end = if random.below(10_000) == 0 { EndType::Unwound } else { EndType::Return };
            builder.apply(Change::Close { stack, last: ContextId(now), end })?;
            *depth -= 1;
        }
        if random.below(2_000) == 0 {
            now += 1;
            stack = StackId(random.below(u64::from(STACKS)) as u32);
            builder.apply(Change::Enter { cpu: Cpu(0), stack, first: ContextId(now + 1) })?;
        }
    }
    Ok((builder, now + 1))
}

/// Returns the current anonymous memory and the peak memory in kB, or zeros if they are unknown.
fn memory() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name| {
        let line = status.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
    };
    (field("RssAnon:"), field("VmHWM:"))
}
