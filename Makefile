# make demo    sets everything up, then fits a sphere to six views of a pear; results in out/demo
# make test    sets everything up, then lint, tests and notebooks
# make bench   measures everything on this device: tables on the screen, JSON and plots in out/bench
# make docs    builds the pages of docs/ and the reference as a site in out/site; open out/site/index.html
# make dist-check  builds the wheel and the sdist in dist/, installs the wheel in a clean environment, runs the README's example
#
# ARGS="..." is passed on to `dressi demo` and `dressi bench`. DRESSI_DEVICE (index or part of a name) picks
# the device; the tests run on Mesa's CPU driver lavapipe ("llvmpipe") unless it is set.

PY := .venv/bin/python
DRESSI := .venv/bin/dressi
# A fixed profile: what is measured on a busy machine would change plans from run to run.
ON_LAVAPIPE := DRESSI_DEVICE=$${DRESSI_DEVICE:-llvmpipe} DRESSI_PROFILE=$${DRESSI_PROFILE:-llvmpipe}
# The driver and a copy of it: two devices, on any machine.
TWO_DEVICES := env $$($(PY) scripts/two_lavapipes.py out/second)
# Two processes; a file's tests stay in one, for some use what others of the file found.
TWO_AT_ONCE := -n 2 --dist loadfile
# Threads of NumPy's and PyTorch's matrix products only get in each other's way then: they wait busily, on the other process' core.
ONE_BLAS := OMP_NUM_THREADS=1
# So do the driver's own.
ONE_THREAD := LP_NUM_THREADS=1
# Fits in processes of their own, which neither collect garbage all the time nor check calls.
ELSEWHERE := --deselect tests/engine/test_deterministic.py::test_a_fit_gives_the_same_bits_with_any_number_of_threads
SAY := @printf '\n== %s\n'

.PHONY: setup demo test test-gc lint bench notebooks docs dist-check clean
.NOTPARALLEL:

setup:
	@bash scripts/setup.sh

demo: setup
	$(DRESSI) demo --out out/demo $(ARGS)

bench: setup
	$(DRESSI) bench all --out out/bench $(ARGS)

notebooks: setup
	$(PY) scripts/run_notebooks.py

lint: setup
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/lint-imports --no-logo

test: lint
	$(SAY) 'ad and packing, with no Vulkan binding to import'
	$(ONE_BLAS) $(PY) -m pytest $(TWO_AT_ONCE) tests/ad tests/packing --no-vulkan
	$(SAY) 'everything else, with validation layers'
	$(ON_LAVAPIPE) $(ONE_BLAS) $(ONE_THREAD) DRESSI_VALIDATE=1 $(PY) -m pytest $(TWO_AT_ONCE) --require-vulkan --ignore=tests/ad --ignore=tests/packing
	$(ON_LAVAPIPE) $(ONE_BLAS) $(ONE_THREAD) DRESSI_VALIDATE=1 $(PY) -m pytest $(TWO_AT_ONCE) --require-vulkan -m gpu tests/ad tests/packing
	$(SAY) 'vk, engine (neither values of ops nor random sequences) and parallel again, on two devices, with the garbage collector running all the time'
	$(TWO_DEVICES) $(ON_LAVAPIPE) $(ONE_BLAS) DRESSI_VALIDATE=1 $(PY) -m pytest $(TWO_AT_ONCE) -m gpu --require-vulkan --gc-stress --ignore-glob='*_on_device.py' --ignore=tests/engine/test_sequences.py $(ELSEWHERE) tests/vk tests/engine tests/parallel
	$(SAY) 'notebooks'
	$(ON_LAVAPIPE) $(ONE_BLAS) $(ONE_THREAD) $(PY) scripts/run_notebooks.py --jobs 2

# The collector after every few allocations, and freed memory overwritten: finds what Vulkan still reads but Python has freed.
test-gc: setup
	$(TWO_DEVICES) $(ON_LAVAPIPE) DRESSI_VALIDATE=1 $(PY) -m pytest -m gpu --require-vulkan --gc-stress $(ARGS)

docs: setup
	@$(PY) -c 'import material, mkdocs, mkdocstrings' 2>/dev/null || $(PY) -m pip install -q --disable-pip-version-check -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --quiet
	$(SAY) 'out/site/index.html'

dist-check: setup
	$(ON_LAVAPIPE) $(PY) scripts/dist_check.py

clean:
	rm -rf out .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	find dressi tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +
