"""Draws the results of queue_bench.py by the number of waiting jobs, on logarithmic axes. Needs
only the standard library.

    python3 tests/bench/queue_chart.py NUMBERS.json CHART.svg

Shows the medians of the rounds, in one colour for each build. The dashed line grows in proportion
to the queue, from the first point of the last build: a steeper curve grows faster than linearly.
For a rate, the line falls in the same proportion.
"""

import collections
import html
import json
import math
import pathlib
import statistics
import sys

RATES = ("submit_64_a_second",)
PANELS = (("job_cpu_ms", "Daemon's CPU for a job, ms"), ("list_first_page_ms", "First page of the list, ms (median)"),
          ("serving_ms", "Restart to serving, ms"), ("resident_mib", "Resident after the restart, MiB"),
          ("submit_64_a_second", "Submits a second, 64 callers"), ("list_all_cpu_ms", "All pages of the list, ms of CPU"))
COLORS = ("#2166ac", "#d6604d", "#4d9221", "#762a83")
COLUMNS, WIDTH, HEIGHT = 3, 320, 230
LEFT, RIGHT, TOP, BOTTOM = 56, 14, 34, 34


def medians(rows):
    """Returns {key: {programs: {waiting: median}}}."""
    values = collections.defaultdict(lambda: collections.defaultdict(lambda: collections.defaultdict(list)))
    for row in rows:
        for key, _ in PANELS:
            if key in row:
                values[key][row["programs"]][row["waiting"]].append(row[key])
    return {key: {programs: {x: statistics.median(v) for x, v in sorted(points.items())} for programs, points in builds.items()}
            for key, builds in values.items()}


def text(x, y, what, size=11, anchor="middle"):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}">{html.escape(what)}</text>'


def decades(low, high):
    return [10.0**e for e in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]


def draw_panel(title, builds, order, is_rate):
    xs = sorted({x for points in builds.values() for x in points})
    last = builds[order[-1]]
    linear = [(x, last[min(last)] * (x / min(last)) ** (-1 if is_rate else 1)) for x in (min(xs), max(xs))]
    ys = [y for points in builds.values() for y in points.values()]
    y_ticks = decades(min(ys) / (10 if is_rate else 1), max(*ys, 10 * min(ys)))
    low, high = y_ticks[0], y_ticks[-1]
    x_low, x_high = math.log10(xs[0]) - 0.15, math.log10(xs[-1]) + 0.15

    def at(x, y):
        return (LEFT + (math.log10(x) - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT),
                HEIGHT - BOTTOM - math.log10(y / low) / math.log10(high / low) * (HEIGHT - TOP - BOTTOM))
    parts = [text(WIDTH / 2, 18, title, 12)]
    for y in y_ticks:
        height = at(xs[0], y)[1]
        parts += [f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{height:.1f}" y2="{height:.1f}" stroke="#ddd"/>',
                  text(LEFT - 5, height + 4, f"{y:,g}", anchor="end")]
    parts += [text(at(x, low)[0], HEIGHT - BOTTOM + 16, f"{x:,}") for x in xs]
    edge = low if is_rate else high
    if not low <= linear[1][1] <= high:  # the line ends where it leaves the panel
        linear[1] = (linear[0][0] * (linear[0][1] / edge if is_rate else edge / linear[0][1]), edge)
    (x1, y1), (x2, y2) = (at(*point) for point in linear)
    parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#777" stroke-dasharray="5 4"/>')
    for color, programs in zip(COLORS, order):
        points = [at(x, y) for x, y in builds.get(programs, {}).items()]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>')
        for (x, y), value in zip(points, builds.get(programs, {}).values()):
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>',
                      text(x, y - 7, f"{value:,.3g}" if value < 1000 else f"{value:,.0f}", 10)]
    return parts


def draw(rows):
    rows = [row for row in rows if "waiting" in row]
    values, order = medians(rows), list(dict.fromkeys(row["programs"] for row in rows))
    height = 30 + math.ceil(len(PANELS) / COLUMNS) * HEIGHT
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{COLUMNS * WIDTH}" height="{height}" font-family="sans-serif">',
             f'<rect width="{COLUMNS * WIDTH}" height="{height}" fill="white"/>']
    for i, (key, title) in enumerate(PANELS):
        parts += [f'<g transform="translate({i % COLUMNS * WIDTH},{i // COLUMNS * HEIGHT})">',
                  *draw_panel(title, values[key], order, key in RATES), "</g>"]
    for i, (color, programs) in enumerate(zip(COLORS, order)):
        parts += [f'<rect x="{20 + i * 250}" y="{height - 20}" width="12" height="12" fill="{color}"/>',
                  text(38 + i * 250, height - 10, programs, anchor="start")]
    parts.append(text(COLUMNS * WIDTH - 10, height - 10, "across: jobs that wait; dashed: linear growth", anchor="end"))
    return "\n".join([*parts, "</svg>"]) + "\n"


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    pathlib.Path(sys.argv[2]).write_text(draw(json.loads(pathlib.Path(sys.argv[1]).read_text())))


if __name__ == "__main__":
    main()
