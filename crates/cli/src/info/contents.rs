//! The contents of a trace: counts of its records, providers and stacks.
//!
//! Reads the trace twice: first the definitions of stack keys and the schemas, then all records in
//! time order. Does not follow processes, modules and names as the pipeline does, because no count
//! depends on them.

use std::collections::{BTreeMap, HashMap};

use rustc_hash::FxBuildHasher;
use stackhound::Guid;
use stackhound::etl::record::HeaderKind;
use stackhound::etl::{Damage, Selection};
use stackhound::schema::{Identity, SchemaStore, kernel};
use stackhound::stacks::{Correlator, StackState, StackStats, StackSurvey, TriggerKind, Window};
use stackhound::trace::{Event, LossMap, OpenTrace};
use stackhound::types::FileTime;
use stackhound_export::json::info::{Contents, ProviderCount, StackCounts};
use stackhound_export::json::value::Time;

use super::session_info;
use crate::options::Common;
use crate::output::grouped;
use crate::progress::Progress;

/// Reads a trace of one file. Also returns the damage of the file.
pub fn read(trace: &OpenTrace, common: &Common) -> (Contents, Vec<Damage>) {
    let mut progress = Progress::of(common, trace);
    let (survey, losses, mut known) = survey(trace);
    let window = Window::of(&trace.clock());
    let mut correlator = Correlator::two_pass(window, trace.time_bases(), losses, survey);
    let mut counts = Counts::default();
    let mut events = trace.ordered();
    let mut ended = false;
    while !ended {
        match events.next() {
            Some(event) => {
                counts.add(&event);
                correlator.push(&event);
            }
            None => {
                correlator.end();
                ended = true;
            }
        }
        // The correlator keeps the records of stacks, which no schema describes.
        while let Some(delivered) = correlator.pop() {
            progress.tick_event(&delivered.event);
            counts.add_delivered(&delivered.event, &mut known);
        }
    }
    let stats = events.into_stats();
    let mut lost = String::new();
    if stats.buffers_missing > 0 {
        lost = format!(", {} buffers missing", grouped(stats.buffers_missing));
    }
    progress.finish(&lost);
    let mut contents = of_buffers(trace);
    contents.stacks = stack_counts(correlator.stats(), correlator.table().len(), &known);
    contents.schema_misses = known.misses();
    contents.out_of_order = stats.out_of_order;
    counts.report(&known, &mut contents);
    (contents, stats.damage.into_iter().map(|(_, damage)| damage).collect())
}

/// The first pass: reads only records with definitions of stack keys or schemas.
fn survey(trace: &OpenTrace) -> (StackSurvey, LossMap, SchemaStore) {
    let (mut survey, mut known) = (StackSurvey::default(), SchemaStore::new());
    let wanted = SchemaStore::select(Selection::none().hook_ids(StackSurvey::HOOK_IDS));
    let mut events = trace.selected(wanted);
    while let Some(event) = events.next() {
        survey.observe(&event);
        // Events whose description cannot be read count as events without a schema.
        let _ = known.learn_record(event.entry().tag, &event.record());
    }
    (survey, LossMap::surveyed(trace, events), known)
}

fn of_buffers(trace: &OpenTrace) -> Contents {
    let index = &trace.indexes()[0];
    let compressed_buffers = index.buffers.iter().filter(|buffer| buffer.compressed).count() as u64;
    let etl_file = &trace.sources()[0].etl_file;
    Contents {
        buffers: index.found(),
        compressed_buffers,
        compression: (compressed_buffers > 0).then(|| etl_file.compression().name()),
        buffers_missing: index.missing_buffers(),
        other_buffers: index.other_buffers,
        appended_sessions: index.sessions.iter().skip(1).map(|session| session_info(session)).collect(),
        ..Contents::default()
    }
}

fn stack_counts(stats: &StackStats, distinct_frames: usize, schemas: &SchemaStore) -> StackCounts {
    let mut by_triggering_event = BTreeMap::new();
    for (event, parts) in &stats.by_triggering_event {
        *by_triggering_event.entry(trigger_name(event, schemas)).or_default() += parts;
    }
    StackCounts {
        full: stats.full,
        keyed: stats.keyed,
        extended: stats.extended,
        definitions: stats.definitions,
        groups: stats.groups,
        attributed_parts: stats.attributed_parts,
        orphaned_parts: stats.orphaned_parts,
        ambiguous_parts: stats.ambiguous_parts,
        unresolved_keys: stats.unresolved_keys,
        distinct_frames: distinct_frames as u64,
        by_triggering_event,
        by_state: StackState::ALL
            .iter()
            .map(|state| (state.name(), stats.by_state[*state as usize]))
            .collect(),
    }
}

fn trigger_name(trigger: &TriggerKind, schemas: &SchemaStore) -> String {
    let named =
        |guid: &Guid| schemas.provider_name(*guid).map_or_else(|| guid.to_string(), |name| name.to_string());
    match trigger {
        TriggerKind::Hook(hook_id) => {
            kernel::name(*hook_id).map_or_else(|| format!("Hook({hook_id:#06x})"), str::to_owned)
        }
        TriggerKind::Classic(class, opcode) => format!("{}/Opcode({opcode})", named(class)),
        TriggerKind::Manifest(provider, id) => format!("{}/EventID({id})", named(provider)),
        TriggerKind::Other => "other".to_owned(),
    }
}

/// The counts of a provider.
struct Provider {
    guid: Guid,
    records: u64,
    /// The records that are not consumed as parts or definitions of stacks.
    delivered: u64,
    undescribed: u64,
}

/// The counts of a hook id.
#[derive(Clone, Copy, Default)]
struct HookId {
    records: u64,
    delivered: u64,
}

/// Counters in arrays. Hashes only the GUID of an event whose provider is not that of the previous
/// one.
struct Counts {
    kinds: [u64; HeaderKind::ALL.len()],
    hook_ids: Vec<HookId>,
    providers: Vec<Provider>,
    indexes: HashMap<Guid, usize, FxBuildHasher>,
    /// The index of the last provider.
    last: usize,
    first_time: FileTime,
    last_time: FileTime,
}

impl Default for Counts {
    fn default() -> Counts {
        Counts {
            kinds: Default::default(),
            hook_ids: vec![HookId::default(); 1 << 16],
            providers: Vec::new(),
            indexes: HashMap::default(),
            last: 0,
            first_time: FileTime(i64::MAX),
            last_time: FileTime(i64::MIN),
        }
    }
}

impl Counts {
    /// Counts a record.
    fn add(&mut self, event: &Event<'_>) {
        if event.index() == 0 {
            self.add_times(event);
        }
        let entry = event.entry();
        let kind = entry.kind();
        self.kinds[kind as usize] += 1;
        if kind.has_hook_id() {
            self.hook_ids[usize::from(entry.tag)].records += 1;
        } else if let Some(guid) = event.guid() {
            self.provider(guid).records += 1;
        }
    }

    /// Adds the times of a block, given its first event.
    fn add_times(&mut self, event: &Event<'_>) {
        let Some((first, last)) = event.block().extent().times else { return };
        // Each session of an appended trace has its own clock.
        let clock = event.block().session().clock();
        self.first_time = self.first_time.min(clock.to_file_time(first));
        self.last_time = self.last_time.max(clock.to_file_time(last));
    }

    fn provider(&mut self, guid: Guid) -> &mut Provider {
        if self.providers.get(self.last).is_none_or(|last| last.guid != guid) {
            let Counts { providers, indexes, .. } = self;
            self.last = *indexes.entry(guid).or_insert_with(|| {
                providers.push(Provider { guid, records: 0, delivered: 0, undescribed: 0 });
                providers.len() - 1
            });
        }
        &mut self.providers[self.last]
    }

    /// Counts an event that the correlator delivered, also as undescribed if its schema is not known.
    fn add_delivered(&mut self, event: &Event<'_>, schemas: &mut SchemaStore) {
        if event.kind().has_hook_id() {
            self.hook_ids[usize::from(event.entry().tag)].delivered += 1;
            return;
        }
        let record = event.record();
        let is_described = Identity::of(&record).is_some_and(|identity| {
            schemas.lookup(&identity, record.payload(), record.pointer_size()).is_some()
        });
        if let Some(guid) = record.guid() {
            let provider = self.provider(guid);
            provider.delivered += 1;
            provider.undescribed += u64::from(!is_described);
        }
    }

    /// Adds the kernel events to the counts of their classes.
    fn add_classes(&mut self) {
        for hook_id in 0..=u16::MAX {
            let HookId { records, delivered } = self.hook_ids[usize::from(hook_id)];
            if records > 0
                && let Some(class) = kernel::class_of_hook_id(hook_id)
            {
                let class = self.provider(class);
                class.records += records;
                class.delivered += delivered;
                class.undescribed += if kernel::name(hook_id).is_none() { delivered } else { 0 };
            }
        }
    }

    fn report(mut self, schemas: &SchemaStore, contents: &mut Contents) {
        let of = |kind: HeaderKind| self.kinds[kind as usize];
        contents.events = self.kinds.iter().sum();
        contents.classic_guid_events =
            HeaderKind::ALL.iter().copied().filter(|kind| kind.is_classic()).map(of).sum();
        contents.manifest_events =
            HeaderKind::ALL.iter().copied().filter(|kind| kind.has_descriptor()).map(of).sum();
        contents.by_header_type = HeaderKind::ALL
            .iter()
            .copied()
            .filter(|&kind| of(kind) > 0)
            .map(|kind| (kind.name(), of(kind)))
            .collect();
        let hook_ids = self.hook_ids.iter().enumerate().filter(|(_, count)| count.records > 0);
        contents.kernel_hook_ids =
            hook_ids.map(|(hook_id, count)| (format!("{hook_id:04x}"), count.records)).collect();
        self.add_classes();
        let provider = |Provider { guid, records, delivered, undescribed }: Provider| {
            let name = schemas.provider_name(guid).map(|name| name.to_string());
            let stack_records = records - delivered;
            (guid.to_string(), ProviderCount { name, events: records, stack_records, undescribed })
        };
        contents.providers = self.providers.into_iter().map(provider).collect();
        if contents.events > 0 {
            contents.first_event = Some(Time(self.first_time));
            contents.last_event = Some(Time(self.last_time));
        }
    }
}
