//! Events given as bits of a range of seqs.

use crate::event::Seq;

/// Seqs that lie close together.
#[derive(Debug, PartialEq)]
pub(super) struct SeqRange {
    pub(super) first: Seq,
    pub(super) last: Seq,
    /// A bit for each seq from `first` on.
    pub(super) bits: Vec<u8>,
}

impl SeqRange {
    /// `None` if there are more seqs between them than seqs given.
    pub(super) fn of(seqs: &[Seq]) -> Option<Self> {
        let (first, last) = (*seqs.iter().min()?, *seqs.iter().max()?);
        let span = usize::try_from(last.checked_sub(first)?).ok()?;
        if span >= seqs.len().saturating_mul(2) {
            return None;
        }
        let mut bits = vec![0; span / 8 + 1];
        for seq in seqs {
            let nth = usize::try_from(seq - first).ok()?;
            bits[nth / 8] |= 1 << (nth % 8);
        }
        Some(Self { first, last, bits })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seqs_close_together_are_a_range() {
        let range = |first, last, bits: &[u8]| {
            let bits = bits.to_vec();
            Some(SeqRange { first, last, bits })
        };
        assert_eq!(SeqRange::of(&[]), None);
        assert_eq!(SeqRange::of(&[7]), range(7, 7, &[1]));
        assert_eq!(
            SeqRange::of(&[12, 10, 11, 18, 17]),
            range(10, 18, &[0b1000_0111, 1])
        );
        assert_eq!(SeqRange::of(&[1, 5]), None);
        assert_eq!(SeqRange::of(&[i64::MIN, i64::MAX]), None);
    }
}
