# streampipe: a header, so nothing needs building to use it. This file tests it and builds the examples.
# Needs GNU make, gcc and g++. All else is used where it is found, and said to be missing where not.
#
# A program is one source file: tests/test_x.cu becomes build/<flavour>/tests/test_x. New files are
# found by their names (see "What there is to build"); none has to be listed here.

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

# SAN=thread or SAN=address instruments everything; only on the host backend, in a build of its own:
# two such builds are most of what `make check-all` compiles, and -Og -g1 takes a third of -O2 -g's time.
# On hostcuda nothing real is timed: -O1 -g1, half the time of -O2 -g. Warnings of -O2: the matrix.
SAN ?=
OPT ?= $(if $(SAN),-Og -g1,$(if $(filter host,$(BACKEND)),-O1 -g1,-O2 -g))
ifneq ($(filter-out thread address,$(SAN)),)
$(error SAN=$(SAN): it is thread or address)
endif
ifneq ($(and $(SAN),$(filter cuda,$(BACKEND))),)
$(error SAN=$(SAN) is for BACKEND=host; on a GPU use `make sanitize BACKEND=cuda`)
endif

# ---- How things are compiled ----------------------------------------------------------------------

BUILD := build/$(BACKEND)$(addprefix -,$(SAN))
WARN  := -Wall -Wextra -Wshadow -Wconversion -pedantic -Werror

# A report of undefined behaviour must end the program, or its tests would still say ok.
SANFLAGS_thread  := -fsanitize=thread -fno-omit-frame-pointer
SANFLAGS_address := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
SANFLAGS := $(SANFLAGS_$(SAN))
# In instrumented code gcc warns of what is not there, and now and then of what it got wrong itself:
# shown, but not an error. The plain build has the say.
ifneq ($(SAN),)
WARN := -Wall -Wextra
endif

ifeq ($(BACKEND),host)
# hostcuda's include folder stands where the toolkit's would. A .cu is C++ to it, and as with nvcc
# the runtime's names are there before the first line of the file.
INCLUDE  := -I. -Iextras -Itests -Ihostcuda/include
CFLAGS   := -std=c99 $(OPT) $(WARN) $(SANFLAGS) -pthread $(INCLUDE)
CXXFLAGS := -std=c++14 $(OPT) $(WARN) $(SANFLAGS) -pthread $(INCLUDE)
COMPILE_cu = $(CXX) $(CXXFLAGS) -x c++ -include cuda_runtime.h
LINK     = $(CXX) $(SANFLAGS) $(1) -o $@ -pthread -lm $(LIBS)
RUNTIME  := $(patsubst %.cpp,$(BUILD)/%.cpp.o,$(wildcard hostcuda/*.cpp))
# tests/cli/python.sh links it into a shared object.
RUNTIME_FLAGS := -fPIC
else
# -isystem: under -pedantic the toolkit's own headers warn when they come by -I.
CFLAGS   := -std=c99 $(OPT) $(WARN) -pthread -I. -Iextras -Itests -isystem $(CUDA_HOME)/include
CXXFLAGS := -std=c++14 $(OPT) $(WARN) -pthread -I. -Iextras -Itests -isystem $(CUDA_HOME)/include
NVFLAGS  := -std=c++17 -arch=$(ARCH) -ccbin $(CXX) $(OPT) -lineinfo -Xcompiler -Wall,-Wextra,-pthread -I. -Iextras -Itests
COMPILE_cu = $(NVCC) $(NVFLAGS)
LINK     = $(NVCC) -arch=$(ARCH) -ccbin $(CXX) -cudart $(CUDART) $(1) -o $@ -Xcompiler -pthread -lm $(LIBS)
RUNTIME  :=
CUDART   := static
endif

# ---- What there is to build -----------------------------------------------------------------------

# tests/ holds what is true of any CUDA runtime; tests/host/ what needs hostcuda: its modelled clock,
# its injected faults, its refusals; of the long runs in tests/fuzz/ and tests/torture/ a few seconds
# each. tests/cli/ holds scripts that try the example programs, and the tests where little is to be had.
sources    = $(wildcard $(addsuffix .c,$(1)) $(addsuffix .cu,$(1)))
TESTS     := $(basename $(call sources,tests/test_*))
TESTS_HOST := $(basename $(call sources,tests/host/test_* tests/fuzz/test_* tests/torture/test_*))
EXAMPLES  := $(sort $(basename $(call sources,examples/* examples/systems/*)))
# The one example that is built in two ways: here stream 0 is each thread's own.
PER_THREAD := examples/03_default_stream_per_thread
EXAMPLES  += $(PER_THREAD)
# The longest first: the one that runs tests in twelve surroundings, those that build hostcuda once more.
SCRIPTS   := tests/cli/scarce.sh tests/cli/hcc.sh tests/cli/exercises.sh tests/cli/python.sh
SCRIPTS   += $(filter-out tests/cli/tap.sh $(SCRIPTS),$(wildcard tests/cli/*.sh))

RUN_TESTS := $(TESTS) $(if $(filter host,$(BACKEND)),$(TESTS_HOST))
# Not a test by itself: one of its two pipelines lacks an event wait, for ThreadSanitizer to find.
MISSING_EVENT := $(if $(filter host,$(BACKEND)),$(basename $(wildcard tests/host/missing_event.cu)))
PROGRAMS  := $(addprefix $(BUILD)/,tests/tools/pgm_to_png tests/docs/draw_overlap $(TESTS) $(TESTS_HOST) $(EXAMPLES) docs/course/pictures tests/host/missing_event $(addprefix tests/bench/,bench async_sample costs files many multicopy_sample kernels model multi steps sweep versus))

# What `make format` writes and lint holds to the layout rules (clang-format, one statement a line, no
# nested ?:, no comma operator). And the texts that keep theirs.
LAYOUT ?= src extras streampipe_kernels.cuh hostcuda tests examples docs
PROSE  ?= $(filter-out docs/API.md docs/MISTAKES.md,$(wildcard *.md docs/*.md docs/*/*.md */README.md tests/bench/*.md .github/*.md .github/*/*.md))
# The tests of `make quick`: what streampipe.h does, whatever the memory, the order and the caller.
QUICK_TESTS := $(filter $(addprefix %/test_,arguments errors streams pipeline buffers stages staging enqueue),$(TESTS))

# ---- Rules ----------------------------------------------------------------------------------------

# V=1 shows the commands; `make check` asks for neither these nor a line per file.
Q   := $(if $(V),,@)
say  = $(if $(V)$(QUIET),,@printf '  %-4s %s\n' $(1) $<)

# A program whose new source does not compile must not be tested as the old program: the object's
# rule removes both first. $(BUILD)/flags changes when the flags do, so ARCH=... rebuilds.
define compile
$(call say,$(1))
@mkdir -p $(@D) && rm -f $@ $(basename $(basename $@))
$(Q)$(2) -MMD -MP -MF $(@:.o=.d) -MT $@ -c $< -o $@
endef

$(BUILD)/%.c.o:   %.c   $(BUILD)/flags ; $(call compile,CC,$(CC) $(CFLAGS))
$(BUILD)/%.cpp.o: %.cpp $(BUILD)/flags ; $(call compile,CXX,$(CXX) $(CXXFLAGS) $(RUNTIME_FLAGS))
$(BUILD)/%.cu.o:  %.cu  $(BUILD)/flags ; $(call compile,CU,$(COMPILE_cu))

$(BUILD)/$(PER_THREAD).cu.o: examples/03_default_stream.cu $(BUILD)/flags
	$(call compile,CU,$(COMPILE_cu) $(if $(filter cuda,$(BACKEND)),--default-stream per-thread,-DCUDA_API_PER_THREAD_DEFAULT_STREAM=1))

# hostcuda's test of the same.
$(BUILD)/tests/host/test_hostcuda_per_thread.cu.o: CXXFLAGS += -DCUDA_API_PER_THREAD_DEFAULT_STREAM=1

# NCCL for the one example that needs it: NCCL_HOME, the system's, or the one that came with Python's
# nvidia.nccl (or torch). Without it the example is built to say so. hostcuda has a stand-in.
DDP := $(BUILD)/examples/ddp_buckets $(BUILD)/examples/systems/ddp_train
ifeq ($(BACKEND),host)
$(DDP:=.cu.o): CXXFLAGS += -Ihostcuda/nccl
else
ifeq ($(filter %ddp_buckets %ddp_train examples check test build-all build-examples part-test,$(MAKECMDGOALS)),)
NCCL_HOME ?=
else
NCCL_HOME ?= $(or $(patsubst %/include/nccl.h,%,$(firstword $(wildcard /usr/include/nccl.h /usr/local/include/nccl.h $(CUDA_HOME)/include/nccl.h))),\
    $(shell python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[0])' 2>/dev/null))
endif
NCCL_LIB := $(firstword $(wildcard $(addprefix $(NCCL_HOME)/,lib/libnccl.so lib/libnccl.so.2 lib64/libnccl.so lib/x86_64-linux-gnu/libnccl.so lib/*/libnccl.so.2)))
ifneq ($(NCCL_LIB),)
$(DDP:=.cu.o): NVFLAGS += -isystem $(NCCL_HOME)/include
$(DDP): LIBS = -Xlinker $(NCCL_LIB) -Xlinker -rpath -Xlinker $(patsubst %/,%,$(dir $(NCCL_LIB)))
endif
endif

# MPI, likewise for one example; not in instrumented builds, as MPI itself is not instrumented.
ifeq ($(SAN),)
MPICC ?= mpicc
MPI_SAYS := $(if $(MAKECMDGOALS),$(shell $(MPICC) --showme 2>/dev/null || $(MPICC) -show 2>/dev/null))
MPI_INCLUDE := $(patsubst -I%,-isystem %,$(filter -I%,$(MPI_SAYS)))
$(BUILD)/examples/mpi_stream.cu.o: CXXFLAGS += $(MPI_INCLUDE)
$(BUILD)/examples/mpi_stream.cu.o: NVFLAGS += $(MPI_INCLUDE)
$(BUILD)/examples/mpi_stream: LIBS = $(filter -L% -l%,$(MPI_SAYS))
endif

# libpng, likewise for one example, which without it reads and writes PPM. Not instrumented either.
ifeq ($(SAN),)
PNG_SAYS := $(if $(MAKECMDGOALS),$(shell pkg-config --cflags --libs libpng 2>/dev/null))
ifneq ($(PNG_SAYS),)
PICTURE := $(BUILD)/examples/13_picture
$(PICTURE).cu.o: CXXFLAGS += -DUSE_PNG $(patsubst -I%,-isystem %,$(filter -I%,$(PNG_SAYS)))
$(PICTURE).cu.o: NVFLAGS += -DUSE_PNG $(patsubst -I%,-isystem %,$(filter -I%,$(PNG_SAYS)))
$(PICTURE): LIBS = $(filter -L% -l%,$(PNG_SAYS))
endif
endif

# The one example in the usual syntax, kernel<<<blocks, threads>>>(...): on hostcuda hcc compiles it.
ifeq ($(BACKEND),host)
export HOSTCUDA_CACHE ?= $(CURDIR)/build/hcc
$(BUILD)/examples/00_threads.cu.o: COMPILE_cu = CXX="$(CXX)" hostcuda/hcc $(CXXFLAGS)
endif

$(BUILD)/%: $(BUILD)/%.c.o  $(RUNTIME) ; $(Q)$(call LINK,$^)
$(BUILD)/%: $(BUILD)/%.cu.o $(RUNTIME) ; $(Q)$(call LINK,$^)
.SECONDARY:

FLAGS := $(CC) $(CFLAGS) $(CXX) $(CXXFLAGS) $(COMPILE_cu) $(RUNTIME_FLAGS)
$(BUILD)/flags: FORCE
	@mkdir -p $(@D); echo '$(FLAGS)' | cmp -s - $@ || echo '$(FLAGS)' > $@
FORCE:
.PHONY: FORCE

-include $(addsuffix .c.d,$(PROGRAMS)) $(addsuffix .cu.d,$(PROGRAMS)) $(RUNTIME:.o=.d)

# ---- Targets --------------------------------------------------------------------------------------

# Every part below writes its counts into $(TALLY) and always succeeds; `total` is the judge. So one
# failure hides no other, and the last line adds up everything.
TALLY  := build/tally
export TALLY
submake = $(MAKE) --no-print-directory BACKEND=$(BACKEND) ARCH=$(ARCH) QUIET=1
# Under `make -jN` the sub-makes share its N jobs; else they take one for each processor.
parallel = $(if $(findstring jobserver,$(MAKEFLAGS)),,-j$(JOBS))
# Tests that wait, for a browser or for other processes, leave a processor to one more.
more_parallel = $(if $(findstring jobserver,$(MAKEFLAGS)),,-j$(shell expr $(JOBS) + 1))
# Builds what can be built; of what the compilers say, the lines that matter.
build   = mkdir -p $(BUILD); $(submake) $(parallel) -k $(1) 2> $(BUILD)/build.log || true; \
    grep -aE '(error|warning|undefined reference|multiple definition|No rule)' $(BUILD)/build.log | $(AWK) '!seen[$$0]++' | \
    cut -c 1-200 | head -n 20; if [ -s $(BUILD)/build.log ]; then echo "      log: $(BUILD)/build.log"; fi
begin   = @mkdir -p build && rm -f $(TALLY); here= missing=; for tool in $(notdir $(CC)) $(TOOLS); do \
    if command -v $$tool >/dev/null; then here="$$here $$tool"; else missing="$$missing $$tool"; fi; done; \
    echo "found: nvcc $(HAVE_NVCC), GPU $(or $(GPU),no),$$here$${missing:+; not here:$$missing}"
TOOLS  := clang clang-format clang-tidy cppcheck valgrind cmake pkg-config
part    = @+$(submake) $(1)
total   = @tests/tap_run --total $(TALLY)
heading = @echo "== $(1)"

.PHONY: help
help: ## this text (the default)
	@echo "streampipe $$(sh tests/tools/version): streams, events and pipelines for CUDA in one C header"; echo
	@$(AWK) -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile
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
demo: ## stream a real file through three kernels; timelines of good and bad runs, with pictures
ifeq ($(CAN_RUN),no)
	@echo "BACKEND=cuda: there is no GPU here; BACKEND=host needs none" >&2; exit 1
endif
	@+$(submake) $(parallel) $(BUILD)/examples/entropy_map $(BUILD)/examples/07_timeline $(BUILD)/tests/tools/pgm_to_png
	@echo "backend: $(backend_name)"
	@file=$$($(CC) -print-prog-name=cc1); \
	case $$file in /*) [ -f "$$file" ] || file=/bin/sh ;; *) file=/bin/sh ;; esac; \
	tests/tools/demo $(BUILD) build/demo "$$file"
backend_name = $(if $(filter cuda,$(BACKEND)),cuda ($(or $(GPU),no GPU here), compiled for $(ARCH)),host (the CUDA runtime on the CPU; no GPU is used))

.PHONY: examples
examples: ## build and run every example; a table of what each did
	@+$(call build,build-examples JOIN=yes)
	@tests/tools/examples --table $(BACKEND) $(BUILD) $(EXAMPLES)

.PHONY: systems-times
systems-times: ## every lesson and system of examples/: right or wrong, seconds, its own times without overlap and with it
ifeq ($(CAN_RUN),no)
	@echo "$(NO_GPU)" >&2; exit 1
endif
	@+$(call build,build-examples JOIN=yes)
	@echo "backend: $(backend_name)"
	@NVCC="$(NVCC)" ARCH="$(ARCH)" examples/systems/times $(BACKEND) $(BUILD) $(EXAMPLES)

# ---- The course -------------------------------------------------------------------------------------

.PHONY: exercise
exercise: ## N=07: build, run and judge examples/exercises/07_*.cu; SOLUTION=yes judges the solution
	@$(if $(filter file,$(origin HOSTCUDA_CACHE)),unset HOSTCUDA_CACHE;) \
	    examples/exercises/judge $(or $(N),list) $(if $(SOLUTION),--solution) || [ $$? = 1 ]

# Draws the pictures of its pages, on the modelled clock.
COURSE := docs/course/pictures
.PHONY: course
course: ## every lesson and exercise on hostcuda, and the pictures of docs/course (under 5 minutes)
	@+$(submake) BACKEND=host SAN= examples
	@+$(submake) BACKEND=host SAN= build/host/$(COURSE)
	@mkdir -p build/course && build/host/$(COURSE) build/course
	@for f in build/course/*.svg; do cmp -s $$f $(COURSE)/$${f##*/} || cp $$f $(COURSE); done
	@$(MAKE) --no-print-directory BACKEND=host SAN= QUIET=1 run/tests/cli/course.sh run/tests/cli/exercises.sh

.PHONY: expect
expect: ## write into the comment of each example what it prints on hostcuda; look at the difference before a commit
	@+$(submake) BACKEND=host SAN= examples || true # what is not as said yet
	@for source in examples/*.c examples/*.cu examples/systems/*.cu; do \
	    log=build/host/$${source%.*}.log; [ -s "$$log" ] || continue; \
	    tests/tools/expected --write $$source $$log > build/expected && { cmp -s build/expected $$source || cp build/expected $$source; }; done

.PHONY: quick
quick: ## under a minute: all headers as C and C++, the rules of lint, the core's tests (unoptimised)
	$(begin)
	$(call part,part-rules)
	$(call part,part-compile-short)
	@+$(MAKE) --no-print-directory BACKEND=host SAN= BUILD=build/quick OPT="-O0 -g" QUIET=1 part-quick
	$(total)

# The longest check of the documents runs beside the tests, where those are hostcuda's own.
consumer = $(if $(filter host,$(BACKEND)$(SAN)),CONSUMER=$(1))

.PHONY: check
check: ## about 5 minutes: every test, the rules of lint, the documents; ends with N passed, N failed, N skipped
	$(begin)
	$(call part,part-texts $(call consumer,later))
	$(call part,part-test BRIEF=yes $(call consumer,yes))
	$(total)

.PHONY: check-all
check-all: ## everything that this machine can check, cheapest first: check, platforms, compilers, analyzers, sanitizers
	$(begin)
	$(call part,part-texts $(call consumer,later))
	$(call part,part-test THOROUGH=yes $(call consumer,yes))
	$(call part,part-platforms)
	$(call part,part-compile)
	$(call part,part-analyzers)
	$(if $(filter-out host,$(BACKEND)$(SAN)),,$(call part,part-sanitize LEFT_OUT=yes))
	$(total)

.PHONY: test
ifdef T
test: ; @+$(if $(ONE),$(submake) $(BUILD)/$(ONE) && $(UNSCATTERED) $(BUILD)/$(ONE),echo "T=$(T): no file tests/$(T).cu or .c, nor in tests/host, tests/fuzz, tests/torture" >&2; exit 1)
ONE := $(filter %/$(T),$(TESTS) $(TESTS_HOST))
else
test: ## only the test programs and scripts; T=test_pipeline builds and runs that one alone
	$(begin)
	$(call part,part-test)
	$(total)
endif

.PHONY: amalgamate
amalgamate: ## write streampipe.h from its modules in src/, in the order of src/order
ifeq ($(wildcard src/order),)
	@echo "src/order is not there, so streampipe.h has no modules to be made from" >&2; exit 1
else
	@mkdir -p build && src/hostcuda_costs > build/h200_costs.h && { cmp -s build/h200_costs.h hostcuda/h200_costs.h || cp build/h200_costs.h hostcuda/h200_costs.h; }
	@mkdir -p build && src/amalgamate > build/streampipe.h && \
	    { cmp -s build/streampipe.h streampipe.h || cp build/streampipe.h streampipe.h; }
endif

.PHONY: api
api: ## write docs/API.md from the contracts in the headers
	@mkdir -p build && src/api_page > build/API.md && { cmp -s build/API.md docs/API.md || cp build/API.md docs/API.md; }

.PHONY: charts
charts: ## from tests/bench/results/*.json: the charts of docs/PERFORMANCE.md, the tables of tests/bench/RESULTS.md
	@mkdir -p docs/pictures build && tests/bench/charts docs/pictures
	@tests/bench/tables tests/bench/RESULTS.md > build/RESULTS.md && { cmp -s build/RESULTS.md tests/bench/RESULTS.md || cp build/RESULTS.md tests/bench; }
	@+$(submake) BACKEND=host SAN= build/host/tests/docs/draw_overlap && build/host/tests/docs/draw_overlap docs/pictures/overlap.svg

.PHONY: format
format: ## clang-format over what lint holds to it: LAYOUT in the Makefile
	@files=$$(tests/lint/layout_files); [ -z "$$files" ] || clang-format -i $$files

.PHONY: matrix
matrix: ## only the compile matrix: gcc, clang, nvcc in every language standard
	$(begin)
	$(call part,part-compile)
	$(total)

.PHONY: lint
lint: ## the rules (contracts, lengths, names, layout) in seconds, then clang-tidy, cppcheck, gcc -fanalyzer
	$(begin)
	$(call part,part-rules)
	$(call part,part-analyzers)
	$(total)

.PHONY: platforms
platforms: ## all host tests on aarch64, s390x, 32 bits, Windows (qemu, wine); musl; CUDA 11.8 to 13 (7 to 20 minutes)
	$(begin)
	@TIMEOUT=3600 $(call SCRIPT,platforms,tests/platforms) tests/platforms/other_systems
	$(total)

.PHONY: coverage
coverage: ## lines and branches of the headers that the host tests run; SHOW=1 lists the rest (5 minutes)
	@tests/coverage/measure

.PHONY: docs-check
docs-check: ## programs, output, links and figures of the documents; installation
	$(begin)
	$(call part,part-docs)
	$(total)

.PHONY: mistakes
mistakes: ## write docs/MISTAKES.md: each mistake that the library can see, and what it says of it
	@+$(submake) BACKEND=host SAN= build/host/tests/test_mistakes && build/host/tests/test_mistakes --page > docs/MISTAKES.md

.PHONY: sanitize
# The programs of tests/bench by themselves: `make bench` wants a quiet GPU for over half an hour,
# with BENCH_ARGS=--quick for a few minutes.
BENCHES := bench async_sample multicopy_sample
BENCHED := $(addprefix $(BUILD)/tests/bench/,$(BENCHES) kernels)

bench: $(BENCHED) ## measure on a GPU: against the bound, hand-written schedules, PyTorch, CuPy
	@mkdir -p build/bench; failed=0; \
	for b in $(BENCHES); do \
	    $(BUILD)/tests/bench/$$b --targets $(BENCH_ARGS) || [ $$? = 77 ] || failed=1; done; \
	$(BUILD)/tests/bench/kernels || [ $$? = 77 ] || failed=1; \
	for p in torch cupy; do python3 -B tests/bench/peers/$${p}_pipeline.py || [ $$? = 77 ] || failed=1; done; \
	exit $$failed

# The runtime as a library of its own, so that its instructions can be told from streampipe.h's.
$(BUILD)/tests/bench/steps: CUDART = shared
$(BUILD)/tests/bench/steps: LIBS = -Xlinker -rpath -Xlinker $(CUDA_HOME)/lib64

bench-steps: $(BUILD)/tests/bench/steps ## on a GPU: the library's share of the instructions of a run on the CPU; 2 minutes
	@$(BUILD)/tests/bench/steps || [ $$? = 77 ]

bench-costs: $(BUILD)/tests/bench/costs ## on a GPU: what copies, launches, threads and pinning cost; under 40 s
	@$(BUILD)/tests/bench/costs || [ $$? = 77 ]

# Two versions of the header in one process: each in a shared object of its own, on one runtime. The
# old one is taken out of git once; where there is no git, its file in the build folder serves.
OLD_COMMIT ?= 12366a2
VERSUS := $(BUILD)/tests/bench/versus
VERSUS_SIDES := $(VERSUS)_old.so $(VERSUS)_new.so
ifeq ($(BACKEND),host)
COMPILE_side = $(COMPILE_cu) -fPIC -fvisibility=hidden
LINK_side = $(CXX) $(SANFLAGS) -shared $< -o $@
$(VERSUS): LIBS = -rdynamic -ldl
else
COMPILE_side = $(COMPILE_cu) -Xcompiler -fPIC,-fvisibility=hidden
LINK_side = $(NVCC) -arch=$(ARCH) -ccbin $(CXX) -cudart shared -shared $< -o $@ $(LIBS)
$(VERSUS) $(VERSUS_SIDES): CUDART = shared
$(VERSUS) $(VERSUS_SIDES): LIBS = -Xlinker -rpath -Xlinker $(CUDA_HOME)/lib64 -ldl
endif
$(BUILD)/old/$(OLD_COMMIT)/streampipe.h:
	@mkdir -p $(@D)
	$(Q)git show $(OLD_COMMIT):streampipe.h > $@ || { echo "no git here: put that commit's header at $@" >&2; exit 1; }
$(VERSUS)_old.cu.o: OLD = -I$(BUILD)/old/$(OLD_COMMIT)
$(VERSUS)_old.cu.o: $(BUILD)/old/$(OLD_COMMIT)/streampipe.h
$(VERSUS)_old.cu.o $(VERSUS)_new.cu.o: tests/bench/versus_side.cu $(BUILD)/flags
	@printf '  %-4s %s\n' CU $(@F); mkdir -p $(@D) && rm -f $@
	$(Q)$(firstword $(COMPILE_side)) $(OLD) $(wordlist 2,99,$(COMPILE_side)) -MMD -MP -MF $(@:.o=.d) -MT $@ -c $< -o $@
$(VERSUS_SIDES): %.so: %.cu.o ; $(Q)$(LINK_side)
-include $(VERSUS_SIDES:.so=.cu.d)

bench-versus: $(VERSUS) $(VERSUS_SIDES) ## on a GPU: the header of OLD_COMMIT beside this one, run by run, 336 kinds of work; under 10 minutes
	@$(VERSUS) $(VERSUS_ARGS) || [ $$? = 77 ]

bench-model: $(BUILD)/tests/bench/model ## on a GPU: what the model predicts beside what a run takes
	$(BUILD)/tests/bench/model

bench-files: $(BUILD)/tests/bench/files $(BUILD)/examples/14_loader ## on a GPU: files to the GPU beside threads by hand, fio and more, and each target's pass or fail; BENCH_ARGS=--quick, --folder F
	@$(BUILD)/tests/bench/files $(BENCH_ARGS) || [ $$? = 77 ]

bench-many: $(BUILD)/tests/bench/many ## on a GPU: 1 to 64 threads at once, with and without resources, and by hand; BENCH_ARGS=--quick
	@$(BUILD)/tests/bench/many $(BENCH_ARGS) || [ $$? = 77 ]

bench-sweep: $(BUILD)/tests/bench/sweep ## on a GPU: what the planner's costs are fitted to, rings and runs beside each other; 2 minutes
	@$(BUILD)/tests/bench/sweep $(BENCH_ARGS) || [ $$? = 77 ]

bench-multi: $(BUILD)/tests/bench/multi ## measure several GPUs of this host, 2 or more; under 4 minutes
	@$(BUILD)/tests/bench/multi $(BENCH_ARGS) || [ $$? = 77 ]

bench-host: ## with no GPU: seconds and bytes that a call of spipe_run costs to compile; instructions a chunk costs (valgrind)
	@OUT=build/bench-host tests/bench/compile_cost; status=$$?; OUT=build/bench-host tests/bench/host && exit $$status

# What takes long by itself; `make check` has some seconds of each. FUZZ_SECONDS is for each target.
FUZZ_SECONDS ?= 60
FUZZ_SEED    ?= 1
TORTURE := $(addprefix build/host/tests/torture/,test_torture test_races test_torture_devices test_torture_files)
.PHONY: torture fuzz mutate soak
MINUTES ?= 60
soak: $(BUILD)/tests/test_soak ## MINUTES=60: threads run, fail and destroy pipelines on one resources object; BACKEND, SAN
	@$(UNSCATTERED) $(BUILD)/tests/test_soak --minutes $(MINUTES)

torture: ## every call, allocation, thread and GPU operation of 89 pipelines fails once; files (4 to 8 min)
	@+$(MAKE) --no-print-directory BACKEND=host SAN= QUIET=1 $(TORTURE)
	@for program in $(TORTURE); do $$program --all || exit 1; done

fuzz: ## random pipelines against serial code, FUZZ_SECONDS=60 for each target, FUZZ_SEED=1
	@CC="$(CC)" CXX="$(CXX)" tests/fuzz/fuzz_all $(FUZZ_SECONDS) $(FUZZ_SEED)

mutate: ## take each event and hand-over out of the driver: does a test fail? (about 20 min)
	@CXX="$(CXX)" tests/tools/mutate

sanitize: ## ThreadSanitizer, AddressSanitizer and UBSan; compute-sanitizer with BACKEND=cuda
	$(begin)
	$(call part,part-sanitize)
	$(total)

# ---- The parts ------------------------------------------------------------------------------------

# Not worth ThreadSanitizer's time: programs in which only hostcuda starts threads, or the same ones
# as in the other programs, and an example whose matrix product takes 20 s there.
NOT_THREADED := $(if $(filter thread,$(SAN)),tests/test_kernels_% tests/test_plan tests/test_tune tests/test_bench_numbers tests/host/test_closed_forms examples/16_inference)
# What `make check-all` leaves out of a sanitizer's build besides (LEFT_OUT=yes); `make sanitize` and
# `make test SAN=...` have it. test_large skips itself in both, so it need not be compiled there.
LEFT_OUT_both   := tests/test_large
# A minute of kernels on the CPU with each; what they ask of the library vlm, ddp_buckets and the lessons do, too.
LEFT_OUT_both   += $(addprefix examples/systems/,arr_coc ddp_train) examples/stage_table
# One thread looks at arguments, texts and figures, before a run or after it; it starts none that test_pipeline
# does not start as well. AddressSanitizer has all of them, and the plain build.
LEFT_OUT_thread := $(addprefix tests/test_,arguments limits mistakes costs_odd tools)
LEFT_OUT_thread += $(addprefix tests/host/test_,doctor model hostcuda_clock published_table)
# 43 CPU seconds, nearly all in its own kernel; what a watched run does in threads is also in
# test_verdict_clock, test_nvtx, test_names and example 21, which stay.
LEFT_OUT_thread += tests/test_verdict
# What may be pinned and what costs may be measured; with what is short tests/cli/scarce.sh runs eight of
# the others. test_choices asks which of several ways a pipeline takes: 50 CPU seconds in its kernels and in
# threads that test_pipeline and test_staging have as well.
LEFT_OUT_thread += tests/test_choices $(addprefix tests/host/test_,few_pins costs_failures)
# They print what test_model, test_published_table and test_plan check, from pipelines like those of the others.
LEFT_OUT_thread += $(addprefix examples/,08_chunks 19_doctor 28_published_table)
# Figures, candidates and texts, in kernels that are the tests' own: what they do to memory test_pipeline,
# test_staging, test_positioned, test_devices_shares and both tortures do as well. scarce.sh runs eight of the
# tests in twelve surroundings; ThreadSanitizer has it.
LEFT_OUT_address += $(addprefix tests/test_,choices verdict tune plan kernels_reductions devices)
LEFT_OUT_address += $(addprefix tests/host/test_,model costs_failures) $(addprefix examples/,16_inference 19_doctor 28_published_table)
# Times on the modelled clock, of pipelines and kernels that the others have as well.
LEFT_OUT_address += $(addprefix tests/host/test_,published_table closed_forms)
LEFT_OUT_address += tests/cli/scarce.sh
# hcc builds hostcuda by itself for each sanitizer.
LEFT_OUT_thread  += tests/cli/hcc.sh
LEFT_OUT_address += tests/cli/hcc.sh
# What `make check` leaves to `make check-all`: a minute each, as hcc and the exercises build hostcuda anew.
LEFT_OUT_brief := $(if $(BRIEF),$(addprefix tests/cli/,hcc.sh scarce.sh exercises.sh))
LEFT_OUT     ?=
LEFT_OUT_now := $(NOT_THREADED) $(LEFT_OUT_brief) $(if $(and $(LEFT_OUT),$(SAN)),$(LEFT_OUT_both) $(LEFT_OUT_$(SAN)))
RUN_TESTS    := $(filter-out $(LEFT_OUT_now),$(RUN_TESTS))
EXAMPLES     := $(filter-out $(LEFT_OUT_now),$(EXAMPLES))
SCRIPTS      := $(filter-out $(LEFT_OUT_now),$(SCRIPTS))

.PHONY: build-all build-tests build-examples
build-tests:    $(addprefix $(BUILD)/,$(RUN_TESTS) $(MISSING_EVENT) tests/tools/pgm_to_png $(if $(filter host,$(BACKEND)$(SAN)),$(COURSE)))
build-examples: $(addprefix $(BUILD)/,$(EXAMPLES))
build-all: build-tests build-examples

# Many programs are compiled as one where all are wanted (JOIN=yes): most of what each compiles is
# streampipe.h. Plain, 110 programs take 40 CPU seconds instead of 150, with AddressSanitizer 70 instead of 270.
# APART: with flags of their own, or a file that takes functions out of the headers behind it.
JOIN  ?=
APART := $(PER_THREAD) $(addprefix examples/,13_picture mpi_stream ddp_buckets) tests/host/test_hostcuda_per_thread tests/test_kernels_%
APART += tests/fuzz/% tests/torture/test_races tests/torture/test_torture_files
ifeq ($(BACKEND)-$(JOIN),host-yes)
JOINED := $(shell AWK=$(AWK) tests/tools/join --groups 16 $(wildcard $(addsuffix .cu,$(filter-out $(APART),$(RUN_TESTS) $(EXAMPLES)))))
GROUPS := $(addprefix $(BUILD)/joined/,$(sort $(foreach word,$(JOINED),$(firstword $(subst :, ,$(word))))))
of_group    = $(patsubst $(notdir $(1)):%,%,$(filter $(notdir $(1)):%,$(JOINED)))
programs_of = $(addprefix $(BUILD)/,$(basename $(call of_group,$(1))))
define joined_rules
$(1).cu: FORCE $(call of_group,$(1))
	@mkdir -p $$(@D) && tests/tools/join $(call of_group,$(1)) > $$@.new && { cmp -s $$@.new $$@ || mv $$@.new $$@; }
$(1).cu.o: $(1).cu $(BUILD)/flags
	@rm -f $$@ $(1) $(call programs_of,$(1))
	$(Q)$$(COMPILE_cu) -MMD -MP -MF $$(@:.o=.d) -MT $$@ -c $$< -o $$@
$(call programs_of,$(1)): $(1) FORCE
	@[ $$@ -ef $$< ] || { mkdir -p $$(@D) && ln -f $$< $$@; } # also if it was compiled alone meanwhile
endef
$(foreach group,$(GROUPS),$(eval $(call joined_rules,$(group))))
-include $(GROUPS:=.cu.d)
build-tests: $(GROUPS)
endif

# On a GPU programs run one after another. Without one they take all processors, the longest first and the tests of
# the library last, as those are short; only what wants so many processors that it counts them runs before them, alone.
TIMING   := $(addprefix run/,$(if $(SAN),,tests/cli/loader.sh))
RUNS     := $(addprefix run/,$(SCRIPTS) $(if $(EXAMPLES),examples) $(filter-out $(TESTS),$(RUN_TESTS)) $(filter $(TESTS),$(RUN_TESTS)) $(if $(filter thread,$(SAN)),tests/host/missing_event))
TOGETHER := $(if $(filter host,$(BACKEND)),$(filter-out $(TIMING),$(RUNS)))
comma    := ,

# The scripts see these. An instrumented program must say a fault through its exit status.
# max_uar_stack_size_log: what has returned is kept in 2^17 bytes for each size of frame, not 2^20, for every
# thread and fiber: these stay in the cache and are cheap to map; test_plan takes 6 s instead of 16.
export BUILD BACKEND SAN CC CXX NVCC CUDA_HOME JOBS AWK LAYOUT PROSE
export TSAN_OPTIONS ?= exitcode=66 second_deadlock_stack=1
export ASAN_OPTIONS ?= detect_leaks=1 detect_stack_use_after_return=1 max_uar_stack_size_log=17
export UBSAN_OPTIONS ?= print_stacktrace=1

# If one of many has a fault, or two of them do not go together, each is compiled alone: only the one at fault is missing.
build_alone = alone=; for p in $(sort $(addprefix $(BUILD)/,$(RUN_TESTS) $(EXAMPLES))); do [ -x $$p ] || alone="$$alone $$p"; done; \
    [ -z "$$alone" ] || { echo "      compiled alone:$$alone"; $(call build,$$alone); }

.PHONY: part-test
part-test:
	$(call heading,tests on $(backend_name)$(SAN:%=$(comma) -fsanitize=$(patsubst -fsanitize=%,%,$(firstword $(SANFLAGS)))))
	@+$(call build,build-all JOIN=yes)
	@+$(build_alone)
ifeq ($(CAN_RUN),yes)
	$(if $(filter-out $(TOGETHER),$(RUNS)),@+$(submake) $(if $(parallel),-j1) $(filter-out $(TOGETHER),$(RUNS)))
	$(if $(TOGETHER),@+$(submake) $(more_parallel) $(if $(CONSUMER),docs-consumer) $(TOGETHER))
else
	@$(foreach t,$(SCRIPTS),tests/tap_run --skipped $(t) "$(NO_GPU)";) :
	@$(foreach t,$(RUN_TESTS) $(EXAMPLES),if [ -x $(BUILD)/$(t) ]; \
	    then tests/tap_run --skipped $(t) "$(NO_GPU)"; else tests/tap_run --failed $(t) "was not built"; fi;) :
endif
ifeq ($(BACKEND),cuda)
	@$(foreach t,$(TESTS_HOST),tests/tap_run --skipped $(t) "needs the modelled clock or injected faults of hostcuda";) :
endif

# The tests of `make quick`, each on a processor: unoptimised, what they time is nothing to go by.
.PHONY: part-quick build-quick
build-quick: $(addprefix $(BUILD)/,$(QUICK_TESTS))
part-quick:
	$(call heading,the tests of the core$(comma) unoptimised)
	@+$(call build,build-quick)
	@+$(submake) BUILD=$(BUILD) $(parallel) $(addprefix run/,$(QUICK_TESTS))

# ThreadSanitizer cannot place its memory where the kernel scatters addresses widely: then without.
UNSCATTERED = $(if $(filter thread,$(SAN)),$(shell tests/tools/tsan_prefix $(BUILD) $(CXX)))
RUN = $(UNSCATTERED) tests/tap_run "$(1)" $(BUILD)/tap/$(1).tap

# These look at the device itself, its free memory and its times, so on a GPU they run alone, last.
ALONE := run/tests/test_errors run/tests/test_verdict run/tests/test_async_failures run/examples
ifeq ($(BACKEND),cuda)
run/tests/test_errors: | $(filter-out $(ALONE),$(RUNS))
run/tests/test_verdict: | run/tests/test_errors
run/tests/test_async_failures: | run/tests/test_verdict
run/examples: | run/tests/test_async_failures
endif

.PHONY: $(RUNS)
$(addprefix run/,$(RUN_TESTS)): run/%: ; @$(call RUN,$*) $(BUILD)/$*
$(addprefix run/,$(SCRIPTS)):   run/%: ; @$(call RUN,$*) sh $*
run/examples:                        ; @$(call RUN,examples) tests/tools/examples --tap $(BACKEND) $(BUILD) $(EXAMPLES)
run/tests/host/missing_event:        ; @$(call RUN,tests/host/missing_event) tests/tools/missing_event $(BUILD)/tests/host/missing_event

# These need no device: they build on the plain host backend, whatever BACKEND and SAN say.
SCRIPT = OUT=build/$(1) tests/tap_run "$(2)" build/tap/$(1).tap
.PHONY: part-compile part-compile-short part-rules part-analyzers part-docs part-texts part-platforms docs-rules docs-docs docs-docs-self docs-links docs-figures docs-install docs-dist docs-consumer docs-run-self
ifeq ($(BACKEND)$(SAN),host)
export RUNTIME

part-compile: $(RUNTIME)
	$(call heading,compile matrix)
	@TIMEOUT=1200 $(call SCRIPT,matrix,tests/compile) tests/compile/matrix
part-compile-short:
	$(call heading,every header as C99 and C++11)
	@$(call SCRIPT,matrix-short,tests/compile short) tests/compile/matrix short
part-rules:
	$(call heading,lint: the rules)
	@+$(submake) docs-rules
part-analyzers:
	$(call heading,lint: the analyzers)
	@TIMEOUT=1200 $(call SCRIPT,lint-analyzers,tests/lint/check_analyzers) tests/lint/check_analyzers
part-docs part-texts:
	$(call heading,$(if $(filter part-texts,$@),lint: the rules; )documents and installation)
	@+$(submake) $(parallel) $(if $(filter later,$(CONSUMER)),,docs-consumer) docs-docs $(if $(filter part-texts,$@),docs-rules) docs-docs-self docs-figures docs-dist docs-install docs-links docs-run-self
docs-docs docs-docs-self docs-figures docs-dist docs-consumer: | $(RUNTIME)
docs-rules:     ; @$(call SCRIPT,lint-rules,tests/lint/check_rules) tests/lint/check_rules
docs-docs:      ; @$(call SCRIPT,docs,tests/docs) tests/docs/check_code_blocks
docs-docs-self: ; @$(call SCRIPT,docs-self,tests/docs/check_code_blocks_selftest) tests/docs/check_code_blocks_selftest
docs-links:     ; @$(call SCRIPT,links,tests/docs/check_links) tests/docs/check_links
docs-figures:   ; @$(call SCRIPT,figures,tests/docs/check_figures) tests/docs/check_figures
docs-install:   ; @$(call SCRIPT,install,make install) tests/tools/check_install
docs-dist:      ; @$(call SCRIPT,dist,make dist) tests/tools/check_dist
docs-consumer:  ; @$(call SCRIPT,consumer,tests/consumer) tests/consumer/build_projects
docs-run-self:  ; @$(call SCRIPT,run-self,tests/tap_run) tests/tools/tap_run_selftest
part-platforms:
	$(call heading,platforms$(comma) the headers only; make platforms runs the tests there)
	@$(call SCRIPT,platforms-short,tests/platforms short) tests/platforms/other_systems short
else
part-compile part-compile-short part-rules part-analyzers part-docs part-texts part-platforms:
	@+$(MAKE) --no-print-directory BACKEND=host SAN= QUIET=1 $@
endif

# compute-sanitizer looks at what runs on the GPU; its four tools are four runs.
SANITIZE_TOOLS ?= memcheck racecheck initcheck synccheck
COMPUTE_SANITIZER ?= $(firstword $(wildcard $(CUDA_HOME)/bin/compute-sanitizer) compute-sanitizer)

.PHONY: part-sanitize
ifeq ($(BACKEND),host)
part-sanitize:
	@+$(submake) SAN=thread part-test
	@+$(submake) SAN=address part-test
else
part-sanitize:
	@+$(call build,build-tests)
	$(call heading,compute-sanitizer on $(backend_name))
	@tests/tools/compute_sanitizer "$(COMPUTE_SANITIZER)" "$(SANITIZE_TOOLS)" "$(if $(filter no,$(CAN_RUN)),$(NO_GPU))" $(RUN_TESTS)
endif

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
install: ## PREFIX=/usr/local DESTDIR=: the headers, for pkg-config and CMake too; hostcuda
	install -d $(incdir) $(pcdir) $(cmakedir) $(addprefix $(hostdir)/,. include include/nvtx3 nccl rewriter)
	install -m 644 $(HEADERS) $(incdir)
	install -m 644 hostcuda/README.md hostcuda/*.cpp hostcuda/*.h $(hostdir)
	install -m 644 hostcuda/include/*.h $(hostdir)/include
	install -m 644 hostcuda/include/nvtx3/*.h $(hostdir)/include/nvtx3
	install -m 644 hostcuda/nccl/*.h $(hostdir)/nccl
	install -m 644 hostcuda/rewriter/*.cpp hostcuda/rewriter/*.h $(hostdir)/rewriter
	install -m 755 hostcuda/hcc $(hostdir)
	tests/tools/packaging pc $(PREFIX) $(CUDA_HOME) > $(pcdir)/streampipe.pc
	tests/tools/packaging cmake > $(cmakedir)/streampipe-config.cmake
	tests/tools/packaging cmake-version > $(cmakedir)/streampipe-config-version.cmake
uninstall: ## the reverse, with the same PREFIX and DESTDIR
	rm -f $(addprefix $(incdir)/,$(notdir $(HEADERS))) $(pcdir)/streampipe.pc
	rm -f $(cmakedir)/streampipe-config.cmake $(cmakedir)/streampipe-config-version.cmake
	rm -rf $(hostdir)
	rmdir $(cmakedir) $(dir $(hostdir)) 2>/dev/null || true

# What git has of this version, so that the same commit gives the same bytes.
DIST := streampipe-$(shell sh tests/tools/version)
.PHONY: dist
dist: ## build/streampipe-VERSION.tar.gz, the release: all files of the commit
	@tests/tools/version --check
	@mkdir -p build && git archive --format=tar --prefix=$(DIST)/ HEAD | gzip -9n > build/$(DIST).tar.gz
	@echo "build/$(DIST).tar.gz: $$(git rev-parse --short HEAD), $$(wc -c < build/$(DIST).tar.gz) bytes"
	@git diff --quiet HEAD || echo "without what is not committed"

.PHONY: clean
clean: ## remove build/
	rm -rf build
