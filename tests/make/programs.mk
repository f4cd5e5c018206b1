# Programs: how they are compiled, which there are, and what some examples need besides.

# ---- How things are compiled ----------------------------------------------------------------------

BUILD := build/$(BACKEND)$(addprefix -,$(SAN))
WARN  := -Wall -Wextra -Wshadow -Wconversion -pedantic -Werror

# A report of undefined behaviour must end the program, or its tests would still say ok.
SANFLAGS_thread  := -fsanitize=thread -fno-omit-frame-pointer
SANFLAGS_address := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
# `make check-all` (LEFT_OUT=yes) leaves out two checks of UBSan, which take a fifth of what that compiles: an access to a null
# pointer AddressSanitizer reports, too; of an address beyond the address space it sees only the use.
SANFLAGS_address += $(if $(LEFT_OUT),-fno-sanitize=null -fno-sanitize=pointer-overflow)
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
# Two files that include all of hostcuda's: half of what each of those takes to compile are the headers.
RUNTIME  := $(BUILD)/hostcuda/part_1.cpp.o $(BUILD)/hostcuda/part_2.cpp.o
# tests/cli/python.sh links it into a shared object.
RUNTIME_FLAGS := -fPIC
# For stacks that are used after a return AddressSanitizer gives each thread memory of its own, a third of the tests' time. In
# `make check-all` hostcuda's own functions do without, so streams that only copy have none; `make sanitize` has all of it.
ifeq ($(SAN)-$(LEFT_OUT),address-yes)
RUNTIME_FLAGS += $(shell echo 'int x;' | $(CXX) --param asan-use-after-return=0 -x c++ -fsyntax-only - 2>/dev/null && \
    echo --param asan-use-after-return=0)
endif
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
# The longest first: the one that runs tests in six surroundings, those that build hostcuda once more. Two mostly wait,
# hostile.sh and mpi.sh: not side by side, or with three at once a processor has nothing to do, for 18 s.
SCRIPTS   := $(addprefix tests/cli/,scarce.sh hostile.sh hcc.sh exercises.sh mpi.sh python.sh)
SCRIPTS   += $(filter-out tests/cli/tap.sh $(SCRIPTS),$(wildcard tests/cli/*.sh))

RUN_TESTS := $(TESTS) $(if $(filter host,$(BACKEND)),$(TESTS_HOST))
# Not a test by itself: one of its two pipelines lacks an event wait, for ThreadSanitizer to find.
MISSING_EVENT := $(if $(filter host,$(BACKEND)),$(basename $(wildcard tests/host/missing_event.cu)))
PROGRAMS  := $(addprefix $(BUILD)/,tests/tools/pgm_to_png docs/course/pictures \
    $(TESTS) $(TESTS_HOST) tests/host/missing_event $(EXAMPLES) \
    $(addprefix tests/bench/,ablate bench async_sample costs direct_reads files many multicopy_sample kernels multi rings steps sweep versus))

# What `make format` writes and lint holds to the layout rules (clang-format, one statement a line, no
# nested ?:, no comma operator). And the texts that keep theirs.
LAYOUT ?= src extras streampipe_kernels.cuh hostcuda tests examples docs
PROSE  ?= $(filter-out docs/API.md docs/MISTAKES.md,\
    $(wildcard *.md docs/*.md docs/*/*.md */README.md tests/bench/*.md .github/*.md .github/*/*.md))
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

# hostcuda_kernel.cpp first, because it defines what macOS wants to see before any header.
HOSTCUDA := hostcuda/hostcuda_kernel.cpp $(filter-out hostcuda/hostcuda_kernel.cpp,$(sort $(wildcard hostcuda/*.cpp)))
define hostcuda_part
$(BUILD)/hostcuda/part_$(1).cpp: FORCE
	@mkdir -p $$(@D) && printf '#include "%s"\n' $(HOSTCUDA) | $(AWK) 'NR % 2 == $(1) % 2' > $$@.new && \
	    { cmp -s $$@.new $$@ && rm $$@.new || mv $$@.new $$@; }
endef
$(foreach part,1 2,$(eval $(call hostcuda_part,$(part))))
$(BUILD)/hostcuda/%.cpp.o: $(BUILD)/hostcuda/%.cpp $(BUILD)/flags ; $(call compile,CXX,$(CXX) $(CXXFLAGS) $(RUNTIME_FLAGS))

$(BUILD)/$(PER_THREAD).cu.o: examples/03_default_stream.cu $(BUILD)/flags
	$(call compile,CU,$(COMPILE_cu) $(if $(filter cuda,$(BACKEND)),--default-stream per-thread,-DCUDA_API_PER_THREAD_DEFAULT_STREAM=1))

# hostcuda and the examples' kernels: they run longer than the optimiser takes.
ifeq ($(BACKEND)$(SAN)$(origin OPT),hostfile)
RUNTIME_FLAGS += -O1
$(BUILD)/examples/%.o $(BUILD)/joined/examples_%.o $(BUILD)/$(PER_THREAD).cu.o: CXXFLAGS += -O1
endif

# Each is compiled alone and runs for less than a second: not optimised, it takes half of its 2.5 to 5 CPU seconds.
# What an optimiser would warn of in them the sanitizers' builds show, and `make platforms` takes for an error.
LIGHT := $(addprefix tests/,test_misused_objects test_arguments test_errors test_staging host/test_nvtx \
    fuzz/test_fuzz_readers torture/test_races)
ifeq ($(BACKEND)$(SAN)$(origin OPT),hostfile)
$(patsubst %,$(BUILD)/%.o,$(wildcard $(LIGHT:=.c))): CFLAGS += -O0
$(patsubst %,$(BUILD)/%.o,$(wildcard $(LIGHT:=.cu))): CXXFLAGS += -O0
endif

# hostcuda's test of the same.
$(BUILD)/tests/host/test_hostcuda_per_thread.cu.o: CXXFLAGS += -DCUDA_API_PER_THREAD_DEFAULT_STREAM=1

# NCCL for the two examples that need it: NCCL_HOME, the system's, or that of python3's packages (nvidia-nccl-cu13,
# which torch brings). Without it these are built to say so; they are built anew when it has come. hostcuda has a stand-in.
DDP := $(BUILD)/examples/ddp_buckets $(BUILD)/examples/systems/ddp_train
ifeq ($(BACKEND),host)
$(DDP:=.cu.o): CXXFLAGS += -Ihostcuda/nccl
else
ifeq ($(or $(NCCL_HOME),$(filter %ddp_buckets %ddp_train examples check test build-all build-examples part-test,$(MAKECMDGOALS))),)
NCCL_HOME :=
else ifeq ($(NCCL_HOME),)
NCCL_HOME := $(patsubst %/include/nccl.h,%,$(firstword $(wildcard $(addsuffix /include/nccl.h,/usr /usr/local $(CUDA_HOME) \
    $(shell python3 -c 'import nvidia; print(*[p + d for p in nvidia.__path__ for d in ("/nccl", "/cu13")])' 2>/dev/null)))))
endif
NCCL_LIB := $(firstword $(wildcard $(addprefix $(NCCL_HOME)/,lib/libnccl.so lib/libnccl.so.2 \
    lib64/libnccl.so lib64/libnccl.so.2 lib/*/libnccl.so lib/*/libnccl.so.2)))
ifneq ($(NCCL_LIB),)
$(DDP:=.cu.o): NVFLAGS += $(addprefix -isystem ,$(addsuffix /include,$(filter-out /usr /usr/local,$(NCCL_HOME))))
$(DDP): LIBS = -Xlinker $(NCCL_LIB) -Xlinker -rpath -Xlinker $(patsubst %/,%,$(dir $(NCCL_LIB)))
endif
$(DDP:=.cu.o): $(BUILD)/nccl
$(BUILD)/nccl: FORCE
	@mkdir -p $(@D); echo '$(NCCL_LIB)' | cmp -s - $@ || echo '$(NCCL_LIB)' > $@
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
