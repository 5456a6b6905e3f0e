use proptest::prelude::*;
use rustix::io::Errno;

use super::*;

fn invocation(arguments: &[&[u8]], environment: &[(&[u8], &[u8])]) -> Invocation {
    let text = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    Invocation {
        directory: PathBuf::from("/"),
        arguments: arguments.iter().map(|argument| text(argument)).collect(),
        environment: environment
            .iter()
            .map(|(name, value)| (text(name), text(value)))
            .collect(),
    }
}

fn travelled(invocation: &Invocation) -> Option<Invocation> {
    Invocation::from_file(invocation.to_file().unwrap()).unwrap()
}

fn text() -> impl Strategy<Value = OsString> {
    prop::collection::vec(1..=u8::MAX, 0..40).prop_map(OsString::from_vec)
}

proptest! {
    #[test]
    fn any_texts_travel_whole(
        directory in text(),
        program in text(),
        more in prop::collection::vec(text(), 0..8),
        environment in prop::collection::vec((text(), text()), 0..8),
    ) {
        let mut arguments = vec![program];
        arguments.extend(more);
        let sent = Invocation { directory: directory.into(), arguments, environment };
        prop_assert_eq!(travelled(&sent), Some(sent));
    }

    #[test]
    fn what_is_no_command_is_none(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        // Never a panic; and what is taken for one is one.
        if let Some(parsed) = Invocation::parse(&bytes) {
            prop_assert_eq!(travelled(&parsed), Some(parsed));
        }
    }
}

#[test]
fn a_large_command_travels() {
    let large = vec![b'x'; 5 << 20];
    let sent = invocation(&[b"true", &large], &[(b"A", &large)]);
    assert!(travelled(&sent) == Some(sent));
}

#[test]
fn a_zero_character_is_refused_wherever_it_is() {
    let zero: &[u8] = b"a\0b";
    let mut folder = invocation(&[b"true"], &[]);
    folder.directory = OsString::from_vec(zero.to_vec()).into();
    for refused in [
        folder,
        invocation(&[zero], &[]),
        invocation(&[b"true", zero], &[]),
        invocation(&[b"true"], &[(zero, b"")]),
        invocation(&[b"true"], &[(b"A", zero)]),
    ] {
        let error = refused.to_file().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}

#[test]
fn the_size_is_what_the_system_counts() {
    // Each text with its end, each variable with its sign of equality.
    let sized = invocation(&[b"true", b"ab"], &[(b"NAME", b"value")]);
    assert_eq!(sized.bytes(), 5 + 3 + 11);
}

#[test]
fn a_file_in_memory_is_read_only_and_at_its_beginning() {
    let file = in_memory(c"leasehold-test", b"content").unwrap();
    assert_eq!(rustix::io::write(&file, b"x"), Err(Errno::BADF));
    let mut file = File::from(file);
    let mut content = String::new();
    file.read_to_string(&mut content).unwrap();
    assert_eq!(content, "content");
}

#[test]
fn it_tells_no_secrets() {
    let shown = format!(
        "{:?}",
        invocation(&[b"curl", b"--token=hunter2"], &[(b"KEY", b"hunter3")])
    );
    assert!(shown.contains("curl") && shown.contains("KEY"), "{shown}");
    assert!(!shown.contains("hunter"), "{shown}");
}
