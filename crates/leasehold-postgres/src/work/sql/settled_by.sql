-- Why a settle changed nothing: of these items, orgs and tokens, the entries where this very
-- token settled the item last, wherever the item stands now.
select a.entry
from unnest($1::uuid[], $2::uuid[], $3::uuid[]) with ordinality as a (id, org_id, token, entry)
where exists (
        select from {schema}.ends e
        where e.id = a.id and e.org_id = a.org_id and e.settled_token = a.token
    )
    or exists (
        select from {schema}.ready r
        where r.id = a.id and r.org_id = a.org_id and r.settled_token = a.token
    )
    or exists (
        select from {schema}.claims c
        where c.id = a.id and c.org_id = a.org_id and c.settled_token = a.token
    )
