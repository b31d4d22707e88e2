"""The rule of NAME in floating point, written from its formula and not from NAME.bpf.c."""


def decide(connection, tunables):
    """Returns what is decided for each subflow; the keys are those of mpcc eval."""
    subflows = connection["subflows"]
    rooms = [max(0, (s["cwnd"] - s["in_flight"]) * s["mss"] - s.get("queued", 0)) for s in subflows]
    usable = [i for i, room in enumerate(rooms) if room > 0]
    if tunables.get("unit") == "packets":
        rooms = [room // s["mss"] for room, s in zip(rooms, subflows)]
    best = max(usable, key=lambda i: rooms[i], default=None)
    return [{"send": int(i == best)} for i in range(len(subflows))]


def draw(rng):
    """Returns a connection with data to send, and tunables."""
    subflows = [
        {
            "subflow_id": i + 1,
            "cwnd": rng.randint(1, 50),
            "in_flight": rng.randint(0, 60),
            "queued": rng.choice([0, 0, 5000]),
            "mss": rng.choice([536, 1400]),
            "srtt_us": rng.randint(100, 1_000_000),
        }
        for i in range(rng.randint(1, 8))
    ]
    return {"connection": {"window": 10_000_000, "unsent": 1_000_000}, "subflows": subflows}, {
        "unit": rng.choice(["bytes", "packets"])
    }
