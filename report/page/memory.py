"""The section on memory: the table by limit, the table of a million keys, and the picture."""

from common import names, read, span, table, whole
from drawing import Panel, Picture

STYLES = {
    "sliding-log": "blue",
    "sliding-buckets": "orange dashed",
    "sliding-counter": "plain dotted",
    "sorted set": "plain mixed",
    "counters in two keys": "faint dashed",
}
LABELS = {
    "sliding-log": ("sliding-log", "blue"),
    "sliding-buckets": ("sliding-buckets(60)", "orange"),
    "sliding-counter": ("counter, bucket, window", ""),
    "sorted set": ("sorted set", ""),
    "counters in two keys": ("counters in two keys", "small"),
}


def draw(usage):
    picture = Picture(760, 430, "Bytes of a key in Redis", "Bytes of a key that has used up its limit, by limit, for each algorithm and for two structures of others")
    picture.text(24, 32, "Bytes of a key in Redis that has used up its limit", "title")
    panel = Panel(picture, 76, 84, 486, 270, 10_000, 2_000_000, 5, 50)
    panel.axes([5, 10, 100, 1_000, 10_000], [100, 1_000, 10_000, 100_000, 1_000_000], "limit, units in a window", "bytes, by MEMORY USAGE")
    for name, style in STYLES.items():
        rows = [row for row in usage if row["structure"] == name]
        points = [(panel.x(row["limit"]), panel.y(row["bytes"])) for row in rows]
        picture.line(style, points)
        text, color = LABELS[name]
        # The two lowest lines end beside each other.
        shift = {"sliding-counter": 14, "counters in two keys": -4, "sliding-log": 5}.get(name, 4)
        picture.text(panel.x(10_000) + 8, points[-1][1] + shift, text, color)
    picture.save("memory")


def write():
    configuration, rows = read("memory")
    usage = [row for row in rows if row["table"] == "usage"]
    draw(usage)
    limits, structures = names(usage, "limit"), names(usage, "structure")
    bytes_of = {(row["structure"], row["limit"]): row["bytes"] for row in usage}
    label = {name: name if " " in name else f"`{name}`" for name in structures} | {"sliding-buckets": "`sliding-buckets(60)`"}
    by_limit = table(["bytes, at a limit of", *map(whole, limits)], [[label[it], *(whole(bytes_of[it, limit]) for limit in limits)] for it in structures])
    many = {row["structure"]: row["bytes"] for row in rows if row["table"] == "many"}
    by_million = table(["1,000,000 keys with 1 request", "bytes a key", "MB in all"], [[label[it], whole(value), whole(value)] for it, value in many.items()])
    quoted = table(
        ["quoted for a counter", "it is", "here, for all of Redis"],
        [
            ["[16 bytes a user](https://github.com/ajpotts01/Cybersecurity-Projects/blob/main/PROJECTS/Aenebris/docs/research/rate-limiting.md)", "two numbers of 8 bytes", f"{whole(many['sliding-counter'])} bytes, with both counts"],
            ["16 to 24 bytes (often quoted, without a source)", "the same, and the time of the period", f"{whole(many['sliding-counter'])} bytes"],
            ["[58 bytes a key](https://leyaa.ai/codefly/learn/redis/part-1/redis-rate-limiter-with-incr-and-expire/challenge)", "a number, and 50 bytes for a key", f"{whole(many['counters in two keys'] / 2)} bytes for each of two keys"],
            ["[100 bytes a key](https://leyaa.ai/codefly/learn/redis/part-1/redis-rate-limiter-with-incr-and-expire/challenge)", "the same with the hash table", f"{whole(many.get('fixed-window', many['sliding-counter']))} bytes, in one key with its period"],
        ],
    )
    counts = [bytes_of[name, limit] for name in ("sliding-counter", "token-bucket", "fixed-window") for limit in limits]
    full = 10_000
    ratio = bytes_of["sorted set", full] / bytes_of["sliding-log", full]
    return f"""# Memory

{configuration}

`MEMORY USAGE` of the key of a client that has used up its limit within an hour, with requests that cost 1 unit. Names of
keys have 39 bytes. Beside the algorithms stand a sorted set with a member for each unit, and a counter of this period in
one key and of the period before in another. A sliding log takes 10 bytes and some spare room for each request, and the
sorted set {ratio:.0f} times as much at a limit of {whole(full)}.

![Bytes of a key by limit, on two logarithmic axes. Sliding counter, token bucket and fixed window take
{span(counts, 0)} bytes at each limit. The sliding buckets level off at {whole(bytes_of["sliding-buckets", full])} bytes. At a
limit of {whole(full)}, the sliding log takes {whole(bytes_of["sliding-log", full])} bytes, and a sorted set {whole(bytes_of["sorted set", full])}.][picture/memory]

{by_limit}

All of Redis: the growth of `used_memory`, with the tables of keys and of expiry times:

{by_million}

The numbers that people quote count the value, and not what Redis needs around it:

{quoted}
"""
