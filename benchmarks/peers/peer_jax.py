"""Plain JAX: IQL, written from the equations. Everything, sampling included, runs inside one lax.scan."""

import itertools
import os

from _windows import ACTION, BATCH, HIDDEN, OBSERVATION, ROWS, THREADS, arguments, offline_options, serve

os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])  # XLA's pool has a thread per core
os.environ["NPROC"] = str(THREADS)
os.environ["JAX_PLATFORMS"] = "cpu"

from functools import partial  # noqa: E402
from typing import Any  # noqa: E402

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

TAU, BETA, GAMMA, POLYAK, RATE, HORIZON = 0.7, 3.0, 0.99, 0.005, 3e-4, 1_000_000
Tree = Any


def mlp_init(key: jax.Array, sizes: list[int]) -> list[tuple[jax.Array, jax.Array]]:
    layers = []
    for k, (i, o) in zip(jax.random.split(key, len(sizes) - 1), itertools.pairwise(sizes), strict=True):
        kw, kb = jax.random.split(k)
        bound = i**-0.5
        layers.append((jax.random.uniform(kw, (i, o), minval=-bound, maxval=bound),
                       jax.random.uniform(kb, (o,), minval=-bound, maxval=bound)))  # fmt: skip
    return layers


def mlp(layers: list[tuple[jax.Array, jax.Array]], x: jax.Array) -> jax.Array:
    for w, b in layers[:-1]:
        x = jax.nn.relu(x @ w + b)
    w, b = layers[-1]
    return x @ w + b


def q_min(q: Tree, s: jax.Array, a: jax.Array) -> jax.Array:
    x = jnp.concatenate([s, a], -1)
    return jnp.minimum(mlp(q[0], x)[:, 0], mlp(q[1], x)[:, 0])


def log_prob(pi: Tree, s: jax.Array, a: jax.Array) -> jax.Array:
    mean, log_std = jnp.tanh(mlp(pi["mean"], s)), jnp.clip(pi["log_std"], -5.0, 2.0)
    z = (a - mean) * jnp.exp(-log_std)
    return jnp.sum(-0.5 * z * z - log_std - 0.5 * jnp.log(2 * jnp.pi), -1)


def adam_init(p: Tree) -> Tree:
    return {"m": jax.tree.map(jnp.zeros_like, p), "v": jax.tree.map(jnp.zeros_like, p)}


def adam(p: Tree, g: Tree, state: Tree, step: jax.Array, rate: jax.Array | float) -> tuple[Tree, Tree]:
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["m"], g)
    v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, state["v"], g)
    c1, c2 = 1 - 0.9**step, 1 - 0.999**step
    p = jax.tree.map(lambda p, m, v: p - rate * (m / c1) / (jnp.sqrt(v / c2) + 1e-8), p, m, v)
    return p, {"m": m, "v": v}


def update(data: dict[str, jax.Array], t: Tree, _: None) -> tuple[Tree, Tree]:
    key, draw = jax.random.split(t["key"])
    index = jax.random.randint(draw, (BATCH,), 0, ROWS)
    s, a, r, n, d = (data[k][index] for k in ("s", "a", "r", "n", "d"))
    step = t["step"] + 1.0

    target = q_min(t["target"], s, a)

    def value_loss(v: Tree) -> jax.Array:
        x = target - mlp(v, s)[:, 0]
        return jnp.mean(jnp.abs(TAU - (x < 0)) * x * x)

    loss_v, g = jax.value_and_grad(value_loss)(t["v"])
    v, v_adam = adam(t["v"], g, t["v_adam"], step, RATE)

    values = mlp(v, jnp.concatenate([s, n]))[:, 0]
    weight = jnp.exp(jnp.minimum(BETA * (target - values[:BATCH]), jnp.log(100.0)))

    def policy_loss(pi: Tree) -> jax.Array:
        return -jnp.mean(weight * log_prob(pi, s, a))

    loss_pi, g = jax.value_and_grad(policy_loss)(t["pi"])
    rate = RATE * 0.5 * (1 + jnp.cos(jnp.pi * t["step"] / HORIZON))
    pi, pi_adam = adam(t["pi"], g, t["pi_adam"], step, rate)

    backup = r + GAMMA * (1 - d) * values[BATCH:]

    def critic_loss(q: Tree) -> jax.Array:
        x = jnp.concatenate([s, a], -1)
        return sum(jnp.mean((mlp(net, x)[:, 0] - backup) ** 2) for net in q)

    loss_q, g = jax.value_and_grad(critic_loss)(t["q"])
    q, q_adam = adam(t["q"], g, t["q_adam"], step, RATE)
    lagged = jax.tree.map(lambda old, new: old + POLYAK * (new - old), t["target"], q)

    state = {"key": key, "step": step, "v": v, "v_adam": v_adam, "pi": pi, "pi_adam": pi_adam,
             "q": q, "q_adam": q_adam, "target": lagged}  # fmt: skip
    return state, {"v": loss_v, "pi": loss_pi, "q": loss_q}


@partial(jax.jit, static_argnums=2, donate_argnums=1)
def train(data: dict[str, jax.Array], state: Tree, updates: int) -> tuple[Tree, Tree]:
    return jax.lax.scan(partial(update, data), state, None, length=updates)


def main() -> None:
    options = arguments(iql=offline_options)
    rng = np.random.default_rng(0)
    data = {
        "s": rng.standard_normal((ROWS, OBSERVATION), np.float32),
        "a": rng.uniform(-1, 1, (ROWS, ACTION)).astype(np.float32),
        "r": rng.standard_normal(ROWS, np.float32),
        "n": rng.standard_normal((ROWS, OBSERVATION), np.float32),
        "d": (rng.random(ROWS) < 0.001).astype(np.float32),
    }
    data = jax.device_put(data)
    kv, kp, k1, k2, key = jax.random.split(jax.random.key(0), 5)
    sizes = [HIDDEN, HIDDEN]
    v = mlp_init(kv, [OBSERVATION, *sizes, 1])
    pi = {"mean": mlp_init(kp, [OBSERVATION, *sizes, ACTION]), "log_std": jnp.zeros(ACTION)}
    q = [mlp_init(k, [OBSERVATION + ACTION, *sizes, 1]) for k in (k1, k2)]
    state = {"key": key, "step": jnp.float32(0), "v": v, "v_adam": adam_init(v), "pi": pi, "pi_adam": adam_init(pi),
             "q": q, "q_adam": adam_init(q), "target": jax.tree.map(jnp.copy, q)}  # fmt: skip

    def run(updates: int) -> None:
        nonlocal state
        state, losses = train(data, state, updates)
        jax.block_until_ready((state, losses))

    serve("jax", run, options)


if __name__ == "__main__":
    main()
