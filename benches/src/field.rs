//! Builds the contenders of a row and stores them for its rounds.

use crate::contenders::governor::Governor;
use crate::contenders::mutex_map::MutexMap;
use crate::contenders::nothing::Nothing;
use crate::contenders::pingora::Pingora;
use crate::contenders::quota::Quota;
use crate::contenders::throttlecrab::Throttlecrab;
#[cfg(feature = "tidegate")]
use crate::contenders::tidegate::Tidegate;
use crate::contenders::unkeyed::{LeakyBucket, Ratelimit};
use crate::contenders::{Contender, Limit, Who};
use crate::measure::{Cell, Driver, Entry, Fenced, OneByOne, interleave, pass, verify};
use crate::workload::{KeyList, Value};
use std::hash::Hash;
use std::net::IpAddr;

/// How the calls of a row are made.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The limit of every key.
    pub limit: Limit,
    /// How many keys are known before the first timed call.
    pub keys: u32,
    /// How many threads call.
    pub threads: usize,
    /// Whether a fence follows each call.
    pub fence: bool,
    /// Rounds per contender.
    pub rounds: usize,
}

impl Plan {
    /// The capacity hint of contenders with one; with a single key still a small table.
    pub fn hint(self) -> usize {
        self.keys.max(1_000) as usize
    }
}

/// A kind of plain key that every contender supports.
pub trait PlainKey: Value + Hash + Eq + Send + 'static {
    /// tidegate with such keys.
    #[cfg(feature = "tidegate")]
    type Tidegate: Contender<Self>;
}

impl PlainKey for u64 {
    #[cfg(feature = "tidegate")]
    type Tidegate = Tidegate<u64>;
}

impl PlainKey for IpAddr {
    #[cfg(feature = "tidegate")]
    type Tidegate = Tidegate<IpAddr>;
}

/// The contenders of one row.
pub struct Field<'a> {
    plan: Plan,
    entries: Vec<Entry<'a>>,
}

impl<'a> Field<'a> {
    /// A field without contenders.
    pub fn new(plan: Plan) -> Self {
        Self { plan, entries: Vec::new() }
    }

    /// How the calls are made.
    #[cfg(feature = "tidegate")]
    pub fn plan(&self) -> Plan {
        self.plan
    }

    /// Adds a contender that is built and filled once and then called in every round.
    pub fn steady<C, L>(&mut self, who: Who, hint: usize, calls: &'a L) -> Result<(), String>
    where
        C: Contender<L::Key> + 'a,
        L: KeyList,
    {
        let contender = C::build(self.plan.limit, hint)?;
        L::visit(self.plan.keys, |key| {
            for _ in 0..self.plan.limit.calls_before() {
                contender.allow(key);
            }
        });
        if self.plan.fence {
            self.driven(who, C::EXACT, Fenced(contender), calls);
        } else {
            self.driven(who, C::EXACT, OneByOne(contender), calls);
        }
        Ok(())
    }

    /// Adds a driver of its own kind, already filled.
    pub fn driven<L, D>(&mut self, who: Who, exact: bool, driver: D, calls: &'a L)
    where
        L: KeyList,
        D: Driver<L> + 'a,
    {
        let plan = self.plan;
        self.entries.push(Entry::new(who, move || {
            let pass = pass(&driver, calls, plan.threads);
            if exact {
                verify(who, plan.limit, pass.allowed, calls.len())?;
            }
            Ok(pass.nanos)
        }));
    }

    /// Adds a contender that is built anew in every round and gets each key once.
    pub fn fresh<C, L>(&mut self, who: Who, hint: usize, calls: &'a L)
    where
        C: Contender<L::Key> + 'a,
        L: KeyList,
    {
        let plan = self.plan;
        self.entries.push(Entry::new(who, move || {
            let driver = OneByOne(C::build(plan.limit, hint)?);
            let pass = pass(&driver, calls, plan.threads);
            verify(who, plan.limit, pass.allowed, calls.len())?;
            Ok(pass.nanos)
        }));
    }

    /// Adds all contenders with string keys, one hot key or many.
    pub fn strings<T, S>(&mut self, texts: &'a T, strings: &'a S) -> Result<(), String>
    where
        T: KeyList<Key = str>,
        S: KeyList<Key = String>,
    {
        let hint = self.plan.hint();
        #[cfg(feature = "tidegate")]
        {
            self.steady::<Tidegate<String>, _>(Who::Growing, 0, texts)?;
            self.steady::<Tidegate<String>, _>(Who::Hinted, hint, texts)?;
        }
        self.steady::<Governor<String>, _>(Who::Governor, 0, strings)?;
        self.steady::<Quota<String>, _>(Who::Quota, 0, texts)?;
        if self.plan.keys > 1 {
            self.steady::<Quota<String>, _>(Who::QuotaHinted, hint, texts)?;
        }
        self.steady::<Throttlecrab, _>(Who::Throttlecrab, 0, texts)?;
        self.steady::<MutexMap<String>, _>(Who::MutexMap, 0, texts)?;
        self.steady::<Pingora, _>(Who::Pingora, 0, texts)?;
        self.steady::<Nothing, _>(Who::Nothing, 0, texts)
    }

    /// Adds all contenders whose keys may be plain values.
    pub fn values<K, L>(&mut self, calls: &'a L) -> Result<(), String>
    where
        K: PlainKey,
        L: KeyList<Key = K>,
    {
        let hint = self.plan.hint();
        #[cfg(feature = "tidegate")]
        {
            self.steady::<K::Tidegate, _>(Who::Growing, 0, calls)?;
            self.steady::<K::Tidegate, _>(Who::Hinted, hint, calls)?;
        }
        self.steady::<Governor<K>, _>(Who::Governor, 0, calls)?;
        self.steady::<Quota<K>, _>(Who::Quota, 0, calls)?;
        if self.plan.keys > 1 {
            self.steady::<Quota<K>, _>(Who::QuotaHinted, hint, calls)?;
        }
        self.steady::<MutexMap<K>, _>(Who::MutexMap, 0, calls)?;
        self.steady::<Pingora, _>(Who::Pingora, 0, calls)?;
        self.steady::<Nothing, _>(Who::Nothing, 0, calls)
    }

    /// Adds all contenders that start empty and learn string keys; with a hint of 0 they grow.
    pub fn newcomers<T, S>(&mut self, hint: usize, texts: &'a T, strings: &'a S)
    where
        T: KeyList<Key = str>,
        S: KeyList<Key = String>,
    {
        #[cfg(feature = "tidegate")]
        {
            if hint == 0 {
                self.fresh::<Tidegate<String>, _>(Who::Growing, 0, texts);
            }
            self.fresh::<Tidegate<String>, _>(Who::Hinted, texts.len(), texts);
        }
        self.fresh::<Governor<String>, _>(Who::Governor, hint, strings);
        self.fresh::<Quota<String>, _>(Who::Quota, hint, texts);
        self.fresh::<Throttlecrab, _>(Who::Throttlecrab, hint, texts);
        self.fresh::<MutexMap<String>, _>(Who::MutexMap, hint, texts);
        self.fresh::<Nothing, _>(Who::Nothing, hint, texts);
    }

    /// Adds the contenders with a single bucket that ignore the key.
    pub fn unkeyed<L: KeyList>(&mut self, calls: &'a L) -> Result<(), String> {
        self.steady::<Ratelimit, _>(Who::Ratelimit, 0, calls)?;
        self.steady::<LeakyBucket, _>(Who::LeakyBucket, 0, calls)
    }

    /// Runs the rounds; filled contenders get one round to warm up.
    pub fn run(self, warm_up: bool) -> Result<Vec<Cell>, String> {
        interleave(self.entries, self.plan.rounds, warm_up)
    }
}
