use super::Dice;

/// A file, as programs see it and as a crash may leave it.
#[derive(Clone, Debug, Default)]
pub(super) struct File {
    /// As programs see it.
    now: Vec<u8>,
    /// What is durable, before any of the writes.
    base: Vec<u8>,
    writes: Vec<Write>,
    has_failed_to_sync: bool,
    /// Its length after a cut, which a crash may lose.
    cut: Option<usize>,
}

#[derive(Clone, Debug)]
struct Write {
    at: usize,
    bytes: Vec<u8>,
    fate: Fate,
}

/// What a crash does to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It stays.
    Safe,
    /// A sync may still make it durable.
    Pending,
    /// Undefined: a sync of it has failed.
    Unknown,
}

/// What a crash keeps of a sequence of changes.
#[derive(Clone, Copy, Debug)]
pub(super) enum CrashCut {
    All,
    Nothing,
    /// What comes before one of them, and a part of that one.
    Before(u64),
    Some,
}

impl CrashCut {
    pub(super) fn any(dice: &mut Dice) -> Self {
        match dice.below(4) {
            0 => Self::All,
            1 => Self::Nothing,
            2 => Self::Before(dice.bits()),
            _ => Self::Some,
        }
    }

    /// Whether it keeps the one at an index among `count`.
    pub(super) fn keeps(self, index: usize, count: usize, dice: &mut Dice) -> bool {
        match self {
            Self::All => true,
            Self::Nothing => false,
            Self::Before(bits) => (index as u64) < bits % (count as u64 + 1),
            Self::Some => dice.once_in(2),
        }
    }
}

impl File {
    /// A file that is durable as it is.
    pub(super) fn durable(bytes: Vec<u8>) -> Self {
        Self { now: bytes.clone(), base: bytes, ..Self::default() }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.now
    }

    pub(super) fn has_failed_to_sync(&self) -> bool {
        self.has_failed_to_sync
    }

    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) {
        put(&mut self.now, at, bytes);
        self.writes.push(Write { at, bytes: bytes.to_vec(), fate: Fate::Pending });
    }

    /// Makes it no longer than this. Nothing is written into it afterwards.
    pub(super) fn cut(&mut self, len: usize) {
        self.now.truncate(len);
        self.cut = Some(len);
    }

    pub(super) fn sync(&mut self) {
        if self.has_failed_to_sync {
            let pending = self.writes.iter_mut().filter(|write| write.fate == Fate::Pending);
            pending.for_each(|write| write.fate = Fate::Safe);
        } else {
            self.base = self.now.clone();
            self.writes.clear();
        }
    }

    pub(super) fn fail_to_sync(&mut self) {
        self.has_failed_to_sync = true;
        let pending = self.writes.iter_mut().filter(|write| write.fate == Fate::Pending);
        pending.for_each(|write| write.fate = Fate::Unknown);
    }

    /// One of the contents that a loss of power could leave.
    pub(super) fn after_crash(&self, dice: &mut Dice) -> Vec<u8> {
        let mut left = match dice.below(3) {
            0 => self.by_sector(dice),
            _ => self.by_write(dice),
        };
        // The length of a file may be lost, too.
        let safe = self.writes.iter().filter(|write| write.fate == Fate::Safe);
        let safe_len = safe.map(|write| write.at + write.bytes.len()).max().unwrap_or(0);
        let safe_len = safe_len.max(self.base.len());
        if left.len() > safe_len && dice.once_in(4) {
            let more = dice.below((left.len() - safe_len) as u64 + 1);
            left.truncate(safe_len + usize::try_from(more).unwrap_or(0));
        }
        if let Some(len) = self.cut.filter(|_| dice.once_in(2)) {
            left.truncate(len);
        }
        left
    }

    /// Every write stays, is lost or stays in part.
    fn by_write(&self, dice: &mut Dice) -> Vec<u8> {
        let cut = CrashCut::any(dice);
        let mut left = self.base.clone();
        for (index, write) in self.writes.iter().enumerate() {
            let (mut at, mut bytes) = (write.at, &*write.bytes);
            if write.fate != Fate::Safe {
                if !cut.keeps(index, self.writes.len(), dice) {
                    continue;
                }
                if matches!(cut, CrashCut::Some | CrashCut::Before(_)) && dice.once_in(3) {
                    let len = bytes.len() as u64;
                    let to = usize::try_from(dice.below(len + 1)).unwrap_or(0);
                    let from = if dice.once_in(2) { 0 } else { dice.below(to as u64 + 1) };
                    let from = usize::try_from(from).unwrap_or(0);
                    (at, bytes) = (at + from, &bytes[from..to]);
                }
            }
            if !bytes.is_empty() {
                put(&mut left, at, bytes);
            }
        }
        left
    }

    /// Every sector is as it was after some of the writes.
    fn by_sector(&self, dice: &mut Dice) -> Vec<u8> {
        let sector = usize::try_from(dice.one_of(&[64_u64, 512, 4_096])).unwrap_or(512);
        let mut left = self.base.clone();
        for start in (0..self.now.len()).step_by(sector) {
            let kept = dice.below(self.writes.len() as u64 + 1);
            for (index, write) in self.writes.iter().enumerate() {
                let from = start.max(write.at);
                let to = (start + sector).min(write.at + write.bytes.len());
                if from < to && (write.fate == Fate::Safe || (index as u64) < kept) {
                    put(&mut left, from, &write.bytes[from - write.at..to - write.at]);
                }
            }
        }
        left
    }
}

/// Writes into a file; a hole before it is full of zeros.
fn put(file: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    let end = at + bytes.len();
    if file.len() < end {
        file.resize(end, 0);
    }
    file[at..end].copy_from_slice(bytes);
}
