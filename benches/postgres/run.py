"""Drains three layouts of the same fenced queue with pgbench, in interleaved rounds.

Plain SQL at full fence: uuid keys, a random token for each claim, org, lease and idempotency key on every
row, one statement for a claim of 500 items and one for their completion, each in a commit of its own. No
library stands around it, so that what differs is the layout.

    python3 run.py --pg postgres://postgres@127.0.0.1:5432 --rounds 3 [--rows 200000] [--pin]

`--pin` holds an old snapshot open meanwhile, so that no dead row may be removed. One JSON object a line.
"""

import argparse
import json
import os
import re
import subprocess
import time

HERE = os.path.dirname(os.path.abspath(__file__))
DATABASE = "leasehold_layouts"

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("--pg", required=True, help="the server's URL, without a database")
arguments.add_argument("--rounds", type=int, default=3)
arguments.add_argument("--rows", type=int, default=200_000)
arguments.add_argument("--batch", type=int, default=500)
arguments.add_argument("--clients", type=int, default=2)
arguments.add_argument("--layouts", default="in_place,split,archive")
arguments.add_argument("--pin", action="store_true")
A = arguments.parse_args()


def psql(sql=None, file=None, database=DATABASE):
    what = ["-f", f"{HERE}/layouts/{file}"] if file else ["-c", sql]
    command = ["psql", "-qXAt", "-v", "ON_ERROR_STOP=1", "-v", f"rows={A.rows}", f"{A.pg}/{database}", *what]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def wal_bytes():
    return int(psql("select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint"))


def pinned():
    session = subprocess.Popen(["psql", "-qX", f"{A.pg}/{DATABASE}"], stdin=subprocess.PIPE, text=True)
    session.stdin.write("begin isolation level repeatable read; select txid_current();\n")
    session.stdin.flush()
    time.sleep(0.5)
    return session


def drain(layout):
    psql(file=f"{layout}.schema.sql")
    psql(file=f"{layout}.fill.sql")
    psql("vacuum analyze")
    psql("checkpoint")
    pin = pinned() if A.pin else None
    before = wal_bytes()
    each = int(A.rows * 0.95 / A.batch / A.clients)
    command = ["pgbench", "-n", "-M", "prepared", "-c", str(A.clients), "-j", "1", "-t", str(each), "-P", "1",
               "-D", f"batch={A.batch}", "-D", "ids={}", "-D", "token=0",
               "-f", f"{HERE}/layouts/{layout}.drain.sql", f"{A.pg}/{DATABASE}"]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    if pin:
        pin.stdin.close()
        pin.wait()
    items = each * A.clients * A.batch
    rate = float(re.search(r"tps = ([\d.]+)", run.stdout).group(1)) * A.batch
    seconds = [round(float(tps) * A.batch) for tps in re.findall(r"([\d.]+) tps", run.stderr)]
    return {"rate": round(rate), "wal_bytes_per_item": round((wal_bytes() - before) / items), "seconds": seconds}


if DATABASE not in psql("select datname from pg_database", database="postgres").split():
    psql(f"create database {DATABASE}", database="postgres")
for number in range(A.rounds):
    for layout in A.layouts.split(","):
        about = {"round": number, "layout": layout, "rows": A.rows, "pin": A.pin, "load": os.getloadavg()[0]}
        print(json.dumps({**about, **drain(layout)}), flush=True)
