"""The report of a run, results.md. Its first sentence says what is broken, or that nothing is."""

SHOWN_MAX = 12  # lines of failures per step; results.json has all
NAMED_MAX = 6  # failing steps that the first sentence names
GOOD = ("ok", "skipped")


def named(steps):
    words = []
    for s in steps[:NAMED_MAX]:
        found = [line for line in s.get("findings", []) if not line.startswith("exit status")]
        words.append(f"{s['stage']}/{s['step']}" + (f" ({found[0][:120]})" if found else ""))
    more = len(steps) - NAMED_MAX
    return ", ".join(words) + (f", and {more} more" if more > 0 else "")


def counted(number, what):
    return f"{number} step{'' if number == 1 else 's'} {what}"


def first_sentence(content, steps):
    failed = [s for s in steps if s["state"] == "failed"]
    unfinished = [s for s in steps if s["state"] not in (*GOOD, "failed")]
    passed = sum(s["state"] == "ok" for s in steps)
    skipped = sum(s["state"] == "skipped" for s in steps)
    not_over = [f"the run was interrupted by {content['interrupted']}"] if "interrupted" in content else \
        [] if content.get("ended") or "hopeless" in content else ["the run had not ended when this was written"]
    if unfinished:
        not_over.append(counted(len(unfinished), "did not finish") + f": {', '.join(s['step'] for s in unfinished[:NAMED_MAX])}"
                        + (", ..." if len(unfinished) > NAMED_MAX else ""))
    tail = "; ".join([counted(passed, "passed"), *([counted(skipped, "skipped")] if skipped else []), *not_over])
    emulated = " on an emulated GPU" if content.get("emulated") else ""
    if "hopeless" in content:
        return f"BROKEN{emulated}, and nothing more was run: {content['hopeless']}."
    if failed:
        return f"BROKEN{emulated}: {named(failed)}; {tail}."
    if not passed:
        return f"Nothing was shown{emulated}: {tail}."
    return (f"Nothing was found broken{emulated}, but not all was seen: {tail}." if not_over
            else f"Nothing is broken{emulated}: {tail}.")


def table(steps):
    lines = ["| stage | step | result | seconds, of at most | |", "| --- | --- | --- | --- | --- |"]
    for s in steps:
        said = s.get("findings", []) + s.get("notes", [])
        if len(said) > SHOWN_MAX:
            said = said[:SHOWN_MAX] + [f"and {len(said) - SHOWN_MAX} more in results.json"]
        seconds = f"{s['seconds']:.1f}" if "seconds" in s else "-"
        words = "<br>".join(line.replace("|", "\\|") for line in said)
        result = s["state"] if s["state"] in GOOD else f"**{s['state']}**"
        lines.append(f"| {s['stage']} | {s['step']} | {result} | {seconds} / {s['limit_s']:.0f} | {words} |")
    return "\n".join(lines)


def bullets(title, lines):
    return [title, "", *(f"- {line}" for line in lines), ""] if lines else []


def library_lines(libraries):
    return [f"{name}: {found.get('version') or 'version not known'}, {found['path']}" for name, found in
            sorted(libraries.items())]


def text(content, steps):
    lines = [first_sentence(content, steps), ""]
    lines += bullets("What this run cannot show:", content.get("cannot_show", []))
    lines += bullets("The GPU's state:", content.get("gpu_state", {}).get("said", []))
    lines += bullets("Libraries that the programs had loaded:", library_lines(content.get("libraries", {})))
    lines += bullets("What the libraries offered:", content.get("offers", []))
    lines += bullets("One failing case, run again with the libraries' logs:", content.get("library_logs", []))
    return "\n".join([*lines, table(steps)]) + "\n"
