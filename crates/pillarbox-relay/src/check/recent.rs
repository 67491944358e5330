//! A map of limited size that keeps the entries used most recently.

use std::{borrow::Borrow, collections::HashMap, hash::Hash};

/// There are two generations. When the young one is full, the old one is dropped. Entries that are read move into the
/// young one.
#[derive(Debug)]
pub(super) struct Recent<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    generation_max: usize,
}

impl<K: Hash + Eq, V> Recent<K, V> {
    pub(super) fn new(entries_max: usize) -> Self {
        Self {
            young: HashMap::new(),
            old: HashMap::new(),
            generation_max: (entries_max / 2).max(1),
        }
    }

    pub(super) fn get<Q>(&mut self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        if !self.young.contains_key(key) {
            let (key, value) = self.old.remove_entry(key)?;
            self.insert(key, value);
        }
        self.young.get(key)
    }

    pub(super) fn insert(&mut self, key: K, value: V) {
        if self.young.len() >= self.generation_max && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }

    pub(super) fn remove<Q>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.young.remove(key);
        self.old.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_keeps_its_limit_and_the_entries_in_use() {
        let mut recent = Recent::new(10);
        recent.insert(0, "kept");
        for n in 1..1_000 {
            recent.insert(n, "passing");
            assert_eq!(recent.get(&0), Some(&"kept"), "after {n}");
            assert!(recent.young.len() + recent.old.len() <= 10);
        }
        assert_eq!(recent.get(&1), None);
    }

    #[test]
    fn a_removed_entry_is_gone_from_both_generations() {
        let mut recent = Recent::new(2);
        recent.insert(1, ());
        recent.insert(2, ());
        recent.remove(&1);
        recent.remove(&2);
        assert!(recent.get(&1).is_none() && recent.get(&2).is_none());
    }
}
