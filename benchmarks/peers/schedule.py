# SPDX-License-Identifier: MIT
"""How often, and in which order, the contestants of a case are launched."""

MIN_SAMPLES = 3


def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else 0.5 * (ordered[middle - 1] + ordered[middle])


def sample_count(seconds_of_one, budget, wanted):
    """As many launches as the budget allows, at least MIN_SAMPLES, at most as wanted."""
    return max(MIN_SAMPLES, min(wanted, int(budget / max(seconds_of_one, 1e-9))))


def turns(counts):
    """The order of launches: rounds in which each contestant has one turn. One with fewer launches than there are
    rounds sits rounds out, evenly, so that its launches see the same clocks as those of the others.

    turns({"a": 4, "b": 2}) -> a b, a, a b, a
    """
    rounds = max(counts.values(), default=0)
    order = []
    for number in range(rounds):
        for name, count in counts.items():
            if number * count // rounds != (number - 1) * count // rounds:
                order.append(name)
    return order
