# The browser view, and the plug-in for Headlamp.

.PHONY: headlamp
headlamp: web/node_modules/.package-lock.json ## Check, build and test the plug-in for Headlamp, which is then in web/dist.
	@mkdir -p $(OUT)
	log=$$(realpath $(OUT))/headlamp.log
	cd web; begin=$$SECONDS
	for step in lint format tsc build test; do
	  CI=true npm run --silent $$step >"$$log" 2>&1 || { cat "$$log"; echo "headlamp: npm run $$step failed"; exit 1; }
	done
	sed -n 's/^.* \(Tests .*\)/headlamp: \1/p' "$$log" | sed 's/\x1b\[[0-9;]*m//g'
	echo "headlamp: web/dist/main.js has $$(wc -c <dist/main.js) bytes; it took $$((SECONDS - begin)) s"

# Nothing of these packages is in what is built, and none of their scripts is run.
web/node_modules/.package-lock.json: web/package-lock.json
	@cd web; begin=$$SECONDS
	npm ci --no-audit --no-fund --ignore-scripts --loglevel=error
	touch node_modules/.package-lock.json
	echo "headlamp: its tools took $$((SECONDS - begin)) s"

# Open the page of the plug-in in Chromium, and make the pictures of it in docs/pictures: about ten
# minutes.
.PHONY: ui-pictures
ui-pictures: $(assets) build browser
	@BROWSER_REQUIRED=1 UI_PICTURES=$(CURDIR)/docs/pictures $(patient) go test -short -count=1 -v -timeout $(TEST_TIMEOUT) ./test/e2e/uibrowser
	BROWSER_REQUIRED=1 UI_PICTURES=$(CURDIR)/docs/pictures $(patient) go test -count=1 -v -timeout 40m ./test/perf/ui
