//! What is refused in the sections of kinds.

use super::check;

/// A kind with one more line, refused in that line.
#[track_caller]
fn check_kind(cases: &[(&str, &str, &str)]) {
    for (line, what, remedy) in cases {
        let text = format!("[kinds.A]\ncommand = [\"a\"]\n{line}");
        check(&[(&text, 3, what, remedy)]);
    }
}

#[test]
fn a_command_that_cannot_run() {
    check(&[
        ("[kinds.A]\n", 1, "kinds.A has no command", "add one"),
        (
            "[kinds.send-mail]\ncommand = [\"a\"]",
            1,
            "kind \"send-mail\" is not valid",
            "write SEND_MAIL",
        ),
        (
            "[kinds.A]\ncommand = \"python3 x.py\"",
            2,
            "kinds.A.command is one text",
            "[\"sh\", \"-c\", \"…\"]",
        ),
        (
            "[kinds.A]\ncommand = []",
            2,
            "kinds.A.command names no program",
            "put one first",
        ),
        (
            "[kinds.A]\ncommand = [\"\", \"x\"]",
            2,
            "kinds.A.command names no program",
            "put one first",
        ),
        (
            "[kinds.A]\ncommand = [\"a\", 5]",
            2,
            "number 2 of kinds.A.command is a whole number",
            "in quotes",
        ),
        (
            "[kinds.A]\ncommand = [\"a\", \"b\\u0000\"]",
            2,
            "number 2 of kinds.A.command holds a zero character",
            "take it out",
        ),
        (
            "[kinds.A]\ncommand = 5",
            2,
            "kinds.A.command is a whole number, and a list of texts is needed",
            "[\"python3\"",
        ),
    ]);
    check_kind(&[(
        "directory = \"a\\u0000\"",
        "kinds.A.directory holds a zero character",
        "take it out",
    )]);
}

#[test]
fn a_setting_of_a_kind_out_of_range() {
    check_kind(&[
        (
            "request = \"pipe\"",
            "kinds.A.request = \"pipe\" is not a choice",
            "env, stdin",
        ),
        (
            "result = \"text\"",
            "kinds.A.result = \"text\" is not a choice",
            "json, ignored",
        ),
        (
            "time_limit = \"5ms\"",
            "kinds.A.time_limit = \"5ms\" is out of range",
            "between 10ms and 365d",
        ),
        (
            "time_limit = \"0s\"",
            "kinds.A.time_limit = \"0s\" is no time at all",
            "60s",
        ),
        (
            "max_attempts = 0",
            "kinds.A.max_attempts = 0 is out of range",
            "from 1 to 1000000",
        ),
        (
            "priority = 40000",
            "kinds.A.priority = 40000 is out of range",
            "from -32768 to 32767",
        ),
        (
            "retry = { jitter = 1.5 }",
            "kinds.A.retry.jitter is out of range",
            "from 0 to 1",
        ),
        (
            "retry = { jitter = nan }",
            "kinds.A.retry.jitter is out of range",
            "from 0 to 1",
        ),
        (
            "retry = { base = \"20m\" }",
            "kinds.A.retry has a cap of 15m below its base of 20m",
            "give both",
        ),
        (
            "stdout_bytes_max = \"1B\"",
            "kinds.A.stdout_bytes_max = \"1B\" is out of range",
            "between 1KiB and 64MiB",
        ),
        (
            "stderr_bytes_max = \"1GiB\"",
            "kinds.A.stderr_bytes_max = \"1GiB\" is out of range",
            "between 1KiB and 64MiB",
        ),
        (
            "stderr_bytes_max = \"1MB\"",
            "the unit \"MB\" is unknown",
            "MiB",
        ),
    ]);
}

#[test]
fn a_name_of_a_kind_that_cannot_be() {
    check_kind(&[
        (
            "errors = { A = \"loud\" }",
            "kinds.A.errors.A = \"loud\" is not a choice",
            "error, warn, info, debug",
        ),
        (
            "errors = { A = { retryable = 1 } }",
            "kinds.A.errors.A.retryable is a whole number",
            "true or false",
        ),
        (
            "errors = { OutputTooLarge = \"warn\" }",
            "kinds.A.errors: OutputTooLarge is an error of the worker's own",
            "choose another name",
        ),
        (
            "errors = { \"States.Timeout\" = \"warn\" }",
            "Step Functions' own",
            "choose another name",
        ),
        (
            "errors = { \"a b\" = \"warn\" }",
            "kinds.A.errors: \"a b\" is no name for an error",
            "letters, digits and _",
        ),
        (
            "errors = { A = 5 }",
            "kinds.A.errors.A is a whole number",
            "[kinds.A.errors.A]",
        ),
        (
            "redact = [\"a\", \"\"]",
            "number 2 of kinds.A.redact is empty",
            "name a field",
        ),
        ("redact = \"a\"", "a list of texts is needed", "redact = "),
        (
            "environment = [\"A=B\"]",
            "is no name of a variable",
            "write a name",
        ),
        (
            "environment = [\"*_KEY\"]",
            "is no name of a variable",
            "at its end",
        ),
        (
            "environment = [\"AWS REGION\"]",
            "number 1 of kinds.A.environment = \"AWS REGION\" is no name of a variable",
            "each in quotes of its own",
        ),
        (
            "environment = [\"A\", \"HOME, TZ\"]",
            "number 2 of kinds.A.environment = \"HOME, TZ\" is no name of a variable",
            "each in quotes of its own",
        ),
        (
            "environment = [\"A\\tB\"]",
            "is no name of a variable",
            "write a name",
        ),
        (
            "environment = [\" A\"]",
            "is no name of a variable",
            "write a name",
        ),
        (
            "environment = [\"A\\u0001\"]",
            "is no name of a variable",
            "write a name",
        ),
        (
            "environment = [\"*\"]",
            "would hand on everything",
            "name what the command needs",
        ),
        (
            "environment = [\"\"]",
            "would hand on everything",
            "name what the command needs",
        ),
        (
            "environment = [\"WORKER_REQUEST\"]",
            "belongs to the worker",
            "leave it out",
        ),
        (
            "environment = [\"LEASEHOLD_DATABASE\"]",
            "belongs to the worker",
            "leave it out",
        ),
        (
            "environment = [\"LEASE*\"]",
            "belongs to the worker",
            "leave it out",
        ),
    ]);
}

#[test]
fn a_variable_is_judged_at_its_own_line() {
    check(&[(
        "[kinds.A]\ncommand = [\"a\"]\nenvironment = [\n  \"APP_*\",\n  \"A=B\",\n]",
        5,
        "number 2 of kinds.A.environment = \"A=B\" is no name of a variable",
        "write a name",
    )]);
}

#[test]
fn a_setting_of_a_kind_of_the_wrong_type() {
    check_kind(&[
        (
            "stdout_bytes_max = 9",
            "kinds.A.stdout_bytes_max is a number without a unit",
            "\"256KiB\"",
        ),
        (
            "no_new_privileges = \"yes\"",
            "and true or false is needed",
            "without quotes",
        ),
        (
            "retry.jitter = \"0.1\"",
            "kinds.A.retry.jitter is text, and a number is needed",
            "without quotes",
        ),
        (
            "retry = \"30s\"",
            "kinds.A.retry is text, and a table is needed",
            "[kinds.A.retry]",
        ),
        (
            "time_limit = 30",
            "kinds.A.time_limit is a number without a unit",
            "\"60s\"",
        ),
    ]);
}
