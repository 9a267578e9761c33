//! Values that only grow, and of which each is in use some times: the oldest in use is what others ask for.

use std::collections::VecDeque;

/// How often each value is in use, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct InUse(VecDeque<(u64, u32)>);

impl InUse {
    /// The oldest that is in use.
    #[inline]
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.0.front().map(|(value, _)| *value)
    }

    /// The newest that is, or was in use while an older one is.
    #[inline]
    pub(crate) fn newest(&self) -> Option<u64> {
        self.0.back().map(|(value, _)| *value)
    }

    /// A value that is not less than all others is used once more.
    #[inline]
    pub(crate) fn enter(&mut self, value: u64) {
        match self.0.back_mut() {
            Some((newest, count)) if *newest == value => *count += 1,
            _ => self.0.push_back((value, 1)),
        }
    }

    /// A value is used once less; `false` if nobody used it.
    #[inline]
    pub(crate) fn leave(&mut self, value: u64) -> bool {
        let at = self.0.binary_search_by_key(&value, |(value, _)| *value).ok();
        let used = at.is_some_and(|at| self.0[at].1 > 0);
        if let Some(at) = at.filter(|_| used) {
            self.0[at].1 -= 1;
        }
        while self.0.front().is_some_and(|(_, count)| *count == 0) {
            self.0.pop_front();
        }
        used
    }
}

#[cfg(test)]
mod tests {
    use super::InUse;

    #[test]
    fn the_oldest_in_use_is_known() {
        let mut used = InUse::default();
        assert_eq!(used.oldest(), None);
        for value in [3, 3, 5, 8] {
            used.enter(value);
        }
        assert!(used.leave(5) && !used.leave(5) && !used.leave(4));
        used.leave(3);
        assert_eq!(used.oldest(), Some(3));
        used.leave(3);
        assert_eq!(used.oldest(), Some(8), "nobody uses 5 any more");
        used.leave(8);
        assert_eq!(used.oldest(), None);
    }
}
