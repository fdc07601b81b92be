//! `tidegate ledger`: inspects and repairs an on-disk ledger.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde_json::{Map, Value, json};
use tidegate::durable::{
    self, Booking, CheckReport, EntryKind, FileOptions, Filter, Ledger, LedgerEntry, OpenError,
    ReadableTotals, RepairAction, Totals, Transfer,
};
use tidegate::policy::RuleId;
use tidegate::{
    Timestamp,
    clock::{Clock, SystemClock},
    edit::Change,
    report::KeyName,
};

use crate::args::{Attribute, Format, LedgerArgs, LedgerCommand, LedgerFilter, TotalsBy};
use crate::format;
use crate::io::{Exit, Io};

pub(crate) fn run(args: &LedgerArgs, io: &mut Io<'_>) -> io::Result<Exit> {
    let folder = &*args.folder;
    if !folder.is_dir() {
        let folder = format::visible(&folder.to_string_lossy());
        writeln!(io.stderr, "error: {folder} is not a folder")?;
        return Ok(Exit::Error);
    }
    if !has_ledger(folder) {
        let folder = format::visible(&folder.to_string_lossy());
        writeln!(io.stderr, "error: no ledger in {folder}: it has no .log file")?;
        return Ok(Exit::Error);
    }
    let done = match &args.command {
        LedgerCommand::List { filter, format } => list(folder, filter, *format, io)?,
        LedgerCommand::Totals { filter, by, format } => totals(folder, filter, *by, *format, io)?,
        LedgerCommand::Check { format } => check(folder, *format, io)?,
        LedgerCommand::Repair => repair(folder, io)?,
        LedgerCommand::Erase { attribute } => erase(folder, attribute, io)?,
    };
    done.or_else(|error| {
        writeln!(io.stderr, "error: {error}")?;
        Ok(Exit::Error)
    })
}

/// Whether the folder has files of a ledger. A repair may have moved all of them aside, or only the
/// one may be left that says that there was one.
fn has_ledger(folder: &Path) -> bool {
    let is_of_ledger = |name: std::ffi::OsString| {
        let name = name.to_string_lossy();
        let is_file = name.ends_with(".log") || name.ends_with(".snapshot");
        is_file || name == "begun" || name.contains(".damaged-")
    };
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten();
    names.map(|entry| entry.file_name()).any(is_of_ledger)
}

/// The exit status of a command, or why the ledger could not be used.
type LedgerResult = Result<Exit, OpenError>;

fn list(
    folder: &Path,
    filter: &LedgerFilter,
    format: Format,
    io: &mut Io<'_>,
) -> io::Result<LedgerResult> {
    let entries = match Ledger::open(folder).and_then(|it| it.entries(&filter.read())) {
        Ok(entries) => entries,
        Err(error) => return Ok(Err(error)),
    };
    let mut exit = Exit::Success;
    for entry in entries {
        match (entry, format) {
            (Ok(entry), Format::Json) => writeln!(io.stdout, "{}", as_json(&entry))?,
            (Ok(entry), Format::Text) => print_entry(&entry, io)?,
            (Err(error), _) => {
                writeln!(io.stderr, "error: {error}")?;
                exit = Exit::Error;
            }
        }
    }
    Ok(Ok(exit))
}

impl LedgerFilter {
    fn read(&self) -> Filter {
        let time = |time: jiff::Timestamp| format::since_1970(time).unwrap_or(Timestamp::ZERO);
        let mut filter = Filter::new();
        if let Some(domain) = &self.domain {
            filter = filter.domain(domain);
        }
        if let Some(rule) = &self.rule {
            filter = filter.rule(rule);
        }
        for Attribute { name, value } in &self.key {
            filter = filter.key(name, value);
        }
        if let Some(since) = self.since {
            filter = filter.since(time(since));
        }
        if let Some(until) = self.until {
            filter = filter.until(time(until));
        }
        filter
    }
}

/// Prints one line for the entry and one for each booking.
fn print_entry(entry: &LedgerEntry, io: &mut Io<'_>) -> io::Result<()> {
    let (at, what) = (format::exact_time(entry.at), EntryKind::name(&entry.what));
    write!(io.stdout, "{} {at} {what}", entry.number)?;
    if !entry.domain.is_empty() {
        write!(io.stdout, " in {}", format::visible(&entry.domain))?;
    }
    if let Some(hold) = entry.hold {
        write!(io.stdout, " of {hold}")?;
    }
    match &entry.what {
        EntryKind::RoundClosed { closed } => write!(io.stdout, ": number {closed}")?,
        EntryKind::Erased { keys } => write!(io.stdout, ": {keys} keys")?,
        EntryKind::Lost { bytes } => write!(io.stdout, ": {bytes} bytes")?,
        EntryKind::Edited(change) => {
            write!(io.stdout, ": {}", format::visible(&edit_text(change)))?
        }
        _ => {}
    }
    if let Some(text) = entry.note.as_ref().or(entry.cause.as_ref()) {
        write!(io.stdout, ": {}", format::visible(text))?;
    }
    writeln!(io.stdout)?;
    for Booking { key, booking, units, .. } in &entry.bookings {
        let (booking, key) = (Transfer::name(*booking), key_text(key));
        writeln!(io.stdout, "    {units} {booking} {key}")?;
    }
    Ok(())
}

fn edit_text(change: &Change) -> String {
    let actor = &change.actor;
    match (&change.before, &change.after) {
        (Some(_), Some(_)) => format!("{actor} changed {}", change.description()),
        (None, Some(after)) => format!("{actor} added {after}"),
        (Some(before), None) => format!("{actor} removed {before}"),
        (None, None) => format!("{actor} made a change"),
    }
}

fn key_text(key: &KeyName) -> String {
    let mut text = format::visible(key.rule().name()).to_string();
    for (attribute, value) in key.parts() {
        let value = match value {
            None => "(missing)".into(),
            // An erased name keeps only its length.
            Some(value) if !value.is_empty() && value.bytes().all(|byte| byte == 0) => {
                "(erased)".into()
            }
            Some(value) => format::visible(value).to_string(),
        };
        text.push_str(&format!(" {}={value}", format::visible(attribute)));
    }
    text
}

fn as_json(entry: &LedgerEntry) -> Value {
    let mut object = Map::new();
    object.insert("number".into(), entry.number.into());
    object.insert("at".into(), format::exact_time(entry.at).into());
    object.insert("what".into(), EntryKind::name(&entry.what).into());
    object.insert("domain".into(), (*entry.domain).into());
    if let Some(hold) = entry.hold {
        object.insert("reservation".into(), hold.to_string().into());
    }
    if let Some(note) = &entry.note {
        object.insert("note".into(), (**note).into());
    }
    if let Some(cause) = &entry.cause {
        object.insert("cause".into(), (**cause).into());
    }
    match &entry.what {
        EntryKind::RoundClosed { closed } => {
            object.insert("closed".into(), (*closed).into());
        }
        EntryKind::Erased { keys } => {
            object.insert("keys".into(), (*keys).into());
        }
        EntryKind::Lost { bytes } => {
            object.insert("bytes".into(), (*bytes).into());
        }
        EntryKind::Edited(change) => {
            object.insert("actor".into(), (*change.actor).into());
            object.insert("rule".into(), change.rule().map(RuleId::name).into());
            object.insert("before".into(), change.before.as_deref().into());
            object.insert("after".into(), change.after.as_deref().into());
        }
        _ => {}
    }
    let bookings = entry.bookings.iter().map(|Booking { key, booking, units, .. }| {
        json!({
            "rule": key.rule().name(),
            "key": key_json(key),
            "booking": Transfer::name(*booking),
            "units": units,
        })
    });
    object.insert("bookings".into(), bookings.collect());
    Value::Object(object)
}

fn key_json(key: &KeyName) -> Value {
    key.parts().map(|(attribute, value)| (attribute.to_owned(), Value::from(value))).collect()
}

fn totals(
    folder: &Path,
    filter: &LedgerFilter,
    by: TotalsBy,
    format: Format,
    io: &mut Io<'_>,
) -> io::Result<LedgerResult> {
    let sums = match by {
        TotalsBy::Key => durable::TotalsBy::Key,
        TotalsBy::Rule | TotalsBy::All => durable::TotalsBy::Rule,
    };
    let totals = Ledger::open(folder).and_then(|it| it.readable_totals(&filter.read(), sums));
    let ReadableTotals { totals: by_key, unreadable, .. } = match totals {
        Ok(totals) => totals,
        Err(error) => return Ok(Err(error)),
    };
    for error in &unreadable {
        writeln!(io.stderr, "warning: the totals are incomplete: {error}")?;
    }
    let mut lines: Vec<(Value, String, Totals)> = Vec::new();
    match by {
        TotalsBy::Key => lines.extend(by_key.iter().map(|(key, totals)| {
            let output =
                json!({ "domain": key.rule().domain(), "rule": key.rule().name(), "key": key_json(key) });
            (output, format!("{} {}", format::visible(key.rule().domain()), key_text(key)), *totals)
        })),
        TotalsBy::Rule => {
            let mut rules: BTreeMap<(&str, &str), Totals> = BTreeMap::new();
            for (key, totals) in &by_key {
                let sum = rules.entry((key.rule().domain(), key.rule().name())).or_default();
                *sum = sum.plus(totals);
            }
            lines.extend(rules.iter().map(|((domain, rule), totals)| {
                let output = json!({ "domain": domain, "rule": rule });
                (output, format!("{} {}", format::visible(domain), format::visible(rule)), *totals)
            }));
        }
        TotalsBy::All => {
            let add = |sum: Totals, (_, totals): &(KeyName, Totals)| sum.plus(totals);
            let sum = by_key.iter().fold(Totals::default(), add);
            lines.push((json!({}), "all".into(), sum));
        }
    }
    // Units committed in a range of time may have been granted before it.
    let is_whole = filter.since.is_none() && filter.until.is_none();
    let [equals, and] = if is_whole { [" =", " +"] } else { [",", ","] };
    for (mut output, text, totals) in lines {
        let Totals { granted, committed, refunded, held, expired, .. } = totals;
        match format {
            Format::Text => writeln!(
                io.stdout,
                "{text}: granted {granted}{equals} committed {committed}{and} refunded \
                 {refunded}{and} held {held}{and} expired {expired}"
            )?,
            Format::Json => {
                let names = ["granted", "committed", "refunded", "held", "expired"];
                for (name, units) in
                    names.into_iter().zip([granted, committed, refunded, held, expired])
                {
                    output[name] = units.into();
                }
                writeln!(io.stdout, "{output}")?;
            }
        }
    }
    Ok(Ok(if unreadable.is_empty() { Exit::Success } else { Exit::Failure }))
}

fn check(folder: &Path, format: Format, io: &mut Io<'_>) -> io::Result<LedgerResult> {
    let checked = match durable::check(folder) {
        Ok(checked) => checked,
        Err(error) => return Ok(Err(error)),
    };
    let CheckReport { entries, ledger, start, is_torn, .. } = checked;
    match format {
        Format::Json => {
            let text = |error: &Option<OpenError>| error.as_ref().map(ToString::to_string);
            let output = json!({
                "entries": entries,
                "torn": is_torn,
                "ledger": text(&ledger),
                "start": text(&start),
            });
            writeln!(io.stdout, "{output:#}")?;
        }
        Format::Text => {
            writeln!(io.stdout, "{entries} entries are readable")?;
            if is_torn {
                writeln!(
                    io.stdout,
                    "the last write is incomplete; it was never acknowledged and is ignored"
                )?;
            }
            for (what, error) in [("a process cannot start", &start), ("the ledger", &ledger)] {
                if let Some(error) = error {
                    writeln!(io.stdout, "{what}: {error}")?;
                }
            }
        }
    }
    let is_whole = ledger.is_none() && start.is_none();
    Ok(Ok(if is_whole { Exit::Success } else { Exit::Failure }))
}

fn repair(folder: &Path, io: &mut Io<'_>) -> io::Result<LedgerResult> {
    let done = match durable::repair(folder) {
        Ok(done) => done,
        Err(error) => return Ok(Err(error)),
    };
    if done.is_empty() {
        writeln!(io.stdout, "no damage found")?;
    }
    for it in &done {
        match it {
            RepairAction::Cut { file, at, kept_as } => writeln!(
                io.stdout,
                "cut {file} at byte {at}: what followed is lost; the original is kept as {kept_as}"
            )?,
            RepairAction::GaveUp { file, at, len, kept_as } => writeln!(
                io.stdout,
                "gave up {len} bytes of {file} at byte {at}: their entries are lost; the original is \
                 kept as {kept_as}"
            )?,
            RepairAction::Header { file, kept_as } => writeln!(
                io.stdout,
                "wrote the header of {file} again: nothing is lost; the original is kept as {kept_as}"
            )?,
            RepairAction::Missing { file } => {
                writeln!(io.stdout, "{file} is missing: all of its entries are lost")?;
            }
            RepairAction::Begins { file, kept_as } => writeln!(
                io.stdout,
                "the ledger begins with {file}: what was before is missing; the original is kept as \
                 {kept_as}"
            )?,
            RepairAction::PutAside { file, kept_as } => {
                writeln!(io.stdout, "moved {file} to {kept_as}")?;
            }
            RepairAction::StartsAnew => writeln!(
                io.stdout,
                "nothing is left of the ledger: all that was charged is lost, and the next start begins \
                 a new one"
            )?,
            _ => {}
        }
    }
    Ok(Ok(Exit::Success))
}

fn erase(folder: &Path, attribute: &Attribute, io: &mut Io<'_>) -> io::Result<LedgerResult> {
    // No bound on the number of keys.
    let options = FileOptions::default().max_keys(usize::MAX >> 16);
    let erased = options.open(folder).and_then(|store| {
        let now = SystemClock::no_earlier_than(store.last_time()).now();
        store.erase(&attribute.name, &attribute.value, now)
    });
    match erased {
        Ok(0) => {
            let Attribute { name, value } = attribute;
            writeln!(io.stdout, "no key has {name}={}", format::visible(value))?;
            Ok(Ok(Exit::Failure))
        }
        Ok(keys) => {
            writeln!(io.stdout, "erased the names of {keys} keys")?;
            Ok(Ok(Exit::Success))
        }
        Err(error) => Ok(Err(error)),
    }
}
