"""Train discrete CQL on clumsy cart-pole play, look at the result, ask the policy, go on later."""

import sys

import understudy as us

out = sys.argv[1] if len(sys.argv) > 1 else "runs/discrete-cql-example"
settings = sys.argv[2:]

config = us.load_config("discrete_cql/cartpole", [f"out={out}", *settings])
run = us.train(config)

print("learned:  ", run.result["eval/return_mean"])
print("evaluated:", run.evaluate(episodes=5).mean)
print("action:   ", run.predict([0.0, 0.0, 0.1, 0.5]))  # a pole that leans and falls to the right: push right, 1
print("to go on: ", f"understudy resume {run.path} steps={2 * config.steps}")
