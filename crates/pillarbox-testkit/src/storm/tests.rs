use super::*;

/// Two sources, and the decisions of each.
async fn decisions(seed: u64) -> (Vec<u32>, Toll) {
    let mut storm = Storm::new(seed);
    let decided: Arc<Mutex<BTreeMap<usize, Vec<u32>>>> = Arc::default();
    for n in 0..2 {
        let decided = Arc::clone(&decided);
        storm.add(|mut source| async move {
            while source.next(1..2).await {
                let fault = source.begin("a kind");
                let number = source.rng().random();
                decided.lock().unwrap().entry(n).or_default().push(number);
                source.last(20..30).await;
                drop(fault);
            }
        });
    }
    let toll = storm.rage(Duration::from_millis(400)).await;
    let decided = decided.lock().unwrap();
    let decided = decided
        .values()
        .flat_map(|list| list.iter().take(5))
        .copied()
        .collect();
    (decided, toll)
}

#[tokio::test(start_paused = true)]
async fn a_seed_repeats_the_decisions_of_every_source() {
    let (first, _) = decisions(7).await;
    assert_eq!(first.len(), 10);
    assert_eq!(first, decisions(7).await.0);
    assert_ne!(first, decisions(8).await.0);
    assert_ne!(first[..5], first[5..], "each source decides for itself");
}

#[tokio::test(start_paused = true)]
async fn faults_are_counted_by_kind_overlap_and_end_with_the_storm() {
    let (_, toll) = decisions(1).await;
    assert_eq!(toll.total(), toll.faults["a kind"]);
    assert!(toll.total() >= 10, "{toll:?}");
    assert_eq!(toll.at_once_max, 2);
    assert!(toll.at_once_mean > 1.0 && toll.at_once_mean <= 2.0, "{toll:?}");
    assert!(toll.ended <= Instant::now());
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "as told")]
async fn a_source_that_panics_fails_the_campaign_at_once() {
    let mut storm = Storm::new(1);
    storm.add(|_| async { panic!("as told") });
    storm.rage(Duration::from_secs(3_600)).await;
}
