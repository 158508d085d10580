//! Show the IPv4 data that each process sends: `network_monitor FILE.etl`, or live on Windows.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::{env, error, io, sync::mpsc, thread};

use stackhound::live::Session;
use stackhound::{EventFilter, Provider, Trace};

/// The keyword of events about IPv4.
const IPV4: u64 = 0x10;
/// The event that reports sent data.
const DATA_SENT: u16 = 10;

fn main() -> Result<(), Box<dyn error::Error>> {
    let (sender, receiver) = mpsc::sync_channel::<(u32, IpAddr, u32)>(1 << 16);
    let worker = thread::spawn(move || {
        let mut sent = BTreeMap::<_, u64>::new();
        for (process, to, bytes) in receiver {
            *sent.entry((process, to)).or_default() += u64::from(bytes);
        }
        sent.iter().for_each(|((process, to), bytes)| println!("process {process}: {bytes} bytes to {to}"));
    });
    let data_sent = EventFilter::ids([DATA_SENT]).on_event(move |event| {
        let parser = event.parser()?;
        let _ = sender.send((parser.parse("PID")?, parser.parse("daddr")?, parser.parse("size")?));
        Ok(())
    });
    let network = Provider::named("Microsoft-Windows-Kernel-Network")?.any(IPV4).filter(data_sent);
    let file = env::args().nth(1);
    let trace = file.as_ref().map_or_else(|| Trace::live(Session::user("network-monitor")), Trace::file);
    let running = trace.enable(network).start()?;
    if file.is_none() {
        io::stdin().read_line(&mut String::new())?; // Enter ends the session.
    }
    let stats = if file.is_some() { running.wait()? } else { running.stop()? };
    worker.join().map_err(|_| "the worker panicked")?;
    eprintln!("data was sent {} times", stats.delivered);
    Ok(())
}
