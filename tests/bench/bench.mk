# Measure:
# Each target builds a program of tests/bench and runs it. It ends with 77 where there is no GPU.

# The programs of tests/bench by themselves: `make bench` wants a quiet GPU for over half an hour,
# with BENCH_ARGS=--quick for a few minutes, with BENCH_ARGS=--charts, which measures what
# docs/PERFORMANCE.md shows, for under 4.
BENCHES := bench async_sample multicopy_sample
BENCHED := $(addprefix $(BUILD)/tests/bench/,$(BENCHES) kernels)

# CUDASTF is in no toolkit: CCCL_HOME is where the sources of NVIDIA/cccl are (3.4.2 was tried). They
# come by -I: nvcc looks into its own, older ones before what comes by -isystem.
STF :=
ifneq ($(and $(CCCL_HOME),$(filter cuda,$(BACKEND))),)
STF := $(BUILD)/tests/bench/peers/stf_pipeline
$(STF).cu.o: NVFLAGS += --expt-relaxed-constexpr --extended-lambda \
    $(addprefix -I$(CCCL_HOME)/,cudax/include libcudacxx/include cub thrust)
$(STF): LIBS = -lcuda
-include $(addsuffix .cu.d,$(STF))
endif

bench: $(BENCHED) $(STF) ## measure on a GPU: against the bound, hand-written schedules, PyTorch, CuPy, CUDASTF (CCCL_HOME=)
	@mkdir -p build/bench; failed=0; \
	for b in $(BENCHES); do \
	    $(BUILD)/tests/bench/$$b $(if $(CHARTS),,--targets) $(BENCH_ARGS) || [ $$? = 77 ] || failed=1; done; \
	$(if $(CHARTS),,$(BUILD)/tests/bench/kernels || [ $$? = 77 ] || failed=1;) \
	$(peers) exit $$failed
CHARTS    := $(filter --charts,$(BENCH_ARGS))
PEER_ARGS ?= $(if $(CHARTS),--rounds 7 --sweep-rounds 2)

bench-peers: $(STF) ## only the other libraries of make bench: PyTorch, CuPy, CUDASTF; PEER_ARGS=--rounds N; under 2 minutes
	@failed=0; $(peers) exit $$failed
peers = for p in torch cupy; do python3 -B tests/bench/peers/$${p}_pipeline.py $(PEER_ARGS) || [ $$? = 77 ] || failed=1; done; \
	$(stf) || [ $$? = 77 ] || failed=1;
stf   = $(if $(and $(STF),$(filter yes,$(CAN_RUN))),$(STF) $(PEER_ARGS),echo "CUDASTF is left out: \
	$(if $(STF),$(NO_GPU),it needs BACKEND=cuda CCCL_HOME=FOLDER with the sources of NVIDIA/cccl)")

# The runtime as a library of its own, so that its instructions can be told from streampipe.h's.
$(BUILD)/tests/bench/steps: CUDART = shared
$(BUILD)/tests/bench/steps: LIBS = -Xlinker -rpath -Xlinker $(CUDA_HOME)/lib64

bench-steps: $(BUILD)/tests/bench/steps ## on a GPU: the library's share of the instructions of a run on the CPU; 2 minutes
	@$(BUILD)/tests/bench/steps || [ $$? = 77 ]

# Two versions of the header in one process: each in a shared object of its own, on one runtime. The
# old one is taken out of git once; where there is no git, its file in the build folder serves.
OLD_COMMIT ?= 92d2c76
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
	$(Q)git show $(OLD_COMMIT):streampipe.h > $@ || \
	    { echo "no git here: put that commit's header at $@" >&2; exit 1; }
$(VERSUS)_old.cu.o: OLD = -I$(BUILD)/old/$(OLD_COMMIT)
$(VERSUS)_old.cu.o: $(BUILD)/old/$(OLD_COMMIT)/streampipe.h
$(VERSUS)_old.cu.o $(VERSUS)_new.cu.o: tests/bench/versus_side.cu $(BUILD)/flags
	@printf '  %-4s %s\n' CU $(@F); mkdir -p $(@D) && rm -f $@
	$(Q)$(firstword $(COMPILE_side)) $(OLD) $(wordlist 2,99,$(COMPILE_side)) \
	    -MMD -MP -MF $(@:.o=.d) -MT $@ -c $< -o $@
$(VERSUS_SIDES): %.so: %.cu.o ; $(Q)$(LINK_side)
-include $(VERSUS_SIDES:.so=.cu.d)

# The header without one mechanism at a time, each in a shared object of its own.
ABLATE := $(BUILD)/tests/bench/ablate
$(ABLATE): LIBS = -rdynamic -ldl
ifeq ($(BACKEND),host)
LINK_ablate = $(CXX) $(SANFLAGS) -shared @O.o -o @O
else
$(ABLATE): CUDART = shared
$(ABLATE): LIBS = -Xlinker -rpath -Xlinker $(CUDA_HOME)/lib64 -ldl
LINK_ablate = $(NVCC) -arch=$(ARCH) -ccbin $(CXX) -cudart shared -shared @O.o -o @O
endif
ablate: $(ABLATE) ## on a GPU: each mechanism of the library taken out once: its lines, what it gains; about 8 minutes; ABLATE_ARGS=--rounds N
	@tests/bench/ablate --out $(BUILD)/ablate --compile '$(firstword $(COMPILE_side)) -I@H \
	    $(wordlist 2,99,$(COMPILE_side)) -c tests/bench/ablate_side.cu -o @O.o && $(LINK_ablate)' \
	    $(ABLATE) $(ABLATE_ARGS) || [ $$? = 77 ]

bench-versus: $(VERSUS) $(VERSUS_SIDES) ## on a GPU: the header of OLD_COMMIT beside this one, 336 kinds of work; under 10 minutes
	@$(VERSUS) $(VERSUS_ARGS) || [ $$? = 77 ]

bench-files: $(BUILD)/tests/bench/files $(BUILD)/examples/14_loader ## on a GPU: files, against threads by hand, fio and more; which targets are met; BENCH_ARGS=--quick, --folder F
	@$(BUILD)/tests/bench/files $(BENCH_ARGS) || [ $$? = 77 ]

bench-many: $(BUILD)/tests/bench/many ## on a GPU: 1 to 64 threads at once: with resources and without, by hand, by PyTorch; BENCH_ARGS=--quick
	@failed=0; $(BUILD)/tests/bench/many $(BENCH_ARGS) || [ $$? = 77 ] || failed=1; \
	python3 -B tests/bench/peers/torch_threads.py $(BENCH_ARGS) || [ $$? = 77 ] || failed=1; exit $$failed

bench-rings: $(BUILD)/tests/bench/rings ## on a GPU: arrays and files that are staged, against the best ring by hand; which targets are met; BENCH_ARGS=--quick, --cpus N
	@$(BUILD)/tests/bench/rings $(BENCH_ARGS) || [ $$? = 77 ]

# liburing is used where it is installed.
ifneq ($(wildcard /usr/include/liburing.h),)
$(BUILD)/tests/bench/direct_reads.c.o: CFLAGS += -DWITH_URING
$(BUILD)/tests/bench/direct_reads: LIBS = -luring
endif
FOLDER ?= build
bench-direct: $(BUILD)/tests/bench/direct_reads ## without a GPU, FOLDER=build: reads past the page cache, through a block, straight, by io_uring
	@$(BUILD)/tests/bench/direct_reads $(FOLDER) $(BENCH_ARGS)

bench-multi: $(BUILD)/tests/bench/multi ## measure several GPUs of this host, 2 or more; under 4 minutes
	@$(BUILD)/tests/bench/multi $(BENCH_ARGS) || [ $$? = 77 ]

bench-host: ## without a GPU: seconds and bytes to compile a call of spipe_run; instructions per chunk (valgrind)
	@OUT=build/bench-host tests/bench/compile_cost; status=$$?; OUT=build/bench-host tests/bench/host && exit $$status
