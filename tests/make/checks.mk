# Check one thing:
# Below them the parts that `make check` and `make check-all` are made of.

.PHONY: matrix
matrix: ## only the compile matrix: gcc, clang and nvcc in every language standard
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
coverage: ## which lines and branches of the headers the host tests run; SHOW=1 lists the others (5 to 18 minutes)
	@tests/coverage/measure

.PHONY: docs-check
docs-check: ## programs, output, links and figures of the documents; installation
	$(begin)
	$(call part,part-docs)
	$(total)
.PHONY: sanitize
sanitize: ## ThreadSanitizer, AddressSanitizer and UBSan; compute-sanitizer with BACKEND=cuda
	$(begin)
	$(call part,part-sanitize)
	$(total)

# Long tests; `make check` runs some seconds of each. FUZZ_SECONDS is per target.
FUZZ_SECONDS ?= 60
FUZZ_SEED    ?= 1
TORTURE := $(addprefix build/host/tests/torture/,test_torture test_races test_torture_devices test_torture_files)
.PHONY: torture fuzz mutate soak hostile
MINUTES ?= 60
soak: $(BUILD)/tests/test_soak ## MINUTES=60: threads run, fail and destroy pipelines on one resources object; BACKEND, SAN
	@$(UNSCATTERED) $(BUILD)/tests/test_soak --minutes $(MINUTES)

torture: ## every call, allocation, thread and GPU operation of 89 pipelines fails once; files (4 to 8 min)
	@+$(MAKE) --no-print-directory BACKEND=host SAN= QUIET=1 $(TORTURE)
	@for program in $(TORTURE); do $$program --all || exit 1; done

fuzz: ## random pipelines against serial code, FUZZ_SECONDS=60 for each target, FUZZ_SEED=1
	@CC="$(CC)" CXX="$(CXX)" tests/fuzz/fuzz_all $(FUZZ_SECONDS) $(FUZZ_SEED)

HOSTILE := fewer_workers pull resources staging sources stopped enqueue exceptions host_stages positioned split_source host_at_once \
    devices devices_resources
SEEDS ?= 5
hostile: ## tests where threads are held up at random, wake without a signal, start late; SEEDS=5 (about 3 min each)
	@+$(MAKE) --no-print-directory BACKEND=host SAN= QUIET=1 $(HOSTILE:%=build/host/tests/test_%)
	@BUILD=build/host BACKEND=host SAN= CC="$(CC)" SEEDS=$(SEEDS) PROGRAMS="$(HOSTILE)" tests/cli/hostile.sh

mutate: ## take each event and hand-over out of the library in turn: does a test fail? (about 20 min)
	@CXX="$(CXX)" tests/tools/mutate

# ---- How parts run -------------------------------------------------------------------------------

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

# ---- The parts ------------------------------------------------------------------------------------

# Not worth ThreadSanitizer's time: programs in which only hostcuda starts threads, or the same ones
# as in the other programs, and an example whose matrix product takes 20 s there.
NOT_THREADED := $(if $(filter thread,$(SAN)),tests/test_kernels_% tests/test_plan tests/test_bench_numbers \
    tests/host/test_closed_forms examples/16_inference)
# What `make check-all` leaves out of a sanitizer's build besides (LEFT_OUT=yes); `make sanitize` and
# `make test SAN=...` have it. test_large skips itself in both, so it need not be compiled there.
LEFT_OUT_both   := tests/test_large
# A minute of kernels on the CPU with each; what they ask of the library vlm, ddp_buckets and the lessons do, too.
LEFT_OUT_both   += $(addprefix examples/systems/,arr_coc ddp_train) examples/stage_table
# They read pages, comments and tables, and run no program of the build.
LEFT_OUT_both   += $(addprefix tests/cli/,course.sh expected.sh times.sh)
# One thread looks at arguments, texts and figures, before a run or after it; it starts none that test_pipeline
# does not start as well. AddressSanitizer has all of them, and the plain build.
LEFT_OUT_thread := $(addprefix tests/test_,arguments limits mistakes tools)
LEFT_OUT_thread += $(addprefix tests/host/test_,doctor hostcuda_clock published_table)
# 43 CPU seconds, nearly all in its own kernel; what a watched run does in threads is also in
# test_verdict_clock, test_nvtx, test_names and example 21, which stay.
LEFT_OUT_thread += tests/test_verdict
# What may be pinned; with what is short tests/cli/scarce.sh runs eight of the others. test_choices asks which of
# several ways a pipeline takes: 50 CPU seconds in its kernels and in threads that test_pipeline and test_staging have as well.
LEFT_OUT_thread += tests/test_choices tests/host/test_few_pins
# Lessons without a pipeline: all threads are hostcuda's, and its own tests have those. The others without
# one, which take less time, stay.
LEFT_OUT_thread += $(addprefix examples/,10_priorities 12_pitfalls)
# They print what test_published_table and test_plan check, from pipelines like those of the others.
LEFT_OUT_thread += $(addprefix examples/,08_chunks 19_doctor 28_published_table 29_guess_and_climb)
# Streams and events of their own, without a thread: test_streams, test_hostcuda and examples 2 and 11 have both.
LEFT_OUT_thread += $(addprefix examples/,01_streams 15_requests)
# Nearly all in their own kernels, 30 CPU seconds. What their pipelines do in threads: a graph of stages is in test_stages, an
# array through the library's threads in test_staging, a capture in test_enqueue, every schedule in test_pipeline, a file that all
# threads read and write in test_files and test_torture_files.
LEFT_OUT_thread += $(addprefix examples/,09_issue_order 17_vision 20_graph_replay 24_main_job 26_ready_stages)
# Options, sizes and refusals of two programs: test_fuzz_readers has their readers, demo.sh maps a file, and example 18 runs.
LEFT_OUT_thread += $(addprefix tests/cli/,entropy_map.sh y4m_filter.sh)
# Figures, settings and texts, in kernels that are the tests' own: what they do to memory test_pipeline,
# test_staging, test_positioned, test_devices_shares and both tortures do as well. scarce.sh runs eight of the
# tests in six surroundings; ThreadSanitizer has it.
LEFT_OUT_address += $(addprefix tests/test_,choices verdict plan kernels_reductions devices)
LEFT_OUT_address += $(addprefix examples/,16_inference 19_doctor 28_published_table)
# Runs beside others, and on several GPUs: both tortures and test_resources have their memory, ThreadSanitizer them.
LEFT_OUT_address += $(addprefix tests/test_,beside devices_resources)
# Times on the modelled clock, of pipelines and kernels that the others have as well.
LEFT_OUT_address += $(addprefix tests/host/test_,published_table closed_forms)
LEFT_OUT_address += tests/cli/scarce.sh
# hcc builds hostcuda by itself for each sanitizer.
LEFT_OUT_thread  += tests/cli/hcc.sh
LEFT_OUT_address += tests/cli/hcc.sh
# Scripts that `make check` leaves to `make check-all`: a minute each, as hcc and the exercises build hostcuda
# anew; photographs, MPI and Python, which are users of the library, half a minute each.
LEFT_OUT_brief := $(if $(BRIEF),$(addprefix tests/cli/,hcc.sh scarce.sh exercises.sh y4m_filter.sh mpi.sh python.sh))
LEFT_OUT     ?=
LEFT_OUT_now := $(NOT_THREADED) $(LEFT_OUT_brief) $(if $(and $(LEFT_OUT),$(SAN)),$(LEFT_OUT_both) $(LEFT_OUT_$(SAN)))
RUN_TESTS    := $(filter-out $(LEFT_OUT_now),$(RUN_TESTS))
EXAMPLES     := $(filter-out $(LEFT_OUT_now),$(EXAMPLES))
SCRIPTS      := $(filter-out $(LEFT_OUT_now),$(SCRIPTS))

.PHONY: build-all build-tests build-examples
build-tests:    $(addprefix $(BUILD)/,$(RUN_TESTS) $(MISSING_EVENT) tests/tools/pgm_to_png $(if $(filter host,$(BACKEND)$(SAN)),$(COURSE)))
build-examples: $(addprefix $(BUILD)/,$(EXAMPLES))

# Many programs are compiled as one where all are wanted (JOIN=yes): most of what each compiles is
# streampipe.h. Plain, 110 programs take 40 CPU seconds instead of 150, with AddressSanitizer 70 instead of 270.
# Groups are large, because each compiles streampipe.h once more: 2 CPU seconds plain, 5 with AddressSanitizer.
# APART: with flags of their own, a limit on their memory, or a file that takes functions out of the headers behind it; and
# 06_first_pipeline, in whose 16 MB of static arrays LeakSanitizer looks for pointers when any program of the group ends.
JOIN  ?=
APART := $(PER_THREAD) $(addprefix examples/,mpi_stream $(if $(SAN),,13_picture 18_y4m_filter)) tests/host/test_hostcuda_per_thread
APART += $(if $(filter address,$(SAN)),examples/06_first_pipeline)
APART += $(addprefix tests/fuzz/test_fuzz_,readers files surface) $(if $(SAN),,tests/torture/test_races tests/test_kernels_%)
# Instrumented, tests in C are compiled as C++ with the others, as the library is: 4 CPU seconds less for each with
# AddressSanitizer; so is the example in C. The plain build has them in C. With UBSan two stay in C: they give enums values that C++ does not allow.
C_ONLY   := $(if $(filter address,$(SAN)),$(addprefix tests/test_,arguments misused_objects))
JOINED_C := $(if $(SAN),$(wildcard $(addsuffix .c,$(filter-out $(C_ONLY),$(filter tests/test_% examples/%,$(RUN_TESTS) $(EXAMPLES))))))
ifeq ($(BACKEND)-$(JOIN),host-yes)
JOINED := $(shell AWK=$(AWK) SAN=$(SAN) tests/tools/join --groups 40 $(wildcard $(addsuffix .cu,$(filter-out $(APART),$(RUN_TESTS) $(EXAMPLES)))) $(JOINED_C))
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
$(GROUPS:=.cu.o): CXXFLAGS += -Ihostcuda/nccl
# They take longest, so they start first.
build-all build-joined: $(GROUPS)
endif
build-all: build-tests build-examples

# On a GPU programs run one after another. Without one they take all processors, the longest first and the tests of
# the library last, as those are short; only what counts the processors, or
# measures how fast they are, runs before them, alone.
TIMING   := $(addprefix run/,$(if $(SAN),,tests/cli/loader.sh))
# With HOSTCUDA_FREE=1 threads run as the system lets them, not in the order of the modelled clock, as they do on a GPU.
FREE     := $(if $(filter host,$(BACKEND)),$(if $(filter address,$(SAN)),,$(addprefix run/free/,$(filter $(addprefix \
    tests/test_,engine sources stages pull pipeline host_stages),$(RUN_TESTS)))))
RUNS     := $(FREE) $(addprefix run/,$(SCRIPTS) $(if $(EXAMPLES),examples) $(filter-out $(TESTS),$(RUN_TESTS)) \
    $(filter $(TESTS),$(RUN_TESTS)) $(if $(filter thread,$(SAN)),tests/host/missing_event))
TOGETHER := $(if $(filter host,$(BACKEND)),$(filter-out $(TIMING),$(RUNS)))
comma    := ,

# The scripts see these. An instrumented program must say a fault through its exit status.
# max_uar_stack_size_log: what has returned is kept in 2^17 bytes for each size of frame, not 2^20, for every
# thread and fiber: these stay in the cache and are cheap to map; test_plan takes 6 s instead of 16.
export BUILD BACKEND SAN CC CXX NVCC CUDA_HOME JOBS AWK LAYOUT PROSE
# history_size=0: of the other thread's access ThreadSanitizer keeps the stack for 2^15 accesses, not 2^17, which takes a tenth
# less; a race whose stack is gone is reported without it. To look at one, set a size up to 7.
# atexit_sleep_ms=50: at its end a program waits for races of threads that still run, by default for 1 s.
# clear_shadow_mmap_threshold=16384: what it knows of a new thread's stack is dropped by the system, not cleared.
# no_huge_pages_for_shadow=0: large pages for what ThreadSanitizer knows of each byte; test_beside takes 9.7 s instead of 14.
export TSAN_OPTIONS ?= exitcode=66 second_deadlock_stack=1 history_size=0 atexit_sleep_ms=50 no_huge_pages_for_shadow=0 \
    clear_shadow_mmap_threshold=16384
export ASAN_OPTIONS ?= detect_leaks=1 detect_stack_use_after_return=1 max_uar_stack_size_log=17
export UBSAN_OPTIONS ?= print_stacktrace=1
# `make check-all` watches the last 16 MB that were freed, not 256; test_buffers takes a tenth less.
ifneq ($(LEFT_OUT),)
ASAN_OPTIONS := $(filter-out quarantine_size_mb=16,$(ASAN_OPTIONS)) quarantine_size_mb=16
endif

# Without a GPU nothing real is timed, so a thread that wakes up need not interrupt another: tests run as batch jobs.
# With PIN below, twelve slow test programs take 92 CPU seconds instead of 136, most of which went into switching threads.
ifeq ($(BACKEND),host)
export BATCH := $(shell chrt -b 0 true 2>/dev/null && echo chrt -b 0)
# Test programs keep the memory and the thread stacks that they free, and use large pages. Otherwise a test that makes many
# pipelines spends half of its time on page faults: test_beside takes 18 s; without large pages and kept stacks 7 s, with all
# of it 5 s. Only glibc reads these variables. Benchmarks run without them, because they time new pages.
KEEP_PAGES := MALLOC_MMAP_THRESHOLD_=1073741824 MALLOC_TRIM_THRESHOLD_=2147483648 \
    GLIBC_TUNABLES=glibc.malloc.hugetlb=1:glibc.pthread.stack_cache_size=1073741824
endif
# Threads' stacks of 2 MiB, not 8: a sanitizer clears what it knows of each new one; with ThreadSanitizer test_failures
# takes 6 s instead of 11. With 512 KiB test_devices_resources has too little.
SMALL_STACKS := $(if $(SAN),ulimit -s 2048;)

# On fewer than four processors each test program, and the examples, are also kept on one: two run at once, so they have
# no more than that anyway, and their threads need not wake each other across processors. Not with ThreadSanitizer: without
# the lock of spipe_priv_drain it finds a race in 7 of 25 runs of test_pull on two processors, in none of 25 on one.
ifeq ($(BACKEND)$(SAN:address=),host)
PIN := $(shell [ $(JOBS) -lt 4 ] && command -v flock >/dev/null && taskset -cp $$$$ 2>/dev/null | sed 's/.*: //' | tr , '\n' | \
    while IFS=- read -r from to; do seq $$from $${to:-$$from}; done)
endif

# If one of many has a fault, or two of them do not go together, each is compiled alone: only the one at fault is missing.
# `make check-all` then fails even if all compile alone, as compiling nine programs so took 45 CPU seconds of each run.
missing     = for p in $(sort $(addprefix $(BUILD)/,$(RUN_TESTS) $(EXAMPLES))); do [ -x $$p ] || echo $$p; done
build_alone = alone=$$($(missing) | tr '\n' ' '); [ -z "$$alone" ] || { echo "      compiled alone: $$alone"; $(call build,$$alone); \
    [ -z "$(THOROUGH)$(LEFT_OUT)" ] || [ -n "$$($(missing))" ] || tests/tap_run --failed "programs compiled as one" "they compile only alone"; }

# What .ci/run builds while it installs what the other parts need.
.PHONY: part-joined build-joined
part-joined:
	$(call heading,building$(SAN:%= with -fsanitize=%))
	@+$(call build,build-joined JOIN=yes)

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
# These look at how busy the processors are.
UNTOUCHED := $(addprefix run/tests/test_,choices busy_machine)
$(UNTOUCHED): BATCH :=
$(UNTOUCHED): PIN :=
# A stack for each of 1,024 threads, a page of each used: large pages are cleared for nothing, 12 s instead of 6.
run/tests/host/test_hostcuda_kernels: export TSAN_OPTIONS := $(TSAN_OPTIONS) no_huge_pages_for_shadow=1
$(addprefix run/,$(RUN_TESTS)): run/%: ; @$(SMALL_STACKS) $(KEEP_PAGES) BATCH="$(BATCH)" PIN="$(PIN)" $(call RUN,$*) $(BUILD)/$*
$(FREE): run/free/%: ; @HOSTCUDA_FREE=1 $(SMALL_STACKS) $(KEEP_PAGES) BATCH="$(BATCH)" PIN="$(PIN)" $(call RUN,free/$*) $(BUILD)/$*
$(addprefix run/,$(SCRIPTS)):   run/%: ; @$(call RUN,$*) sh $*
run/examples:                        ; @$(SMALL_STACKS) $(KEEP_PAGES) PIN="$(PIN)" $(call RUN,examples) tests/tools/examples --tap $(BACKEND) $(BUILD) $(EXAMPLES)
run/tests/host/missing_event:        ; @$(call RUN,tests/host/missing_event) tests/tools/missing_event $(BUILD)/tests/host/missing_event

# These need no device: they build on the plain host backend, whatever BACKEND and SAN say.
SCRIPT = OUT=build/$(1) tests/tap_run "$(2)" build/tap/$(1).tap
PARTS := $(addprefix part-,compile compile-short rules analyzers docs texts platforms)
# In the order in which they start: the longest first.
DOCS  := $(addprefix docs-,docs docs-self figures dist install links run-self)
.PHONY: $(PARTS) $(DOCS) docs-rules docs-consumer
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
	@+$(submake) $(parallel) $(if $(filter later,$(CONSUMER)),,docs-consumer) $(DOCS) $(if $(filter part-texts,$@),docs-rules)
# docs-consumer beside tests has no prerequisite, because it would have to wait for that while make starts the others.
docs-docs docs-docs-self docs-figures docs-dist $(if $(filter yes,$(CONSUMER)),,docs-consumer): | $(RUNTIME)
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
$(PARTS):
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
