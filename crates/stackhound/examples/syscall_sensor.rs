//! Show which modules call which kernel services: `syscall_sensor FILE.etl`, or live on Windows.
//! Services are named from the files along _NT_SYMBOL_PATH, such as C:\Windows\System32.

use std::{collections::BTreeMap, env, error, io, sync::mpsc, thread};

use stackhound::live::{KernelProvider, Session};
use stackhound::symbols::path::SymbolPath;
use stackhound::{Enrichment, EventFilter, Label, Mode, Provider, Trace, pred};

fn main() -> Result<(), Box<dyn error::Error>> {
    let (sender, receiver) = mpsc::sync_channel::<(String, String)>(1 << 16);
    let worker = thread::spawn(move || {
        let mut calls = BTreeMap::<_, u64>::new();
        for call in receiver {
            *calls.entry(call).or_default() += 1;
        }
        calls.iter().for_each(|((module, service), count)| println!("{module} calls {service}: {count}"));
    });
    let enter = EventFilter::new(pred::event_is("PerfInfo/SysCallEnter")).on_event(move |event| {
        // The frame that entered the kernel: the stub of the service in ntdll.dll, or other code.
        let Some(stub) = event.frames().find(|frame| frame.mode == Mode::User) else { return };
        let service = Label { frame: &stub, names: event.names(&stub).as_deref() }.function();
        let caller = event.final_user_module().unwrap_or_default();
        let _ = sender.send((caller, service));
    });
    let path = SymbolPath::parse(&env::var("_NT_SYMBOL_PATH").unwrap_or_default())?;
    let file = env::args().nth(1);
    let trace = file.as_ref().map_or_else(|| Trace::live(Session::syscalls("syscall-sensor")), Trace::file);
    let calls = Provider::kernel(KernelProvider::named("system_call")?).filter(enter);
    let running = trace.enrich(Enrichment::named(path)?).enable(calls).start()?;
    if file.is_none() {
        io::stdin().read_line(&mut String::new())?; // Enter ends the session.
    }
    let stats = if file.is_some() { running.wait()? } else { running.stop()? };
    worker.join().map_err(|_| "the worker panicked")?;
    eprintln!("{} system calls", stats.delivered);
    Ok(())
}
