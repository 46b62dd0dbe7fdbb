# SPDX-License-Identifier: BSD-3-Clause
"""Numbers for people."""
import math

DIGITS = 4
BYTE_UNITS = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
NO_VALUE = "–"


def short(value, digits=DIGITS):
    """Four digits that matter; whole numbers below ten million in full, with commas."""
    if value is None:
        return NO_VALUE
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else "infinite" if value > 0 else "-infinite"
    if value == 0:
        return "0"
    size = abs(value)
    if float(value).is_integer() and size < 1e7:
        return f"{int(value):,}"
    text = f"{value:.{digits}g}"
    if "e" not in text:
        return text
    if 1e3 <= size < 1e7:
        return f"{round(value):,}"
    mantissa, _, power = text.partition("e")
    return f"{mantissa}e{int(power)}"


def byte_text(value):
    if value is None:
        return NO_VALUE
    unit, power = next((u for u in BYTE_UNITS if abs(value) >= u[1]), ("B", 1))
    return f"{short(value / power, 3)} {unit}"


def seconds_text(value):
    """As terminal.duration, with milliseconds."""
    if value is None:
        return NO_VALUE
    if value < 0.9995:
        return f"{short(value * 1000, 3)} ms" if value >= 1e-6 else "0 s"
    if value < 100:
        return f"{short(value, 3)} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def percent(part, whole):
    if not whole:
        return NO_VALUE
    share = 100 * part / whole
    return "< 1 %" if 0 < share < 0.5 else f"{share:.0f} %"


def count_of(value, what):
    return f"{short(value)} {what}{'' if value == 1 else 's'}"


def share_list(parts):
    """[(name, amount)] as `61 % rounds, 20 % loading`, the largest first; those below half a percent are left out."""
    whole = sum(amount for _, amount in parts)
    shown = sorted((p for p in parts if whole and p[1] / whole >= 0.005), key=lambda p: -p[1])
    return ", ".join(f"{percent(amount, whole)} {name}" for name, amount in shown)
