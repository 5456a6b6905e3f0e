//! The tree of commands is well formed, and every flag has its environment variable.

use clap::CommandFactory as _;

use super::Arguments;

#[test]
fn the_tree_is_well_formed() {
    super::command().debug_assert();
}

#[test]
fn a_word_of_a_shells_line_is_quoted_where_it_must_be() {
    for (text, word) in [
        ("sqlite:/var/lib/jobs.db", "sqlite:/var/lib/jobs.db"),
        ("my jobs.db", "'my jobs.db'"),
        ("it's.db", r"'it'\''s.db'"),
        ("~/$HOME.db", "'~/$HOME.db'"),
    ] {
        assert_eq!(super::quoted(text), word);
    }
}

#[test]
fn every_flag_has_its_environment_variable() {
    fn visit(command: &clap::Command) {
        for argument in command.get_arguments() {
            let is_flag = argument.get_long().is_some();
            let own = ["help", "version"].contains(&argument.get_id().as_str());
            // A variable that was left set would falsify a measurement without a word.
            let measures = command.get_name() == "bench";
            if !is_flag || own || measures || command.is_hide_set() {
                continue;
            }
            let variable = argument.get_env().and_then(|name| name.to_str());
            assert!(
                variable.is_some_and(|name| name.starts_with("LEASEHOLD_")),
                "--{} of `{}` has {variable:?}",
                argument.get_id(),
                command.get_name()
            );
        }
        command.get_subcommands().for_each(visit);
    }
    visit(&Arguments::command());
}
