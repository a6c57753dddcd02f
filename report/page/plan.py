"""Computes the load and the memory of the Redis of a service, by the figures of `docs/report.md`.

    python3 report/page/plan.py --quota '100/min' --keys 1e6 --rps 50k --instances 20

With `c` checks a second of all instances, `n` instances and a round trip of `t` seconds (at most 0.005, because a check
waits no longer for a call):

- Checks that arrive during a call share the next one. With `a = c t / n` of them, a command makes `a + e^-a` decisions on
  average. If `a` is above 24, two commands are in flight, and a command makes `a / 2` decisions, at least 24 and at most
  64. In a cluster, nearly each check is a command.
- Redis is busy for the time of a command for each command, and for the time of a decision for each decision.
- A hot key is leased if each instance checks it at least 4 times in half a lease. It then costs 2 commands for each lease
  and instance, while units are free.
- A key takes the bytes of a key with one record, and for each further record of a log the bytes of a record. A log has as
  many records as there are requests in a window, at most the limit, and for sliding buckets at most one more than there
  are buckets. In a cluster, 16 bytes more link the keys of a slot. The bytes are measured with 1,000,000 keys, which just
  fill the hash tables of Redis. With other numbers of keys, the tables are up to half empty, which takes up to 15 bytes
  a key more.
"""

import argparse
import math
import re
from pathlib import Path

FIGURES = Path(__file__).resolve().parents[2] / "docs" / "report" / "figures.csv"
SECONDS = {"ms": 0.001, "s": 1, "sec": 1, "second": 1, "m": 60, "min": 60, "minute": 60, "h": 3_600, "hour": 3_600, "d": 86_400, "day": 86_400}


def seconds(text):
    count, unit = re.fullmatch(r"(\d*)\s*([a-z]+?)s?", text if text != "ms" else "1ms").groups()
    return int(count or 1) * SECONDS[unit]


def plan(quota, keys, rps, instances=1, hot_keys=0, hot_share=0, round_trip_us=500, cluster=False):
    """Returns the commands a second, the busy cores of Redis, and the bytes of all keys."""
    limit, window = re.match(r"(\d+)/(\w+)", quota).groups()
    limit, window = int(limit), seconds(window)
    name = next((it for it in figures() if it in quota), "sliding-log")
    call, decision, key_bytes, record_bytes = figures()[name]
    lease = re.search(r"leased\((\w+)\)", quota)
    lease = seconds(lease[1]) if lease else None
    hot, holders = (rps * hot_share if hot_keys else 0), hot_keys * instances
    is_leased = bool(lease and hot) and hot / holders * lease / 2 >= 4
    # A stock is renewed about twice in each lease.
    lease_commands = holders * 2 / lease if is_leased else 0
    direct = rps - (hot if is_leased else 0)
    during_a_call = 0 if cluster else direct / instances * min(round_trip_us / 1e6, 0.005)
    batch = during_a_call + math.exp(-during_a_call) if during_a_call <= 24 else min(max(during_a_call / 2, 24), 64)
    commands = direct / batch + lease_commands
    cores = (commands * call + (direct + lease_commands) * decision) / 1e6
    buckets = re.search(r"sliding-buckets\((\d+)\)", quota)
    most = {"sliding-log": limit, "sliding-buckets": min(limit, int(buckets[1]) + 1 if buckets else limit)}.get(name, 1)
    records = min(max(rps / keys * window, 1), most)
    memory = keys * (key_bytes + (16 if cluster else 0) + record_bytes * (records - 1))
    return {"commands_per_second": round(commands), "busy_cores": cores, "memory_bytes": round(memory)}


def figures():
    """Returns for each algorithm the microseconds of a call and of a decision, and the bytes of a key and of a record."""
    rows = [line.split(",") for line in FIGURES.read_text().splitlines()[1:]]
    return {name: [float(it) for it in rest] for name, *rest in rows}


def number(text):
    return float(text[:-1]) * {"k": 1e3, "M": 1e6}[text[-1]] if text[-1] in "kM" else float(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quota", default="100/min")
    for name in ("keys", "rps"):
        parser.add_argument(f"--{name}", type=number, required=True)
    for name, default in (("instances", 1), ("hot-keys", 0), ("hot-share", 0), ("round-trip-us", 500)):
        parser.add_argument(f"--{name}", type=number, default=default)
    parser.add_argument("--cluster", action="store_true")
    for name, value in plan(**vars(parser.parse_args())).items():
        print(f"{name}: {value:,}")


if __name__ == "__main__":
    main()
