# Everything below creates what it needs. PYTHON chooses the interpreter, ARGS goes to what is run, BROKERS=all examines
# ejabberd and RabbitMQ as well.
PYTHON ?= python3
VENV ?= .venv
ARGS ?=
BROKERS ?=
BIN = $(VENV)/bin
FAST = -n logical --dist worksteal -m "not system and not slow"

.PHONY: help demo demo-cluster deps test test-fast without coverage faults check docs dist sbom addons lowest bench

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /	/' | expand -t 12

demo: ## watch real readings arrive on a real broker, while things fail on purpose (ARGS="--for 30s")
	@scripts/environment "$(VENV)" "$(PYTHON)" demo
	@$(BIN)/leadsman demo $(ARGS)

demo-cluster: ## watch three nodes share sixty meters, and take over from one that is killed (needs nats-server)
	@scripts/environment "$(VENV)" "$(PYTHON)" demo
	@$(BIN)/leadsman demo --cluster

deps: ## install the Debian packages that the tests need, as root or with passwordless sudo
	@scripts/debian-packages mosquitto mosquitto_rr=mosquitto-clients systemd-analyze=systemd dbus-daemon=dbus chromium \
		nats-server docker-compose /usr/bin/xandikos=xandikos promtool=prometheus influxd=influxdb

test: deps ## run all tests, those against real brokers and ports included (takes some minutes; ARGS="-k retry" for a part)
	@scripts/environment "$(VENV)" "$(PYTHON)" demo test docs
	@scripts/home-assistant .venv-homeassistant
	@scripts/brokers .venv-brokers $(BROKERS)
	@$(BIN)/python -m pytest -n 6 --dist loadfile --no-loadscope-reorder --rerun-show-tracebacks $(ARGS)

test-fast: ## run the tests that need no broker, bus, port, root or network (some minutes)
	@scripts/environment "$(VENV)" "$(PYTHON)" demo test
	@$(BIN)/python -m pytest $(FAST) $(ARGS)

without: deps ## run the tests of the core in a copy without a folder that can be left out (ARGS=ledger, or all)
	@scripts/environment "$(VENV)" "$(PYTHON)" demo test
	@$(BIN)/python scripts/without.py $(ARGS)

coverage: ## run the fast tests, and show how many branches they take: in all, and in the files where they take fewest
	@scripts/environment "$(VENV)" "$(PYTHON)" demo test
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest -q $(FAST) $(ARGS)
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report --sort=cover | sed -n '1,14p;$$p'

faults: ## produce the faults of the fault matrix, and show what the app does (ARGS="P0", "1 15", "--markdown")
	@scripts/debian-packages mosquitto nats-server
	@scripts/environment "$(VENV)" "$(PYTHON)" demo test
	@PYTHONPATH=tests/faults $(BIN)/python -m fault_matrix $(ARGS)

check: ## formatting, lint, types, the examples on the pages, the direction of imports, generated pages, the site and the SBOM
	@scripts/environment "$(VENV)" "$(PYTHON)" demo test check docs bench
	@$(BIN)/ruff format --check --quiet . || { echo "run: $(BIN)/ruff format ."; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/python scripts/examples.py
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python scripts/reference.py --check
	@$(BIN)/python scripts/pictures.py --check
	@$(BIN)/python scripts/diagrams.py --check
	@$(BIN)/python scripts/site.py
	@$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --mc-type library --output-reproducible --no-validate \
		--output-file build/sbom.cdx.json $(BIN)/python

docs: ## build the documentation site in build/site
	@scripts/environment "$(VENV)" "$(PYTHON)" docs
	@$(BIN)/python scripts/site.py
	@echo "to read it: $(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site 8000"

dist: ## build the wheels and source distributions of leadsman and the apps in build/dist, and check them
	@scripts/environment "$(VENV)" "$(PYTHON)" dist
	@$(BIN)/python scripts/dist.py
	@ls build/dist

sbom: dist ## write the bill of materials of an environment with the wheel and all extras, build/sbom.cdx.json
	@scripts/environment "$(VENV)" "$(PYTHON)" check
	@"$(PYTHON)" -m venv --clear --without-pip build/sbom
	@"$(PYTHON)" -m pip --python build/sbom install --quiet "$$(ls build/dist/leadsman-*.whl)[all]"
	@$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --mc-type library --output-reproducible --no-validate \
		--output-file build/sbom.cdx.json build/sbom/bin/python

addons: dist ## write a folder for each app that Home Assistant installs, in build/addons
	@scripts/environment "$(VENV)" "$(PYTHON)" demo test
	@$(BIN)/python scripts/addons.py
	@ls build/addons

lowest: ## run the fast tests with the lowest versions of the libraries, in .venv-lowest (ARGS="tests/core" for a part)
	@scripts/lowest .venv-lowest "$(PYTHON)" $(ARGS)

bench: ## compare with a bare aiomqtt loop, as ratios from one run (takes some minutes)
	@scripts/debian-packages mosquitto nats-server
	@scripts/environment "$(VENV)" "$(PYTHON)" demo test bench
	@$(BIN)/python -m benchmarks $(ARGS)
