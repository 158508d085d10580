//! probe
use stackhound_record_ptrace::*;
fn main() {
    let mut a = std::env::args_os().skip(1);
    let limit = a.next().unwrap().to_str().unwrap().parse().unwrap();
    let a = a.collect::<Vec<_>>();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let mut r = Recorder::start(&a).unwrap_or_else(|e| panic!("{e}"));
    let start = std::time::Instant::now();
    let mut builder = stackhound_calltree::Builder::new();
    let show = std::env::var_os("SHOW").is_some();
    r.record(limit, &stop, |item| {
        if show {
            eprintln!("{item:?}");
        }
        match item {
            Item::Module(i) => {
                builder.module(i);
            }
            Item::Location(i) => {
                builder.location(i);
            }
            Item::Stack(i) => {
                builder.stack(i);
            }
            Item::Change(c) => builder.apply(c).map_err(std::io::Error::other)?,
        }
        Ok(())
    })
    .unwrap();
    let t = start.elapsed().as_secs_f64();
    let totals = r.totals();
    eprintln!("{totals:?} {:.0}/s", totals.transitions as f64 / t);
    eprintln!("{:?}", r.release().unwrap());
    let trace = builder.finish(totals.transitions).unwrap();
    eprintln!("{} frames {} bytes", trace.frame_count(), trace.as_bytes().len());
}
