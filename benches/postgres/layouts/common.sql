drop table if exists work_items, ready, claims, ends, finished, failures, keys, ends_unused cascade;
