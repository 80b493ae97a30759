# make course   install what a learner needs, then open the tour in JupyterLab
#               (on a server: make course ARGS=--no-browser)
# make test     install everything, then run the linter, check the import rules, and run all tests
# make site     install everything, then build the website in build/site/_build/html
#
# Setup creates .venv with exact versions, from requirements.txt for a learner and from requirements/ for everything else. It runs
# again only when these files change. To choose a Python version: make course PYTHON=/path/to/python3.12

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
READY_FOR_ALL := $(VENV)/.ready-for-all
PIP := $(BIN)/python -m pip install --disable-pip-version-check

.PHONY: course test site lint notebooks notebooks-check clean

course: $(READY)
	@$(BIN)/transformer-lab open $(ARGS)

# Run one worker per core (at most 8), with one thread each. ARGS="-n 0" runs the tests one after another and shows their output.
test: lint
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal $(ARGS)

lint: $(READY_FOR_ALL)
	@$(BIN)/ruff check
	@$(BIN)/lint-imports --no-logo

site: $(READY_FOR_ALL)
	@$(BIN)/python -m transformer_lab.authoring site

notebooks: $(READY_FOR_ALL)
	@$(BIN)/python -m transformer_lab.authoring build $(ARGS)

notebooks-check: $(READY_FOR_ALL)
	@$(BIN)/python -m transformer_lab.authoring check

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

# Download sizes: the total size of the wheels from `pip download -r FILE`, measured with Python 3.11.
LEARNER_SIZE := 430 MB on Linux (x86-64) with the CPU build of PyTorch, or 250 MB on macOS (arm64)
SIZE_OF_ALL := 540 MB on Linux (x86-64) with the CPU build of PyTorch

# $(1): the file with the versions. $(2): the download size.
#
# A working .venv is updated. If its Python no longer works, .venv is created again. The stamp is written last, so that an
# interrupted setup runs again. setuptools is pinned, so installing the package itself doesn't download anything.
define set_up
	@$(BIN)/python -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  found=; for python in $(or $(PYTHON),python3 python3.13 python3.12 python3.11); do \
	    if $$python -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found=$$python; break; fi; \
	  done; \
	  if [ -z "$$found" ]; then \
	    echo 'No Python 3.11 or newer with venv and pip was found. Install one (python.org, or on Debian and Ubuntu:' >&2; \
	    echo 'sudo apt install python3 python3-venv), or pass the path of yours: make course PYTHON=/path/to/python3.12' >&2; exit 1; \
	  fi; \
	  echo "Creating $(VENV) with $$($$found --version)."; \
	  $$found -m venv --clear $(VENV); \
	}
	@[ -e $(READY) ] || { \
	  echo 'The first setup takes a few minutes and downloads about $(2).'; \
	  if [ "$$(uname)" = Linux ] && [ -z "$$PIP_EXTRA_INDEX_URL" ]; then \
	    echo "The PyTorch for Linux on PyPI includes CUDA and is much larger. If you don't have a GPU, press Ctrl-C and run"; \
	    echo 'PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu make $(or $(MAKECMDGOALS),course)'; \
	  fi; \
	}
	@echo 'Installing the versions in $(1) into $(VENV).'
	@$(PIP) $(if $(wildcard $(BIN)/python),--quiet) -r $(1)
	@$(PIP) --quiet --no-deps --no-build-isolation -e .
	@touch $(READY) $@
endef

$(READY): requirements.txt pyproject.toml
	$(call set_up,requirements.txt,$(LEARNER_SIZE))

$(READY_FOR_ALL): requirements.txt requirements/teacher.txt requirements/developer.txt pyproject.toml
	$(call set_up,requirements/developer.txt,$(SIZE_OF_ALL))
