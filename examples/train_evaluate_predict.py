"""Train a config, look at the result, ask the policy, go on later.

python examples/train_evaluate_predict.py cql/pendulum seed=1
"""

import sys

import gymnasium

import understudy as us

name, settings = (sys.argv[1], sys.argv[2:]) if len(sys.argv) > 1 else ("iql/pendulum", [])

config = us.load_config(name, settings)
run = us.train(config)
observation, _ = gymnasium.make(config.world.id).reset(seed=0)

print("learned:  ", run.result["eval/return_mean"])
print("evaluated:", run.evaluate(episodes=5).mean)
print("action:   ", run.predict(observation))
print("to go on: ", f"understudy resume {run.path} updates={2 * config.updates}")
