//! Looks up delivered events in their partitions by offset, and judges what became of those that are gone.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use rdkafka::{
    Message as _, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    error::{KafkaError, RDKafkaErrorCode as Code},
    message::{BorrowedMessage, Headers},
};
use tokio::task::spawn_blocking;
use uuid::Uuid;

use super::{CLOUDEVENTS, address::Address, reports::Place, settings};
use crate::{
    envelope::{Envelope, id::id_in},
    sink::{
        SinkError, SinkErrorKind,
        audit::{Audited, Fate, Places},
    },
};

/// From one event to the next, this many messages between them are read. A larger gap is skipped.
const GAP_MAX: i64 = 20;
/// The audit ends when it has read this much, or after this time.
const READ_BYTES_MAX: usize = 8 * 1024 * 1024;
const TIME_MAX: Duration = Duration::from_secs(20);

/// A delivered event.
pub(super) struct Receipt {
    pub(super) id: Uuid,
    pub(super) envelope: Envelope,
    pub(super) topic: String,
    pub(super) place: Place,
}

pub(super) async fn look_up(
    address: &Address,
    timeout: Duration,
    receipts: Vec<Receipt>,
) -> Result<Audited, SinkError> {
    let mut config = settings::connection(address, timeout);
    config
        // Nothing is committed. The client wants a group all the same.
        .set("group.id", "pillarbox-audit")
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "error")
        .set("enable.partition.eof", "true")
        // Read little more than is looked up.
        .set("queued.min.messages", "1")
        .set("max.partition.fetch.bytes", "65536")
        .set("fetch.wait.max.ms", "50");
    let looking = spawn_blocking(move || {
        let consumer: BaseConsumer = config.create()?;
        let mut audit = Audit {
            consumer,
            timeout,
            deadline: Instant::now() + TIME_MAX,
            bytes_left: READ_BYTES_MAX,
        };
        audit.all(receipts)
    });
    match looking.await {
        Ok(audited) => audited.map_err(|error| unreadable(&error)),
        Err(_) => Err(SinkError::new(
            SinkErrorKind::Unavailable,
            "the audit was interrupted",
        )),
    }
}

fn unreadable(error: &KafkaError) -> SinkError {
    let what = settings::plain(error);
    SinkError::new(
        SinkErrorKind::Unavailable,
        format!(
            "delivered events can't be read: {what}. The relay's user needs Read on its topics and on the group \
             pillarbox-audit"
        ),
    )
}

struct Audit {
    consumer: BaseConsumer,
    timeout: Duration,
    deadline: Instant,
    bytes_left: usize,
}

/// A message that was read.
struct Read {
    offset: i64,
    id: Option<Uuid>,
}

impl Audit {
    fn all(&mut self, receipts: Vec<Receipt>) -> Result<Audited, KafkaError> {
        let mut by_partition: BTreeMap<(String, i32), Vec<Receipt>> = BTreeMap::new();
        for receipt in receipts {
            let partition = (receipt.topic.clone(), receipt.place.partition);
            by_partition.entry(partition).or_default().push(receipt);
        }
        let mut audited = Audited::default();
        for ((topic, partition), mut receipts) in by_partition {
            receipts.sort_by_key(|receipt| receipt.place.offset);
            self.partition(&topic, partition, &receipts, &mut audited)?;
        }
        Ok(audited)
    }

    fn is_over(&self) -> bool {
        self.bytes_left == 0 || Instant::now() >= self.deadline
    }

    fn partition(
        &mut self,
        topic: &str,
        partition: i32,
        receipts: &[Receipt],
        audited: &mut Audited,
    ) -> Result<(), KafkaError> {
        let mut extent = None;
        let mut next: Option<i64> = None;
        let mut places = Places::default();
        for receipt in receipts {
            if self.is_over() {
                break;
            }
            let wanted = receipt.place.offset;
            if extent.is_none() {
                extent = Some(self.extent(topic, partition)?);
            }
            if let Some(fate) = extent.and_then(|extent| outside(wanted, extent)) {
                audited.count(receipt.id, fate);
                continue;
            }
            if next.is_none_or(|next| !(next..=next + GAP_MAX).contains(&wanted)) {
                self.seek(topic, partition, wanted)?;
            }
            let found = loop {
                let Some(read) = self.read(&receipt.envelope)? else {
                    break None;
                };
                next = Some(read.offset + 1);
                let copy = read.id.is_some_and(|id| places.is_copy(id, read.offset as u64));
                audited.copies += u64::from(copy);
                if read.offset >= wanted {
                    break Some(read);
                }
            };
            match found {
                Some(read) => audited.count(receipt.id, inside(receipt, &read)),
                // It may be gone since the extent was read.
                None => {
                    let now = self.extent(topic, partition)?;
                    audited.count(receipt.id, outside(wanted, now).unwrap_or(Fate::Expired));
                    next = None;
                }
            }
        }
        Ok(())
    }

    /// The first offset and the next one. `None`: there is no such partition.
    fn extent(&self, topic: &str, partition: i32) -> Result<Option<(i64, i64)>, KafkaError> {
        match self.consumer.fetch_watermarks(topic, partition, self.timeout) {
            Ok(extent) => Ok(Some(extent)),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn seek(&self, topic: &str, partition: i32, offset: i64) -> Result<(), KafkaError> {
        let mut to = TopicPartitionList::new();
        to.add_partition_offset(topic, partition, Offset::Offset(offset))?;
        self.consumer.assign(&to)
    }

    /// The next message. `None`: there is none up to the end of the partition.
    fn read(&mut self, envelope: &Envelope) -> Result<Option<Read>, KafkaError> {
        let message = match self.consumer.poll(self.timeout) {
            Some(Ok(message)) => message,
            Some(Err(KafkaError::PartitionEOF(_))) => return Ok(None),
            Some(Err(error)) if error.rdkafka_error_code() == Some(Code::AutoOffsetReset) => return Ok(None),
            Some(Err(error)) => return Err(error),
            None => return Err(KafkaError::MessageConsumption(Code::OperationTimedOut)),
        };
        let body = message.payload().unwrap_or_default();
        self.bytes_left = self.bytes_left.saturating_sub(body.len() + 100);
        Ok(Some(Read {
            offset: message.offset(),
            id: id_in(envelope, CLOUDEVENTS, |name| header(&message, name), body),
        }))
    }
}

fn header<'a>(message: &'a BorrowedMessage<'_>, name: &str) -> Option<&'a str> {
    let mut headers = message.headers()?.iter();
    let found = headers.find(|header| header.key.eq_ignore_ascii_case(name))?;
    std::str::from_utf8(found.value?).ok()
}

fn is_missing(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition)
    )
}

/// What became of an event that is not between the first and the next offset. Only retention moves the first one. A
/// topic that was created again can't be told from one that has lost its data.
fn outside(offset: i64, extent: Option<(i64, i64)>) -> Option<Fate> {
    match extent {
        Some((first, _)) if offset < first => Some(Fate::Expired),
        Some((_, next)) if offset < next => None,
        _ => Some(Fate::Lost),
    }
}

/// What became of an event whose offset is in the partition. `read` is the first message from there on.
fn inside(receipt: &Receipt, read: &Read) -> Fate {
    match read {
        // Compaction removes single messages.
        Read { offset, .. } if *offset > receipt.place.offset => Fate::Expired,
        Read { id, .. } if *id == Some(receipt.id) => Fate::Found,
        _ => Fate::Lost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_retention_or_compaction_explains_has_expired_and_the_rest_is_lost() {
        let extent = Some((10, 20));
        let fates = [9, 10, 19, 20].map(|offset| outside(offset, extent));
        assert_eq!(fates, [Some(Fate::Expired), None, None, Some(Fate::Lost)]);
        assert_eq!(outside(15, None), Some(Fate::Lost), "the topic is gone");

        let id = Uuid::now_v7();
        let receipt = Receipt {
            id,
            envelope: Envelope::Raw,
            topic: "t".into(),
            place: Place {
                partition: 0,
                offset: 15,
            },
        };
        for (offset, found, fate) in [
            (15, Some(id), Fate::Found),
            (15, Some(Uuid::now_v7()), Fate::Lost),
            (15, None, Fate::Lost),
            (16, Some(Uuid::now_v7()), Fate::Expired),
        ] {
            assert_eq!(inside(&receipt, &Read { offset, id: found }), fate);
        }
    }
}
