"""Tune PPO with Optuna: six short trials, of which those that fall behind the median are pruned.

python examples/tune_ppo.py [updates per trial, 12 if not said]
"""

import sys
from typing import Any

import optuna

import understudy as us

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 12


def objective(trial: optuna.Trial) -> float:
    settings: dict[str, Any] = {
        "algo.learning_rate": trial.suggest_float("learning_rate", 1e-5, 1e-2, log=True),
        "algo.epochs": trial.suggest_int("epochs", 2, 10),
    }
    run = us.train_trial("ppo/pendulum", trial, updates=STEPS, eval_every=max(1, STEPS // 4), **settings)
    return float(run.result["eval/return_mean"])


study = optuna.create_study(
    direction="maximize",
    sampler=optuna.samplers.TPESampler(seed=0),
    pruner=optuna.pruners.MedianPruner(n_startup_trials=2, n_warmup_steps=STEPS // 2),
)
study.optimize(objective, n_trials=6)

for trial in study.trials:
    returns = ", ".join(f"{value:.0f} at {updates}" for updates, value in trial.intermediate_values.items())
    print(f"trial {trial.number} {trial.state.name.lower()}: {returns}")
best = study.best_trial
print("best:     ", best.params)
print("to go on: ", f"understudy resume {best.user_attrs['run']} updates={5 * STEPS}")
