//! What every bench needs: latencies as percentiles, rows of a known size, scratch folders.
#![allow(dead_code, unreachable_pub, clippy::expect_used, reason = "each bench uses its own part")]
#![expect(clippy::disallowed_methods, reason = "a bench measures the machine's time")]

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

/// Now, by the machine.
pub fn now() -> Instant {
    Instant::now()
}

/// Durations of one kind of event.
#[derive(Default)]
pub struct Latencies(Vec<Duration>);

impl Latencies {
    pub fn add(&mut self, took: Duration) {
        self.0.push(took);
    }

    pub fn extend(&mut self, other: Latencies) {
        self.0.extend(other.0);
    }

    /// The duration that this share of the events did not exceed.
    pub fn at(&mut self, share: f64) -> Duration {
        self.0.sort_unstable();
        let last = self.0.len().saturating_sub(1);
        self.0.get(((last as f64) * share).round() as usize).copied().unwrap_or_default()
    }

    pub fn summary(&mut self) -> Summary {
        Summary { count: self.0.len(), p50: self.at(0.5), p90: self.at(0.9), p99: self.at(0.99), max: self.at(1.0) }
    }
}

pub struct Summary {
    pub count: usize,
    pub p50: Duration,
    pub p90: Duration,
    pub p99: Duration,
    pub max: Duration,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary { count, p50, p90, p99, max } = self;
        write!(f, "p50 {p50:>9.1?}  p90 {p90:>9.1?}  p99 {p99:>9.1?}  max {max:>9.1?}  ({count} samples)")
    }
}

/// The median of several rates.
pub fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_unstable_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied().unwrap_or_default()
}

/// `id: Int64`, `group: Int64`, `text: Utf8`.
pub fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("group", DataType::Int64, true),
        Field::new("text", DataType::Utf8, true),
    ]))
}

/// Rows with ids from `first` on, each with a text of so many bytes.
pub fn rows(first: i64, rows: usize, text_bytes: usize) -> RecordBatch {
    let ids = first..first + rows as i64;
    let text = "the tide comes in and the tide goes out ".repeat(text_bytes / 40 + 1);
    // Spread over the keys, so that neither the key nor the group arrives sorted.
    let spread = |id: i64| (id as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) as i64;
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(ids.clone())),
        Arc::new(Int64Array::from_iter_values(ids.clone().map(spread))),
        Arc::new(StringArray::from_iter_values(ids.map(|_| &text[..text_bytes]))),
    ];
    RecordBatch::try_new(schema(), columns).expect("columns of the schema")
}

/// Resident memory of this process in bytes, now and at its highest.
pub fn resident() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).unwrap_or_default() * 1024
    };
    (field("VmRSS:"), field("VmHWM:"))
}

/// Says whether a goal was met. The figures of one noisy run are no test: this never fails.
pub fn verdict(goal: &str, met: bool) {
    println!("  goal: {goal}: {}", if met { "met" } else { "MISSED in this run" });
}

/// Round trips between a tokio task and a thread of its own: what waking a thread costs here.
pub async fn hops() -> Summary {
    let (ask, asked) = std::sync::mpsc::channel::<tokio::sync::oneshot::Sender<()>>();
    std::thread::spawn(move || asked.into_iter().for_each(|reply| reply.send(()).unwrap_or_default()));
    let mut latencies = Latencies::default();
    for _ in 0..20_000 {
        let (reply, answer) = tokio::sync::oneshot::channel();
        let start = now();
        ask.send(reply).expect("it listens");
        answer.await.expect("it answers");
        latencies.add(start.elapsed());
    }
    latencies.summary()
}
