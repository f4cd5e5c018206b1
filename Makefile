# streampipe: a header, so nothing needs building to use it. This file tests it and builds the examples.
# Needs GNU make, gcc and g++. Other tools are used if they are found; if not, it says that they are missing.
#
# A program is one source file: tests/test_x.cu becomes build/<flavour>/tests/test_x. New files are
# found by their names (tests/make/programs.mk); none has to be listed here.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

# ---- The tools, all of them overridable: make CC=clang CXX=clang++ ---------------------------------

ifeq ($(origin CC),default)
CC := gcc
endif
ifeq ($(origin CXX),default)
CXX := g++
endif
AWK ?= awk
# Where the toolkit is: around the nvcc of the PATH, else in its usual place.
CUDA_HOME ?= $(or $(patsubst %/bin/nvcc,%,$(realpath $(shell command -v nvcc 2>/dev/null))),/usr/local/cuda)
NVCC ?= $(CUDA_HOME)/bin/nvcc
JOBS ?= $(shell nproc 2>/dev/null || echo 2)

# ---- What this machine has ------------------------------------------------------------------------

have     = $(shell command -v $(1) >/dev/null 2>&1 && echo yes || echo no)
HAVE_NVCC := $(call have,$(NVCC))
GPU       := $(shell nvidia-smi -L 2>/dev/null | sed -n 's/^GPU 0: //; s/ .UUID.*//p; 1q')
HAVE_GPU  := $(if $(GPU),yes,no)

# The backend: `cuda` is the real runtime, `host` is hostcuda, the CUDA runtime on the CPU.
ifeq ($(HAVE_NVCC)-$(HAVE_GPU),yes-yes)
BACKEND ?= cuda
else
BACKEND ?= host
endif
ifeq ($(filter $(BACKEND),cuda host),)
$(error BACKEND=$(BACKEND): it is cuda or host)
endif
ifeq ($(BACKEND)-$(HAVE_NVCC),cuda-no)
$(error BACKEND=cuda needs nvcc, and $(NVCC) is not there; set CUDA_HOME or NVCC)
endif

# The GPU to compile for. Without a GPU nothing compiled for it can run: it is a test of compiling.
ifeq ($(HAVE_GPU),yes)
ARCH ?= native
else
ARCH ?= sm_90
endif
CAN_RUN := $(if $(filter cuda-no,$(BACKEND)-$(HAVE_GPU)),no,yes)
NO_GPU  := compiled for $(ARCH); there is no GPU here to run it on

# SAN=thread or SAN=address instruments everything; only on the host backend, in a build of its own.
# On hostcuda nothing real is timed: -Og -g1 takes a third of the time of -O2 -g to compile, and tests take as long as with
# -O1; hostcuda itself and the examples have -O1 (programs.mk). Warnings of -O2: the matrix.
SAN ?=
OPT ?= $(if $(filter host,$(BACKEND)),-Og -g1,-O2 -g)
ifneq ($(filter-out thread address,$(SAN)),)
$(error SAN=$(SAN): it is thread or address)
endif
ifneq ($(and $(SAN),$(filter cuda,$(BACKEND))),)
$(error SAN=$(SAN) is for BACKEND=host; on a GPU use `make sanitize BACKEND=cuda`)
endif

include tests/make/programs.mk

# ---- Using it -------------------------------------------------------------------------------------

.PHONY: help
help: ## this text (the default)
	@echo "streampipe $$(sh tests/tools/version): streams, events and pipelines for CUDA in one C header"; echo
	@$(AWK) -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 } \
	    FNR == 1 && NR > 1 { sub(/^# /, ""); print "\n" $$0 }' Makefile $(MAKE_PARTS)
	@echo
	@$(AWK) -F '## ' '/^## / { print "  " $$2 }' Makefile
	@echo
	@echo "Found here:"
	@$(call found,nvcc,$(HAVE_NVCC),$(if $(filter yes,$(HAVE_NVCC)),$(NVCC)))
	@$(call found,GPU,$(HAVE_GPU),$(GPU))
	@for tool in $(TOOLS); do $(call found,$$tool,$$(command -v $$tool >/dev/null && echo yes || echo no),); done
	@echo "So BACKEND=$(BACKEND)$(if $(filter cuda,$(BACKEND)), ARCH=$(ARCH))"
found = printf '  %-12s %-4s %s\n' "$(1)" "$(2)" "$(3)"

## BACKEND=cuda|host   the real runtime, or the CUDA runtime on the CPU (hostcuda)
## ARCH=sm_90          GPU to compile for; `native` where there is a GPU
## CC= CXX= NVCC= CUDA_HOME= OPT=   the tools;   V=1 shows the commands;   SAN=thread|address with `test`

.PHONY: demo
demo: ## stream a file through three kernels; draw timelines of slow and fast runs
ifeq ($(CAN_RUN),no)
	@echo "BACKEND=cuda: there is no GPU here; BACKEND=host needs none" >&2; exit 1
endif
	@+$(submake) $(parallel) $(BUILD)/examples/entropy_map $(BUILD)/examples/07_timeline $(BUILD)/tests/tools/pgm_to_png
	@echo "backend: $(backend_name)"
	@file=$$($(CC) -print-prog-name=cc1); \
	case $$file in /*) [ -f "$$file" ] || file=/bin/sh ;; *) file=/bin/sh ;; esac; \
	tests/tools/demo $(BUILD) build/demo "$$file"
cuda_name    = cuda ($(or $(GPU),no GPU here), compiled for $(ARCH))
host_name    = host (the CUDA runtime on the CPU; no GPU is used)
backend_name = $($(BACKEND)_name)

.PHONY: examples
examples: ## build and run every example; print a table of results
	@+$(call build,build-examples JOIN=yes)
	@tests/tools/examples --table $(BACKEND) $(BUILD) $(EXAMPLES)

.PHONY: systems-times
systems-times: ## run every lesson and system of examples/; print a table of their times, also into build/systems_times.txt
ifeq ($(CAN_RUN),no)
	@echo "$(NO_GPU)" >&2; exit 1
endif
	@+$(call build,build-examples JOIN=yes)
	@{ NVCC="$(NVCC)" ARCH="$(ARCH)" examples/systems/times $(BACKEND) $(BUILD) $(EXAMPLES); echo $$? > build/status; } | \
	    tee build/systems_times.txt; exit $$(cat build/status)

# ---- The course -------------------------------------------------------------------------------------

.PHONY: exercise
exercise: ## N=07: build, run and judge examples/exercises/07_*.cu; SOLUTION=yes judges the solution
	@$(if $(filter file,$(origin HOSTCUDA_CACHE)),unset HOSTCUDA_CACHE;) \
	    examples/exercises/judge $(or $(N),list) $(if $(SOLUTION),--solution) || [ $$? = 1 ]

# Draws the pictures of its pages, on the modelled clock.
COURSE := docs/course/pictures
.PHONY: course
course: ## run every lesson and exercise on hostcuda, draw the pictures of docs/course (under 5 minutes)
	@+$(submake) BACKEND=host SAN= examples
	@+$(submake) BACKEND=host SAN= build/host/$(COURSE)
	@mkdir -p build/course && build/host/$(COURSE) build/course
	@for f in build/course/*.svg; do cmp -s $$f $(COURSE)/$${f##*/} || cp $$f $(COURSE); done
	@$(MAKE) --no-print-directory BACKEND=host SAN= QUIET=1 run/tests/cli/course.sh run/tests/cli/exercises.sh

# ---- Checks -----------------------------------------------------------------------------------------

.PHONY: quick
quick: ## under a minute: all headers as C and C++, the rules of lint, the core's tests (unoptimised)
	$(begin)
	$(call part,part-rules)
	$(call part,part-compile-short)
	@+$(MAKE) --no-print-directory BACKEND=host SAN= BUILD=build/quick OPT="-O0 -g" QUIET=1 part-quick
	$(total)

# The longest check of the documents, projects that use the installed files, runs beside check-all's tests.
consumer = $(if $(filter host,$(BACKEND)$(SAN)),CONSUMER=$(1))

.PHONY: check
check: ## under 4 minutes: every test program, the rules of lint, the documents; ends with N passed, N failed, N skipped
	$(begin)
	$(call part,part-texts $(call consumer,later))
	$(call part,part-test BRIEF=yes)
	$(total)

.PHONY: check-all
check-all: ## everything that this machine can check, fastest first: check, platforms, compilers, analyzers, sanitizers
	$(begin)
	$(call part,part-texts $(call consumer,later))
	$(call part,part-test THOROUGH=yes $(call consumer,yes))
	$(call part,$(parallel) part-platforms part-compile part-analyzers)
	$(if $(filter-out host,$(BACKEND)$(SAN)),,$(call part,part-sanitize LEFT_OUT=yes))
	$(total)

.PHONY: test
ifdef T
ONE := $(filter %/$(T),$(TESTS) $(TESTS_HOST))
test:
ifeq ($(ONE),)
	@echo "T=$(T): no file tests/$(T).cu or .c, nor in tests/host, tests/fuzz, tests/torture" >&2; exit 1
else
	@+$(submake) $(BUILD)/$(ONE) && $(UNSCATTERED) $(BUILD)/$(ONE)
endif
else
test: ## only the test programs and scripts; T=test_pipeline: only this program
	$(begin)
	$(call part,part-test)
	$(total)
endif
# For those who change the library; `make help` lists these targets, too.
MAKE_PARTS := tests/make/made_files.mk tests/make/checks.mk tests/bench/bench.mk
include $(MAKE_PARTS)

# ---- Installing -----------------------------------------------------------------------------------

PREFIX  ?= /usr/local
DESTDIR ?=
# Flat, as a program copies them: one folder with the library and what goes with it.
HEADERS  := $(wildcard streampipe.h streampipe_kernels.cuh extras/*.h)
incdir   = $(DESTDIR)$(PREFIX)/include
hostdir  = $(DESTDIR)$(PREFIX)/share/streampipe/hostcuda
pcdir    = $(DESTDIR)$(PREFIX)/share/pkgconfig
cmakedir = $(DESTDIR)$(PREFIX)/share/cmake/streampipe

.PHONY: install uninstall
install: ## PREFIX=/usr/local DESTDIR=: install headers, hostcuda, files for pkg-config and CMake
	install -d $(incdir) $(pcdir) $(cmakedir) $(addprefix $(hostdir)/,. include include/nvtx3 include/cooperative_groups nccl rewriter)
	install -m 644 $(HEADERS) $(incdir)
	install -m 644 hostcuda/README.md hostcuda/*.cpp hostcuda/*.h $(hostdir)
	install -m 644 hostcuda/include/*.h $(hostdir)/include
	install -m 644 hostcuda/include/nvtx3/*.h $(hostdir)/include/nvtx3
	install -m 644 hostcuda/include/cooperative_groups/*.h $(hostdir)/include/cooperative_groups
	install -m 644 hostcuda/nccl/*.h $(hostdir)/nccl
	install -m 644 hostcuda/rewriter/*.cpp hostcuda/rewriter/*.h $(hostdir)/rewriter
	install -m 755 hostcuda/hcc $(hostdir)
	tests/tools/packaging pc $(PREFIX) $(CUDA_HOME) > $(pcdir)/streampipe.pc
	tests/tools/packaging cmake > $(cmakedir)/streampipe-config.cmake
	tests/tools/packaging cmake-version > $(cmakedir)/streampipe-config-version.cmake
uninstall: ## remove what install installed, with the same PREFIX and DESTDIR
	rm -f $(addprefix $(incdir)/,$(notdir $(HEADERS))) $(pcdir)/streampipe.pc
	rm -f $(cmakedir)/streampipe-config.cmake $(cmakedir)/streampipe-config-version.cmake
	rm -rf $(hostdir)
	rmdir $(cmakedir) $(dir $(hostdir)) 2>/dev/null || true

# From git's files, so that the same commit gives the same bytes.
DIST = $(eval DIST := streampipe-$(shell sh tests/tools/version))$(DIST)
.PHONY: dist
dist: ## write build/streampipe-VERSION.tar.gz, the release: all files of the commit
	@git rev-parse -q --verify HEAD > /dev/null 2>&1 || { echo "make dist: there is no git here, and a release is made from a commit" >&2; exit 1; }
	@tests/tools/version --check
	@mkdir -p build && git archive --format=tar --prefix=$(DIST)/ -o build/$(DIST).tar HEAD && gzip -9nf build/$(DIST).tar
	@echo "build/$(DIST).tar.gz: $$(git rev-parse --short HEAD), $$(wc -c < build/$(DIST).tar.gz) bytes"
	@git diff --quiet HEAD || echo "without what is not committed"

.PHONY: clean
clean: ## remove build/
	rm -rf build
