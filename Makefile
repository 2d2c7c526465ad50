# Every target makes what it needs: a virtual environment in .venv with the pinned torch.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip --disable-pip-version-check install --quiet
# pytest-xdist runs one worker a core, so that torch's own threads would only get in the way.
TEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses=auto --dist=loadfile

.PHONY: changelog release demo cifar-quick verify-results site test test-fast lint clean

demo: .venv/demo
	$(BIN)/python examples/digits.py

cifar-quick: .venv/demo
	$(BIN)/python examples/cifar10/compress.py --data ../shared/data --output out/cifar10 --quick

# every file of results/ on all test images; DATA is the folder of images and dense weights
DATA ?= ../shared/data
verify-results: .venv/demo
	$(BIN)/python benchmarks/campaign_results.py --data $(DATA)

test: .venv/dev
	$(TEST)

test-fast: .venv/dev
	$(TEST) -m "not slow"

# the documentation, into site/; a warning, such as a link to nowhere, is an error
site: .venv/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# what goes to an index: sdist and wheel, checked; then the wheel alone in an environment of its own
release: .venv/torch
	$(PIP) build twine
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/twine check --strict dist/*
	$(PYTHON) -m venv build/release
	build/release/bin/pip --disable-pip-version-check install --quiet -c constraints.txt dist/*.whl
	build/release/bin/python benchmarks/base_install.py

# a fragment that is no list: each of its paragraphs becomes an item
define AS_ITEMS
FNR == 1 { is_list = /^- /; begins = 1 }
is_list || /^$$/ { if (is_list) print; begins = 1; next }
{ print (begins ? "- " : "  ") $$0; begins = 0 }
endef
export AS_ITEMS

# gathers the fragments of changelog.d under the version, as a release begins
changelog:
	version=$$(sed -n 's/^__version__.*"\(.*\)"$$/\1/p' nncfx/_version.py) && test -n "$$version" && \
	{ sed -n 1,3p CHANGELOG.md; printf '\n## %s\n\n' "$$version"; awk "$$AS_ITEMS" changelog.d/*.md; \
	  sed -n '4,$$p' CHANGELOG.md; } > CHANGELOG.next
	mv CHANGELOG.next CHANGELOG.md
	git rm -q changelog.d/*.md

clean:
	rm -rf .venv demo-out out site

# torch comes first and alone: a package that may upgrade it would bring gigabytes of CUDA.
.venv/torch: constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) -r constraints.txt
	touch $@

.venv/demo: .venv/torch pyproject.toml
	$(PIP) -c constraints.txt -e '.[demo]'
	touch $@

# pytorchcv is a zoo of real models for the tests; its requirements are not needed for that.
.venv/dev: .venv/demo
	$(PIP) -c constraints.txt -e '.[dev]'
	$(PIP) --no-deps pytorchcv
	touch $@

.venv/docs: .venv/dev
	$(PIP) -c constraints.txt -e '.[docs]'
	touch $@
