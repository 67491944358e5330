//! What the demo prints.

use std::{cell::Cell, net::SocketAddr, time::Duration};

use anyhow::Result;
use serde_json::json;

use super::{shop::Order, verdict::Verdict};
use crate::output::Context;

pub(super) struct Story<'a> {
    context: &'a Context,
    address: SocketAddr,
    tally: Cell<(usize, usize, usize)>,
}

impl<'a> Story<'a> {
    pub(super) fn new(context: &'a Context, address: SocketAddr) -> Self {
        Self {
            context,
            address,
            tally: Cell::new((0, 0, 0)),
        }
    }

    pub(super) fn opening(&self) -> Result<()> {
        if self.context.json {
            return Ok(());
        }
        self.context.print(&format!(
            "\n{}\n
  A shop takes orders. Each order and the event about it are written in ONE database transaction:
  both are committed, or neither is. A relay then delivers the committed events to a stream.
  So every order has its event, and no event reports an order that does not exist.

  Watch it here: http://{}/\n
  {}",
            self.context
                .strong("Pillarbox: the transactional outbox, in a minute"),
            self.address,
            self.context.quiet(&format!(
                "{:<6}{:<8}{:<15}{:>8}   {:<27}{}",
                "ORDER", "BY", "WHAT", "TOTAL", "THE TRANSACTION", "THE EVENT"
            )),
        ))
    }

    pub(super) fn order(&self, order: &Order, arrived: Option<Duration>) -> Result<()> {
        let (mut committed, mut rolled_back, mut delivered) = self.tally.get();
        let (fate, event) = match (order.committed, arrived) {
            (true, Some(after)) => {
                delivered += 1;
                (
                    format!("{:<26}", "committed"),
                    self.context
                        .good(&format!("delivered after {:.0} ms", after.as_secs_f64() * 1000.0)),
                )
            }
            (true, None) => (
                format!("{:<26}", "committed"),
                self.context.bad("not delivered yet"),
            ),
            (false, _) => (
                self.context.bad(&format!("{:<26}", "rolled back: card declined")),
                self.context.quiet("never existed"),
            ),
        };
        committed += usize::from(order.committed);
        rolled_back += usize::from(!order.committed);
        self.tally.set((committed, rolled_back, delivered));
        if self.context.json {
            return Ok(());
        }
        let total = format!("{}.{:02}", order.cents / 100, order.cents % 100);
        self.context.print(&format!(
            "  {:<6}{:<8}{:<15}{total:>8}   {fate} {event}",
            format!("#{}", order.number),
            order.customer,
            order.item,
        ))?;
        if order.number.is_multiple_of(10) {
            let tally =
                format!("  {committed} committed, {rolled_back} rolled back, {delivered} delivered so far");
            self.context.print(&self.context.quiet(&tally))?;
        }
        Ok(())
    }

    pub(super) fn verdict(&self, verdict: &Verdict) -> Result<()> {
        if self.context.json {
            let mut value = json!(verdict);
            value["kept"] = json!(verdict.kept());
            return self.context.print_json(&value);
        }
        let Verdict {
            committed,
            rolled_back,
            delivered,
            lost,
            duplicated,
            ghosts,
            out_of_order,
            ..
        } = verdict;
        self.context.print(&format!(
            "\n  Committed {committed}, rolled back {rolled_back}, delivered {delivered}. The listener of the stream received:"
        ))?;
        let text = if verdict.kept() {
            self.context.good(&format!(
                "  The event of every committed order arrived, once and in order; none of the {rolled_back} rolled back arrived."
            ))
        } else {
            self.context.bad(&format!(
                "  A promise was broken: {lost} lost, {duplicated} duplicated, {ghosts} received without a commit, {out_of_order} out of order."
            ))
        };
        self.context.print(&text)
    }

    pub(super) fn closing(&self) -> Result<()> {
        let address = self.address;
        self.context.print(&format!(
            "\n  Look around:  http://{address}/\n  The stream:   curl -N 'http://{address}/v1/stream?after=0'\n  Ctrl-C ends."
        ))
    }
}
