"""The section on capacity: the costs of a decision, the plan, its points, and the fleet."""

from common import VALUES, joined, median, names, percent, read, span, table, whole
from drawing import Panel, Picture
from plan import FIGURES

STYLES = {
    "token-bucket": "blue",
    "sliding-counter": "plain dotted",
    "fixed-window": "plain mixed",
    "sliding-log": "orange dashed",
    "sliding-buckets": "faint",
}


def costs():
    """Returns for each algorithm the points (decisions a call, microseconds of Redis a decision)."""
    configuration, rows = read("costs")
    points = {}
    for name in names(rows, "algorithm"):
        of_name = [row for row in rows if row["algorithm"] == name]
        points[name] = []
        for tasks in names(rows, "tasks"):
            of_tasks = [row for row in of_name if row["tasks"] == tasks]
            batch = median(row["decisions"] / row["calls"] for row in of_tasks)
            points[name].append((batch, median(row["redis_cpu_us"] / row["decisions"] for row in of_tasks)))
    return configuration, points


def fit(points):
    """Returns the microseconds of a call and of a decision that fit best: cost = decision + call / batch."""
    # Each point weighs by its relative error.
    weights = [1 / cost**2 for _, cost in points]
    xs, ys = [1 / batch for batch, _ in points], [cost for _, cost in points]
    total = sum(weights)
    x_mean = sum(w * x for w, x in zip(weights, xs)) / total
    y_mean = sum(w * y for w, y in zip(weights, ys)) / total
    call = sum(w * (x - x_mean) * (y - y_mean) for w, x, y in zip(weights, xs, ys))
    call /= sum(w * (x - x_mean) ** 2 for w, x in zip(weights, xs))
    return max(call, 0.1), max(y_mean - call * x_mean, 0.1)


def write_figures():
    """Writes the figures that the calculator reads."""
    _, points = costs()
    _, rows = read("memory")
    many = {row["structure"]: row["bytes"] for row in rows if row["table"] == "many"}
    usage = {(row["structure"], row["limit"]): row["bytes"] for row in rows if row["table"] == "usage"}
    lines = ["algorithm,call_us,decision_us,key_bytes,record_bytes"]
    for name, of_name in points.items():
        call, decision = fit(of_name)
        few, most = {"sliding-log": (5, 10_000), "sliding-buckets": (5, 50)}.get(name, (5, 5))
        record = (usage[name, most] - usage[name, few]) / max(most - few, 1)
        lines.append(f"{name},{call:.2f},{decision:.2f},{many.get(name, many['sliding-counter']):.0f},{record:.1f}")
    FIGURES.write_text("\n".join(lines) + "\n")


def rate_text(value):
    return whole(round(value, -3))


def draw_costs(points):
    picture = Picture(760, 420, "Decisions a second of a core of Redis", "Decisions a second that one core of Redis makes, by the decisions that share a command, for each algorithm")
    picture.text(24, 32, "Decisions a second of one core of Redis", "title")
    most = max(1e6 / cost for of_name in points.values() for _, cost in of_name)
    top = next(it for it in (200_000, 300_000, 400_000, 500_000, 750_000, 1_000_000, 1_500_000, 2_000_000) if it >= most)
    panel = Panel(picture, 84, 84, 500, 262, 64, top, 1)
    panel.axes([1, 2, 4, 8, 16, 32, 64], [top * n // 4 for n in range(5)], "decisions that share a command", "decisions a second")
    ends = []
    others = {name: "plain" for name in points if name not in STYLES}
    for name, style in (STYLES | others).items():
        line = [(panel.x(batch), panel.y(1e6 / cost)) for batch, cost in points[name]]
        picture.line(style, line)
        for x, y in line:
            picture.add(f'<circle class="{style.split()[0] if style.split()[0] in ("blue", "orange") else "small"}" cx="{x}" cy="{y}" r="3.5"/>')
        ends.append([line[-1][1], name, style.split()[0]])
    # Labels beside each other keep a distance.
    ends.sort()
    for before, after in zip(ends, ends[1:]):
        after[0] = max(after[0], before[0] + 16)
    for y, name, color in ends:
        picture.text(panel.left + panel.width + 12, y + 4, name, color if color in ("blue", "orange") else "")
    picture.save("capacity")


def draw_shares(rows):
    picture = Picture(760, 390, "Commands by the share of hot keys", "Commands a second that Redis receives, by the share of checks of hot keys, with and without a lease")
    picture.text(24, 32, "Commands to Redis, for 8,000 checks a second of 4 limiters", "title")
    each = {lease: [row for row in rows if row["lease"] == lease] for lease in ("none", "500ms")}
    most = max(row["calls"] / row["seconds"] for row in rows)
    top = 1_000 * -(-int(most) // 1_000)
    panel = Panel(picture, 84, 84, 520, 236, 100, top)
    panel.axes([0, 25, 50, 75, 100], [top * n // 4 for n in range(5)], "checks of 10 hot keys, in %", "commands a second")
    for lease, style, label in (("none", "orange dashed", "without a lease"), ("500ms", "blue", "leased(500ms)")):
        line = [(panel.x(100 * row["share"]), panel.y(row["calls"] / row["seconds"])) for row in each[lease]]
        picture.line(style, line)
        for x, y in line:
            picture.add(f'<circle class="{style.split()[0]}" cx="{x}" cy="{y}" r="3.5"/>')
        picture.text(line[-1][0] + 10, line[-1][1] + 4, label, style.split()[0])
    picture.save("shares")


# The columns of a point: the measured one, the planned one, a factor, and the decimals of the table.
POINT_FIGURES = {
    "commands a second": ("commands", "planned_commands", 1, 0),
    "cores of Redis": ("redis_cpu_share", "planned_cores", 1, 3),
    "memory, MB": ("memory", "planned_memory", 1e-6, 1),
}


def plan_points(rows):
    """Returns the lines of the table of points, and for each figure its ratios, planned to measured."""
    lines, ratios = [], {name: [] for name in POINT_FIGURES}
    for row in rows:
        label = f"{row['point']}: `{row['quota']}`, {whole(row['keys'])} keys, {whole(row['rate'])} checks a second"
        for name, (measured, planned, factor, decimals) in POINT_FIGURES.items():
            ratio = row[planned] / row[measured]
            ratios[name].append(ratio)
            lines.append([label, name, *(f"{factor * row[it]:,.{decimals}f}" for it in (planned, measured)), f"{ratio:.2f}"])
            label = ""
    return lines, ratios


def call_costs(rows):
    """Returns the processor time of Redis a command at each point."""
    return [f"{1e6 * row['redis_cpu_share'] / row['commands']:.0f} us" for row in rows]


def fleet_commands(rows):
    """Returns the commands of fleets that lease, in relation to fleets that do not."""
    calls = {(row["name"], row["load"]): row["calls"] for row in rows}
    direct = {load: calls["direct", load] for load in names(rows, "load")}
    shares = [f"{calls['leased', load] / direct[load]:.0%} at a demand of {load}" for load in direct]
    load = next(row["load"] for row in rows if row["name"] == "leased, with faults")
    return joined(shares), f"{calls['leased, with faults', load] / direct[load]:.0%}"


def write():
    configuration, points = costs()
    draw_costs(points)
    _, shares = read("shares")
    draw_shares(shares)
    fits = {name: fit(of_name) for name, of_name in points.items()}
    # The first point is of one decision a command, and the last of the largest batch.
    gains = [of_name[0][1] / of_name[-1][1] for of_name in points.values()]
    largest = max(batch for of_name in points.values() for batch, _ in of_name)
    batches = [1, 4, 16, 64]
    by_batch = table(
        ["decisions a second of a core, batch of", *map(str, batches), "a call, us", "a decision, us"],
        [[f"`{name}`", *(rate_text(1e6 / (decision + call / batch)) for batch in batches), f"{call:.1f}", f"{decision:.1f}"] for name, (call, decision) in fits.items()],
    )
    hot = table(
        ["checks of hot keys", "commands a second", "commands, leased", "processor of Redis", "processor, leased"],
        [
            [percent(share), *(whole(row["calls"] / row["seconds"]) for row in pair), *(percent(row["redis_cpu_us"] / row["seconds"] / 1e6) for row in pair)]
            for share in names(shares, "share")
            for pair in [[row for row in shares if row["share"] == share]]
        ],
    )
    _, measured_points = read("points")
    confirmed_lines, ratios = plan_points(measured_points)
    confirmed = table(["point", "figure", "planned", "measured", "planned / measured"], confirmed_lines)
    spans = {name: span(of_name) for name, of_name in ratios.items()}
    _, cluster_call, quiet_call = call_costs(measured_points)
    fleet_configuration, fleet = read("fleet")
    shares_of_commands, with_faults = fleet_commands(fleet)
    fleet_table = table(
        ["4,000 processes", "demand", "admitted", "commands a second", "least, most of a process", "fullest window", "bound"],
        [
            [
                row["name"], f"{row['load']} of the limit", percent(row["admitted"] / min(row["checks"], row["bound"] / 10)),
                whole(row["calls"]), f"{row['least']:.2f}, {row['most']:.2f}", whole(row["fullest"]), whole(row["bound"]),
            ]
            for row in fleet
        ],
    )
    return f"""# Capacity

{configuration}

A script of the repository computes the load and the memory of Redis from these figures. `--help` shows its formulas:

```console
$ python3 report/page/plan.py --quota '100/min' --keys 1e6 --rps 50k --instances 20
```

## A core of Redis

Checks that arrive while a command is under way share the next one, up to 64. A decision takes
its own processor time, and a share of the processor time that Redis and the system need for its command. Each
line is the median of 3 rounds on 1,000 keys, with logs of up to some hundred requests. With {whole(largest)} decisions in a command, a core
makes {span(gains, 0)} times as many as with one.

![Decisions a second of a core of Redis by the decisions that share a command. All algorithms rise up to a
batch of {whole(largest)}.][picture/capacity]

The picture has the measured points. The table is fitted to them: cost of a decision = *a decision* + *a call* / batch.

{by_batch}

## Hot keys under leases

Four limiters, each with connections and leases of its own, stand for four processes; they run in one. They check
`60000/min sliding-buckets(60)` 8,000 times a second, at random times. A part of the checks is of 10 hot keys, and the rest
of 100,000 cold ones, which are too cold to lease. With more checks of hot keys, the leased quota sends fewer
commands. Without a lease, the number of commands depends on how many checks share one.

![Commands a second by the share of checks that are of hot keys, with and without a lease. With all checks of hot keys,
the leased quota needs a small part of the commands.][picture/shares]

{hot}

## Three points of the plan, measured

The calculator knows only the fitted costs of a call and of a decision, the size of a key of 1,000,000, and the median time
of one check at a time. In a cluster, checks share a command only if their keys are in the same slot, so nearly each check
is a command. Four limiters in one process stand for four instances.

{confirmed}

With a ratio above 1, Redis needs less than planned; below 1, more:

- **Commands**: {spans["commands a second"]}. The calculator assumes that checks arrive at random, and that the round
  trip does not grow with the load. If it grows, more checks share a command.
- **Cores**: {spans["cores of Redis"]}. A server that gets fewer commands wakes up for each of them, so each costs more than
  planned: {quiet_call} on one server with the load of one of the three. In the cluster it is {cluster_call}: here, its three servers
  share the processor with their clients. A busier server often reads several commands in one turn, and needs less than planned.
- **Memory**: {spans["memory, MB"]}. A million keys just fill the hash tables of Redis. Other numbers leave them up to half
  empty, which takes up to 15 bytes a key more. In a cluster, 16 bytes a key link the keys of a slot.

## 4,000 processes on one hot key

{fleet_configuration}

The real code of the leases, in virtual time: 4,000 processes with equal demand share a sliding log of 400,000 units in
10 s, with a lease of 1 s and round trips of 1 ms. Checks arrive at random. *Admitted* is a part of the checks, or of the
limit if that is smaller. A leased log counts over 11 s, so it admits at most 10/11 of the limit. With faults, 0.1% of the
checks kill their process and 0.1% freeze it, and 0.5% of the messages are lost and 0.5% late.

A fleet that leases sends fewer commands than one that does not: {shares_of_commands} of the limit, and
{with_faults} with faults. The less a process checks, the less a lease saves. Both fleets share the units as evenly, and keep to
the bound in every window.

{fleet_table}
"""
