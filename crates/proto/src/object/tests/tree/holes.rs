//! Tests of heads and members that long packets do not reach.

use super::*;

fn begun(stall_s: u64) -> Tree {
    let object = Object::new(1_500_000);
    let (supply, options) = (Box::new(object.clone()), options(&[]));
    let setup = ObjectSourceSetup::new(SOURCE, GROUP, TSI, supply, 1300, &options);
    let stall_max = Some(Duration::from_secs(stall_s));
    Tree::begun(object, ObjectSourceSetup { wait_for: 2, stall_max, ..setup })
}

#[test]
fn who_is_behind_a_hole_fails_for_it_and_the_other_gets_everything() {
    for (holed, stall_s) in [(0, 3), (0, 4), (0, 5), (1, 3), (1, 4), (1, 5)] {
        let mut tree = begun(stall_s);
        let to_holed = NodeId(FIRST_RECEIVER + holed);
        tree.loses = Box::new(move |_, to, bytes, _| to == to_holed && bytes.len() > 576);
        tree.add_all(2, &[("head", "eager")]);
        tree.run_until(s(60));
        let case = alloc::format!("r{holed}, {stall_s} s");
        let member = tree.member(&alloc::format!("r{holed}"));
        assert_eq!(member.state, MemberState::Failed, "{case}");
        assert!(member.reason.contains("only 576 arrive"), "{case}: {}", member.reason);
        tree.assert_complete([1 - holed as usize]);
    }
}

#[test]
fn who_was_given_up_ends_soon_after_its_source_has() {
    let mut tree = begun(5);
    let (holed, gone) = (NodeId(FIRST_RECEIVER + 1), Arc::new(Mutex::new(false)));
    let silent = gone.clone();
    tree.loses = Box::new(move |_, to, bytes, _| {
        to == holed && (bytes.len() > 576 || *silent.lock().unwrap())
    });
    tree.add_all(2, &[("head", "eager")]);
    while tree.now < s(5) || tree.member("r1").state != MemberState::Failed {
        tree.run_for(ms(10));
        assert!(tree.now < s(30));
    }
    tree.run_for(DELAY);
    *gone.lock().unwrap() = true;
    tree.run_for(Duration::from_secs(8));
    let status = |tree: &Tree| tree.receivers[1].machine.status();
    assert!(!status(&tree).failure.stalled, "anybody can have said so");
    tree.run_for(Duration::from_secs(4));
    assert!(status(&tree).failure.stalled && tree.receivers[1].said(&FlowEvent::Gone));
}
