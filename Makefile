PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-all check bench pictures clean

demo: $(READY)
	$(BIN)/python examples/demo.py

test: $(READY)
	@sh tests/browser/install.sh
	$(BIN)/python -m pytest -n 2

test-all: $(READY)
	@sh tests/browser/install.sh
	$(BIN)/python -m pytest -n 2 -m ""

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/test_house.py

bench: $(READY)
	$(BIN)/python benchmarks/iql_speed.py
	$(BIN)/python benchmarks/actor_critic_speed.py
	$(BIN)/python benchmarks/discrete_cql_speed.py
	$(BIN)/python benchmarks/iact_speed.py
	$(BIN)/python benchmarks/ppo_speed.py --tasks cheetah
	$(BIN)/python benchmarks/sac_speed.py
	$(BIN)/python benchmarks/ratio_speed.py
	$(BIN)/python benchmarks/sampling_speed.py
	$(BIN)/python benchmarks/inspect_speed.py
	$(BIN)/python benchmarks/dataset_memory.py
	$(BIN)/python benchmarks/convert_memory.py
	$(BIN)/python benchmarks/replay_memory.py
	$(BIN)/python benchmarks/report_speed.py

# Draws docs/pictures again from the numbers that are kept; says what is kept of none, and how long it takes to make.
pictures: $(READY)
	$(BIN)/python benchmarks/reference_curves.py --draw
	$(BIN)/python benchmarks/ppo_curves.py --draw docs/pictures/ppo_halfcheetah.png
	$(BIN)/python benchmarks/teacher_curves.py --draw docs/pictures/teacher_pendulum.png
	$(BIN)/python benchmarks/estimator_curves.py --draw  # ppo_pendulum_estimator.png
	$(BIN)/python benchmarks/robot_curves.py --draw # robots_go1.png, robots_halfcheetah.png
	$(BIN)/python benchmarks/style_curves.py --draw # style.png
	$(BIN)/python benchmarks/ciql_bullet_curves.py --draw # ciql_halfcheetah_bullet.png
	@echo "iql_pendulum.png: make demo (a minute);"
	@echo "dagger_cartpole_masked.png: python benchmarks/dagger_curves.py (a few minutes);"
	@echo "style_normal.png: understudy train ppo/hopper-style (five minutes), its plots/style.png;"
	@echo "skills_zones.png: python benchmarks/skill_curves.py (a few minutes);"
	@echo "hopper_ladder.png: understudy collect ladder hopper --steps 18000 --replay-steps 27000 (hours), its returns.png;"
	@echo "ppo_go1_terms.png: understudy train ppo/go1-joystick (40 minutes), its plots/reward_terms.png"
	@echo "report.png: docs/report.md says of which runs, the top of their page in a browser;"
	@echo "tracking_humanoid.png: understudy train ppo/humanoid-track (half an hour), understudy video: frames 20, 23 … 53"

# torch first, at its pinned version, so that nothing else pulls another build of it.
$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) runs build src/*.egg-info
