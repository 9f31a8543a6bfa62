"""Batch norm whose statistics stand still: what they are, when they change, and that a policy is one policy."""

import copy
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from learners import differences
from understudy.core.errors import ConfigError
from understudy.core.rng import stream
from understudy.core.state import capture, restore
from understudy.nn.batch_norm import BatchNorm
from understudy.nn.encoders import ConvEncoder, ConvEncoderSettings
from understudy.run.build import build_learner
from understudy.run.config import load_config
from understudy.run.progress import SILENT

LAYERS = [{"channels": 4, "kernel": 3}, {"channels": 3, "kernel": 3}]


def conv(**changes: Any) -> ConvEncoder:
    settings = ConvEncoderSettings.parse({"layers": LAYERS, "size": 5, "norm": "batch", **changes})
    return ConvEncoder((1, 9, 9), settings, stream(0, "init"), "here")


def images(count: int, seed: int = 0) -> torch.Tensor:
    return 3 + 2 * torch.randn(count, 1, 9, 9, generator=torch.Generator().manual_seed(seed))


def test_after_a_first_rollout_every_layer_is_torchs_batch_norm_of_it() -> None:
    encoder, seen = conv(activation="elu"), images(300)
    encoder.observe(seen)
    pixels = seen
    for number, layer in enumerate(encoder.layers):
        theirs = nn.BatchNorm2d(LAYERS[number]["channels"])  # while training: with the moments of the batch itself
        pixels = nn.functional.elu(theirs(layer(pixels)))
    torch.testing.assert_close(
        encoder(seen), nn.functional.elu(encoder.output(pixels.flatten(1))), atol=1e-4, rtol=1e-4
    )


def test_statistics_are_an_average_that_forgets_and_rows_that_do_not_count_do_not() -> None:
    """μ ← μ + m·(μ_new − μ), whatever lies in rows that are not valid, and in however many pieces it is read."""
    first, second = images(70), images(9, seed=1) * 5
    encoder = conv(layers=LAYERS[:1], batch_norm_momentum=0.25)
    encoder.observe(first)
    encoder.observe(torch.cat([second, first]), torch.cat([torch.ones(9), torch.zeros(70)]).bool())
    found = encoder.norms["0"]
    assert isinstance(found, BatchNorm)
    one, two = (encoder.layers[0](rows).detach().transpose(0, 1).flatten(1) for rows in (first, second))
    expected = 0.75 * one.mean(1) + 0.25 * two.mean(1)
    torch.testing.assert_close(found.mean, expected)
    torch.testing.assert_close(
        found.variance, 0.75 * one.var(1, correction=0) + 0.25 * two.var(1, correction=0), rtol=1e-4, atol=1e-5
    )
    before = capture(encoder)
    encoder.observe(first, torch.zeros(70, dtype=torch.bool))
    assert not differences(before, capture(encoder))


def test_nobody_else_in_a_batch_matters() -> None:
    encoder, seen = conv(), images(200)
    encoder.observe(seen)
    for mode in (True, False):
        encoder.train(mode)
        before = capture(encoder)
        torch.testing.assert_close(encoder(seen)[:3], encoder(seen[:3]))
        assert not differences(before, capture(encoder))


def ppo(out: Path, **changes: str) -> Any:
    picture = (
        "{kind: conv, norm: batch, layers: [{channels: 4, kernel: 5, stride: 3}, {channels: 4, kernel: 3}], size: 8}"
    )
    words = [
        f"algo.actor.encoders={{pixels: {picture}}}",
        f"algo.critic.encoders={{pixels: {picture}}}",
        *("source.num_envs=2", "source.rollout_length=12", "algo.minibatches=2", "algo.epochs=2", "updates=4"),
        *(f"{key}={value}" for key, value in changes.items()),
    ]
    return build_learner(load_config("ppo/cartpole-pixels", [*words, f"out={out}"]), SILENT)


def test_with_ppo_the_first_ratio_is_one_and_only_learning_moves_statistics(tmp_path: Path) -> None:
    with closing(ppo(tmp_path)) as learner, closing(ppo(tmp_path)) as other:
        for number in range(3):
            before = capture(learner.policy)
            rollout = learner.source.next(learner.policy)
            assert not differences(before, capture(learner.policy))
            judged = learner.policy.evaluate(rollout.obs, (), rollout.resets, rollout.action)
            torch.testing.assert_close(judged.log_prob, rollout.log_prob, rtol=0, atol=5e-6)
            learner.algorithm.update(rollout)
            assert any(path.endswith("norms.1.mean") for path in differences(before, capture(learner.policy)))
            learner.policy.act({name: values[0] for name, values in rollout.obs.items()}, (), greedy=True)
            if number == 0:
                restore(other, copy.deepcopy(capture(learner)), "here")
        for _ in range(2):
            other.update()
        assert not differences(capture(learner), capture(other))


def test_a_shared_encoder_is_observed_once(tmp_path: Path) -> None:
    with closing(ppo(tmp_path, **{"algo.critic.share_encoder": "true"})) as learner:
        learner.update()
        encoder = learner.policy.perception.encoders["of_pixels"]
        assert float(encoder.norms["0"].rollouts) == 1.0
        assert learner.algorithm.value.perception.encoders["of_pixels"] is encoder


def test_who_learns_from_single_rows_is_told(tmp_path: Path) -> None:
    conv_of_state = "{state: {kind: conv, shape: [1, 3], layers: [{channels: 2, kernel: 1, norm: batch}]}}"
    config = load_config("bc/pendulum", [f"algo.actor.encoders={conv_of_state}", f"out={tmp_path}"])
    with pytest.raises(ConfigError, match=r"algo\.actor\.encoders\.state\.norm: batch norm .*group, layer or none"):
        build_learner(config, SILENT).close()
