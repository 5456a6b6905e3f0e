-- Part three: of the candidates, the first that no other claim has locked are taken. Each is looked up by
-- itself and in turn, below the limit, so that no row is locked which is not taken.
chosen as materialized (
    select r.ctid as place
    from unnest(array(select unnest(l.places) from levels l)) with ordinality as c (place, nth)
    join {schema}.ready r on r.ctid = c.place
    order by c.nth
    limit $6::bigint
    for update of r skip locked
),
