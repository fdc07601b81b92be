//! Logins of the dashboard: a browser presents a token once, and from then on a cookie.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::HeaderMap;
use http::header::COOKIE;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use tidegate::Timestamp;

use super::{AccessDenial, Principal};

/// The sessions of all browsers.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    /// By the SHA-256 of the cookie's value, so how long a search takes says nothing about it.
    open: Mutex<HashMap<[u8; 32], Session>>,
}

#[derive(Debug)]
struct Session {
    principal: Principal,
    began: Timestamp,
    used: Timestamp,
}

/// The session that a request is of.
#[derive(Clone, Debug)]
pub(crate) struct CurrentSession {
    pub(crate) principal: Principal,
    pub(crate) ends_in: Duration,
    id: [u8; 32],
}

/// The times at which a session is looked at: by the clock that requests are measured by, and by that
/// of the calendar, which the ends of tokens are given in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionTimes {
    pub(crate) now: Timestamp,
    pub(crate) wall: Timestamp,
}

impl Sessions {
    /// Opens a session, and returns the value of its cookie with it; `None` if the system has no random
    /// numbers.
    pub(crate) fn open(
        &self,
        principal: Principal,
        times: SessionTimes,
    ) -> Option<(String, CurrentSession)> {
        let mut bytes = [0; 32];
        SystemRandom::new().fill(&mut bytes).ok()?;
        let value = bytes.iter().fold(String::with_capacity(64), |mut text, byte| {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        });
        let mut open = self.lock();
        open.retain(|_, session| session.ends_in(times).is_some());
        if open.len() >= MOST_SESSIONS {
            let oldest = open.iter().min_by_key(|(_, session)| session.used).map(|(id, _)| *id);
            oldest.map(|id| open.remove(&id));
        }
        let id = id_of(&value);
        let session = Session { principal: principal.clone(), began: times.now, used: times.now };
        open.insert(id, session);
        Some((value, CurrentSession { principal, ends_in: SESSION_TIME, id }))
    }

    /// The session that the cookie of a request names, if it is open. It counts as used.
    pub(crate) fn current(
        &self,
        headers: &HeaderMap,
        times: SessionTimes,
    ) -> Result<Option<CurrentSession>, AccessDenial> {
        Ok(cookie(headers)?.and_then(|value| self.find(id_of(value), times)))
    }

    /// The session again, if it is still open. It counts as used.
    pub(crate) fn renewed(
        &self,
        session: &CurrentSession,
        times: SessionTimes,
    ) -> Option<CurrentSession> {
        self.find(session.id, times)
    }

    fn find(&self, id: [u8; 32], times: SessionTimes) -> Option<CurrentSession> {
        let mut open = self.lock();
        let session = open.get_mut(&id)?;
        let Some(ends_in) = session.ends_in(times) else {
            open.remove(&id);
            return None;
        };
        session.used = times.now;
        Some(CurrentSession { principal: session.principal.clone(), ends_in, id })
    }

    /// Ends a session.
    pub(crate) fn close(&self, session: &CurrentSession) {
        self.lock().remove(&session.id);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; 32], Session>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    /// The time until it ends; `None` if it has ended: it is too old, unused, or without a token.
    fn ends_in(&self, times: SessionTimes) -> Option<Duration> {
        let since = |at: Timestamp| {
            Duration::from_nanos(times.now.as_nanos().saturating_sub(at.as_nanos()))
        };
        let is_unused = since(self.used) >= UNUSED_TIME;
        let ends_in = SESSION_TIME.checked_sub(since(self.began))?;
        (!is_unused && !self.principal.is_over(times.wall)).then_some(ends_in)
    }
}

/// The header that stores a session in a browser; without a value it removes it.
pub(crate) fn set_cookie(value: Option<&str>, is_tls: bool) -> String {
    let secure = if is_tls { "; Secure" } else { "" };
    let (value, seconds) = match value {
        Some(value) => (value, SESSION_TIME.as_secs()),
        None => ("", 0),
    };
    format!("{NAME}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
}

/// The value of the session's cookie.
fn cookie(headers: &HeaderMap) -> Result<Option<&str>, AccessDenial> {
    let texts = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = texts.flat_map(|text| text.split(';')).filter_map(|pair| pair.split_once('='));
    let mut values = pairs.filter(|(name, _)| name.trim() == NAME).map(|(_, value)| value.trim());
    match (values.next(), values.next()) {
        (_, Some(_)) => Err(AccessDenial::Ambiguous("the cookie of the session appears twice")),
        (value, None) => Ok(value),
    }
}

fn id_of(value: &str) -> [u8; 32] {
    let mut id = [0; 32];
    id.copy_from_slice(digest(&SHA256, value.as_bytes()).as_ref());
    id
}

const NAME: &str = "tidegate_session";
/// How many sessions there may be; another one ends the one that was unused longest.
const MOST_SESSIONS: usize = 1_024;
/// How long a session lasts.
const SESSION_TIME: Duration = Duration::from_secs(12 * 60 * 60);
/// After how long without a request a session ends. An open page sends some all the time.
const UNUSED_TIME: Duration = Duration::from_secs(60 * 60);

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};
    use tidegate::Timestamp;

    use super::{MOST_SESSIONS, NAME, Principal, SessionTimes, Sessions, cookie, set_cookie};

    fn times(seconds: u64) -> SessionTimes {
        let now = Timestamp::from_nanos(seconds * 1_000_000_000);
        SessionTimes { now, wall: now }
    }

    fn headers(value: &str) -> HeaderMap {
        let text = format!("a=b; {NAME}={value}");
        HeaderMap::from_iter([(http::header::COOKIE, HeaderValue::from_str(&text).unwrap())])
    }

    #[test]
    fn a_session_ends_when_it_is_old_or_unused() {
        let sessions = Sessions::default();
        let is_open = |value: &str, seconds: u64| {
            sessions.current(&headers(value), times(seconds)).unwrap().is_some()
        };
        let (used, _) = sessions.open(Principal::open(), times(0)).unwrap();
        let (unused, _) = sessions.open(Principal::open(), times(0)).unwrap();
        assert_ne!(used, unused);
        assert!((1..24).all(|half_hour| is_open(&used, half_hour * 1_800)));
        assert!(!is_open(&unused, 3_600));
        assert!(is_open(&used, 12 * 3_600 - 1));
        assert!(!is_open(&used, 12 * 3_600 + 1));
        assert!(!is_open("", 1) && !is_open("x", 1));
    }

    #[test]
    fn sessions_are_bounded_and_can_be_closed() {
        let sessions = Sessions::default();
        let (first, _) = sessions.open(Principal::open(), times(0)).unwrap();
        for _ in 0..MOST_SESSIONS {
            assert!(sessions.open(Principal::open(), times(1)).is_some());
        }
        assert_eq!(sessions.lock().len(), MOST_SESSIONS);
        assert!(sessions.current(&headers(&first), times(1)).unwrap().is_none());
        let last = headers(&sessions.open(Principal::open(), times(1)).unwrap().0);
        let current = sessions.current(&last, times(1)).unwrap().unwrap();
        sessions.close(&current);
        assert!(sessions.current(&last, times(1)).unwrap().is_none());
        assert!(sessions.renewed(&current, times(1)).is_none());
    }

    #[test]
    fn scripts_and_other_sites_cannot_use_the_cookie() {
        let plain = set_cookie(Some("0a"), false);
        assert_eq!(plain, "tidegate_session=0a; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict");
        assert_eq!(set_cookie(Some("0a"), true), format!("{plain}; Secure"));
        assert!(set_cookie(None, true).starts_with("tidegate_session=; Path=/; Max-Age=0;"));
    }

    #[test]
    fn a_cookie_that_appears_twice_is_an_error() {
        let mut twice = headers("a");
        twice.append(http::header::COOKIE, HeaderValue::from_static("tidegate_session=a"));
        assert!(cookie(&twice).is_err());
        assert!(cookie(&headers("a; tidegate_session=b")).is_err());
        assert_eq!(cookie(&headers("a")).unwrap(), Some("a"));
        assert_eq!(cookie(&HeaderMap::new()).unwrap(), None);
    }
}
