-- Work items and paused lanes.
--
-- An item's row in `items` says what was asked and is never updated. Where the item stands is one row
-- more, in exactly one of three narrow tables: `ready` while it waits, `claims` while it is held, `ends`
-- once it has ended. A claim moves a row from the first to the second, a settle from the second to one of
-- the other two, so that neither rewrites the item. `troubles` holds the words of what went wrong, which
-- most items never have. The view `work_items` shows an item with its whole state.

create table items (
    id              uuid        not null primary key,
    org_id          uuid        not null,
    created_at      timestamptz not null,
    created_by      uuid        not null,
    kind            text        not null,
    target_id       uuid        not null,
    idempotency_key uuid        not null,
    request_id      uuid        not null,
    traceparent     text,
    lane            text        not null,
    priority        smallint    not null, -- lower goes first
    max_attempts    integer     not null,
    payload         json        not null  -- an object, kept as it was written
);

create unique index items_key on items (org_id, idempotency_key);
create index items_org on items (org_id, id);

-- In the tables of where an item stands, `updated_by` is empty where nobody but the store itself moved it, and
-- columns of one width come first: what all rows have is found without a look at the others.
create table ready (
    id            uuid        not null primary key,
    org_id        uuid        not null,
    available_at  timestamptz not null, -- not claimed before this
    updated_at    timestamptz not null,
    claim_seq     bigint      not null,
    attempts      integer     not null,
    worker_losses integer     not null,
    priority      smallint    not null,
    lane          text        not null,
    kind          text        not null,
    updated_by    uuid,
    settled_token uuid,                 -- the token that settled the item last
    progress_percent smallint,
    progress_note text
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- What a claim looks for, in the order in which it takes it.
create index ready_order on ready (lane, kind, priority, available_at, id);

create table claims (
    id                  uuid        not null primary key,
    org_id              uuid        not null,
    token               uuid        not null, -- the fence
    lease_expires_at    timestamptz not null,
    available_at        timestamptz not null, -- as it was when the item was claimed
    updated_at          timestamptz not null,
    claim_seq           bigint      not null,
    attempts            integer     not null,
    worker_losses       integer     not null,
    lane                text        not null,
    claimed_by          text        not null, -- for people; never a fence
    updated_by          uuid,
    settled_token       uuid,
    cancel_requested_at timestamptz,
    progress_percent    smallint,
    progress_note       text
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- The tokens that claimed something, each once, so that one which is asked for twice cannot claim twice. An
-- index of the claims would say the same at the cost of an entry an item. A row stays for some time, at least
-- as long as the token holds anything.
create table tokens (
    token      uuid        not null primary key,
    claimed_at timestamptz not null
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

create table ends (
    id                  uuid        not null primary key,
    org_id              uuid        not null,
    available_at        timestamptz not null,
    updated_at          timestamptz not null,
    claim_seq           bigint      not null,
    attempts            integer     not null,
    worker_losses       integer     not null,
    is_done             boolean     not null, -- otherwise it failed, with a code
    updated_by          uuid,
    settled_token       uuid,
    failure_code        text,
    cancel_requested_at timestamptz,
    audited_at          timestamptz,          -- empty on a dead letter: its audit entry is owed
    progress_percent    smallint,
    progress_note       text,
    result              json
);

-- What the purge deletes, oldest first.
create index ends_age on ends (updated_at);
-- Lists of what failed among much that is done.
create index ends_failed on ends (org_id, id) where not is_done;
-- Dead letters whose audit entry is owed.
create index ends_unaudited on ends (org_id, id)
    where not is_done and failure_code not in ('cancelled', 'orphaned') and audited_at is null;

create table troubles (
    id         uuid not null primary key,
    org_id     uuid not null,
    last_error text,
    errors     json -- a list, newest last
);

create table paused_lanes (
    lane      text        not null primary key,
    reason    text        not null,
    paused_by text        not null, -- for people
    since     timestamptz not null
);

-- For people, and for every read that shows an item.
create view work_items as
select
    i.id, i.org_id, i.created_at,
    coalesce(r.updated_at, c.updated_at, e.updated_at) as updated_at,
    i.created_by,
    coalesce(r.updated_by, c.updated_by, e.updated_by, uuid '00000000-0000-0000-0000-000000000000') as updated_by,
    i.kind, i.target_id, i.idempotency_key, i.request_id, i.traceparent, i.lane, i.priority,
    case
        when r.id is not null then 'queued'
        when c.id is not null then 'claimed'
        when e.is_done then 'done'
        else 'failed'
    end as status,
    coalesce(r.available_at, c.available_at, e.available_at) as available_at,
    c.claimed_by, c.token as claim_token,
    coalesce(r.claim_seq, c.claim_seq, e.claim_seq) as claim_seq,
    c.lease_expires_at,
    coalesce(r.attempts, c.attempts, e.attempts) as attempts,
    i.max_attempts,
    coalesce(r.worker_losses, c.worker_losses, e.worker_losses) as worker_losses,
    e.failure_code,
    coalesce(c.cancel_requested_at, e.cancel_requested_at) as cancel_requested_at,
    e.audited_at,
    coalesce(r.progress_percent, c.progress_percent, e.progress_percent) as progress_percent,
    coalesce(r.progress_note, c.progress_note, e.progress_note) as progress_note,
    t.last_error, t.errors, e.result, i.payload
from items i
left join ready r on r.id = i.id
left join claims c on c.id = i.id
left join ends e on e.id = i.id
left join troubles t on t.id = i.id;
