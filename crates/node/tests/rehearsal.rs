//! Daemons of one process with faults, as in tests of applications.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::time::Duration;

use faircast_node::{Rehearsal, RehearsalError};

async fn members(rehearsal: &Rehearsal) -> Vec<usize> {
    rehearsal.reports().await.iter().map(|it| it.members.len()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_change_views_and_end_in_one_view() {
    let mut rehearsal = Rehearsal::start(3, 7).await.unwrap();
    assert_eq!(members(&rehearsal).await, [3, 3, 3]);
    rehearsal.part(&[0]);
    while members(&rehearsal).await != [1, 2, 2] {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    rehearsal.settle().await.unwrap();
    rehearsal.kill(1);
    while members(&rehearsal).await != [2, 2] {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // The link is cut in one direction; the third daemon forwards all traffic.
    rehearsal.settle().await.unwrap();
    rehearsal.cut(0, 1, false);
    while rehearsal.reports().await[0].neighbors.iter().filter(|it| it.daemon.is_some()).count() > 1
    {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    rehearsal.settle().await.unwrap();
    assert_eq!(members(&rehearsal).await, [3, 3, 3]);
    let mut told = Vec::new();
    rehearsal.faults(Duration::from_millis(1), |text| told.push(text.to_string())).await.unwrap();
    assert!(told.len() >= 3 && told[told.len() - 1].contains("in one view"), "{told:?}");
    let folder = rehearsal.addresses()[0].strip_prefix("unix:").unwrap().to_string();
    drop(rehearsal);
    assert!(!std::path::Path::new(&folder).parent().unwrap().exists());
    let wrong = Rehearsal::start(17, 7).await.unwrap_err();
    assert!(matches!(wrong, RehearsalError::Count(17)), "{wrong}");
}
