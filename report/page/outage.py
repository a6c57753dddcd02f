"""The section on outages: the table of phases, and the pictures of waits and answers."""

import itertools

from common import milliseconds, names, read, table, whole
from drawing import ROOT, Panel, Picture

TITLES = {
    "killed": "Redis is killed",
    "hung": "Redis hangs",
    "slow": "Redis answers 200 ms late",
    "failed over": "Redis fails over",
}
LIMITERS = ["plimsoll", "tower-rate-tier", "tower-rate-limit-redis"]
BEGIN, END, LENGTH = 2.5, 6.5, 9.5
OURS, TIER, REDIS = LIMITERS


def panels(picture, y_max, y_min=0):
    """Returns a panel for each fault, in rows, and each limiter, in columns, with the time of the fault in grey."""
    for row, fault in enumerate(TITLES):
        top = 108 + 128 * row
        for column, limiter in enumerate(LIMITERS):
            panel = Panel(picture, 70 + 232 * column, top, 208, 84, LENGTH, y_max, 0, y_min)
            picture.bars("pause", [(panel.x(BEGIN), top, panel.x(END) - panel.x(BEGIN), 84)])
            if row == 0:
                picture.text(panel.left, top - 28, limiter, "blue" if column == 0 else "")
            if column == 0:
                picture.text(panel.left, top - 8, TITLES[fault], "small")
            yield fault, limiter, panel, row == len(TITLES) - 1, column == 0


def frame(picture, panel, ticks, is_last, is_first):
    bottom = panel.top + panel.height
    for tick in ticks:
        if tick > panel.y_min:
            panel.horizontal(tick, "grid")
        if is_first:
            picture.text(panel.left - 8, panel.y(tick) + 4, f"{tick:,}", "small", "end")
    for tick in range(0, 10, 2):
        picture.add(f'<path class="axis" d="M{panel.x(tick)} {bottom}v4"/>')
        if is_last:
            picture.text(panel.x(tick), bottom + 18, str(tick), "small", "middle")
    if is_last:
        picture.text(panel.left + panel.width, bottom + 34, "seconds", "small", "end")
    picture.add(f'<path class="axis" d="M{panel.left} {panel.top}v{panel.height}h{panel.width}"/>')


def draw_waits(lines):
    picture = Picture(760, 648, "Waits during an outage", "The longest wait of a request in each 100 ms, before, during and after four outages of Redis, for three limiters")
    picture.text(24, 32, "Longest wait of a request in each 100 ms, in ms", "title")
    picture.text(24, 52, "grey: the outage; dotted line: the same server without a limiter", "small")
    for fault, limiter, panel, is_last, is_first in panels(picture, 3_000, 1):
        frame(picture, panel, [1, 10, 100, 1_000], is_last, is_first)
        for name, style in (("no limiter", "thin faint dotted"), (limiter, "thin blue" if is_first else "thin plain")):
            rows = [row for row in lines if (row["fault"], row["limiter"]) == (fault, name)]
            picture.line(style, [(panel.x(row["from_ms"] / 1e3 + 0.05), panel.y(row["longest_ms"])) for row in rows])
    picture.save("waits")


def runs_with_errors(rows):
    """Returns the runs of rows, one after the other, that have errors."""
    return [list(run) for has_errors, run in itertools.groupby(rows, lambda row: row["errors"] > 0) if has_errors]


def outline(panel, run):
    """Returns the outline of the errors of these rows, on top of the requests that are admitted."""
    steps = []
    for row in run:
        top = panel.y(min(row["admitted"] + row["errors"], 50))
        steps += [(panel.x(row["from_ms"] / 1e3), top), (panel.x(row["from_ms"] / 1e3 + 0.1), top)]
    return [(steps[0][0], panel.y(0)), *steps, (steps[-1][0], panel.y(0))]


def draw_answers(lines):
    picture = Picture(760, 648, "Answers during an outage", "Requests that are admitted, and those that end in an error, in each 100 ms, during four outages of Redis, for three limiters")
    picture.text(24, 32, "Requests in each 100 ms: admitted (filled) and failed (outlined)", "title")
    picture.text(24, 52, "grey: the outage; dashed: the limit of all keys; clients send 40", "small")
    for fault, limiter, panel, is_last, is_first in panels(picture, 50):
        frame(picture, panel, [0, 20, 40], is_last, is_first)
        rows = [row for row in lines if (row["fault"], row["limiter"]) == (fault, limiter)]
        width = panel.width / 95 - 0.5
        admitted = [(panel.x(row["from_ms"] / 1e3), panel.y(row["admitted"]), width, panel.y(0) - panel.y(row["admitted"])) for row in rows if row["admitted"]]
        if admitted:
            picture.bars("blue", admitted)
        for run in runs_with_errors(rows):
            picture.line("thin plain", outline(panel, run))
        panel.horizontal(20, "limit")
    picture.save("answers")


def longest(rows):
    """Returns the smallest and the largest p99.9 of rows as text."""
    waits = sorted(row["p999_ms"] for row in rows)
    return milliseconds(waits[0]) if len(waits) == 1 else f"{waits[0]:.0f} to {waits[-1]:.0f} ms"


def after_hung(lines, phases):
    """Returns the units that plimsoll admits after Redis hung, of how many, and the seconds in which it admits almost none."""
    after = phases["hung", OURS][2]
    rows = [row for row in lines if (row["fault"], row["limiter"]) == ("hung", OURS) and row["from_ms"] >= 1e3 * END]
    # At the limit, 20 are admitted in each 100 ms.
    quiet = sum(row["admitted"] < 10 for row in rows)
    return after["admitted"], after["limit"], quiet / 10


def kinds_of_failure():
    """Returns the number of rows of the table of docs/faults.md."""
    text = (ROOT / "docs" / "faults.md").read_text()
    _, rows = text.split("\n| fault |", 1)
    return sum(line.startswith("| ") for line in rows.splitlines())


def write():
    configuration, rows = read("outage")
    lines = [row for row in rows if row["table"] == "timeline"]
    phases = [row for row in rows if row["table"] == "phase"]
    draw_waits(lines)
    draw_answers(lines)
    pairs = list(dict.fromkeys((row["fault"], row["limiter"]) for row in phases))
    by_pair = {pair: [row for row in phases if (row["fault"], row["limiter"]) == pair] for pair in pairs}
    during = {pair: of_pair[1] for pair, of_pair in by_pair.items()}
    silent = longest([during["hung", OURS], during["slow", OURS]])
    refused = longest([during["killed", OURS], during["failed over", OURS]])
    tier = longest([during[fault, TIER] for fault in TITLES])
    part = {fault: during[fault, REDIS]["errors"] / during[fault, REDIS]["requests"] for fault in TITLES}
    lost = " or ".join(fault for fault in TITLES if by_pair[fault, REDIS][2]["admitted"] == 0)
    again = [by_pair[fault, TIER][2]["admitted"] for fault in TITLES]
    ours_again = [by_pair[fault, OURS][2]["admitted"] for fault in TITLES]
    limit = by_pair["killed", TIER][2]["limit"]
    hung_after, hung_limit, quiet = after_hung(lines, by_pair)

    def cells(fault, limiter):
        before, meanwhile, after = by_pair[fault, limiter]
        waits = [f"{milliseconds(row['p50_ms'])}, {milliseconds(row['p999_ms'])}" for row in (before, meanwhile, after)]
        if limiter == "no limiter":
            return [*waits, "", "", ""]
        return [*waits, f"{whole(meanwhile['admitted'])} of {whole(meanwhile['limit'])}", f"{whole(after['admitted'])} of {whole(after['limit'])}", whole(meanwhile["errors"] + after["errors"])]

    figures = table(
        ["outage, limiter", "before: p50, p99.9", "during", "after", "admitted during", "after", "errors"],
        [[f"{fault}: {limiter}", *cells(fault, limiter)] for fault in names(phases, "fault") for limiter in names(phases, "limiter")],
    )
    return f"""# Outages

{configuration}

An axum server with each limiter runs over the same Redis, in the same run. A server without a limiter shows the waits of
the machine itself. Clients send 400 requests a second to each server, twice as many as 4 keys may spend: 50 a second
each, with a burst of 50. Redis is broken for 4 s, and clients give up after 2 s. The ways in which it fails:

- **killed**: the process is killed, and started again without data.
- **hung**: the process is stopped, and goes on.
- **slow**: each reply is 200 ms late.
- **failed over**: the process is killed. After 1 s its replica is promoted, and the address of Redis leads there.

The limiters, each as its own documentation shows: this crate with its defaults; tower-rate-tier 0.3 with its circuit
breaker and a memory behind it; tower-rate-limit-redis 1.0 with a timeout of 300 ms. The last one answers 500 if Redis
does not answer. A setting of it admits the request instead.

![The longest wait of a request in each 100 ms during four outages, for three limiters. Under plimsoll, waits rise about to
its deadline of 50 ms when Redis begins to hang or to be slow, and fall when its breaker opens. They do not rise when Redis
is killed or fails over. Under tower-rate-tier they rise to about 100 ms in all four. Under tower-rate-limit-redis, each
request waits for its timeout while Redis hangs, and about half of them while it is slow.][picture/waits]

With plimsoll, the p99.9 of the waits during the outage is {silent} if Redis hangs or is slow, and {refused} if it refuses
connections. With tower-rate-tier it is {tier}. With tower-rate-limit-redis, {part["hung"]:.0%} of the requests fail after its
timeout while Redis hangs, and {part["slow"]:.0%} while it is slow.

![Requests that are admitted or fail in each 100 ms. Plimsoll and tower-rate-tier go on at the limit after one burst.
When Redis is back, tower-rate-tier admits a second burst, and plimsoll does not. tower-rate-limit-redis fails all requests
while Redis is down, and also after it was {lost}.][picture/answers]

A limiter that decides by itself during an outage begins with a full bucket, and so may admit a burst of 200 more. After
it, tower-rate-tier admits {min(again)} to {max(again)} units where the limit is {limit}, and plimsoll {min(ours_again)} to {max(ours_again)}. The {hung_after} of
{hung_limit} are those after Redis hung: as it goes on, it charges the commands that it had not read, and then the units of
the outage that plimsoll [charges late][page/resilience#the-backlog], so nearly all requests are denied for {quiet:.1f} s.

Errors are responses with another status than 200 and 429, and requests without a response, during and after the outage:

{figures}

[Faults][page/faults] lists the waits of this crate in {kinds_of_failure()} kinds of failure.
"""
