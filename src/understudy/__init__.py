"""Understudy learns control policies from experience that others already had, and then from its own."""

from understudy.core.batch import Transitions
from understudy.core.errors import UnderstudyError
from understudy.core.spec import Box, Discrete, Spec
from understudy.data.dataset import Dataset
from understudy.data.episode import Episode
from understudy.data.recipes import Recipe
from understudy.data.scores import normalized_score
from understudy.data.stores.recorder import Recorder
from understudy.data.stores.store import write_store
from understudy.data.transforms import Transforms
from understudy.nn.actor import Actor
from understudy.run.config import RunConfig, load_config
from understudy.run.dataset.loading import load_dataset, make_dataset
from understudy.run.evaluate import Evaluation, evaluate_policy
from understudy.run.policies import load_policy
from understudy.run.session import Run, predict, resume, train

__version__ = "0.1.0"

__all__ = [
    "Actor",
    "Box",
    "Dataset",
    "Discrete",
    "Episode",
    "Evaluation",
    "Recipe",
    "Recorder",
    "Run",
    "RunConfig",
    "Spec",
    "Transforms",
    "Transitions",
    "UnderstudyError",
    "evaluate_policy",
    "load_config",
    "load_dataset",
    "load_policy",
    "make_dataset",
    "normalized_score",
    "predict",
    "resume",
    "train",
    "write_store",
]
