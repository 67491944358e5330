//! Dead letters on Kafka.

use std::{pin::Pin, time::Duration};

use rdkafka::{
    ClientConfig,
    error::KafkaError,
    message::{Header, OwnedHeaders},
    producer::{FutureProducer, FutureRecord},
};

use crate::consume::{letter::Letter, source::Letters};

const PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct KafkaLetters {
    producer: FutureProducer,
}

impl KafkaLetters {
    pub(super) fn new(config: &ClientConfig) -> Result<Self, KafkaError> {
        let mut config = config.clone();
        config.remove("group.instance.id");
        config
            .set("acks", "all")
            .set("enable.idempotence", "true")
            .set("message.timeout.ms", "10000");
        Ok(Self {
            producer: config.create()?,
        })
    }
}

impl Letters for KafkaLetters {
    fn publish(&self, letter: Letter) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>> {
        Box::pin(async move {
            let headers = OwnedHeaders::new_with_capacity(letter.headers.len());
            let headers = letter.headers.iter().fold(headers, |headers, (name, text)| {
                headers.insert(Header {
                    key: name,
                    value: Some(&text[..]),
                })
            });
            let mut record = FutureRecord::to(&letter.topic)
                .payload(&letter.body[..])
                .headers(headers);
            if let Some(key) = &letter.key {
                record = record.key(&key[..]);
            }
            let sent = self.producer.send(record, PATIENCE).await;
            sent.map(drop).map_err(|(error, _)| error.to_string())
        })
    }
}
