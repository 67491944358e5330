//! Looks up delivered events in their partitions by offset, and judges what became of those that are gone.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use pillarbox::EventId;
use rdkafka::{
    Message as _, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    error::{KafkaError, RDKafkaErrorCode as Code},
    message::{BorrowedMessage, Headers},
};
use tokio::task::spawn_blocking;

use super::{CLOUDEVENTS, address::Address, reports::Place, settings};
use crate::{
    envelope::{Envelope, id::id_in},
    sink::audit::{Entry, Fate, Judged, Places},
};

/// From one event to the next, this many messages between them are read. A larger gap is skipped.
const GAP_MAX: i64 = 20;
/// The audit ends when it has read this much, or after this time.
const READ_BYTES_MAX: usize = 8 * 1024 * 1024;
const TIME_MAX: Duration = Duration::from_secs(20);

/// A delivered event.
#[derive(Debug, Clone)]
pub(super) struct Receipt {
    pub(super) id: EventId,
    pub(super) envelope: Envelope,
    pub(super) topic: String,
    pub(super) place: Place,
}

/// A topic that can't be read does not affect the others. `Err`: nothing can be looked up, and why.
pub(super) async fn look_up(
    address: &Address,
    timeout: Duration,
    entries: Vec<Entry<Receipt>>,
) -> Result<Judged<Receipt>, String> {
    let mut config = settings::connection(address, timeout);
    config
        // Nothing is committed. The client wants a group all the same.
        .set("group.id", "pillarbox-audit")
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "error")
        .set("enable.partition.eof", "true")
        // Otherwise a partition seems to end where another producer has begun a transaction.
        .set("isolation.level", "read_uncommitted")
        // Read little more than is looked up.
        .set("queued.min.messages", "1")
        .set("max.partition.fetch.bytes", "65536")
        .set("fetch.wait.max.ms", "50");
    let transactions = address.transactional_id.is_some();
    let looking = spawn_blocking(move || {
        let mut audit = Audit {
            consumer: config.create()?,
            committed: match transactions {
                true => Some(config.set("isolation.level", "read_committed").create()?),
                false => None,
            },
            timeout,
            deadline: Instant::now() + TIME_MAX,
            bytes_left: READ_BYTES_MAX,
        };
        Ok(audit.all(entries))
    });
    match looking.await {
        Ok(judged) => judged.map_err(|error: KafkaError| unreadable(&error)),
        Err(_) => Err("the audit was interrupted".into()),
    }
}

fn unreadable(error: &KafkaError) -> String {
    let what = settings::plain(error);
    format!(
        "delivered events can't be read: {what}. The relay's user needs Read on its topics and on the group \
         pillarbox-audit"
    )
}

struct Audit {
    consumer: BaseConsumer,
    /// Reads only what was committed. A transaction that was aborted leaves its messages in the partition.
    committed: Option<BaseConsumer>,
    timeout: Duration,
    deadline: Instant,
    bytes_left: usize,
}

/// A message that was read.
struct Read {
    offset: i64,
    id: Option<EventId>,
    /// Messages of its shape have no id, so the place alone must do.
    is_anonymous: bool,
}

impl Audit {
    fn all(&mut self, entries: Vec<Entry<Receipt>>) -> Judged<Receipt> {
        let mut by_partition: BTreeMap<(String, i32), Vec<Entry<Receipt>>> = BTreeMap::new();
        for entry in entries {
            let partition = (entry.receipt.topic.clone(), entry.receipt.place.partition);
            by_partition.entry(partition).or_default().push(entry);
        }
        let mut judged = Judged::default();
        for ((topic, partition), mut entries) in by_partition {
            entries.sort_by_key(|entry| entry.receipt.place.offset);
            let mut entries = VecDeque::from(entries);
            if let Err(error) = self.partition(&topic, partition, &mut entries, &mut judged) {
                judged.problem(&topic, format!("topic {topic}: {}", unreadable(&error)));
            }
            // The sample is smaller this time if too much was read already.
            let full = self.is_full();
            entries
                .into_iter()
                .filter(|entry| entry.missed || !full)
                .for_each(|entry| judged.unread(entry));
        }
        judged
    }

    fn is_full(&self) -> bool {
        self.bytes_left == 0
    }

    fn is_over(&self) -> bool {
        self.is_full() || Instant::now() >= self.deadline
    }

    /// Removes from `entries` what it has judged.
    fn partition(
        &mut self,
        topic: &str,
        partition: i32,
        entries: &mut VecDeque<Entry<Receipt>>,
        judged: &mut Judged<Receipt>,
    ) -> Result<(), KafkaError> {
        let mut extent = None;
        let mut next: Option<i64> = None;
        let mut places = Places::default();
        while let Some(Receipt {
            id, envelope, place, ..
        }) = entries.front().map(|entry| &entry.receipt)
            && !self.is_over()
        {
            let (id, wanted) = (id.clone(), place.offset);
            if extent.is_none() {
                extent = Some(self.extent(topic, partition)?);
            }
            let mut fate = extent.and_then(|extent| outside(wanted, extent));
            if fate.is_none() {
                if next.is_none_or(|next| !(next..=next + GAP_MAX).contains(&wanted)) {
                    seek(&self.consumer, topic, partition, wanted)?;
                }
                let found = loop {
                    let Some(read) = self.read(envelope)? else {
                        break None;
                    };
                    next = Some(read.offset + 1);
                    let before = read
                        .id
                        .clone()
                        .and_then(|id| places.before(id, read.offset as u64));
                    if let Some(before) = before
                        && self.is_committed(topic, partition, before as i64)
                        && self.is_committed(topic, partition, read.offset)
                    {
                        judged.audited.copies += 1;
                    }
                    if read.offset >= wanted {
                        break Some(read);
                    }
                };
                fate = Some(match found {
                    Some(read) => inside(id.clone(), wanted, &read),
                    // It may be gone since the extent was read.
                    None => {
                        next = None;
                        outside(wanted, self.extent(topic, partition)?).unwrap_or(Fate::Expired)
                    }
                });
            }
            if let (Some(entry), Some(fate)) = (entries.pop_front(), fate) {
                judged.judge(id, entry, fate);
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

    /// Whether the transaction of a message was committed. If an open one hides it, it counts as aborted.
    fn is_committed(&self, topic: &str, partition: i32, offset: i64) -> bool {
        let Some(committed) = &self.committed else {
            return true;
        };
        let sought = seek(committed, topic, partition, offset);
        let next = sought.ok().and_then(|()| committed.poll(self.timeout));
        matches!(next, Some(Ok(message)) if message.offset() == offset)
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
            is_anonymous: matches!(envelope, Envelope::Shape(shape) if !shape.shows_id()),
        }))
    }
}

fn seek(consumer: &BaseConsumer, topic: &str, partition: i32, offset: i64) -> Result<(), KafkaError> {
    let mut to = TopicPartitionList::new();
    to.add_partition_offset(topic, partition, Offset::Offset(offset))?;
    consumer.assign(&to)
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
fn inside(id: EventId, offset: i64, read: &Read) -> Fate {
    match read {
        // Compaction removes single messages.
        Read { offset: found, .. } if *found > offset => Fate::Expired,
        Read {
            id: found,
            is_anonymous,
            ..
        } if *is_anonymous || *found == Some(id) => Fate::Found,
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

        let id = EventId::new();
        for (offset, found, fate) in [
            (15, Some(id.clone()), Fate::Found),
            (15, Some(EventId::new()), Fate::Lost),
            (15, None, Fate::Lost),
            (16, Some(EventId::new()), Fate::Expired),
        ] {
            let read = Read {
                offset,
                id: found,
                is_anonymous: false,
            };
            assert_eq!(inside(id.clone(), 15, &read), fate);
        }
        let anonymous = |offset| Read {
            offset,
            id: None,
            is_anonymous: true,
        };
        assert_eq!(inside(id.clone(), 15, &anonymous(15)), Fate::Found);
        assert_eq!(inside(id, 15, &anonymous(16)), Fate::Expired);
    }
}
