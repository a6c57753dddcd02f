"""The section on accuracy: the tables, and the picture of the fullest windows."""

from common import joined, names, percent, read, table, whole
from drawing import Panel, Picture

CLOUDFLARE = "https://blog.cloudflare.com/counting-things-a-lot-of-different-things/"
UNIFORM = "https://subroute-flame.vercel.app/topics/rate-limiting/sliding-window"
ROUNDED = "https://swe.auspham.dev/docs/alexu-system-design-interview/4-design-a-rate-limiter/sliding-window-counter-algorithm"

KINDS = {
    "steady": "1.2 times the limit, at equal distances",
    "Poisson": "0.95 times the limit on average, at random times",
    "bursts": "5 to 60 requests at once, at random times; on average 1.1 times the limit",
    "on-off at the edge": "the limit in the 2 s before every second edge of a period, and again in the 2 s after it",
    "a day": "0.1 times the limit at night, 1.7 times at noon",
    "adversary": "waits for all units, spends them just before an edge, then asks exactly when each denial says",
}

IN_A_SENTENCE = {"adversary": "the adversary", "Poisson": "Poisson traffic", "steady": "steady traffic"}


def draw(rows):
    algorithms = names(rows, "algorithm")
    height = 19 * len(algorithms)
    picture = Picture(760, 82 + 3 * (height + 72), "The fullest window of each algorithm", "Units admitted in the fullest minute under six kinds of traffic, with the limit of 100 and the bound of each algorithm")
    picture.text(24, 32, "Most units admitted in any minute, at a limit of 100 a minute", "title")
    picture.text(24, 54, "dashed: the limit; thick mark: the published bound of the algorithm", "small")
    for number, traffic in enumerate(names(rows, "traffic")):
        left, top = 160 + 375 * (number % 2), 92 + (height + 72) * (number // 2)
        panel = Panel(picture, left, top, 190, height, 220, len(algorithms))
        picture.text(left, top - 10, traffic)
        for tick in (0, 100, 200):
            picture.add(f'<path class="axis" d="M{panel.x(tick)} {top + height}v5"/>')
            picture.text(panel.x(tick), top + height + 18, str(tick), "small", "middle")
        picture.text(left + 190, top + height + 36, "units in a minute", "small", "end")
        for at, algorithm in enumerate(algorithms):
            row = next(it for it in rows if (it["traffic"], it["algorithm"]) == (traffic, algorithm))
            y, over = top + 19 * at, row["fullest"] > row["limit"]
            picture.text(left - 8, y + 13, algorithm, "small", "end")
            width = panel.x(row["fullest"]) - left
            picture.bars("orange" if over else "blue", [(left, y + 3, width, 12)])
            bound = panel.x(row["bound"])
            picture.add(f'<path class="edge" d="M{bound} {y + 1}v16"/>')
            inside = bound - panel.x(row["fullest"]) > 34
            picture.text((panel.x(row["fullest"]) if inside else bound) + 5, y + 13, str(row["fullest"]), "small")
        panel.vertical(100, "limit")
        picture.add(f'<path class="axis" d="M{left} {top}v{height}h190"/>')
    picture.save("accuracy")


def write():
    configuration, rows = read("accuracy")
    draw(rows)
    kinds, algorithms = names(rows, "traffic"), names(rows, "algorithm")
    cell = {(row["traffic"], row["algorithm"]): row for row in rows}
    label = {it: "counter of textbooks" if it == "textbook counter" else f"`{it}`" for it in algorithms}

    def line(algorithm, text):
        return [label[algorithm], *(text(cell[kind, algorithm]) for kind in kinds)]

    fullest = table(
        ["algorithm", "bound", *kinds],
        [[label[it], str(cell[kinds[0], it]["bound"]), *line(it, lambda row: str(row["fullest"]))[1:]] for it in algorithms],
    )
    admitted = table(["wrongly admitted", *kinds], [line(it, lambda row: percent(row["wrongly_admitted"] / row["requests"])) for it in algorithms])
    denied = table(["wrongly denied", *kinds], [line(it, lambda row: percent(row["wrongly_denied"] / row["requests"])) for it in algorithms])
    differ = table(["other decision", *kinds], [line(it, lambda row: percent(row["differ"] / row["requests"])) for it in algorithms])
    ours = {kind: cell[kind, "sliding-counter"] for kind in kinds}
    wrong = {kind: (it["wrongly_admitted"] + it["wrongly_denied"]) / it["requests"] for kind, it in ours.items()}
    average = sum(wrong[it] for it in kinds) / len(kinds)
    over = max(row["fullest"] for row in rows if row["algorithm"] == "textbook counter" and row["traffic"] == "steady")
    highest = {it: max(cell[kind, it]["fullest"] for kind in kinds) for it in algorithms}
    reached = {it: [IN_A_SENTENCE.get(kind, kind) for kind in kinds if cell[kind, it]["fullest"] == highest[it]] for it in algorithms}
    bounds = {it: cell[kinds[0], it]["bound"] for it in algorithms}
    below = [f"{label[it]} reaches {highest[it]} of {bounds[it]}" for it in algorithms if highest[it] < bounds[it]]
    most = highest["sliding-counter"]
    seen = table(
        ["statement on the sliding counter", "measured here", "what holds always"],
        [
            [f"0.003% of requests are wrongly allowed or limited, in [400 million requests of 270,000 sources]({CLOUDFLARE})", f"{percent(min(wrong.values()))} to {percent(max(wrong.values()))}, by traffic", "no share: traffic decides it"],
            [f"the rate is [6% off on average]({CLOUDFLARE}); none of 3 wrongly allowed sources was 15% over the limit", f"up to {most - 100}% over the limit", "less than 100% over it: `2L - 1`"],
            [f"[\"typically under 1%\"]({UNIFORM}) wrong, so 99% right", f"{percent(1 - average)} right, as a mean of the six", "right if at most half of the limit is asked for"],
            [f"the estimate may be [rounded down]({ROUNDED}), so that it counts one unit too few", f"{over} of 100 under steady traffic; rounded up, {ours['steady']['fullest']}", "rounded up, `2L - 1`; rounded down, `2L`"],
        ],
    )
    text = "\n".join(f"- **{kind}**: {KINDS[kind]}." for kind in kinds)
    return f"""# Accuracy

{configuration}

Each algorithm of the crate limits one client to 100 units a minute, with a clock that is set by hand. An exact log
judges: the times of all admitted units, counted again for each request, in code of its own. Seeds are fixed, so each
run gives the same figures. A request costs 1 unit. The kinds of traffic:

{text}

![The fullest minute under six kinds of traffic. The sliding log and the sliding buckets never exceed 100 units. The
sliding counter reaches {most} under {joined(reached["sliding-counter"])}, and the fixed window {highest["fixed-window"]} under {joined(reached["fixed-window"])}.][picture/accuracy]

The sliding log and the sliding buckets stay at the limit under all traffic. The others exceed it up to their
bounds{"; " + joined(below) if below else ""}. The bound of the token bucket is the [proven][page/guarantees] one, `burst + L - 1`.
The most units of any minute:

{fullest}

A request is *wrongly admitted* if the units that the algorithm itself has admitted already fill its minute, and
*wrongly denied* if they leave room. A bucket whose burst is smaller than the limit denies bursts on purpose. In parts of
all requests:

{admitted}

{denied}

An exact log with a history of its own decides otherwise on this part of the requests. After a decision that differs, the
histories differ, so more decisions do:

{differ}

After a denial, the adversary asks again at the time that the denial states. The counter of textbooks states no time, so it is asked every 12 ms. So its
shares of requests under the adversary cannot be compared with the other rows.

## The sliding counter in the literature

{seen}

The figures do not contradict each other. Sources far below the limit are never wrong, and most sources are. Near the
limit, a share depends on the traffic alone. Choose the [sliding log][page/algorithms] for a limit that was promised.
"""
