//! Every way in which it may stand.

use super::*;

fn runtime() -> FenceView {
    FenceView {
        is_raised: true,
        login: "jobs_runtime".to_owned(),
        purpose: Some(Purpose::Runtime),
        bypasses: false,
        owns: false,
        open_tables: Vec::new(),
    }
}

fn system() -> FenceView {
    FenceView {
        login: "jobs_system".to_owned(),
        purpose: Some(Purpose::System),
        ..runtime()
    }
}

fn of(runtime: FenceView, system: Option<FenceView>) -> Verdict {
    Verdict::of(&Views { runtime, system })
}

#[test]
fn two_logins_that_were_made_for_it_are_fenced() {
    let verdict = of(runtime(), Some(system()));
    assert!(matches!(verdict, Verdict::Up(_)), "{verdict:?}");
}

#[test]
fn a_login_that_no_policy_holds_is_told() {
    let login = |change: fn(&mut FenceView)| {
        let mut view = FenceView {
            login: "root".to_owned(),
            purpose: None,
            ..runtime()
        };
        change(&mut view);
        of(view, None)
    };
    for verdict in [
        login(|view| view.is_raised = false),
        login(|view| view.bypasses = true),
        login(|view| view.owns = true),
    ] {
        let Verdict::Down { what, remedy } = verdict else {
            panic!("{verdict:?}");
        };
        assert!(what.contains("root"), "{what}");
        assert!(remedy.contains("postgres.system_login"), "{remedy}");
    }
    let holes = FenceView {
        open_tables: vec!["claims".to_owned()],
        ..runtime()
    };
    let verdict = of(holes, Some(system()));
    let Verdict::Down { what, .. } = verdict else {
        panic!("{verdict:?}");
    };
    assert!(what.contains("claims"), "{what}");
}

#[test]
fn a_login_that_sees_nothing_is_in_the_way() {
    let stranger = FenceView {
        purpose: None,
        ..runtime()
    };
    for (runtime, system) in [
        (runtime(), None),
        (stranger.clone(), Some(system())),
        (runtime(), Some(stranger)),
        (system(), Some(runtime())),
    ] {
        let verdict = of(runtime, system);
        assert!(matches!(verdict, Verdict::InTheWay { .. }), "{verdict:?}");
    }
}
