# The two commands to know: `make run` starts a whole fleet on this laptop,
# `make test` installs what the tests need and runs everything that CI runs.

export CGO_ENABLED ?= 0
VERSION ?= $(shell scripts/version)
FLAGS   := -trimpath -ldflags '-s -w -X muster.internal.Build=$(VERSION)'
DIR     ?= muster-dev
N       ?= 4
SOAK    ?= 2m

.PHONY: run build check test fast slow soak sim lab generate packages package bench bench-host bench-control bench-register bench-plan sizes

run: build ## a control plane, a booter and N simulated machines, without root (DEV=--auto)
	bin/muster dev --machines $(N) --dir $(DIR) $(DEV)

build: ## the four programs, static, into bin/, and the host for SmartOS
	go build $(FLAGS) -o bin/ ./cmd/...
	GOOS=illumos GOARCH=amd64 go build $(FLAGS) -o bin/muster-host-illumos ./cmd/muster-host

check: ## formatting, vet, staticcheck, the fast tests; no root needed
	@bad=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$bad" || { echo "not gofmt-clean: $$bad"; exit 1; }
	go vet ./...
	GOOS=illumos GOARCH=amd64 go vet ./cmd/muster-host ./illumos
	go tool staticcheck ./...
	go mod verify >/dev/null
	$(MAKE) --no-print-directory fast

fast:
	go test ./...

test: packages ## install the tests' Debian packages, then everything that CI runs
	$(MAKE) --no-print-directory check
	$(MAKE) --no-print-directory soak SOAK=4s
	$(MAKE) --no-print-directory slow

slow: build ## real firmware, kernels and disks in virtual machines; needs root
	scripts/slow

firmware: ## how far each kind of firmware came at which second, to an approved node; needs root
	scripts/slow LabFirstLife

soak: ## the long form of fuzzing, crash points and models; SOAK=10m for longer
	scripts/soak $(SOAK)

sim: ## whole fleets in one goroutine, from SEEDS seeds; one that fails prints a scenario to keep (SEEDS=100 FROM=1)
	go test -count=1 -timeout 0 ./world -run Seeds -seeds $(or $(SEEDS),20) -from $(or $(FROM),1)

lab: build ## a network namespace with virtual machines that PXE boot; needs root
	bin/muster lab $(LAB)

generate: ## rewrite what is derived from tables and types
	go test . ./lifecycle ./api ./cmd/muster -run 'Golden|Docs|Document|Stale|TestAccess$$' -update

package: build ## deb, rpm, Arch packages and tarballs, into dist/
	scripts/package $(VERSION)
	@ls -l dist | awk 'NR>1 {printf "%-52s %5.1f MiB\n", $$NF, $$5/1048576}'

packages:
	scripts/packages

bench: ## the booter beside Kea, coredhcp, dnsmasq, atftpd and nginx; needs root (BENCH='-rounds 3')
	scripts/bench-netboot $(BENCH)

bench-host: ## the host's apply beside CFEngine and Puppet; needs root (BENCH='-rounds 3 -puppet 1')
	scripts/bench-host $(BENCH)

bench-control: ## one musterd and 5,000 simulated hosts that link, change and come back (BENCH='-hosts 10000')
	scripts/bench-control $(BENCH)

bench-register: ## registrations and heartbeats of one musterd beside etcd; needs root to install etcd (BENCH='-rounds 5')
	scripts/bench-register $(BENCH)

bench-plan: ## the planner beside a bare scan, on 1,000 to 50,000 nodes (BENCH='-rounds 9')
	scripts/bench-plan $(BENCH)

sizes: build ## sizes of the static binaries
	@ls -l bin | awk 'NR>1 {printf "%-14s %5.1f MiB\n", $$NF, $$5/1048576}'
