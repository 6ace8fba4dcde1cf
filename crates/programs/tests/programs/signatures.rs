//! Tests of signatures: which signers' programs run.

use faircast_programs::{Limits, ProgramError, Signers, SigningKey, WasmHost, sign, signer};
use proptest::prelude::*;

use crate::built::program;

#[test]
fn a_relay_runs_what_its_signers_have_signed() {
    let [ours, theirs] = [(); 2].map(|()| SigningKey::random().unwrap());
    let only = Signers::Only(vec![ours.verifying()]);
    let host = WasmHost::new(Limits::default(), only).unwrap();
    let code = program("worst_path");
    let signed = sign(&code, &ours).unwrap();
    assert!(host.load_now(&signed).is_ok());
    let again = sign(&sign(&code, &theirs).unwrap(), &ours).unwrap();
    assert!(again == signed, "a signature takes the place of another");
    for (case, code) in [("none", code.clone()), ("another's", sign(&code, &theirs).unwrap())] {
        let refused = host.check(&code).unwrap_err();
        assert!(matches!(refused, ProgramError::Signer { .. }), "{case}: {refused}");
    }
    assert_eq!(signer(&signed).unwrap(), Some(ours.verifying()));
    assert_eq!(signer(&code).unwrap(), None);
    let text = ours.to_text();
    assert_eq!(SigningKey::from_text(&text).unwrap().verifying(), ours.verifying());
    assert_eq!(
        ours.verifying().to_string().parse::<faircast_programs::VerifyingKey>().unwrap(),
        ours.verifying()
    );
    assert!(SigningKey::from_text(&text[1..]).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn what_was_changed_after_it_was_signed_is_refused(at in any::<prop::sample::Index>(), bit in 0..8u32) {
        let key = SigningKey::random().unwrap();
        let host = WasmHost::new(Limits::default(), Signers::Only(vec![key.verifying()])).unwrap();
        let mut signed = sign(&program("quantile"), &key).unwrap();
        let at = at.index(signed.len());
        signed[at] ^= 1 << bit;
        prop_assert!(host.load_now(&signed).is_err(), "byte {at}");
    }

    #[test]
    fn any_bytes_are_refused_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0..2000usize) {
        let host = WasmHost::new(Limits::default(), Signers::Any).unwrap();
        let _ = host.check(&bytes);
        let mut code = program("deadline");
        code.truncate(cut);
        code.extend_from_slice(&bytes);
        let _ = host.check(&code);
        let _ = signer(&code);
    }
}
