//! A readable timeline of one run.

use farside_fabric::link::Op;

/// Lines of what happened, if somebody asked for them.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    lines: Option<Vec<String>>,
}

impl Trace {
    pub(crate) fn enable(&mut self) {
        self.lines.get_or_insert_default();
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.lines.is_some()
    }

    /// Notes a line; `what` is only made if somebody asked.
    #[inline]
    pub(crate) fn note(&mut self, now: u64, what: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>14.3} µs  {}", now as f64 / 1e6, what()));
        }
    }

    pub(crate) fn take(&mut self) -> Vec<String> {
        self.lines.as_mut().map(std::mem::take).unwrap_or_default()
    }
}

/// A verb's name as people write it.
pub(crate) fn name(op: Op) -> &'static str {
    match op {
        Op::Read => "READ",
        Op::Write => "WRITE",
        Op::Cas => "CAS",
        Op::Faa => "FAA",
        Op::MaskedCas => "masked CAS",
        Op::Flush => "FLUSH",
    }
}
