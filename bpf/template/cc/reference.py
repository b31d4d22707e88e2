"""The rule of NAME in floating point, written from its formula and not from NAME.bpf.c."""


def decide(connection, tunables):
    """Returns what is decided for each subflow; the keys are those of mpcc eval."""
    gain = int(tunables.get("gain", 1))
    counts = [s for s in connection["subflows"] if not s.get("backup")] or connection["subflows"]
    total = sum(s["cwnd"] for s in counts)
    return [
        {
            "increase": min(gain / total, 1 / s["cwnd"]),
            "after_loss": max(s["cwnd"] // 2, 2),
            "coupling": s["cwnd"] / total,
        }
        if s in counts
        else {"coupling": 0}
        for s in connection["subflows"]
    ]


def draw(rng):
    """Returns a connection of two subflows or more, and tunables. A single subflow would run CUBIC."""
    subflows = [
        {"cwnd": round(10 ** rng.uniform(0, 5)), "srtt_us": rng.randint(100, 1_000_000)}
        for _ in range(rng.randint(2, 8))
    ]
    return {"subflows": subflows}, {"gain": rng.randint(1, 8)}
