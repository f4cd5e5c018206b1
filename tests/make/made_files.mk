# Make files from other files (lint and tests compare them):

.PHONY: amalgamate
amalgamate: ## write streampipe.h from its modules in src/, in the order of src/order
ifeq ($(wildcard src/order),)
	@echo "src/order is not there, so streampipe.h has no modules to be made from" >&2; exit 1
else
	@mkdir -p build && src/amalgamate > build/streampipe.h && \
	    { cmp -s build/streampipe.h streampipe.h || cp build/streampipe.h streampipe.h; }
endif

.PHONY: api
api: ## write docs/API.md from the contracts in the headers
	@mkdir -p build && src/api_page > build/API.md && { cmp -s build/API.md docs/API.md || cp build/API.md docs/API.md; }

.PHONY: charts
charts: ## from tests/bench/results/*.json: the charts of docs/PERFORMANCE.md, the tables of tests/bench/RESULTS.md
	@mkdir -p docs/pictures build && tests/bench/charts docs/pictures
	@tests/bench/tables tests/bench/RESULTS.md > build/RESULTS.md && \
	    { cmp -s build/RESULTS.md tests/bench/RESULTS.md || cp build/RESULTS.md tests/bench; }

.PHONY: format
format: ## run clang-format on the files whose layout lint checks (LAYOUT in tests/make/programs.mk)
	@files=$$(tests/lint/layout_files); [ -z "$$files" ] || clang-format -i $$files
.PHONY: mistakes
mistakes: ## write docs/MISTAKES.md: each mistake that the library can see, with its message
	@+$(submake) BACKEND=host SAN= build/host/tests/test_mistakes && build/host/tests/test_mistakes --page > docs/MISTAKES.md
.PHONY: expect
expect: ## write into each example's comment what it prints on hostcuda; check the difference before a commit
	@+$(submake) BACKEND=host SAN= examples || true # what is not as said yet
	@for source in examples/*.c examples/*.cu examples/systems/*.cu; do \
	    log=build/host/$${source%.*}.log; [ -s "$$log" ] || continue; \
	    tests/tools/expected --write $$source $$log > build/expected && \
	        { cmp -s build/expected $$source || cp build/expected $$source; }; done
