"""Train TD3+BC on mixed pendulum play, look at the result, ask the policy, go on later."""

import sys

import understudy as us

out = sys.argv[1] if len(sys.argv) > 1 else "runs/td3bc-example"
settings = sys.argv[2:]

config = us.load_config("td3bc/pendulum", [f"out={out}", *settings])
run = us.train(config)

print("learned:  ", run.result["eval/return_mean"])
print("evaluated:", run.evaluate(episodes=5).mean)
print("action:   ", run.predict([1.0, 0.0, 0.5]))  # cos, sin and speed of an upright pendulum
print("to go on: ", f"understudy resume {run.path} steps={2 * config.steps}")
