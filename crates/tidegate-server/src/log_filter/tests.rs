use std::sync::atomic::{AtomicUsize, Ordering};

use tracing_subscriber::layer::SubscriberExt;

use super::*;

/// Counts what is logged.
#[derive(Clone, Default)]
struct Counter(Arc<AtomicUsize>);

impl<S: Subscriber> Layer<S> for Counter {
    fn on_event(&self, _event: &Event<'_>, _context: Context<'_, S>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_program_that_embeds_the_server_can_bound_its_log() {
    let (filter, counter) = (LogFilter::new(LevelFilter::INFO), Counter::default());
    let logged = || counter.0.swap(0, Ordering::Relaxed);
    let subscriber = tracing_subscriber::registry().with(counter.clone()).with(filter.clone());
    tracing::subscriber::with_default(subscriber, || {
        for number in 0..10_000 {
            tracing::warn!(number, "one kind");
        }
        let lines = logged();
        // Ten more per second, should this take long.
        assert!((100..1_000).contains(&lines), "{lines}");
        tracing::info!("another kind");
        assert_eq!(logged(), 1, "kinds do not take from each other");
        tracing::debug!("below the level");
        tracing::info!(target: "another_crate", "not a warning");
        assert_eq!(logged(), 0);
        let left_out = filter.0.take_left_out();
        let expected = LeftOut { message: "one kind".into(), count: 10_000 - lines as u64 };
        assert_eq!(left_out, [expected]);
        filter.report_left_out();
        assert_eq!(logged(), 0, "nothing was left out since");
    });
}
