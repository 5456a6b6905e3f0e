//! This build on the schema of the next one: whatever that adds, this one keeps its promises.

use std::time::Duration;

use leasehold_core::Stores;
use leasehold_postgres::rehearsal::{self, NextStep, Waits};
use leasehold_testkit::Harness;

use crate::harness::{OneSchema, PATIENCE};

/// What a step may add: columns that may be null or have a default, to every table that statements write whole
/// rows of; a table; an index; columns of the view.
const NEXT: &[NextStep] = &[
    NextStep {
        version: 901,
        name: "0901_columns",
        text: "
            alter table items add column colour text, add column weight integer not null default 0;
            alter table ready add column colour text;
            alter table claims add column colour text;
            alter table ends add column colour text;
            alter table troubles add column colour text;
            alter table paused_lanes add column colour text;
            alter table orgs add column colour text;
            alter table memberships add column colour text;
            alter table sessions add column colour text;
            alter table socket_tickets add column colour text;
            alter table entries add column colour text;
            alter table entry_cursors add column colour text;
            alter table outbox add column colour text;
            alter table markers add column colour text;
            alter table schedules add column colour text;
            alter table worker_beats add column colour text;
            create table colours (name text not null primary key);
            do $$ begin
                execute 'create or replace view work_items as '
                    || replace(pg_get_viewdef('work_items'::regclass, true), 'i.payload', 'i.payload, i.colour');
            end $$;",
    },
    NextStep {
        version: 902,
        name: "0902_index",
        text: "--! concurrent\n\
               create index concurrently items_next on {schema}.items (kind, created_at);",
    },
];

/// A schema that a later build has migrated.
pub(crate) struct NextSchema(OneSchema);

impl Harness for NextSchema {
    /// The promises are looked at again, and not how they hold in a throng.
    const REPEATS: usize = 10;

    fn is_possible() -> bool {
        OneSchema::is_possible()
    }

    async fn open() -> Self {
        let schema = OneSchema::open().await;
        let waits = Waits {
            turn: PATIENCE,
            lock_timeout: Duration::from_secs(2),
            tries_max: 8,
        };
        rehearsal::migrate(schema.address(), &schema.options(), NEXT, waits)
            .await
            .unwrap();
        Self(schema)
    }

    fn stores(&self) -> Stores {
        self.0.stores()
    }

    async fn advance(&self, duration: Duration) {
        self.0.advance(duration).await;
    }

    async fn second_handle(&self) -> Stores {
        self.0.second_handle().await
    }
}
