"""Logs of a heater, as docs/logs.md learns from: a CSV file for each day, with what real ones have.

A row every quarter of an hour: time, temperature, humidity, the mode somebody chose (text), valve (0 to 10), fan (0
to 1), energy, and the cost of energy and discomfort together. Some readings are missing, and one day is cut short.

    python examples/heater_logs.py days
"""

import csv
import sys
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

FIRST = datetime(2024, 1, 1)
DAYS, ROWS = 40, 96


def write_day(path: Path, day: int, rng: np.random.Generator) -> None:
    temp, aim = rng.uniform(14, 18), rng.uniform(19, 22)
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["time", "temp", "humidity", "mode", "valve", "fan", "energy", "cost"])
        for row in range(40 if day == 12 else ROWS):
            humidity = 50 + 10 * np.sin(row / 15) + rng.normal()
            valve = np.clip(2 * (aim - temp) + rng.normal(0, 1.5), 0, 10)
            fan = np.clip(rng.normal(0.5, 0.3), 0, 1)
            energy = 0.1 * valve + 0.05 * fan
            cost = energy + abs(temp - 21)
            numbers = [f"{number:.3f}" for number in (temp, humidity, valve, fan, energy, cost)]
            if rng.random() < 0.002:
                numbers[1] = ""
            time = FIRST + timedelta(days=day, minutes=15 * row)
            table.writerow([time, *numbers[:2], "auto" if day % 3 else "hand", *numbers[2:]])
            temp += 0.03 * (5 - temp) + 0.15 * valve - 0.2 * fan + rng.normal(0, 0.1)


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "days")
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for day in range(DAYS):
        write_day(folder / f"{(FIRST + timedelta(days=day)).date()}.csv", day, rng)
    print(f"{DAYS} days written to {folder}")


if __name__ == "__main__":
    main()
