"""Understudy learns control policies from experience that others already had, and then from its own."""

TYPE_CHECKING = False  # as in `typing`, which takes its time to be imported
if TYPE_CHECKING:
    from understudy import ratios as ratios
    from understudy import statistics as statistics
    from understudy.core.batch import Transitions
    from understudy.core.errors import UnderstudyError
    from understudy.core.spec import Box, Discrete, Group, MultiDiscrete, Spec
    from understudy.data.corruption import corrupt
    from understudy.data.dataset import Dataset
    from understudy.data.episode import Episode
    from understudy.data.motions.loading import load_motions
    from understudy.data.motions.settings import MotionSettings
    from understudy.data.recipes import Recipe
    from understudy.data.scores import normalized_score
    from understudy.data.stores.recorder import Recorder
    from understudy.data.stores.store import write_store
    from understudy.data.transforms import Transforms
    from understudy.envs.tracked_env import TrackedEnv
    from understudy.envs.tracking import TrackingSettings
    from understudy.envs.vector.contract import Step, VectorEnv
    from understudy.envs.vector.tensor_adapter import TensorVectorEnv
    from understudy.nn.actor import Actor
    from understudy.nn.own_encoder import register_network
    from understudy.nn.prediction import predict
    from understudy.nn.running_statistics import RunningMeanStd
    from understudy.run.callbacks import Callback
    from understudy.run.comparison import plot
    from understudy.run.config import RunConfig, load_config
    from understudy.run.evaluate import evaluate_policy
    from understudy.run.evaluation import Evaluation
    from understudy.run.loading import load_dataset, make_dataset
    from understudy.run.policies import load_policy
    from understudy.run.policy_file import save_policy
    from understudy.run.run import Curve, Run, video
    from understudy.run.session import resume, train
    from understudy.run.sinks import Logger
    from understudy.run.skill_sets import skill_set
    from understudy.tools.checkpoint_edits import edit_checkpoint
    from understudy.tools.collect import collect
    from understudy.tools.experiments.experiment import Experiment
    from understudy.tools.export import export_policy
    from understudy.tools.ladder import collect_ladder
    from understudy.tools.trials import train_trial

__version__ = "0.1.0"

HOMES = {
    "understudy.core.batch": "Transitions",
    "understudy.core.errors": "UnderstudyError",
    "understudy.core.spec": "Box Discrete Group MultiDiscrete Spec",
    "understudy.data.corruption": "corrupt",
    "understudy.data.dataset": "Dataset",
    "understudy.data.episode": "Episode",
    "understudy.data.motions.loading": "load_motions",
    "understudy.data.motions.settings": "MotionSettings",
    "understudy.data.recipes": "Recipe",
    "understudy.data.scores": "normalized_score",
    "understudy.data.stores.recorder": "Recorder",
    "understudy.data.stores.store": "write_store",
    "understudy.data.transforms": "Transforms",
    "understudy.envs.tracked_env": "TrackedEnv",
    "understudy.envs.tracking": "TrackingSettings",
    "understudy.envs.vector.contract": "Step VectorEnv",
    "understudy.envs.vector.tensor_adapter": "TensorVectorEnv",
    "understudy.nn.actor": "Actor",
    "understudy.nn.own_encoder": "register_network",
    "understudy.nn.prediction": "predict",
    "understudy.nn.running_statistics": "RunningMeanStd",
    "understudy.run.comparison": "plot",
    "understudy.run.config": "RunConfig load_config",
    "understudy.run.loading": "load_dataset make_dataset",
    "understudy.run.evaluate": "evaluate_policy",
    "understudy.run.evaluation": "Evaluation",
    "understudy.run.policies": "load_policy",
    "understudy.run.policy_file": "save_policy",
    "understudy.run.callbacks": "Callback",
    "understudy.run.run": "Curve Run video",
    "understudy.run.session": "resume train",
    "understudy.run.sinks": "Logger",
    "understudy.run.skill_sets": "skill_set",
    "understudy.tools.checkpoint_edits": "edit_checkpoint",
    "understudy.tools.collect": "collect",
    "understudy.tools.experiments.experiment": "Experiment",
    "understudy.tools.export": "export_policy",
    "understudy.tools.ladder": "collect_ladder",
    "understudy.tools.trials": "train_trial",
}
"""Where each public name lives. They are imported when they are first used: torch alone takes seconds, in which a
command could neither answer `--help` nor Ctrl-C."""

__all__ = [
    "Actor",
    "Box",
    "Callback",
    "Curve",
    "Dataset",
    "Discrete",
    "Episode",
    "Evaluation",
    "Experiment",
    "Group",
    "Logger",
    "MotionSettings",
    "MultiDiscrete",
    "Recipe",
    "Recorder",
    "Run",
    "RunConfig",
    "RunningMeanStd",
    "Spec",
    "Step",
    "TensorVectorEnv",
    "TrackedEnv",
    "TrackingSettings",
    "Transforms",
    "Transitions",
    "UnderstudyError",
    "VectorEnv",
    "collect",
    "collect_ladder",
    "corrupt",
    "edit_checkpoint",
    "evaluate_policy",
    "export_policy",
    "load_config",
    "load_dataset",
    "load_motions",
    "load_policy",
    "make_dataset",
    "normalized_score",
    "plot",
    "predict",
    "ratios",
    "register_network",
    "resume",
    "save_policy",
    "skill_set",
    "statistics",
    "train",
    "train_trial",
    "video",
    "write_store",
]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in ("ratios", "statistics"):
        return import_module(f"understudy.{name}")
    for home, names in HOMES.items():
        if name in names.split():
            found = globals()[name] = getattr(import_module(home), name)
            return found
    raise AttributeError(f"module 'understudy' has no attribute '{name}'")


def __dir__() -> list[str]:
    """What is public, and nothing else."""
    return sorted([*__all__, "__version__"])
