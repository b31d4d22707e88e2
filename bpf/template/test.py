#!/usr/bin/env python3
"""Compares the decisions of NAME.bpf.o with vectors.json, and with reference.py on connections drawn at random."""

import json
import math
import os
import random
import subprocess
import sys

import reference

DRAWN = 30


def decide(connection, tunables):
    """Returns what the BPF program decides, run by the kernel."""
    # The rule by itself: by default a coupled subflow has the rule's part of CUBIC's loss.
    command = [os.environ.get("MPCC", "mpcc"), "eval", "./NAME.bpf.o", "--set", "paper"]
    for name, value in tunables.items():
        command += ["--set", f"{name}={value}"]
    out = subprocess.run(command, input=json.dumps(connection), capture_output=True, text=True)
    if out.returncode:
        sys.exit(out.stderr.strip())
    return json.loads(out.stdout)["subflows"]


def compare(case, connection, tunables, expected):
    """Exits unless each subflow gets what is expected of it."""
    for i, (got, want) in enumerate(zip(decide(connection, tunables), expected, strict=True)):
        for key in want:
            if not math.isclose(got[key], want[key], rel_tol=1e-6):
                sys.exit(f"{case}, subflow {i}: {key} is {got[key]}, want {want[key]}\n{json.dumps(connection)} {tunables}")


def main():
    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    with open("vectors.json", encoding="utf-8") as f:
        cases = json.load(f)
    for case in cases:
        connection, tunables = case["connection"], case.get("set", {})
        compare(case["name"], connection, tunables, case["expect"])
        compare(case["name"] + " (reference)", connection, tunables, reference.decide(connection, tunables))
    rng = random.Random(1)
    for i in range(DRAWN):
        connection, tunables = reference.draw(rng)
        compare(f"drawn connection {i}", connection, tunables, reference.decide(connection, tunables))
    print(f"{len(cases)} vectors and {DRAWN} drawn connections: as the reference has it")


main()
