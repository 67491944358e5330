//! What the other tests stand on, tried on the real servers.

mod nats_py;
mod servers;
