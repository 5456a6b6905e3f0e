insert into split_items (lane) select 1 from generate_series(1, :items);
insert into split_ready (id) select id from split_items order by id;
