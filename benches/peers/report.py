"""Tables of what was measured: medians over the rounds, and ratios taken within each round."""

import json
import statistics

PER_10_000 = ["worker_cpu_seconds_per_10_000", "server_cpu_seconds_per_10_000"]
# Heading, field, and how many decimals.
RATES = [
    ("items/s", "per_second", 0),
    ("worker CPU s/10k", "worker_cpu_seconds_per_10_000", 3),
    ("server CPU s/10k", "server_cpu_seconds_per_10_000", 3),
    ("CPU s/10k", "cpu", 3),
    ("WAL B/item", "wal_bytes_per_item", 0),
    ("RSS MiB", "rss_peak_mib", 0),
]
COLUMNS = {
    "latency": [
        ("p50 ms", "p50_ms", 2),
        ("p99 ms", "p99_ms", 2),
        ("after answer p50", "after_answer_p50_ms", 2),
        ("after answer p99", "after_answer_p99_ms", 2),
    ],
    "pinned": [
        ("first s, items/s", "first_per_second", 0),
        ("last s, items/s", "last_per_second", 0),
        ("last/first", "last_to_first", 2),
        *RATES,
    ],
}


def tables(path):
    with open(path) as file:
        lines = [json.loads(line) for line in file]
    cases = [with_sum(line) for line in lines if line["kind"] == "case" and "error" not in line]
    operations = dict.fromkeys(case["op"] for case in cases)
    errors = [f"{line['op']} {line['peer']}: {line['error']}" for line in lines if "error" in line]
    return "\n\n".join([*(table(operation, cases) for operation in operations), *errors])


def with_sum(case):
    parts = [case.get(field) for field in PER_10_000]
    return {**case, "cpu": None if None in parts else sum(parts)}


def table(operation, cases):
    rounds = {}
    for case in cases:
        # A file may hold several runs: the later one of a round counts.
        rounds.setdefault(case["peer"], {}).setdefault(case["op"], {})[case["round"]] = case
    peers = [peer for peer in rounds if operation in rounds[peer]]
    base = rounds[peers[0]][operation]
    rows = []
    for peer in peers:
        own = rounds[peer][operation]
        row = [peer]
        for _, field, decimals in COLUMNS.get(operation, RATES):
            row.append(number(median(case.get(field) for case in own.values()), decimals))
        if operation == "latency":
            row.append(ratios(own, base, "p50_ms"))
        else:
            row += [ratios(base, own, "per_second"), ratios(own, base, "cpu")]
        if operation == "backlog":
            row.append(ratios(own, rounds[peer].get("drain", {}), "per_second"))
        loads = [case["load"] for case in own.values()]
        rows.append([*row, f"{min(loads):.1f}..{max(loads):.1f}", str(len(own))])
    heads = [head for head, _, _ in COLUMNS.get(operation, RATES)]
    if operation == "latency":
        heads.append(f"p50, times that of {peers[0]}")
    else:
        heads += [f"rate of {peers[0]}, times its", f"CPU, times that of {peers[0]}"]
    if operation == "backlog":
        heads.append("of its drain without")
    return grid([[operation, *heads, "load", "rounds"], *rows])


def ratios(upper, lower, field):
    """The median of the rounds' own ratios, and their range."""
    found = []
    for number_of_round, case in upper.items():
        other = lower.get(number_of_round, {}).get(field)
        if other and case.get(field) is not None:
            found.append(case[field] / other)
    if not found:
        return "-"
    return f"{statistics.median(found):.2f} ({min(found):.2f}..{max(found):.2f})"


def median(values):
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else None


def number(value, decimals):
    return "-" if value is None else f"{value:,.{decimals}f}"


def grid(rows):
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


def summary(found):
    if "error" in found:
        return found["error"]
    case = with_sum(found)
    fields = [("per_second", "{:,.0f}/s"), ("cpu", "{:.3f} CPU s/10k"), ("p50_ms", "p50 {:.2f} ms"),
              ("p99_ms", "p99 {:.2f} ms"), ("last_to_first", "last/first {:.2f}")]
    return ", ".join(text.format(case[field]) for field, text in fields if case.get(field) is not None)
