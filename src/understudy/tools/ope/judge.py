"""One judgement of all candidates: their critics or their importance weights, and what it is worth."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray

from understudy.core.errors import CheckpointError
from understudy.core.machine_memory import check_room
from understudy.core.protocols import Demand
from understudy.core.rng import stream
from understudy.core.wording import counted
from understudy.data.dataset import Dataset
from understudy.data.experience import LoggedExperience
from understudy.data.transforms import Transforms
from understudy.parts.frozen_choices import frozen_choices
from understudy.run.monitor import evenly_spread
from understudy.run.progress import Reporter
from understudy.tools.experiments.statistics import Estimate
from understudy.tools.ope import estimators
from understudy.tools.ope.candidates import Candidate, policies_of
from understudy.tools.ope.estimators import Judgements, Steps, Terms
from understudy.tools.ope.intervals import Interval, Resampling, around, of_resamples
from understudy.tools.ope.kept import Kept, check_folder, digest, keep, place
from understudy.tools.ope.likelihoods import CLONING, cloned_log_probs, log_probs, logged_log_probs
from understudy.tools.ope.own_critics import own_values
from understudy.tools.ope.ranking import Judgement, Ranking, about_cuts, judgement, ranked
from understudy.tools.ope.resamples import Resample
from understudy.tools.ope.settings import ROBUST, Settings
from understudy.tools.ope.stacked import Judged, ask, bound, train_stack
from understudy.tools.ope.support import THIN, Neighbourhood

Array = NDArray[np.float64]
PLAIN: Mapping[str, Callable[[Steps, float], Terms]] = {
    "is": estimators.importance_sampling,
    "wis": estimators.weighted_importance_sampling,
    "pdis": estimators.per_decision,
    "wpdis": estimators.weighted_per_decision,
}
DOUBLY: Mapping[str, Callable[[Steps, Judgements, float], Terms]] = {
    "dr": estimators.doubly_robust,
    "wdr": estimators.weighted_doubly_robust,
}
FEW = 10
"""Fewer episodes than these, or fewer effective ones, deserve a warning."""
MISSING = 0.1
"""A larger share of what is far ahead that targets cannot have reached yet does, too."""
APART = "no interval shows how far seeds are apart"
STRAINED = "somewhere in the data its critics believe in more than any return"
FEW_TOLD = "fewer than ten effective episodes"
TABLES, FURTHER = 2, 8
"""Of numbers [E, T]: for every candidate, and besides, where importance is weighed."""
MEASURED = 1 << 20
"""Steps of which returns say what the unit of rewards is."""


@final
class Judge:
    """One call: candidates that fit, and data that serves."""

    def __init__(
        self,
        settings: Settings,
        candidates: Sequence[Candidate],
        dataset: Dataset,
        out: Path | None,
        reporter: Reporter,
        notes: Sequence[str] = (),
    ) -> None:
        self.settings, self.candidates, self.dataset = settings, candidates, dataset
        self.out, self.reporter = out, reporter
        self.data = LoggedExperience.of(dataset, _in_units(dataset, settings.gamma))
        self.rewards = dataset.rewards.cpu().double().numpy()
        self.warnings = list(notes)
        self.missing = settings.missing(int(dataset.index.lengths.max())) if settings.trains else 0.0
        if settings.weighs:
            table = dataset.episodes * int(dataset.index.lengths.max()) * 8
            told = f"importance weights of {len(candidates)} policies along {dataset.episodes:,} episodes"
            check_room("ope", told, (TABLES * len(candidates) + FURTHER) * table, "Judge fewer at once, or use fqe.")
        if out is not None and self._keeps:
            check_folder(out)

    def rank(self) -> Ranking:
        settings, dataset = self.settings, self.dataset
        facts = self._supports()
        judged = self._fitted(facts) if settings.method == "fqe" else self._bootstrapped(facts)
        self._warn(judged)
        discounted = estimators.episode_returns(self.rewards, dataset.index.lengths, settings.gamma)
        return Ranking(
            settings.method,
            settings.gamma,
            dataset.name,
            ranked(judged),
            _behaviour(discounted),
            _behaviour(dataset.returns()),
            self.warnings,
        )

    def _supports(self) -> list[dict[str, float]]:
        """The share of each candidate's actions that are far from the data."""
        settings, near = self.settings, Neighbourhood.of(self.data)
        rows = self.data.rows(near.rows, Demand(("mask",) if self.data.spec.masked else ()))
        asked = (self.data.spec, rows.obs, rows.extra.get("mask"), settings.draws)
        shares = []
        for candidate in self.candidates:
            chosen = frozen_choices(candidate.policy, *asked, stream(0, "ope/near"))
            share = near.far_share(chosen.cpu())
            shares.append({} if math.isnan(share) else {"far": share})
        return shares

    def _fitted(self, facts: Sequence[Mapping[str, float]]) -> list[Judgement]:
        """What critics of every seed say of the starts of the episodes that they learned from."""
        seeds = self._trained()
        told = [one.starts[:, self._resample(seed).episodes].mean(1).tolist() for seed, one in enumerate(seeds)]
        return [
            self._judgement(number, values, np.array(values, np.float64), facts[number], seeds, of_resamples)
            for number, values in enumerate(zip(*told, strict=True))
        ]

    def _bootstrapped(self, facts: list[dict[str, float]]) -> list[Judgement]:
        """Estimates that are sums over episodes."""
        terms, seeds = self._terms(facts)
        resampling = Resampling(self.dataset.episodes, len(terms[0]))
        return [
            self._judgement(number, [estimators.estimate(one) for one in own], resampling.of(own), facts[number], seeds)
            for number, own in enumerate(terms)
        ]

    def _judgement(
        self,
        number: int,
        values: Sequence[float],
        draws: Array,
        known: Mapping[str, float],
        seeds: Sequence[Judged],
        interval: Interval = around,
    ) -> Judgement:
        """Of one candidate, whose critics, if there are any, are a seed's each."""
        diverged = any(bool(seed.diverged[number]) for seed in seeds)
        strained = any(bool(seed.strained[number]) for seed in seeds)
        doubts = [STRAINED] * strained + self._doubts(known)
        return judgement(self.candidates[number].name, values, draws, known, diverged, doubts, interval)

    def _resample(self, seed: int) -> Resample:
        """What critics of a seed learn from; the doubly robust resample the episodes that correct them."""
        index = self.dataset.index
        return Resample.drawn(index, seed) if self.settings.method == "fqe" else Resample.whole(index)

    def _terms(self, facts: list[dict[str, float]]) -> tuple[list[list[Terms]], list[Judged]]:
        """Of every candidate those of every seed, and what critics of the seeds say, if there are any; not of FQE."""
        settings = self.settings
        if settings.method == "initial":
            found = [own_values(candidate, self.dataset) for candidate in self.candidates]
            for known, (_, error, gamma) in zip(facts, found, strict=True):
                known |= {"td_error": error, "gamma": gamma}
            return [[estimators.initial_values(values)] for values, *_ in found], []
        steps = self._weighed(facts) if settings.weighs else []
        if settings.method in PLAIN:
            plain = PLAIN[settings.method]
            return [[plain(one, settings.gamma)] for one in steps], []
        seeds = self._trained()
        robust = DOUBLY[settings.method]
        return [
            [robust(one, self._judgements(seed, number), settings.gamma) for seed in seeds]
            for number, one in enumerate(steps)
        ], seeds

    def _weighed(self, facts: list[dict[str, float]]) -> list[Steps]:
        """Episodes with each candidate's ratios."""
        logged = logged_log_probs(self.data)
        if logged is None:
            logged = cloned_log_probs(self.data, 0, min(CLONING, self.settings.updates))
            self.warnings.append(
                "nobody recorded how likely actions were (column behaviour_log_prob): a policy cloned from the data "
                "stands for who made it, and its errors multiply along an episode."
            )
        found = []
        for candidate, known in zip(self.candidates, facts, strict=True):
            own = log_probs(candidate.policy, self.data, candidate.name, greedy=not self.settings.stochastic)
            steps = Steps.of(self.rewards, own - logged, self.dataset.index.lengths)
            known["effective"] = estimators.effective_samples(estimators.weights(steps)[:, -1])
            found.append(steps)
        return found

    def _judgements(self, seed: Judged, number: int) -> Judgements:
        """What critics of one seed say of one candidate, along episodes."""
        (said,) = seed.steps
        first, q, after = (part[number].numpy() for part in (seed.starts, said.q, said.after))
        return estimators.judgements(first, q, after, self.rewards, self.dataset.index, self.settings.gamma)

    def _trained(self) -> list[Judged]:
        """FQE of every seed, of all candidates that are not done yet at once."""
        settings = self.settings
        with self.reporter.task("ope", settings.seeds * settings.updates, "updates") as advance:
            return [
                self._seed(seed, lambda done, seed=seed: advance(seed * settings.updates + done, f"seed {seed}"))  # type: ignore[misc]
                for seed in range(settings.seeds)
            ]

    def _seed(self, seed: int, advance: Callable[[int], None]) -> Judged:
        settings = self.settings
        kept = [self._found(candidate, seed) for candidate in self.candidates]
        left = [number for number, one in enumerate(kept) if one is None]
        known = {number: (one.starts, one.largest) for number, one in enumerate(kept) if one is not None}
        if left:
            policies = policies_of([self.candidates[number] for number in left])
            choices = ask(policies, self.data, settings.draws, seed)
            rows = self._resample(seed).rows()
            words = (policies[0], choices, rows, seed, settings.updates, settings.batch_size, advance)
            judged = train_stack(settings.fqe(), self.data, *words, every_step=settings.method in ROBUST)
            self._keep(judged, left, seed)
            advance(settings.updates)
            if not known:
                return judged
            known |= {number: (judged.starts[i].tolist(), float(judged.largest[i])) for i, number in enumerate(left)}
        advance(settings.updates)
        starts, largest = zip(*(known[number] for number in range(len(kept))), strict=True)
        exact = torch.float64
        return Judged(
            torch.tensor(starts, dtype=exact), torch.tensor(largest, dtype=exact), bound(self.data, settings.gamma)
        )

    @property
    def _keeps(self) -> bool:
        """What critics say of every step is not kept."""
        return self.settings.method == "fqe"

    def _about(self, candidate: Candidate, seed: int) -> str:
        """The digest of all that the answer for one candidate and seed depends on."""
        settings, data = self.settings, self.dataset.fingerprint
        about = {"candidate": candidate.fingerprint, "data": data, "seed": seed}
        learning: dict[str, Any] = {"updates": settings.updates, "batch_size": settings.batch_size}
        learning |= {"draws": settings.draws, "episodes": self._resample(seed).digest}
        return digest({**about, **learning, "fqe": settings.fqe().model_dump(mode="json")})

    def _found(self, candidate: Candidate, seed: int) -> Kept | None:
        """Nothing if it was damaged or is of something else, for then it is made anew."""
        if self.out is None or not self._keeps:
            return None
        about = self._about(candidate, seed)
        path = place(self.out, about)
        try:
            return Kept.open(path, about, self.dataset.episodes) if path.is_file() else None
        except CheckpointError as error:
            self.reporter.say(f"made anew: {error}")
            return None

    def _keep(self, judged: Judged, numbers: Sequence[int], seed: int) -> None:
        if self.out is None or not self._keeps:
            return
        for number, candidate in enumerate(numbers):
            about = self._about(self.candidates[candidate], seed)
            said = judged.starts[number].tolist(), float(judged.largest[number])
            keep(place(self.out, about), about, *said)

    def _doubts(self, facts: Mapping[str, float]) -> list[str]:
        """Why a number is not to be believed that looks like any other."""
        settings = self.settings
        reasons = {
            f"{self.missing:.0%} of what is far ahead is not learned yet": self.missing > MISSING,
            "a run's own critics judge what they taught": settings.method == "initial",
            "the support is thin": facts.get("far", 0.0) > THIN,
            FEW_TOLD: facts.get("effective", math.inf) < FEW,
            "there are few episodes": self.dataset.episodes < FEW,
        }
        return [reason for reason, holds in reasons.items() if holds]

    def _warn(self, judged: Sequence[Judgement]) -> None:
        settings, index = self.settings, self.dataset.index
        if self.missing > MISSING:
            self.warnings.append(
                f"{settings.updates:,} updates with polyak {settings.polyak:g} leave about {self.missing:.0%} of "
                "what is far ahead out of every value: use more updates, a larger polyak or a smaller gamma."
            )
        if settings.trains and settings.seeds == 1:
            missing = "there is no interval, and nobody is told apart" if settings.method == "fqe" else APART
            self.warnings.append(f"one seed says nothing of others: {missing}. Use more seeds.")
        if self.dataset.episodes < FEW:
            told = counted(self.dataset.episodes, "episode")
            self.warnings.append(f"the data has {told}: intervals of so few are too narrow.")
        if [one for one in judged if "far" not in one.facts]:
            self.warnings.append("nothing is known of the support: no other episode was in similar states.")
        if other := [one.name for one in judged if one.facts.get("gamma", settings.gamma) != settings.gamma]:
            told = f"critics of {', '.join(other)} learned with another gamma than {settings.gamma:g}"
            self.warnings.append(f"{told}: what they expect is no match for the others, nor for the data's returns.")
        if far := [one.name for one in judged if one.facts.get("far", 0.0) > THIN]:
            self.warnings.append(
                f"thin support: much of what {', '.join(far)} would do is far from what the data did; what critics say "
                "of it is a guess, and no interval shows how wrong."
            )
        if few := [one.name for one in judged if one.facts.get("effective", math.inf) < FEW]:
            self.warnings.append(f"importance weights leave {FEW_TOLD} for {', '.join(few)}.")
        if strained := [one.name for one in judged if STRAINED in one.doubts and not one.diverged]:
            self.warnings.append(
                f"|Q| of {', '.join(strained)} is far beyond any return in places, though not at the starts: "
                "these values may be wrong by more than intervals say."
            )
        if lost := [one.name for one in judged if one.diverged]:
            self.warnings.append(
                f"|Q| of {', '.join(lost)} is far beyond any return: these estimates are worth nothing."
            )
        if cut := int((~index.terminated).sum()):
            self.warnings.append(about_cuts(cut, self.dataset.episodes))


def _in_units(dataset: Dataset, gamma: float) -> Transforms:
    """Rewards are learned from in such units that returns differ by about 1: networks begin there."""
    some = evenly_spread(min(MEASURED, dataset.steps), dataset.steps)
    rows = dataset.rows(some, Demand(("return_to_go",), gamma=gamma))
    spread = float(rows.extra["return_to_go"].double().std(correction=0))
    return Transforms(normalize_observations=True, scale_rewards=1.0 / spread if spread > 0 else 1.0)


def _behaviour(returns: Array) -> Estimate:
    """Of episodes [E]."""
    return around(float(returns.mean()), Resampling(len(returns), 1).of([estimators.initial_values(returns)]))
