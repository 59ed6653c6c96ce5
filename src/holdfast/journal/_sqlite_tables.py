"""The tables of the SQLite file, in every format there ever was."""

from __future__ import annotations

RESTING = ("closed", "decided", "destroyed", "ended")
"""Tags of what is over: most of the rows, and nobody lists them by their tag alone."""

_LISTED = f"tag not in {RESTING!r}"

TAGGED = ("grants", "inputs", "pins")
"""Projections of which each session has a tag of its own."""

MANY_TAGS = f"projection in {TAGGED!r}"
"""What the index of tags is restricted to; a question can use it only by saying the same."""

RETENTIONS = ("ephemeral", "run_scoped", "session_scoped", "durable", "persistent", "host_policy")
"""A retention class by the number that stands for it in the file: add at the end, never reorder."""

_RETENTION = (
    "case retention"
    + "".join(f" when '{name}' then {at}" for at, name in enumerate(RETENTIONS))
    + " end"
)

_FORMAT_1 = """
create table meta (key text primary key, value text not null) strict, without rowid;
create table streams (
    id integer primary key,
    name text not null unique,
    pos integer not null,
    seq integer not null,
    hash blob not null,
    epoch integer not null,
    owner text,
    until integer not null
) strict;
create table records (
    seq integer primary key,
    stream integer not null,
    pos integer not null,
    body blob not null,
    hash blob not null
) strict;
create unique index records_by_stream on records (stream, pos);
create table rows (
    projection text not null,
    key text not null,
    tag text,
    value text not null,
    primary key (projection, key)
) strict, without rowid;
create index rows_by_tag on rows (projection, tag, key) where tag is not null;
create table content (
    digest blob primary key,
    size integer not null,
    codec integer,
    body blob
) strict;
create table holdings (
    digest blob not null,
    seq integer not null,
    stream text not null,
    run_id text,
    retention text not null,
    primary key (digest, seq, retention)
) strict, without rowid;
"""

# Rows say more than they did: what a session was opened with, where its open run stands, what is set aside.
_FORMAT_2 = "delete from rows"

# Everything takes less room. A body carries what keeps it (the newest record of a stream, a run and a retention class
# that refers to it), and `holdings` has only what keeps it as well; streams and runs are numbers there. Rows of what is
# over are squeezed, and no index finds them by their tag. Records and bodies that are there stay as they are.
_FORMAT_3 = f"""
alter table content rename to content_2;
alter table holdings rename to holdings_2;
drop table rows;
create table content (
    id integer primary key,
    digest blob not null unique,
    size integer not null,
    stream integer not null,
    run integer not null,
    retention integer not null,
    seq integer not null,
    codec integer,
    body blob
) strict;
create table names (
    id integer primary key,
    name text not null unique
) strict;
create table holdings (
    content integer not null,
    stream integer not null,
    run integer not null,
    retention integer not null,
    seq integer not null,
    primary key (content, stream, run, retention)
) strict, without rowid;
create table rows (
    projection text not null,
    key text not null,
    tag text,
    value any not null,
    primary key (projection, key)
) strict, without rowid;
create index rows_by_tag on rows (projection, tag, key) where {_LISTED};
insert into names (name) select distinct run_id from holdings_2 where run_id is not null order by 1;
create table held_2 as
    select digest, streams.id as stream, coalesce(names.id, 0) as run, {_RETENTION} as kept,
        max(holdings_2.seq) as seq, row_number() over (partition by digest) as number
    from holdings_2
    join streams on streams.name = holdings_2.stream
    left join names on names.name = run_id
    group by 1, 2, 3, 4;
insert into content (digest, size, stream, run, retention, seq, codec, body)
    select content_2.digest, size, coalesce(stream, 0), coalesce(run, 0),
        coalesce(kept, {RETENTIONS.index("durable")}), coalesce(seq, 0), codec, body
    from content_2 left join held_2 on held_2.digest = content_2.digest and number = 1
    order by content_2.rowid;
insert into holdings
    select content.id, held_2.stream, held_2.run, kept, held_2.seq
    from held_2 join content on content.digest = held_2.digest
    where number > 1;
drop table content_2;
drop table holdings_2;
drop table held_2;
"""

# What is under way has a table of its own, small and often written to; what is over is written once. An effect comes and
# goes there, and the index that found it by its tag was half of the price: whatever is under way of most projections has
# one tag, so that only where there are many does an index find a few of them.
_FORMAT_4 = f"""
drop table rows;
create table live (
    projection text not null,
    key text not null,
    tag text,
    value text not null,
    primary key (projection, key)
) strict, without rowid;
create index live_by_tag on live (projection, tag, key) where {MANY_TAGS};
create table rows (
    projection text not null,
    key text not null,
    tag text not null,
    value blob not null,
    primary key (projection, key)
) strict, without rowid;
"""

UPGRADES: list[str] = [_FORMAT_1, _FORMAT_2, _FORMAT_3, _FORMAT_4]
"""`UPGRADES[n]` makes format n + 1 out of format n; after the last, the rows are folded from the records again."""
