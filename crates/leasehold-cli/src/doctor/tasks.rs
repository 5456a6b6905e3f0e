//! The queue of tasks of Step Functions: whether it can be reached, and whether it goes with the settings.

use leasehold_aws::{Connection, Queue as _, template};

use super::Case;
use super::finding::Finding;
use crate::block_on;

const CHECK: &str = "tasks";

pub(super) fn queue(case: &Case) -> Vec<Finding> {
    let Ok(config) = &case.config else {
        return Vec::new();
    };
    let Some(tasks) = &config.step_functions else {
        return Vec::new();
    };
    let looked = block_on(async {
        let connection = Connection::new(&tasks.queue, tasks.settings.poll_wait).await;
        Ok(match connection {
            Ok(connection) => connection
                .attributes()
                .await
                .map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        })
    });
    let attributes = match looked {
        Ok(Ok(attributes)) => attributes,
        Ok(Err(error)) => {
            let fix =
                "check the queue's address, the region, the credentials and sqs:GetQueueAttributes";
            return vec![Finding::error(CHECK, error, fix)];
        }
        Err(failure) => return vec![Finding::error(CHECK, failure.what(), "try again")],
    };
    let faults = template::faults(&tasks.settings, &attributes);
    if faults.is_empty() {
        return vec![Finding::ok(CHECK, "the queue goes with the settings")];
    }
    let findings = faults.iter();
    findings
        .map(|(what, fix)| Finding::warning(CHECK, what, fix))
        .collect()
}
