//! What is said of a schedule that is not acceptable, or is not there.

use leasehold::ClientError;

use crate::failure::Failure;

pub(super) fn no_such_schedule(name: &str) -> Failure {
    Failure::no(format!("there is no schedule {name:?}"))
        .because("none of that name is in the database")
        .remedy("`leasehold schedules list` shows what there is")
}

pub(super) fn refused(error: &leasehold::schedule::TimingError) -> Failure {
    Failure::usage(error.what())
        .because(error.why())
        .remedy(error.remedy())
}

pub(super) fn failed(error: ClientError) -> Failure {
    match error {
        ClientError::Timing(error) => refused(&error),
        ClientError::Invalid(reason) => {
            // The library says what to do as well, behind what is wrong.
            let (why, remedy) = reason
                .split_once("; ")
                .or_else(|| reason.split_once(": use "))
                .unwrap_or((&reason, "correct it"));
            Failure::usage("the schedule is not acceptable")
                .because(why)
                .remedy(remedy)
        }
        other => other.into(),
    }
}
