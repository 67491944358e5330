use super::*;

#[tokio::test(start_paused = true)]
async fn a_loss_and_a_stall_are_listed_beside_any_number_of_other_troubles() {
    let sink: Arc<str> = "events".into();
    let progress = Progress::new(None, None, [&sink].into_iter(), || Timestamp::UNIX_EPOCH);
    for n in 0..2 * TROUBLES_MAX {
        progress.destination_is(&format!("events/{n:02}"), Some("full"));
    }
    let progress = Progress {
        clock: Clock(Timestamp::now),
        ..progress
    };
    progress.sink_is(&sink, Some("away"));
    progress.stalled_is(Some("an answer"));
    let audited = Audited {
        checked: 1,
        lost: vec!["x".into()],
        ..Audited::default()
    };
    progress.audited(&sink, &audited);
    let troubles = progress.troubles("relay");
    assert_eq!(troubles.len(), TROUBLES_MAX);
    let kinds = |wanted| troubles.iter().filter(|trouble| trouble.kind == wanted).count();
    assert_eq!((kinds(TroubleKind::Loss), kinds(TroubleKind::Stall)), (1, 1));
    assert_eq!(
        kinds(TroubleKind::Destination),
        TROUBLES_MAX - 2,
        "the oldest of the others"
    );
    let loss = troubles.iter().find(|trouble| trouble.kind == TroubleKind::Loss);
    assert_eq!(loss.unwrap().events, Some(1));
}
