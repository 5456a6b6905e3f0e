use super::*;

/// What a process would read from the arguments that a role is started with.
fn read(role: &Role) -> Option<Role> {
    let (name, detail) = role.arguments();
    Role::read(name, detail)
}

#[test]
fn a_role_is_read_as_it_was_given() {
    for role in [
        Role::Spawner { idle: 0 },
        Role::Spawner { idle: 7 },
        Role::Warden(None),
        Role::Warden(Some("/sys/fs/cgroup/with a space".into())),
        Role::Stage(Pid::from_raw(4_194_304).unwrap()),
    ] {
        assert_eq!(read(&role), Some(role));
    }
}

#[test]
fn odd_arguments_are_no_role() {
    for (name, detail) in [
        ("", None),
        ("worker", None),
        ("spawner", None),
        ("spawner", Some("")),
        ("spawner", Some("-1")),
        ("spawner", Some("many")),
        ("stage", None),
        ("stage", Some("0")),
        ("stage", Some("1x")),
    ] {
        let role = Role::read(name, detail.map(OsString::from));
        assert_eq!(role, None, "{name} {detail:?}");
    }
}

#[test]
fn a_process_of_ours_is_started_with_its_role_and_nothing_of_the_environment() {
    let command = command_of(Path::new("/bin/program"), &Role::Spawner { idle: 2 });
    let arguments: Vec<_> = command.get_args().collect();
    assert_eq!(arguments, [MARK, "spawner", "2"]);
    assert_eq!(command.get_envs().count(), 0);
}

#[test]
fn this_process_has_no_role() {
    assert_eq!(Role::of_this_process(), None);
    assert!(!has_entered());
}
