"""A turn-based battle with action masks: players who mostly do not know the types, cloned by BC, improved by IQL."""

import sys

import numpy as np

import understudy as us

out = sys.argv[1] if len(sys.argv) > 1 else "runs/battle"
settings = sys.argv[2:]

recipe = us.load_config("iql/battle", settings).logged.recipe
assert recipe is not None
returns = {"data": us.make_dataset(recipe).returns()}
for name in ("bc", "iql"):
    run = us.train(us.load_config(f"{name}/battle", [f"out={out}/{name}", *settings]))
    returns[name] = np.asarray(run.evaluate(episodes=200).returns)

print(f"{'':6}{'battles':>8}{'won':>8}{'mean return':>14}")
for name, values in returns.items():
    print(f"{name:6}{len(values):8}{(values > 5).mean():8.0%}{values.mean():14.2f}")
