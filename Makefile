# make course   set up, then open JupyterLab on the tour      (on a server: make course ARGS=--no-browser)
# make test     set up, then lint, import rules and all tests
# make site     set up, then build the website in build/site/_build/html
#
# The set-up makes .venv from the exact versions in requirements.txt, and runs again only when they change.
# A Python of your choice: make course PYTHON=/path/to/python3.12

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip install --disable-pip-version-check

.PHONY: course test site lint notebooks notebooks-check clean

course: $(READY)
	@$(BIN)/transformer-lab open $(ARGS)

# One worker for each core, and one thread in each worker. ARGS="-n 0" runs the tests one after the other, with their output.
test: lint
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal $(ARGS)

lint: $(READY)
	@$(BIN)/ruff check
	@$(BIN)/lint-imports --no-logo

site: $(READY)
	@$(BIN)/python -m transformer_lab.authoring site

notebooks: $(READY)
	@$(BIN)/python -m transformer_lab.authoring build $(ARGS)

notebooks-check: $(READY)
	@$(BIN)/python -m transformer_lab.authoring check

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

# A .venv that runs is brought up to date; one whose Python is gone is made anew. The stamp comes last, so that a set-up that
# was interrupted is taken up again. setuptools is among the pins: the package itself is installed without a download.
$(READY): requirements.txt pyproject.toml
	@$(BIN)/python -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  found=; for python in $(or $(PYTHON),python3 python3.13 python3.12 python3.11); do \
	    if $$python -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found=$$python; break; fi; \
	  done; \
	  if [ -z "$$found" ]; then \
	    echo 'No Python 3.11 or newer with venv and pip was found. Install one (python.org, or on Debian and Ubuntu:' >&2; \
	    echo 'sudo apt install python3 python3-venv), or name yours: make course PYTHON=/path/to/python3.12' >&2; exit 1; \
	  fi; \
	  echo "Making $(VENV) with $$($$found --version). The first set-up downloads PyTorch and its company: some minutes."; \
	  $$found -m venv --clear $(VENV); \
	}
	@echo 'Installing the versions of requirements.txt into $(VENV).'
	@$(PIP) $(if $(wildcard $(BIN)/python),--quiet) -r requirements.txt
	@$(PIP) --quiet --no-deps --no-build-isolation -e .
	@touch $@
