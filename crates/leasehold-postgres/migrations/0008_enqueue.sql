-- Enqueueing by SQL, from any language, in the caller's own transaction.
--
-- `enqueue` and `enqueue_many` are for callers; they run as their owner, whose login needs nothing but the
-- execute right on them, which nobody has until it is granted. The other functions serve these two.
--
-- The rules are those of `leasehold_core` and of the client: what one of them refuses, the other must.

-- Pinned for the two that run as their owner: what the server has of itself first, without a word, so that
-- nothing that others put into this schema stands in for it; then this schema; and what a session made for
-- itself last, so that no temporary table of the caller's stands in for one of ours. How the session reads
-- texts is pinned with it.
select pg_catalog.set_config(
    'search_path', pg_catalog.current_setting('search_path') || ', pg_temp', true
);

-- What the members of an item of a batch are, in the order of `enqueue`'s arguments.
create type new_item as (
    kind         text,
    payload      json,
    lane         text,
    priority     integer,
    delay        interval,
    due_at       timestamptz,
    key          uuid,
    key_text     text,
    max_attempts integer,
    target_id    uuid,
    created_by   uuid,
    request_id   uuid,
    traceparent  text,
    created_at   timestamptz,
    id           uuid,
    place        integer -- in its batch, from 0; set here, never by a caller
);

-- The server has no SHA-1 of its own, and a key that is made of text is a UUIDv5.
create function sha1(message bytea) returns bytea
    language plpgsql immutable strict parallel safe
as $$
declare
    mask constant bigint := 4294967295;
    padding constant integer := (119 - length(message) % 64) % 64;
    padded constant bytea := message || '\x80'::bytea || decode(repeat('00', padding), 'hex')
        || int8send(length(message)::bigint * 8);
    a0 bigint := 1732584193;
    b0 bigint := 4023233417;
    c0 bigint := 2562383102;
    d0 bigint := 271733878;
    e0 bigint := 3285377520;
    a bigint; b bigint; c bigint; d bigint; e bigint; x bigint;
    words bigint[];
begin
    for block in 0 .. length(padded) / 64 - 1 loop
        a := a0; b := b0; c := c0; d := d0; e := e0;
        words := array[]::bigint[];
        for round in 0 .. 79 loop
            if round < 16 then
                x := ('x' || encode(substring(padded from block * 64 + round * 4 + 1 for 4), 'hex'))::bit(32)::bigint;
            else
                x := words[round - 2] # words[round - 7] # words[round - 13] # words[round - 15];
                x := ((x << 1) | (x >> 31)) & mask;
            end if;
            words[round + 1] := x;
            x := x + e + (((a << 5) | (a >> 27)) & mask) + case
                when round < 20 then ((b & c) | ((b # mask) & d)) + 1518500249
                when round < 40 then (b # c # d) + 1859775393
                when round < 60 then ((b & c) | (b & d) | (c & d)) + 2400959708
                else (b # c # d) + 3395469782
            end;
            e := d; d := c; c := ((b << 30) | (b >> 2)) & mask; b := a; a := x & mask;
        end loop;
        a0 := (a0 + a) & mask; b0 := (b0 + b) & mask; c0 := (c0 + c) & mask;
        d0 := (d0 + d) & mask; e0 := (e0 + e) & mask;
    end loop;
    return substring(int8send(a0) from 5) || substring(int8send(b0) from 5)
        || substring(int8send(c0) from 5) || substring(int8send(d0) from 5)
        || substring(int8send(e0) from 5);
end
$$;

-- The idempotency key that a text maps to, as `IdempotencyKey::from_text` maps it.
create function key_of_text(key_text text) returns uuid
    language sql immutable strict parallel safe
as $$
    select encode(set_byte(set_byte(
            substring(digest for 16),
            6, get_byte(digest, 6) & 15 | 80),
            8, get_byte(digest, 8) & 63 | 128),
        'hex')::uuid
    from sha1('\x6d1f31d25a0c4a7e9b551c6e8f27a0b4'::bytea || convert_to(key_text, 'UTF8')) as digest
$$;

-- A fresh id (UUIDv7) as of an instant. The microseconds are in it too, so that ids made one after the other
-- are in that order.
create function mint_id(at timestamptz) returns uuid
    language sql volatile parallel safe
as $$
    select encode(
        substring(int8send(micros / 1000) from 3)
            || int2send((28672 | micros % 1000 * 4096 / 1000)::smallint)
            || substring(uuid_send(gen_random_uuid()) from 9),
        'hex')::uuid
    from (select (extract(epoch from at) * 1000000)::bigint as micros) as instant
$$;

-- JSON without its texts: brackets, colons, commas, numbers.
create function json_skeleton(document text) returns text
    language sql immutable strict parallel safe
as $$
    select regexp_replace(document, '"(?:[^"\\]|\\.)*"', '', 'g')
$$;

-- Whether there is certainly nothing in a batch that `json_fault` would find, told without looking at every
-- value: what repeats no key has as many colons as its `jsonb`, which keeps one of each.
create function json_is_plain(batch json) returns boolean
    language plpgsql immutable strict parallel safe
as $$
declare
    skeleton text;
    single text;
    shell text;
begin
    skeleton := json_skeleton(batch::text);
    -- The conversion refuses texts that cannot be stored, wherever they are.
    single := json_skeleton(batch::jsonb::text);
    if length(replace(skeleton, ':', '')) - length(skeleton)
        <> length(replace(single, ':', '')) - length(single)
    then
        return false;
    end if;
    -- An exponent, or so many digits that the number may be more than a reader can hold.
    if skeleton ~ '[0-9][eE]|[0-9]{200}' then
        return false;
    end if;
    -- Each round takes the innermost brackets away. Two more than a payload may have: the batch, the item.
    shell := regexp_replace(skeleton, '[^][{}]+', '', 'g');
    for round in 1 .. 129 loop
        shell := regexp_replace(shell, '[{][}]|[[][]]', '', 'g');
        exit when shell = '';
    end loop;
    return shell = '';
exception
    when data_exception or program_limit_exceeded or statement_too_complex then
        return false;
end
$$;

-- What a shielded text has that cannot be stored.
create function text_fault(shielded text, place text, shield text) returns text
    language sql immutable strict parallel safe
as $$
    select case
        when strpos(shielded, shield || 'u0000') > 0
            then format('the zero character (\u0000) cannot be stored; it is in %s', place)
        when regexp_replace(
            shielded,
            replace('#u[dD][89abAB][0-9a-fA-F]{2}#u[dD][c-fC-F][0-9a-fA-F]{2}', '#', shield), '', 'g'
        ) ~ (shield || 'u[dD][89a-fA-F]')
            then format('not valid JSON: half of a pair of \u escapes is no character; it is in %s', place)
    end
$$;

-- As `json_fault`, for a value that is shielded, at its place.
create function json_fault_within(value json, place text, depth integer, shield text) returns text
    language plpgsql stable parallel safe
as $$
declare
    fault text;
    part record;
    seen text[] := array[]::text[];
    name text;
begin
    if depth > 127 and json_typeof(value) in ('object', 'array') then
        return format('not valid JSON: it is nested more than 127 deep; flatten it, at %s', left(place, 80));
    end if;
    case json_typeof(value)
    when 'object' then
        for part in select m.key, m.value from json_each(value) as m loop
            fault := text_fault(part.key, format('%s.%s', place, replace(part.key, shield, '\')), shield);
            if fault is not null then
                return fault;
            end if;
            name := replace(to_json(part.key)::text, shield, '\')::json #>> '{}';
            if name = any (seen) then
                return format('a key stands twice in one object; it is %s.%s', place, name);
            end if;
            seen := seen || name;
            fault := json_fault_within(part.value, format('%s.%s', place, name), depth + 1, shield);
            exit when fault is not null;
        end loop;
    when 'array' then
        for part in
            select e.value, e.at from json_array_elements(value) with ordinality as e (value, at)
        loop
            fault := json_fault_within(part.value, format('%s[%s]', place, part.at - 1), depth + 1, shield);
            exit when fault is not null;
        end loop;
    when 'string' then
        fault := text_fault(value #>> '{}', place, shield);
    when 'number' then
        if abs((value #>> '{}')::numeric) > 1.797693134862315807e308 then
            fault := format('not valid JSON: the number is out of range; it is %s', place);
        end if;
    else
        null;
    end case;
    return fault;
exception
    when numeric_value_out_of_range then
        return format('not valid JSON: the number is out of range; it is %s', place);
end
$$;

-- The first thing in a JSON value that `JsonObject::parse` refuses, and where; null if there is none. The
-- value is `depth` deep in another.
--
-- The server reads no part of a value that has an escape which it cannot store. So they are shielded first:
-- a character that the value does not have stands for the backslash of every `\u`.
create function json_fault(value json, depth integer default 1) returns text
    language sql stable strict parallel safe
as $$
    select json_fault_within(
        regexp_replace(value::text, '((?:^|[^\\])(?:\\\\)*)\\u', '\1' || shield || 'u', 'g')::json,
        '$', depth, shield
    )
    from (
        select chr(code) as shield from generate_series(57344, 63743) as code
        where strpos(value::text, chr(code)) = 0 limit 1
    ) as unused
$$;

-- The first rule that an item of a batch breaks: which argument, and in what words; null if it breaks none.
create function item_fault(item new_item) returns text[]
    language sql stable parallel safe
as $$
    select case
        when item.kind is null
            then array['kind', 'the kind is missing; say what to do, such as SEND_INVOICE']
        when item.kind collate "C" !~ '^[A-Z][A-Z0-9_]{0,63}$'
            then array['kind', format('kind %s is not valid: use 1 to 64 bytes of A-Z, 0-9 and _, beginning with a letter, such as SEND_INVOICE', to_json(left(item.kind, 80)))]
        when item.payload is null
            then array['payload', 'the payload: a JSON object is needed, such as {"id": 7}, not null']
        when octet_length(item.payload::text) > 1048576
            then array['payload', format('the payload: %s bytes of JSON, and the limit is 1048576 bytes; store the data elsewhere and send its id', octet_length(item.payload::text))]
        when json_typeof(item.payload) <> 'object'
            then array['payload', format('the payload: a JSON object is needed, such as {"id": 7}, not %s', case json_typeof(item.payload) when 'array' then 'a list' when 'string' then 'a text' when 'number' then 'a number' else 'a truth value' end)]
        when item.lane collate "C" !~ '^[a-zA-Z0-9][a-zA-Z0-9._:/-]{0,99}$'
            then array['lane', format('lane %s is not valid: use 1 to 100 bytes of a-z, A-Z, 0-9 and . _ : / - , beginning with a letter or digit', to_json(left(item.lane, 80)))]
        when item.priority not between -32768 and 32767
            then array['priority', format('priority is %s; allow between -32768 and 32767', item.priority)]
        when item.max_attempts not between 1 and 1000000
            then array['max_attempts', format('max_attempts is %s; allow between 1 and 1000000', item.max_attempts)]
        when item.delay is not null and item.due_at is not null
            then array['delay', 'delay and due_at are both given; give one of them']
        when item.delay < interval '0'
            then array['delay', format('delay is %s; give none for an item that is due at once', item.delay)]
        when not isfinite(item.due_at)
            then array['due_at', format('due_at is %s; give an instant', item.due_at)]
        when item.key is not null and item.key_text is not null
            then array['key', 'key and key_text are both given; give one of them']
        when item.key_text = ''
            then array['key_text', 'key_text is empty, as a missing value is; give a text, or leave it out']
        when octet_length(item.key_text) > 1000
            then array['key_text', format('key_text has %s bytes, and the limit is 1000 bytes; give a digest of it', octet_length(item.key_text))]
        when item.traceparent collate "C" !~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$'
            then array['traceparent', format('traceparent %s is no W3C header (00-<32 hex>-<16 hex>-<2 hex>)', to_json(left(item.traceparent, 80)))]
        when not isfinite(item.created_at)
            then array['created_at', format('created_at is %s; give an instant', item.created_at)]
    end
$$;

-- Ends the call: an argument is refused, in words that say what to do.
create function refuse(argument text, words text, place bigint default null) returns void
    language plpgsql
as $$
begin
    raise exception using
        errcode = 'invalid_parameter_value',
        column = argument,
        message = case
            when place is null then words
            else format('item %s of the batch (from 0): %s; nothing of the batch was stored', place, words)
        end;
end
$$;

-- The items of a batch as they were given. One that is alone is not called a batch. `checked`: the caller
-- holds them to the rules for JSON itself.
create function read_items(batch json, is_alone boolean, checked boolean) returns new_item[]
    language plpgsql stable
as $$
declare
    -- What a batch may have: one statement's worth, and a bound for memory.
    rows_max constant integer := 1000;
    bytes_max constant integer := 64 * 1024 * 1024;
    members constant text[] := array[
        'kind', 'payload', 'lane', 'priority', 'delay', 'due_at', 'key', 'key_text', 'max_attempts',
        'target_id', 'created_by', 'request_id', 'traceparent', 'created_at', 'id'
    ];
    part record;
    fault text;
begin
    if batch is null or json_typeof(batch) <> 'array' then
        perform refuse('items', 'the items: a JSON list of objects is needed, such as [{"kind": "SEND_INVOICE", "payload": {"id": 7}}]');
    elsif octet_length(batch::text) > bytes_max then
        perform refuse('items', format('the items: %s bytes of JSON, and the limit is %s bytes; send them in parts', octet_length(batch::text), bytes_max));
    elsif json_array_length(batch) > rows_max then
        perform refuse('items', format('the items: there are %s, and the limit is %s; send them in parts', json_array_length(batch), rows_max));
    end if;
    if checked or json_is_plain(batch) then
        begin
            if checked or not exists (
                select from jsonb_array_elements(batch::jsonb) as element where element - members <> '{}'
            ) then
                return array(select item from json_populate_recordset(null::new_item, batch) as item);
            end if;
        exception when data_exception then
            null; -- Which item it is, is found out below.
        end;
    end if;

    for part in
        select e.item, e.at - 1 as place from json_array_elements(batch) with ordinality as e (item, at)
    loop
        fault := json_fault(part.item, 0);
        if fault is not null and is_alone then
            perform refuse('payload', 'the payload: ' || replace(fault, '$.payload', '$'));
        elsif fault is not null then
            perform refuse('items', fault, part.place);
        elsif json_typeof(part.item) <> 'object' then
            perform refuse('items', 'a JSON object is needed, such as {"kind": "SEND_INVOICE", "payload": {"id": 7}}', part.place);
        end if;
        select to_json(left(name, 80)) into fault
        from json_object_keys(part.item) as name where name <> all (members);
        if fault is not null then
            perform refuse('items', format('an item has no %s; it has %s', fault, array_to_string(members, ', ')), part.place);
        end if;
        begin
            perform json_populate_record(null::new_item, part.item);
        exception when data_exception then
            perform refuse('items', sqlerrm, part.place);
        end;
    end loop;
    -- What is in order item by item, such as a number that only a reader of all would have doubted.
    return array(select item from json_populate_recordset(null::new_item, batch) as item);
end
$$;

-- Writes items that share no id and no key, answers the fate of each, and hints the lanes that gained one.
create function write_items(items new_item[], org uuid, hint boolean)
    returns table (place integer, id uuid, fate text)
    language plpgsql
as $$
#variable_conflict use_column
declare
    -- Where `leasehold_core::time::later` stops.
    calendar_end constant timestamptz := timestamptz 'epoch' + interval '253402207200 seconds';
    written uuid[];
    gained text[];
begin
    -- Of two batches that bring the same keys under ids of their own, one waits for the other at the first
    -- key they share: both go by key.
    with moment as materialized (
        select clock() as now
    ),
    new as materialized (
        select * from unnest(items)
    ),
    inserted as (
        insert into items (
            id, org_id, created_at, created_by, kind, target_id, idempotency_key, request_id,
            traceparent, lane, priority, max_attempts, payload
        )
        select
            new.id, org, least(coalesce(new.created_at, moment.now), calendar_end), new.created_by,
            new.kind, new.target_id, new.key, new.request_id, new.traceparent, new.lane, new.priority,
            new.max_attempts, new.payload
        from new cross join moment
        order by new.key, new.id
        on conflict do nothing
        returning id, lane
    ),
    readied as (
        insert into ready (
            id, org_id, lane, kind, priority, available_at, updated_at, updated_by,
            attempts, worker_losses, claim_seq
        )
        select
            new.id, org, new.lane, new.kind, new.priority,
            least(
                coalesce(new.due_at, moment.now + least(new.delay, interval '20000 years')), calendar_end
            ),
            moment.now, new.created_by, 0, 0, 0
        from new
        cross join moment
        -- Looked up in a table made once, which a join need not be.
        where case when new.id in (select inserted.id from inserted) then true else false end
    )
    select array_agg(inserted.id), array_agg(distinct inserted.lane) into written, gained from inserted;

    -- Delivered by the commit, each lane once, however often it is told.
    if hint then
        perform pg_notify(left('leasehold_' || current_schema(), 63), lane) from unnest(gained) as lane;
    end if;
    if cardinality(written) = cardinality(items) then
        return query select new.place, new.id, 'inserted' from unnest(items) as new;
        return;
    end if;
    -- What stood in the way is committed by now, or it is this transaction's: a statement of its own sees it.
    for place, id, fate in
        select
            new.place,
            coalesce(done.id, same.id, alike.id),
            case
                when done.id is not null then 'inserted'
                when same.org_id = org then 'id_exists'
                when same.id is not null then 'id_taken'
                when alike.id is not null then 'key_exists'
            end
        from unnest(items) as new
        left join unnest(written) as done (id) on done.id = new.id
        left join lateral (
            select stored.id, stored.org_id from items as stored where stored.id = new.id limit 1
        ) as same on true
        left join lateral (
            select stored.id from items as stored
            where stored.org_id = org and stored.idempotency_key = new.key limit 1
        ) as alike on true
    loop
        if fate is null then
            raise exception using
                errcode = 'serialization_failure',
                message = 'what stood in the way of an item was purged meanwhile; try again';
        end if;
        return next;
    end loop;
end
$$;

-- Reads, judges and writes a batch.
create function enqueue_items(batch json, org uuid, hint boolean, is_alone boolean, checked boolean)
    returns table (place integer, id uuid, fate text)
    language plpgsql
as $$
#variable_conflict use_column
declare
    nil constant uuid := '00000000-0000-0000-0000-000000000000';
    began constant timestamptz := clock_timestamp();
    items new_item[];
    part record;
begin
    if org = nil then
        perform refuse('org', 'org is the nil uuid, and the platform owns no work; name the org, or leave it out where there are no tenants');
    end if;
    items := read_items(batch, is_alone, checked);
    select f.fault, f.at - 1 as place into part
    from (
        select item_fault(item) as fault, row_number() over () as at from unnest(items) as item
    ) as f
    where f.fault is not null
    order by f.at
    limit 1;
    if found then
        perform refuse(part.fault[1], part.fault[2], case when not is_alone then part.place end);
    end if;

    items := array(
        select row(
            new.kind, new.payload, coalesce(new.lane, 'default'), coalesce(new.priority, 0),
            coalesce(new.delay, interval '0'), new.due_at,
            coalesce(new.key, key_of_text(new.key_text), minted.id), null, coalesce(new.max_attempts, 3),
            coalesce(new.target_id, nil), coalesce(new.created_by, nil), coalesce(new.request_id, nil),
            new.traceparent, new.created_at, minted.id, new.at - 1
        )::new_item
        from unnest(items) with ordinality as new (
            kind, payload, lane, priority, delay, due_at, key, key_text, max_attempts, target_id,
            created_by, request_id, traceparent, created_at, id, place, at
        )
        cross join lateral (
            select coalesce(new.id, mint_id(began + new.at * interval '1 microsecond')) as id
        ) as minted
        order by new.at
    );
    if not exists (
        select from unnest(items) as new
        having count(*) > count(distinct new.id) or count(*) > count(distinct new.key)
    ) then
        return query select w.place, w.id, w.fate from write_items(items, org, hint) as w;
        return;
    end if;
    -- What shares no id and no key with an item before it goes together; the rest one by one, so that each
    -- sees what became of those before it.
    for part in
        select array_agg(named.item) as items
        from (
            select
                item,
                case when
                    row_number() over (partition by item.id order by item.place) = 1
                    and row_number() over (partition by item.key order by item.place) = 1
                then -1 else item.place end as turn
            from unnest(items) as item
        ) as named
        group by named.turn
        order by named.turn
    loop
        return query select w.place, w.id, w.fate from write_items(part.items, org, hint) as w;
    end loop;
end
$$;

-- Enqueues one item in the caller's transaction. docs/enqueue-from-sql.md
create function enqueue(
    kind         text,
    payload      json,
    org          uuid default '01970000-0000-7000-8000-000000000001', -- of an installation without tenants
    lane         text default null,
    priority     integer default null,
    delay        interval default null,
    due_at       timestamptz default null,
    key          uuid default null,
    key_text     text default null,
    max_attempts integer default null,
    target_id    uuid default null,
    created_by   uuid default null,
    request_id   uuid default null,
    traceparent  text default null,
    hint         boolean default true,
    inout id     uuid default null,
    out fate     text
)
    language plpgsql security definer
    set search_path from current
    set standard_conforming_strings = on
as $$
#variable_conflict use_variable
declare
    given constant uuid := id;
begin
    select e.id, e.fate into id, fate
    from enqueue_items(
        json_build_array(json_build_object(
            'kind', kind, 'payload', payload, 'lane', lane, 'priority', priority, 'delay', delay,
            'due_at', due_at, 'key', key, 'key_text', key_text, 'max_attempts', max_attempts,
            'target_id', target_id, 'created_by', created_by, 'request_id', request_id,
            'traceparent', traceparent, 'id', given
        )),
        coalesce(org, '01970000-0000-7000-8000-000000000001'), coalesce(hint, true), true, false
    ) as e;
    if fate = 'id_taken' then
        raise exception using
            errcode = 'unique_violation', column = 'id',
            message = format('the id %s is taken; mint another, or leave it out', given);
    end if;
end
$$;

-- Enqueues a batch in the caller's transaction, and answers in the batch's order. docs/enqueue-from-sql.md
create function enqueue_many(
    items   json,
    org     uuid default '01970000-0000-7000-8000-000000000001',
    hint    boolean default true,
    checked boolean default false -- the caller holds items to the rules for JSON itself
)
    returns table (place integer, id uuid, fate text)
    language sql security definer
    set search_path from current
    set standard_conforming_strings = on
as $$
    select e.place, e.id, e.fate
    from enqueue_items(
        items, coalesce(org, '01970000-0000-7000-8000-000000000001'), coalesce(hint, true), false,
        coalesce(checked, false)
    ) as e
    order by e.place
$$;

-- Nobody may until it is granted, and then only the two that are for callers.
revoke all on function
    sha1, key_of_text, mint_id, json_skeleton, json_is_plain, text_fault, json_fault_within, json_fault,
    item_fault, refuse, read_items, write_items, enqueue_items, enqueue, enqueue_many
    from public;
