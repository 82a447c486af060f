// Summary reads the events of `go test -json` and prints what a person wants to see of them: the
// output of each test that failed, a line for each package, and at the very end
//
//	N passed, N failed, N skipped
//
// The numbers count tests and subtests. A test that never ended has failed. A package that fails
// without a failed test (it does not build, its TestMain exits) counts as one failure, so that the
// last line never looks better than the run was. The exit code is 1 if anything failed, if no
// package was tested, and, with CI=true, if a test was skipped.
//
// Be aware: a wrong flag never becomes an event. Run it behind pipefail, so that the exit code of
// go test counts too.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

func main() {
	s := summary{out: os.Stdout, running: map[string]*suite{}, count: map[string]int{}}
	if err := s.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "summary:", err)
		os.Exit(1)
	}
	if !s.close(os.Getenv("CI") == "true") {
		os.Exit(1)
	}
}

// event is the part of a line that matters here; `go doc test2json` and `go help buildjson` tell
// the rest.
type event struct{ Action, Package, Test, Output string }

// suite is a package whose tests are under way: the output so far of each unfinished test, the
// package's own under no name, and the report on those that failed.
type suite struct {
	output map[string]string
	report string
}

type summary struct {
	out      io.Writer
	running  map[string]*suite
	packages int
	count    map[string]int // of tests, by the action that ended them
	skips    string
}

func (s *summary) read(in io.Reader) error {
	for events := json.NewDecoder(in); ; {
		var e event
		if err := events.Decode(&e); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read test events: %w", err)
		}
		s.add(e)
	}
}

func (s *summary) add(e event) {
	// said by a build, whose failure comes back as that of every package in need of it
	if e.Package == "" {
		fmt.Fprint(s.out, e.Output)
		return
	}
	p := s.running[e.Package]
	if p == nil {
		p = &suite{output: map[string]string{"": ""}}
		s.running[e.Package] = p
	}
	switch e.Action {
	case "run":
		p.output[e.Test] = ""
	case "output":
		p.say(e)
	case "pass", "fail", "skip":
		if e.Test == "" {
			s.endPackage(p, e)
		} else {
			s.endTest(p, e)
		}
	}
}

// stage matches the lines about a test's progress, which nobody reads afterwards.
var stage = regexp.MustCompile(`^=== (RUN|PAUSE|CONT|NAME) `)

func (p *suite) say(e event) {
	said, known := p.output[e.Test]
	switch {
	case stage.MatchString(e.Output):
	case !known:
		p.output[""] += e.Output
	case strings.HasPrefix(e.Output, "--- "): // the verdict: it comes last and is best read first
		p.output[e.Test] = e.Output + said
	default:
		p.output[e.Test] += e.Output
	}
}

func (s *summary) endTest(p *suite, e event) {
	s.count[e.Action]++
	switch e.Action {
	case "fail":
		p.report += p.output[e.Test]
	case "skip":
		s.skips += e.Package + "\n" + p.output[e.Test]
	}
	delete(p.output, e.Test)
}

func (s *summary) endPackage(p *suite, e event) {
	delete(s.running, e.Package)
	s.packages++
	own := p.output[""]
	delete(p.output, "")
	if e.Action != "fail" {
		if _, line, ok := strings.Cut("\n"+own, "\nok  "); ok {
			fmt.Fprint(s.out, "ok  "+line)
		}
		return
	}
	for _, name := range slices.Sorted(maps.Keys(p.output)) {
		e.Test = name
		p.say(event{Test: name, Output: fmt.Sprintf("--- FAIL: %s (did not end)\n", name)})
		s.endTest(p, e)
	}
	if p.report == "" {
		s.count["fail"]++
	}
	fmt.Fprint(s.out, p.report, strings.TrimPrefix(own, "FAIL\n"))
}

func (s *summary) close(strict bool) (ok bool) {
	for _, name := range slices.Sorted(maps.Keys(s.running)) {
		s.add(event{Package: name, Action: "output", Output: "FAIL\t" + name + "\t[cut short]\n"})
		s.add(event{Package: name, Action: "fail"})
	}
	if strict && s.skips != "" {
		fmt.Fprint(s.out, "\nskipped, which CI=true does not allow:\n", s.skips)
	}
	fmt.Fprintf(s.out, "\n%d passed, %d failed, %d skipped\n", s.count["pass"], s.count["fail"],
		s.count["skip"])
	return s.packages > 0 && s.count["fail"] == 0 && !(strict && s.count["skip"] > 0)
}
