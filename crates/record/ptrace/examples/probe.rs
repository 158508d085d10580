//! probe
fn main() {
    let mut a = std::env::args_os().skip(1);
    let limit = a.next().unwrap().to_str().unwrap().parse().unwrap();
    stackhound_record_ptrace::probe(&a.collect::<Vec<_>>(), limit);
}
