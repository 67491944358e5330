//! Faults that must not break the promises: the real binary runs on real servers and is killed, paused, cut
//! off and fed with events that can't be delivered. At the end of each test, the ledger compares what was
//! committed with what is in the stream.

mod adopted;
mod after_death;
mod assumptions;
mod audit;
mod autoscaling;
mod away;
mod bad_events;
mod checks;
mod dashboard;
mod dead_letters;
mod destinations;
mod followers;
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
mod stream_clients;
mod traces;
mod transactions;
mod unsettled;
