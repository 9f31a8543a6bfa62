"""What other libraries call our settings: the tables of docs/coming-from.md, and of what is suggested for a name that
is theirs."""

from collections.abc import Callable
from typing import Literal, NamedTuple

from understudy.core.st_rl_names import told_of_st_rl

LIBRARIES = {
    "rsl_rl": "rsl_rl",
    "sb3": "Stable-Baselines3",
    "skrl": "skrl",
    "d3rlpy": "d3rlpy",
    "corl": "CORL",
}
ROBOTS, LOGS, ONLINE = ("rsl_rl", "sb3", "skrl"), ("d3rlpy", "corl"), ("sb3", "skrl", "d3rlpy")
"""The libraries of each table."""


class OtherName(NamedTuple):
    """A setting of ours and its names elsewhere, several of one library with spaces between."""

    ours: str
    rsl_rl: str = ""
    sb3: str = ""
    skrl: str = ""
    d3rlpy: str = ""
    corl: str = ""
    differs: str = ""

    def names(self, library: str) -> list[str]:
        return str(self._asdict()[library]).split()


OTHER_UNITS = (
    *("updates", "algo.minibatches", "algo.actor.distribution.initial_std"),
    *("source.utd_ratio", "algo.entropy_target", "algo.entropy_weight", "source.exploration_noise"),
)
"""Settings whose number cannot be copied."""
Row = OtherName
FROM_ROLLOUTS = (
    Row("source.num_envs", "num_envs", "n_envs", "num_envs", differs="as many as your simulator steps fast"),
    Row("source.rollout_length", "num_steps_per_env", "n_steps", "rollouts"),
    Row(
        "updates",
        "max_iterations num_learning_iterations",
        "total_timesteps",
        "timesteps",
        differs="rollouts from the start, as max_iterations; Stable-Baselines3 counts steps of all environments, skrl "
        "steps of each; `resume` goes on to it, not beyond",
    ),
    Row("algo.gamma", "gamma", "gamma", "discount_factor"),
    Row("algo.gae_lambda", "lam", "gae_lambda", "gae_lambda lambda"),
    Row("algo.clip", "clip_param", "clip_range", "ratio_clip"),
    Row(
        "algo.value_clip",
        "use_clipped_value_loss",
        "clip_range_vf",
        "value_clip clip_predicted_values",
        differs="a width of its own, not clip_param; in units of reward, so it suits small rewards only; null is off",
    ),
    Row("algo.entropy_coef", "entropy_coef", "ent_coef", "entropy_loss_scale"),
    Row(
        "algo.value_coef",
        "value_loss_coef",
        "vf_coef",
        "value_loss_scale",
        differs="changes little unless networks are shared: actor and critic have their own optimisers",
    ),
    Row("algo.epochs", "num_learning_epochs", "n_epochs", "learning_epochs", differs="rows are shuffled anew in each"),
    Row(
        "algo.minibatches",
        "num_mini_batches",
        "batch_size",
        "mini_batches",
        differs="how many there are, not their rows: n_steps·n_envs/batch_size; nothing is dropped; with memory a "
        "minibatch is some environments' whole sequences",
    ),
    Row(
        "algo.learning_rate",
        "learning_rate",
        "learning_rate",
        "learning_rate",
        differs="saved, so an adaptive one goes on where it was",
    ),
    Row(
        "algo.schedule",
        "schedule",
        "",
        "learning_rate_scheduler",
        differs="fixed is `constant`, KLAdaptiveLR is `adaptive`; `linear` is there, too",
    ),
    Row(
        "algo.target_kl",
        "desired_kl",
        "",
        "learning_rate_scheduler_kwargs",
        differs="what `adaptive` aims at, by the same rule, with the exact KL of whatever density there is",
    ),
    Row(
        "algo.early_stop_kl",
        "",
        "target_kl",
        "kl_threshold",
        differs="ends an update that went too far; Stable-Baselines3 multiplies its own by 1.5",
    ),
    Row("algo.max_grad_norm", "max_grad_norm", "max_grad_norm", "grad_norm_clip", differs="per network, not of all"),
    Row(
        "algo.normalize_advantage",
        "normalize_advantage_per_mini_batch",
        "normalize_advantage",
        differs="over the `rollout`, each `minibatch` (as Stable-Baselines3), or `none`",
    ),
    Row(
        "algo.normalize_reward",
        "",
        "norm_reward",
        "rewards_shaper",
        differs="by the deviation of returns so far, as VecNormalize",
    ),
    Row("algo.weight_decay", differs="above 0 Adam is AdamW"),
    Row("algo.critic_learning_rate", differs="the critic's own; it follows no KL"),
    Row("algo.critic_warmup", differs="updates at first in which only the critic learns"),
    Row("algo.clip_schedule", differs="`linear` falls to 0, as a clip_range that is a function"),
    Row(
        "algo.objectives",
        "rnd_cfg symmetry_cfg",
        differs="[`rnd`](rnd.md), [`symmetry`](symmetry.md), and [of others](ppo.md#objectives-what-can-be-added)",
    ),
    Row(
        "algo.actor.normalize",
        "obs_normalization empirical_normalization",
        "norm_obs",
        "state_preprocessor observation_preprocessor",
        differs="per role and group, part of the policy, still during an update",
    ),
    Row("algo.actor.normalizer.epsilon", "eps", "epsilon", "epsilon", differs="added to the variance, not to σ"),
    Row("algo.actor.normalizer.until", "until"),
    Row("algo.actor.hidden", "hidden_dims actor_hidden_dims", "net_arch"),
    Row("algo.critic.hidden", "critic_hidden_dims", "net_arch"),
    Row("algo.actor.activation", "activation", "activation_fn", differs="`tanh` by default"),
    Row(
        "algo.actor.distribution.initial_std",
        "init_std init_noise_std",
        "log_std_init",
        "initial_log_std",
        differs="σ itself, in units of half the action's range",
    ),
    Row(
        "algo.actor.distribution.log_std_min",
        "clip_min_std",
        "",
        "min_log_std",
        differs="σ is learned as its logarithm, so it cannot cross 0; this is log 0.001",
    ),
    Row("algo.actor.memory.kind", "rnn_type", differs="`gru` or `lstm`"),
    Row("algo.actor.memory.units", "rnn_hidden_dim rnn_hidden_size", "lstm_hidden_size"),
    Row("algo.actor.memory.layers", "rnn_num_layers", "n_lstm_layers"),
    Row(
        "algo.actor.sees",
        "obs_groups",
        differs="nothing said is every group: name them where there are privileged ones",
    ),
    Row("algo.critic.sees", "obs_groups"),
    Row("algo.critic.share_encoder", "share_cnn_encoders", "share_features_extractor"),
    Row(
        "source.stagger_episodes",
        "init_at_random_ep_len",
        differs="where there is an `episode_length_buf`, and for Gymnasium's environments",
    ),
    Row("save_every", "save_interval", "save_freq", "checkpoint_interval", differs="in updates"),
    Row("eval_every", "", "eval_freq", differs="in updates"),
    Row("eval_episodes", "", "n_eval_episodes"),
    Row("log_every", "", "log_interval", "write_interval", differs="in updates"),
    Row("seed", "seed", "seed", "seed"),
    Row("device", "device", "device", "device"),
    Row("out", "log_dir", "tensorboard_log", "directory"),
    Row("", "", "buffer_size", "memory_size", differs="a rollout is learned from and thrown away"),
)
FROM_DATA = (
    Row("updates", sb3="total_timesteps", d3rlpy="n_steps", corl="max_timesteps"),
    Row("source.batch_size", d3rlpy="batch_size", corl="batch_size"),
    Row("algo.gamma", d3rlpy="gamma", corl="discount"),
    Row("algo.polyak", d3rlpy="tau", corl="tau soft_target_update_rate"),
    Row("algo.actor_learning_rate", sb3="learning_rate", d3rlpy="actor_learning_rate", corl="actor_lr policy_lr"),
    Row("algo.critic_learning_rate", sb3="learning_rate", d3rlpy="critic_learning_rate", corl="qf_lr critic_lr"),
    Row("algo.value_learning_rate", corl="vf_lr", differs="IQL"),
    Row("algo.critics", d3rlpy="n_critics"),
    Row("algo.expectile", d3rlpy="expectile", corl="iql_tau", differs="IQL"),
    Row("algo.beta", d3rlpy="weight_temp", corl="beta", differs="IQL"),
    Row("algo.weight_ceiling", d3rlpy="max_weight", differs="IQL"),
    Row("algo.penalty_weight", d3rlpy="conservative_weight", corl="cql_alpha", differs="CQL"),
    Row("algo.penalty_temperature", corl="cql_temp", differs="CQL"),
    Row("algo.sampled_actions", d3rlpy="n_action_samples", corl="cql_n_actions", differs="CQL"),
    Row("algo.lagrange", corl="cql_lagrange", differs="CQL"),
    Row("algo.lagrange_gap", d3rlpy="alpha_threshold", corl="cql_target_action_gap", differs="CQL"),
    Row("algo.backup_entropy", d3rlpy="soft_q_backup", corl="backup_entropy", differs="CQL"),
    Row("algo.warm_start", corl="bc_steps", differs="CQL"),
    Row("algo.entropy_weight", d3rlpy="initial_temperature", differs="CQL"),
    Row("algo.entropy_learning_rate", d3rlpy="temp_learning_rate", differs="CQL"),
    Row("algo.alpha", d3rlpy="alpha", corl="alpha", differs="TD3+BC; discrete CQL's weight"),
    Row("algo.policy_delay", d3rlpy="update_actor_interval", corl="policy_freq", differs="TD3+BC, ReBRAC"),
    Row("algo.target_noise", d3rlpy="target_smoothing_sigma", corl="policy_noise", differs="TD3+BC, ReBRAC"),
    Row("algo.target_noise_clip", d3rlpy="target_smoothing_clip", corl="noise_clip", differs="TD3+BC, ReBRAC"),
    Row("algo.actor_penalty", d3rlpy="actor_beta", corl="actor_bc_coef", differs="ReBRAC"),
    Row("algo.critic_penalty", d3rlpy="critic_beta", corl="critic_bc_coef", differs="ReBRAC"),
    Row("algo.actor.hidden", d3rlpy="hidden_units", corl="hidden_dim actor_n_hiddens"),
    Row("algo.actor.dropout", d3rlpy="dropout_rate", corl="actor_dropout"),
    Row("algo.critic.layer_norm", corl="critic_ln"),
    Row("data.normalize_observations", d3rlpy="observation_scaler", corl="normalize normalize_states"),
    Row("data.reward", d3rlpy="reward_scaler", corl="normalize_reward", differs="a group: see [data](data.md)"),
    Row(
        "data.path",
        d3rlpy="dataset",
        corl="env",
        differs="CORL's `env` names data and environment; see [suites](suites.md)",
    ),
    Row("eval_every", d3rlpy="n_steps_per_epoch", corl="eval_freq"),
    Row("eval_episodes", d3rlpy="n_trials", corl="n_episodes eval_episodes"),
    Row("seed", corl="seed train_seed"),
    Row("device", d3rlpy="device", corl="device"),
    Row("compile", d3rlpy="compile_graph"),
    Row("out", d3rlpy="experiment_name", corl="checkpoints_path"),
    Row("init_from", corl="load_model"),
    Row(
        "", d3rlpy="limit", corl="buffer_size", differs="data are read whole, and only source.kind=replay has a buffer"
    ),
)


FROM_REPLAY = (
    Row("source.num_envs", sb3="n_envs", skrl="num_envs"),
    Row("env_steps", sb3="total_timesteps", skrl="timesteps", d3rlpy="n_steps", differs="of all environments together"),
    Row("source.batch_size", sb3="batch_size", skrl="batch_size", d3rlpy="batch_size"),
    Row("source.buffer_size", sb3="buffer_size", skrl="memory_size", d3rlpy="limit", differs="of all environments"),
    Row("source.learning_starts", sb3="learning_starts", skrl="learning_starts", d3rlpy="update_start_step"),
    Row("source.warmup", skrl="random_timesteps", d3rlpy="random_steps", differs="`random` until learning_starts"),
    Row(
        "source.utd_ratio",
        sb3="gradient_steps train_freq",
        skrl="gradient_steps",
        d3rlpy="n_updates update_interval",
        differs="updates for each step of an environment, gradient_steps/(train_freq·n_envs)",
    ),
    Row("algo.gamma", sb3="gamma", skrl="discount_factor", d3rlpy="gamma"),
    Row("algo.n_step", sb3="n_steps"),
    Row("algo.polyak", sb3="tau", skrl="polyak", d3rlpy="tau"),
    Row("algo.actor_learning_rate", sb3="learning_rate", skrl="learning_rate", d3rlpy="actor_learning_rate"),
    Row("algo.critic_learning_rate", sb3="learning_rate", skrl="learning_rate", d3rlpy="critic_learning_rate"),
    Row("algo.entropy_learning_rate", sb3="learning_rate", skrl="entropy_learning_rate", d3rlpy="temp_learning_rate"),
    Row(
        "algo.entropy_weight",
        sb3="ent_coef",
        skrl="initial_entropy_value",
        d3rlpy="initial_temperature",
        differs="where it starts, as auto_1, and a fixed one is with algo.entropy_learning_rate=0",
    ),
    Row(
        "algo.entropy_target",
        sb3="target_entropy",
        skrl="target_entropy",
        differs="for each action dimension, so −1 is everybody's −dim A; SAC, REDQ",
    ),
    Row("algo.critics", sb3="n_critics", d3rlpy="n_critics"),
    Row("algo.policy_delay", sb3="policy_delay", skrl="policy_delay", d3rlpy="update_actor_interval"),
    Row(
        "algo.target_noise",
        sb3="target_policy_noise",
        skrl="smooth_regularization_noise",
        d3rlpy="target_smoothing_sigma",
        differs="TD3",
    ),
    Row(
        "algo.target_noise_clip",
        sb3="target_noise_clip",
        skrl="smooth_regularization_clip",
        d3rlpy="target_smoothing_clip",
        differs="TD3",
    ),
    Row(
        "source.exploration_noise",
        sb3="action_noise",
        skrl="exploration_noise",
        d3rlpy="explorer",
        differs="σ of Gaussian noise, in halves of the action's range",
    ),
    Row("algo.actor.hidden", sb3="net_arch", d3rlpy="actor_encoder_factory"),
    Row("algo.critic.hidden", sb3="net_arch", d3rlpy="critic_encoder_factory"),
    Row("eval_every", sb3="eval_freq", differs="in updates"),
    Row("save_every", sb3="save_freq", skrl="checkpoint_interval", differs="in updates"),
    Row("log_every", sb3="log_interval", skrl="write_interval", differs="in updates"),
)
Learning = Literal["rollouts", "replay", "data"]
TABLES: dict[Learning, tuple[tuple[tuple[Row, ...], tuple[str, ...]], ...]] = {
    "rollouts": ((FROM_ROLLOUTS, ROBOTS),),
    "replay": ((FROM_REPLAY, ONLINE), (FROM_DATA, (*LOGS, "sb3"))),
    "data": ((FROM_DATA, (*LOGS, "sb3")), (FROM_REPLAY, ONLINE)),
}


def called_here(name: str, exists: Callable[[str], bool], learning: Learning) -> str:
    """A sentence that says what a name of others is called here, if it is one; `exists` says which keys there are."""
    for table, libraries in TABLES[learning]:
        found = {
            row: LIBRARIES[library]
            for row in table
            for library in reversed(libraries)
            if name in row.names(library) and (not row.ours or exists(row.ours))
        }
        if found:
            return _told(name, found)
    return told_of_st_rl(name, exists)


def _told(name: str, found: dict[Row, str]) -> str:
    row, library = next(iter(found.items()))
    if not row.ours:
        return f"{library}'s {name} is not needed: {row.differs}."
    told = " or ".join(f"'{one.ours}'" for one in found)
    different = f" It differs: {row.differs.partition(';')[0]}." if row.differs and row.ours in OTHER_UNITS else ""
    return f"Did you mean {told} ({library}'s {name})?{different}"
