//! What would break the promises, and must not: the real binary on real servers, killed, paused, cut off and fed with
//! what can't be delivered. At the end of each the ledger compares what was committed with what is in the stream.

mod after_death;
mod assumptions;
mod away;
mod bad_events;
mod checks;
mod dead_letters;
mod destinations;
mod garbage;
mod harness;
mod kafka;
mod mongodb;
mod outages;
mod overlapping;
mod poison;
mod pressure;
mod relays;
mod stalls;
mod strangers;
mod transactions;
